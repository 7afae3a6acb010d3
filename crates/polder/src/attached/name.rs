//! The socket of a volume: where it is.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use attach::Listener;
use rt::sync::atomic::{AtomicBool, Ordering};

use crate::device::id_before_opening;
use crate::runtime;

/// The socket at which the owner of a volume listens. Its name is removed when this is dropped.
///
/// Only the process that holds the lock of the volume creates it. So a name that exists already was left behind by a
/// process that was killed.
pub(crate) struct SocketName {
    path: PathBuf,
    /// The inode of the name, if it is known.
    inode: Option<(u64, u64)>,
    listener: Listener,
    is_stopped: AtomicBool,
}

impl SocketName {
    /// Listens for clients of a volume. They can connect from now on, and wait until they are accepted.
    pub(crate) fn listen(volume: &Path) -> io::Result<SocketName> {
        let path = of_volume(volume)?;
        runtime::make(&runtime::directory())?;
        // It may not exist.
        let _ = std::fs::remove_file(&path);
        let listener = Listener::bind(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        let inode = inode_of(&path);
        Ok(SocketName { path, inode, listener, is_stopped: AtomicBool::new(false) })
    }

    pub(crate) fn listener(&self) -> &Listener {
        &self.listener
    }

    /// Removes the name, and ends waiting for clients. The volume should still be locked: later the name can belong to
    /// another owner, and is left alone.
    pub(crate) fn stop(&self) {
        if !self.is_stopped.swap(true, Ordering::SeqCst) {
            if self.inode.is_some() && inode_of(&self.path) == self.inode {
                // It may have been removed with all of the directory.
                let _ = std::fs::remove_file(&self.path);
            }
            self.listener.stop();
        }
    }
}

impl Drop for SocketName {
    fn drop(&mut self) {
        self.stop();
    }
}

fn inode_of(name: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(name).ok()?;
    Some((found.dev(), found.ino()))
}

/// The name depends on the identity of the file, and on no path. All members of a volume on several devices have the
/// same name.
pub(super) fn of_volume(volume: &Path) -> io::Result<PathBuf> {
    if let Some(fs_id) = id_before_opening(volume).map_err(io::Error::other)? {
        return Ok(runtime::directory().join(format!("volume.{fs_id}.attach")));
    }
    let found = std::fs::metadata(volume)?;
    let split = |device: u64| (rustix::fs::major(device), rustix::fs::minor(device));
    let name = match found.file_type().is_block_device() || found.file_type().is_char_device() {
        true => {
            let (major, minor) = split(found.rdev());
            format!("device.{major}:{minor}.attach")
        }
        false => {
            let (major, minor) = split(found.dev());
            format!("file.{major}:{minor}.{}.attach", found.ino())
        }
    };
    Ok(runtime::directory().join(name))
}
