//! What is known of a file.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fs::{Attributes, Kind, SetTime};
use rt::Timestamp;

/// The attributes of a file, a directory or another inode, as they were when they were requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata(pub(crate) Attributes);

impl Metadata {
    /// The type of the file.
    pub fn file_type(&self) -> Kind {
        self.0.kind
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0.kind == Kind::File
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.kind == Kind::Directory
    }

    /// Whether it is a symbolic link. Only [`Volume::symlink_metadata`](crate::Volume::symlink_metadata) and
    /// [`DirEntry::metadata`](crate::DirEntry::metadata) do not follow links.
    pub fn is_symlink(&self) -> bool {
        self.0.kind == Kind::Symlink
    }

    /// Bytes of a file or of the target of a link; the number of entries of a directory.
    #[allow(
        clippy::len_without_is_empty,
        reason = "as in the standard library: a file without bytes is no container"
    )]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Bytes that are allocated for the contents.
    pub fn allocated_bytes(&self) -> u64 {
        self.0.blocks.saturating_mul(512)
    }

    /// The permission bits with set-user-id, set-group-id and sticky, for example 0o644.
    pub fn permissions(&self) -> u16 {
        self.0.permissions
    }

    /// The owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// The group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// The inode number. It identifies the file within the volume and is not used again.
    pub fn inode(&self) -> u64 {
        self.0.inode.0
    }

    /// The number of names; of a directory, 2 and the number of its subdirectories; 0 if the last name was removed.
    pub fn links(&self) -> u32 {
        self.0.links
    }

    /// The device number of a device node.
    pub fn device(&self) -> u32 {
        self.0.device
    }

    /// The time of the last access that was set. Reading does not change it.
    pub fn accessed(&self) -> SystemTime {
        system_time(self.0.accessed)
    }

    /// The time of the last change of the contents.
    pub fn modified(&self) -> SystemTime {
        system_time(self.0.modified)
    }

    /// The time of the last change of the contents or the attributes.
    pub fn changed(&self) -> SystemTime {
        system_time(self.0.changed)
    }

    /// The time at which the file was created.
    pub fn created(&self) -> SystemTime {
        system_time(self.0.born)
    }
}

/// Times to set. `None` keeps the present time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The time of the last access.
    pub accessed: Option<SystemTime>,
    /// The time of the last change of the contents.
    pub modified: Option<SystemTime>,
}

impl Times {
    pub(crate) fn changes(self) -> fs::Changes {
        let to = |time: Option<SystemTime>| time.map(|time| SetTime::To(timestamp(time)));
        fs::Changes { accessed: to(self.accessed), modified: to(self.modified), ..fs::Changes::default() }
    }
}

fn system_time(Timestamp(nanoseconds): Timestamp) -> SystemTime {
    let distance = Duration::from_nanos(nanoseconds.unsigned_abs());
    if nanoseconds < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// A time that 64 bits cannot hold (before 1677, after 2262) becomes the nearest one that they can hold.
fn timestamp(time: SystemTime) -> Timestamp {
    let nanoseconds = |distance: Duration| i64::try_from(distance.as_nanos()).unwrap_or(i64::MAX);
    Timestamp(match time.duration_since(UNIX_EPOCH) {
        Ok(after) => nanoseconds(after),
        Err(before) => nanoseconds(before.duration()).saturating_neg(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970_are_kept() {
        for nanoseconds in [0, 1, -1, 1_234_567_890_123_456_789, -1_234_567_890_123_456_789, i64::MAX] {
            let time = Timestamp(nanoseconds);
            assert_eq!(timestamp(system_time(time)), time);
        }
        let far = UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(timestamp(far), Timestamp(i64::MAX));
    }
}
