//! The operations of a scenario.

use std::fmt;

use rt::random::Rng;

use crate::store::ZoneFailure;

/// A file that an operation works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum File {
    /// By its path from the root.
    Path(String),
    /// By a held handle.
    Held(u8),
}

/// An operation. Written bytes follow from a tag, so that no two writes are equal.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields say it all")]
pub enum Operation {
    /// Makes an empty file.
    Create {
        path: String,
    },
    MakeDirectory {
        path: String,
    },
    RemoveDirectory {
        path: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    Link {
        from: String,
        to: String,
    },
    Unlink {
        path: String,
    },
    /// Replaces the target if it exists.
    Rename {
        from: String,
        to: String,
    },
    Exchange {
        a: String,
        b: String,
    },
    SetPermissions {
        file: File,
        permissions: u16,
    },
    SetXattr {
        file: File,
        name: String,
        value: Vec<u8>,
    },
    RemoveXattr {
        file: File,
        name: String,
    },
    Write {
        file: File,
        offset: u64,
        length: usize,
        tag: u64,
    },
    Append {
        file: File,
        length: usize,
        tag: u64,
    },
    Truncate {
        file: File,
        size: u64,
    },
    Punch {
        file: File,
        offset: u64,
        length: u64,
    },
    /// Preallocates a range. The file grows unless `keep_size`. With `clear` the range reads as zeros.
    Allocate {
        file: File,
        offset: u64,
        length: u64,
        keep_size: bool,
        clear: bool,
    },
    /// Removes a range of whole blocks (collapse range).
    Collapse {
        file: File,
        offset: u64,
        length: u64,
    },
    /// Inserts a hole of whole blocks (insert range).
    Insert {
        file: File,
        offset: u64,
        length: u64,
    },
    /// Makes a range of the file share the blocks of a range of another file. A length of 0 means up to the end.
    Clone {
        from: File,
        offset: u64,
        file: File,
        at: u64,
        length: u64,
    },
    /// Opens a file and keeps it open.
    Hold {
        path: String,
        handle: u8,
    },
    /// Opens a file that has no name.
    Temporary {
        handle: u8,
    },
    /// Closes a held file.
    Release {
        handle: u8,
    },
    Fsync {
        file: File,
        data_only: bool,
    },
    FsyncDirectory {
        path: String,
    },
    Sync,
    /// Reads the whole file and its attributes, and compares.
    ReadBack {
        file: File,
    },
    /// A checkpoint of the store.
    Checkpoint,
    /// Background steps.
    Steps {
        count: u32,
    },
    /// Advances the clock.
    Wait {
        nanoseconds: u64,
    },
    /// Makes a zone fail from now on.
    Fail(ZoneFailure),
}

impl Operation {
    /// The file whose bytes the operation works on, if there is one.
    pub fn file(&self) -> Option<&File> {
        match self {
            Operation::Write { file, .. }
            | Operation::Append { file, .. }
            | Operation::Truncate { file, .. }
            | Operation::Punch { file, .. }
            | Operation::Allocate { file, .. }
            | Operation::Collapse { file, .. }
            | Operation::Insert { file, .. }
            | Operation::Clone { file, .. }
            | Operation::Fsync { file, .. }
            | Operation::ReadBack { file } => Some(file),
            _ => None,
        }
    }

    /// The files that the operation works on, where they can be held.
    pub fn files(&self) -> [Option<&File>; 2] {
        match self {
            Operation::SetPermissions { file, .. }
            | Operation::SetXattr { file, .. }
            | Operation::RemoveXattr { file, .. } => [Some(file), None],
            Operation::Clone { from, file, .. } => [Some(from), Some(file)],
            _ => [self.file(), None],
        }
    }

    /// Whether the operation changes anything that is or could become visible.
    pub fn changes(&self) -> bool {
        use Operation::{Checkpoint, Fail, Fsync, FsyncDirectory, ReadBack, Steps, Sync, Wait};
        !matches!(
            self,
            Fsync { .. }
                | FsyncDirectory { .. }
                | Sync
                | ReadBack { .. }
                | Checkpoint
                | Steps { .. }
                | Wait { .. }
                | Fail(_)
        )
    }

    /// Whether a crash leaves the whole operation or nothing of it, although it takes many transactions.
    pub fn is_whole(&self) -> bool {
        matches!(self, Operation::Collapse { .. } | Operation::Insert { .. })
    }

    /// A write of only the first bytes; `None` if that is the whole write.
    pub fn shortened(&self, written: usize) -> Option<Operation> {
        let mut shorter = self.clone();
        let (Operation::Write { length, .. } | Operation::Append { length, .. }) = &mut shorter else {
            return None;
        };
        let is_shorter = written < *length;
        *length = written;
        is_shorter.then_some(shorter)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// The bytes of a write. A shorter write with the same tag has a prefix of them.
pub fn bytes(tag: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Rng::with_seed(tag).fill(&mut bytes);
    bytes
}
