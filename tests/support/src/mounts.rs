//! Mounts of this machine.

use std::path::Path;

use anyhow::{Context, Result};

use crate::shell::Line;

/// The command that unmounts a volume.
pub fn umount_line(polder: &Path, dir: &Path) -> Line {
    Line::program(polder).arg("umount").arg(dir)
}

/// Whether something is mounted exactly on `dir`.
pub fn is_mounted(dir: &Path) -> Result<bool> {
    let table = std::fs::read("/proc/self/mounts").context("cannot read the mounts")?;
    Ok(is_in_table(&String::from_utf8_lossy(&table), dir))
}

/// The second word of each line is a mount point, with spaces and the like as `\040`.
fn is_in_table(table: &str, dir: &Path) -> bool {
    let wanted = dir
        .to_string_lossy()
        .replace('\\', r"\134")
        .replace(' ', r"\040")
        .replace('\t', r"\011")
        .replace('\n', r"\012");
    table.lines().filter_map(|line| line.split(' ').nth(1)).any(|point| point == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "/dev/vda / ext4 rw 0 0\npolder /mnt/a\\040b fuse.polder rw 0 0\n";

    #[test]
    fn mounts_are_found_by_their_whole_path() {
        assert!(is_in_table(TABLE, Path::new("/mnt/a b")));
        assert!(!is_in_table(TABLE, Path::new("/mnt/a")));
        assert!(!is_in_table(TABLE, Path::new("/mnt")));
    }

    #[test]
    fn unmounting_calls_the_command_by_its_interface() {
        assert_eq!(umount_line(Path::new("polder"), Path::new("d")).to_string(), "polder umount d");
    }
}
