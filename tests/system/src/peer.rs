//! Other file systems for comparison: ext4 and XFS on a loop device with direct I/O, over a file in the same
//! directory as the volume.
//!
//! Nothing of it stays: dropping one unmounts it, detaches its device and removes its file.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use support::mounts::is_mounted;
use support::needs;
use support::shell::Line;

/// The column and the unit of written sectors in the kernel's `stat` of a block device, whatever the device calls a
/// sector.
const SECTORS_WRITTEN: usize = 6;
const SECTOR_BYTES: u64 = 512;

/// The file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ext4,
    Xfs,
}

impl Kind {
    /// Its name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
        }
    }

    /// Creates a file system without background initialisation. One inode for each block of ext4; XFS creates inodes
    /// as they are needed.
    fn format(self) -> Line {
        match self {
            Kind::Ext4 => Line::new("mkfs.ext4 -q -i 4096 -E lazy_itable_init=0,lazy_journal_init=0"),
            Kind::Xfs => Line::new("mkfs.xfs -q"),
        }
    }
}

/// A mounted file system.
pub(crate) struct Peer {
    pub(crate) kind: Kind,
    image: PathBuf,
    device: Option<String>,
    dir: PathBuf,
}

impl Peer {
    /// Creates one of `bytes` in a folder of its own below `folder`.
    pub(crate) fn make(kind: Kind, name: &str, folder: &Path, bytes: u64) -> Result<Peer> {
        needs::require_root("mount an ext4 and an XFS to compare with")?;
        needs::require(&[needs::EXT4, needs::XFS, needs::LOOP])?;
        let (image, dir) = (folder.join(format!("{name}.image")), folder.join(name));
        File::create_new(&image)?.set_len(bytes)?;
        let mut peer = Peer { kind, image, device: None, dir };
        std::fs::create_dir(&peer.dir)?;
        let attached = Line::new("losetup --find --show --direct-io=on").arg(&peer.image).output()?;
        let device = attached.trim().to_owned();
        peer.device = Some(device.clone());
        kind.format().arg(&device).run()?;
        peer.mount()?;
        let knob = format!("/sys/block/{}/loop/dio", name_of(&device));
        let direct = std::fs::read_to_string(&knob).with_context(|| knob.clone())?;
        ensure!(
            direct.trim() == "1",
            "{device} does not pass by the cache of the host, so nothing is like it"
        );
        Ok(peer)
    }

    /// The mount point.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Remounts it, so that the kernel's caches are empty.
    pub(crate) fn remount(&self) -> Result<()> {
        Line::new("umount").arg(&self.dir).run()?;
        self.mount()
    }

    /// Bytes written to its device so far.
    pub(crate) fn device_bytes(&self) -> Result<u64> {
        let device = self.device.as_ref().context("there is no device")?;
        let counts = format!("/sys/block/{}/stat", name_of(device));
        let text = std::fs::read_to_string(&counts).with_context(|| counts.clone())?;
        let sectors = text.split_whitespace().nth(SECTORS_WRITTEN).context(counts)?;
        Ok(sectors.parse::<u64>()? * SECTOR_BYTES)
    }

    fn mount(&self) -> Result<()> {
        let device = self.device.as_ref().context("there is no device to mount")?;
        Line::new("mount -o noatime").arg(device).arg(&self.dir).run()
    }
}

/// `loop0` of `/dev/loop0`.
fn name_of(device: &str) -> &str {
    device.rsplit('/').next().unwrap_or(device)
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut lines = Vec::new();
        if is_mounted(&self.dir).unwrap_or(true) {
            lines.push(Line::new("umount").arg(&self.dir));
        }
        lines.extend(self.device.iter().map(|device| Line::new("losetup --detach").arg(device)));
        for line in lines {
            if let Err(error) = line.run() {
                println!("{} is left behind on {}: {error:#}", self.kind.name(), self.dir.display());
            }
        }
        if let Err(error) = std::fs::remove_file(&self.image) {
            println!("{} is left behind: {error}", self.image.display());
        }
    }
}
