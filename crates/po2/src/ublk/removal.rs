//! Removes a device, also one that another process serves: only if it is Polder's, and not while it is in use.
//!
//! **In use.** Linux 7.0 and later can stop a device only if no process has it open. Before, the following users are
//! detected: those that claim it exclusively (a mounted file system, a mapping of devices), and every process that
//! has it open. A kernel driver that has it open without a claim (a loop device, an NVMe target) is not detected.
//!
//! **Lock.** All processes of Polder look up and use a number under one lock, and take or free it under the same
//! lock. Otherwise, if two processes remove the same device, the second could remove the next device that got its
//! number in between.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, OFlags, StatxFlags, statx};
use rustix::io::Errno;

use super::abi::DeviceInfo;
use super::control::{self, Control, is_unknown_command};
use super::{MARK, UblkError, open_served, path_of, served_path};

/// The lock for taking and freeing numbers of devices, among all processes of Polder.
pub(super) struct DriverLock {
    _driver: File,
}

impl DriverLock {
    /// Waits for the lock.
    pub(super) fn take() -> Result<DriverLock, UblkError> {
        let io = |error| UblkError::Refused("lock the driver", error);
        let driver = OpenOptions::new().read(true).write(true).open(control::PATH).map_err(io)?;
        loop {
            match rustix::fs::flock(&driver, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                done => {
                    return done.map(|()| DriverLock { _driver: driver }).map_err(|errno| io(errno.into()));
                }
            }
        }
    }
}

/// A device that a process of Polder serves, or has served; its number does not change while this exists.
pub struct ServedDevice {
    control: Control,
    path: PathBuf,
    number: u32,
    _lock: DriverLock,
}

impl ServedDevice {
    /// Finds the device by the path of its block device.
    pub fn find(path: &Path) -> Result<ServedDevice, UblkError> {
        let (control, number) = (Control::open()?, number_of(path)?);
        let served = ServedDevice { control, path: path.to_owned(), number, _lock: DriverLock::take()? };
        match served.info()?.server_flags {
            MARK => Ok(served),
            _ => Err(UblkError::Foreign(path.to_owned())),
        }
    }

    /// The process that serves it, also if that is about to end.
    pub fn server(&self) -> Result<Option<u32>, UblkError> {
        let server = u32::try_from(self.info()?.server).ok().filter(|&server| server > 0);
        Ok(server.or_else(|| users(&served_path(self.number)).first().copied()))
    }

    /// Stops the device, unless it is in use; its process frees the number. If its process has ended, this removes
    /// the device.
    pub fn end(self) -> Result<(), UblkError> {
        if self.info()?.server > 0 {
            return stop(&self.control, self.number, false);
        }
        match open_served(self.number) {
            Ok(opened) => {
                let removed = self.control.remove(self.number, Some(Arc::new(opened)));
                removed.map_err(|error| refusal(&self.path, "free the device's number", error))
            }
            // Its process is about to do that.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(()),
            Err(error) => Err(refusal(&self.path, "open the device that served it", error)),
        }
    }

    fn info(&self) -> Result<DeviceInfo, UblkError> {
        self.control.info(self.number).map_err(|error| refusal(&self.path, "describe the device", error))
    }
}

/// Stops the device with this number; without `force`, only if it is not in use.
pub(super) fn stop(control: &Control, number: u32, force: bool) -> Result<(), UblkError> {
    let path = path_of(number);
    let stopped = if force { control.stop(number) } else { control.stop_unused(number) };
    match &stopped {
        Err(error) if Errno::from_io_error(error) == Some(Errno::BUSY) => Err(UblkError::InUse(path)),
        Err(error) if is_unknown_command(error) => {
            let _held = hold(&path)?;
            control.stop(number).map_err(|error| refusal(&path, "stop the device", error))
        }
        _ => stopped.map_err(|error| refusal(&path, "stop the device", error)),
    }
}

/// Prevents claims of a block device, if it is not in use.
fn hold(path: &Path) -> Result<Option<File>, UblkError> {
    let users = users(path);
    let exclusive = OpenOptions::new().read(true).custom_flags(OFlags::EXCL.bits() as i32).open(path);
    match exclusive {
        _ if !users.is_empty() => Err(UblkError::InUse(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Err(UblkError::InUse(path.to_owned())),
        // A device that does not exist is not in use.
        opened => Ok(opened.ok()),
    }
}

/// The processes that have a device open, as far as that can be determined.
fn users(path: &Path) -> Vec<u32> {
    let Ok(device) = look(path) else { return Vec::new() };
    let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
    let has_it = |process: &u32| {
        let Ok(opened) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return false };
        opened.flatten().any(|opened| look(&opened.path()).is_ok_and(|opened| opened == device))
    };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    all.flatten().filter_map(number).filter(has_it).collect()
}

/// The device of a file, according to the kernel alone: the file may be on a mount whose server no longer answers.
fn look(path: &Path) -> rustix::io::Result<(FileType, u32, u32)> {
    let about = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)?;
    Ok((FileType::from_raw_mode(about.stx_mode.into()), about.stx_rdev_major, about.stx_rdev_minor))
}

fn number_of(path: &Path) -> Result<u32, UblkError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let number = name.strip_prefix("ublkb").and_then(|number| number.parse().ok());
    number.filter(|&number| path_of(number) == path).ok_or_else(|| no_device(path))
}

fn no_device(path: &Path) -> UblkError {
    UblkError::Unsuitable(format!(
        "{} is not a ublk device; name an existing one (/dev/ublkbN)",
        path.display()
    ))
}

fn refusal(path: &Path, what: &'static str, error: io::Error) -> UblkError {
    match Errno::from_io_error(&error) {
        Some(Errno::PERM) => UblkError::NotPermitted,
        Some(Errno::NODEV) => no_device(path),
        _ => UblkError::Refused(what, error),
    }
}

#[cfg(test)]
mod tests;
