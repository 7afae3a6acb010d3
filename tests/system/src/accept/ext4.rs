//! An ext4 for comparison with a mount: in a file, and unmounted when dropped.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Result;
use support::mounts::is_mounted;
use support::shell::Line;

pub(super) struct Ext4 {
    /// The mount point.
    pub(super) dir: PathBuf,
}

impl Ext4 {
    /// Creates and mounts one of this size in a folder. Needs root.
    pub(super) fn mount(folder: &Path, bytes: u64) -> Result<Ext4> {
        let (image, dir) = (folder.join("ext4.image"), folder.join("ext4"));
        File::create_new(&image)?.set_len(bytes)?;
        std::fs::create_dir(&dir)?;
        Line::new("mkfs.ext4 -q").arg(&image).run()?;
        Line::new("mount -o loop").arg(&image).arg(&dir).run()?;
        Ok(Ext4 { dir })
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        if is_mounted(&self.dir).unwrap_or(true)
            && let Err(error) = Line::new("umount").arg(&self.dir).run()
        {
            println!("an ext4 is left behind on {}: {error:#}", self.dir.display());
        }
    }
}
