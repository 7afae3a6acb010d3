//! The processes that hold a volume, and its mount points. Errors about a volume in use name them.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use fuse::MountEntry;
use polder::device::{is_stored, owner_here};
use rustix::fs::{major, minor};
use zone::file::FileError;

use crate::volume::FileId;

/// The largest number of processes that a message names.
const NAMED_MAX: usize = 3;
const LOCKS: &str = "/proc/locks";

/// The text of an error and its causes. For a volume in use it names the processes that hold the volume.
pub(crate) fn explained(error: &anyhow::Error) -> String {
    let words = error.chain().map(|cause| match cause.downcast_ref() {
        Some(FileError::InUse(path)) => in_use(path),
        _ => cause.to_string(),
    });
    words.collect::<Vec<_>>().join(": ")
}

fn in_use(path: &Path) -> String {
    let shown = path.display();
    let mounts = mounts_of(path);
    let mut known: Vec<String> = processes(path).into_iter().take(NAMED_MAX).map(described).collect();
    known.extend(users_of_device(path).into_iter().map(|user| format!("the device {user}")));
    let places: Vec<String> = mounts.iter().map(|entry| entry.directory.display().to_string()).collect();
    if !places.is_empty() {
        known.push(format!("mounted on {}", places.join(", ")));
    }
    let holders = match known.is_empty() {
        true => String::new(),
        false => format!(" ({})", known.join(", ")),
    };
    let advice = match mounts.first() {
        Some(entry) if entry.is_ours() || entry.is_view() => {
            format!("unmount it with `polder umount {}`", entry.directory.display())
        }
        _ => "unmount it or end that process first".to_owned(),
    };
    format!("{shown} is in use by another process{holders}; {advice}")
}

/// The mounts with this source in the table of mounts.
fn mounts_of(path: &Path) -> Vec<MountEntry> {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut table = fuse::mount::table().unwrap_or_default();
    table.retain(|entry| entry.source == path);
    table
}

/// The processes that have locked a file or device, from the table of locks and the open files of processes. The owner of a
/// volume in an object store, if it is on this machine.
pub(crate) fn processes(path: &Path) -> Vec<u32> {
    if is_stored(path) {
        return owner_here(path).into_iter().collect();
    }
    let (Ok(about), Ok(meant)) = (std::fs::metadata(path), FileId::of(path)) else { return Vec::new() };
    let own = std::process::id();
    let mut found: Vec<u32> = std::fs::read_to_string(LOCKS)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| holder_in(line, about.ino()))
        .filter(|&pid| pid != own && has_open(pid, &meant))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The process in a line of the table of locks, if the line is a lock of a whole file with this inode number. Device
/// numbers are not compared, because they differ from the attributes of the file in some file systems.
fn holder_in(line: &str, inode: u64) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let kind = words.next()?;
    // The line of a waiting process has an arrow before the kind of lock.
    let pid = words.by_ref().nth(2)?;
    let file = words.next()?;
    let of_inode = file.rsplit(':').next()?.parse() == Ok(inode);
    (kind == "FLOCK" && of_inode).then(|| pid.parse().ok())?
}

fn has_open(pid: u32, meant: &FileId) -> bool {
    match std::fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(open) => open.flatten().any(|entry| FileId::of(&entry.path()).is_ok_and(|found| found == *meant)),
        // If the process has ended, a child has inherited the lock. The open files of another user's process are not
        // readable.
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

fn described(pid: u32) -> String {
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid}, {}", crate::name::in_line(name.trim_end().as_bytes())),
        Err(_) => format!("process {pid}"),
    }
}

/// The devices that use this one, for example encrypted devices or RAID arrays.
fn users_of_device(path: &Path) -> Vec<String> {
    let Ok(about) = std::fs::metadata(path) else { return Vec::new() };
    if !about.file_type().is_block_device() {
        return Vec::new();
    }
    let (major, minor) = (major(about.rdev()), minor(about.rdev()));
    let users = std::fs::read_dir(format!("/sys/dev/block/{major}:{minor}/holders"));
    users
        .into_iter()
        .flatten()
        .flatten()
        .map(|user| user.file_name().to_string_lossy().into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_of_locks_are_parsed() {
        let line = "12: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF";
        assert_eq!(holder_in(line, 5678), Some(1234));
        assert_eq!(holder_in(line, 567), None);
        assert_eq!(holder_in("12: POSIX  ADVISORY  WRITE 1234 fd:01:5678 0 EOF", 5678), None);
        assert_eq!(holder_in("12: -> FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF", 5678), None);
        assert_eq!(holder_in("", 5678), None);
    }
}
