//! The places that take turns: mounts of Polder, one for each transport, and ext4 and XFS on loop devices.
//!
//! All lie in one directory of the host and have the same number of bytes. Nothing of them stays: dropping a place
//! unmounts it, ends its daemon or detaches its device, and removes its file, also after a failure.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::unistd::Pid;
use serde_json::Value;
use support::shell::Line;
use tempfile::TempDir;

use crate::accept::volume::Volume;
use crate::peer::{Kind, Peer};

/// A way of requests from the kernel to the daemon, chosen by mount options.
#[derive(Debug)]
pub(super) struct Transport {
    /// Its name in tables and CSV files.
    pub(super) name: &'static str,
    /// The arguments of `polder mount`.
    options: &'static [&'static str],
    /// Whether it has the targets of FUSE over io_uring.
    pub(super) is_uring: bool,
}

impl Transport {
    /// Every transport that the command has.
    pub(super) const ALL: [Transport; 1] = [Transport { name: "dev", options: &[], is_uring: false }];

    /// The words before the titles of rows.
    pub(super) fn title(&self) -> String {
        match self.name {
            "dev" => "mount".to_owned(),
            name => format!("mount ({name})"),
        }
    }
}

/// The state of the caches before a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// As the measurement before has left it.
    Warm,
    /// Nothing is waiting to be written.
    Settled,
    /// The file system was just mounted.
    Cold,
}

/// A mounted file system.
pub(super) struct Place {
    pub(super) name: &'static str,
    system: System,
}

enum System {
    Polder(Volume),
    Peer(Peer),
}

impl Place {
    /// Creates and mounts a volume.
    pub(super) fn polder(name: &'static str, options: &[&str], bytes: u64) -> Result<Place> {
        let volume = Volume::make(&["--size", &bytes.to_string()], options)?;
        volume.mount()?;
        println!("{name}: {}", volume.geometry()?);
        Ok(Place { name, system: System::Polder(volume) })
    }

    fn peer(kind: Kind, folder: &Path, bytes: u64) -> Result<Place> {
        Ok(Place { name: kind.name(), system: System::Peer(Peer::make(kind, kind.name(), folder, bytes)?) })
    }

    /// The mount point.
    pub(super) fn dir(&self) -> PathBuf {
        match &self.system {
            System::Polder(volume) => volume.dir(),
            System::Peer(peer) => peer.dir().to_owned(),
        }
    }

    /// Whether it is a volume of ours.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.system, System::Polder(_))
    }

    /// The process that serves it, if there is one.
    pub(super) fn daemon(&self) -> Result<Option<Pid>> {
        match &self.system {
            System::Polder(volume) => volume.pid().map(Some),
            System::Peer(_) => Ok(None),
        }
    }

    /// The answer of `polder stats`.
    pub(super) fn stats(&self) -> Result<Value> {
        match &self.system {
            System::Polder(volume) => volume.stats(),
            System::Peer(_) => Err(anyhow::anyhow!("{} has no daemon", self.name)),
        }
    }

    /// The number of the kernel's connection to the daemon, which is that of its device.
    pub(super) fn connection(&self) -> Result<u32> {
        let dir = self.dir();
        let device = dir.metadata().with_context(|| dir.display().to_string())?.dev();
        Ok(rustix::fs::minor(device))
    }

    /// Brings the caches into a state.
    pub(super) fn prepare(&self, before: Before) -> Result<()> {
        match before {
            Before::Warm => Ok(()),
            Before::Settled => self.settle(),
            Before::Cold => {
                self.settle()?;
                self.remount()
            }
        }
    }

    /// Writes everything back.
    pub(super) fn settle(&self) -> Result<()> {
        Line::new("sync --file-system").arg(self.dir()).run()?;
        match &self.system {
            // The kernel sends no request to the daemon for that. The fsync of a directory does.
            System::Polder(volume) => Line::new("sync").arg(volume.dir()).run(),
            System::Peer(_) => Ok(()),
        }
    }

    fn remount(&self) -> Result<()> {
        match &self.system {
            System::Polder(volume) => {
                volume.unmount()?;
                volume.mount().map(drop)
            }
            System::Peer(peer) => peer.remount(),
        }
    }

    /// Removes all files.
    pub(super) fn clear(&self) -> Result<()> {
        for entry in std::fs::read_dir(self.dir())? {
            let entry = entry?;
            if entry.file_name() == "lost+found" {
                continue;
            }
            let path = entry.path();
            let removed = match entry.file_type()?.is_dir() {
                true => std::fs::remove_dir_all(&path),
                false => std::fs::remove_file(&path),
            };
            removed.with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    /// Ends it. A volume must be clean.
    pub(super) fn end(self) -> Result<()> {
        match self.system {
            System::Polder(volume) => {
                volume.unmount()?;
                volume.check()
            }
            System::Peer(_) => Ok(()),
        }
    }
}

/// The places of some rows.
pub(super) struct Set {
    places: Vec<Place>,
    /// The files of the loop devices. It is declared last and so removed last.
    _folder: TempDir,
}

impl Set {
    /// A mount for each transport, an ext4 and an XFS, of `bytes` each, below `host`.
    pub(super) fn make(bytes: u64, host: &Path) -> Result<Set> {
        let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(host)?;
        let ours = Transport::ALL.iter().map(|one| Place::polder(one.name, one.options, bytes));
        let peers = [Kind::Ext4, Kind::Xfs].map(|kind| Place::peer(kind, folder.path(), bytes));
        let places = ours.chain(peers).collect::<Result<_>>()?;
        Ok(Set { places, _folder: folder })
    }

    /// The places, another one first in each round.
    pub(super) fn in_turn(&self, round: u64) -> impl Iterator<Item = &Place> {
        let first = round as usize % self.places.len();
        self.places[first..].iter().chain(&self.places[..first])
    }

    /// The volumes of ours.
    pub(super) fn ours(&self) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(|place| place.is_ours())
    }

    pub(super) fn clear(&self) -> Result<()> {
        self.places.iter().try_for_each(Place::clear)
    }

    pub(super) fn end(self) -> Result<()> {
        self.places.into_iter().try_for_each(Place::end)
    }
}
