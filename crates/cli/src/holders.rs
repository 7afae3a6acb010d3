//! Which processes have a volume, and where it is mounted, for those that are refused because it is in use.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use fuse::MountEntry;
use rustix::fs::{major, minor};
use zone::file::FileError;

use crate::volume::FileId;

/// Processes that are named at most.
const NAMED_MAX: usize = 3;
const LOCKS: &str = "/proc/locks";

/// The words of an error and its causes, and of a volume in use who has it.
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
    let who = match known.is_empty() {
        true => String::new(),
        false => format!(" ({})", known.join(", ")),
    };
    let advice = match mounts.first() {
        Some(entry) if entry.is_ours() || entry.is_view() => {
            format!("`polder umount {}` unmounts it", entry.directory.display())
        }
        _ => "unmount it or end that process first".to_owned(),
    };
    format!("{shown} is in use by another process{who}; {advice}")
}

/// What the table of mounts says of this source.
fn mounts_of(path: &Path) -> Vec<MountEntry> {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut table = fuse::mount::table().unwrap_or_default();
    table.retain(|entry| entry.source == path);
    table
}

/// The processes that have locked a file or device, by the table of locks and what they have open.
pub(crate) fn processes(path: &Path) -> Vec<u32> {
    let (Ok(about), Ok(meant)) = (std::fs::metadata(path), FileId::of(path)) else { return Vec::new() };
    let own = std::process::id();
    let mut found: Vec<u32> = std::fs::read_to_string(LOCKS)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| holder_in(line, about.ino()))
        .filter(|&pid| pid != own && has_open(pid, meant))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The process that a line of the table of locks names, if it is a lock of a whole file with this inode number. Devices are
/// not compared: some file systems show another number there than in their attributes.
fn holder_in(line: &str, inode: u64) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let kind = words.next()?;
    // A lock that is waited for has an arrow before its kind.
    let pid = words.by_ref().nth(2)?;
    let file = words.next()?;
    let of_inode = file.rsplit(':').next()?.parse() == Ok(inode);
    (kind == "FLOCK" && of_inode).then(|| pid.parse().ok())?
}

fn has_open(pid: u32, meant: FileId) -> bool {
    match std::fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(open) => open.flatten().any(|entry| FileId::of(&entry.path()).is_ok_and(|found| found == meant)),
        // One that has ended has left the lock to a child. One of another user does not show what it has.
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

fn described(pid: u32) -> String {
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid}, {}", crate::name::in_line(name.trim_end().as_bytes())),
        Err(_) => format!("process {pid}"),
    }
}

/// The devices that are made of this one, an encrypted or a RAID one, say.
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
    fn lines_of_the_table_of_locks_are_read() {
        let line = "12: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF";
        assert_eq!(holder_in(line, 5678), Some(1234));
        assert_eq!(holder_in(line, 567), None);
        assert_eq!(holder_in("12: POSIX  ADVISORY  WRITE 1234 fd:01:5678 0 EOF", 5678), None);
        assert_eq!(holder_in("12: -> FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF", 5678), None);
        assert_eq!(holder_in("", 5678), None);
    }
}
