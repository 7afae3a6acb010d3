//! What is done to a file system in a scenario.

use std::fmt;

use rt::random::Rng;

use crate::store::ZoneFailure;

/// A file that an operation works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum File {
    /// By its path from the root.
    Path(String),
    /// By a handle that is held.
    Held(u8),
}

/// One thing to do. Bytes that are written are made from a tag, so that no two writes are alike.
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
    /// Over what is there.
    Rename {
        from: String,
        to: String,
    },
    Exchange {
        a: String,
        b: String,
    },
    SetPermissions {
        path: String,
        permissions: u16,
    },
    SetXattr {
        path: String,
        name: String,
        value: Vec<u8>,
    },
    RemoveXattr {
        path: String,
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
    /// Keeps space for a range; the file grows unless `keep_size`, and with `clear` reads as zeros there.
    Allocate {
        file: File,
        offset: u64,
        length: u64,
        keep_size: bool,
        clear: bool,
    },
    /// Takes a range of whole blocks out.
    Collapse {
        file: File,
        offset: u64,
        length: u64,
    },
    /// Puts a hole of whole blocks in.
    Insert {
        file: File,
        offset: u64,
        length: u64,
    },
    /// Has a range of the file share the blocks of a range of another; a length of 0 means up to its end.
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
    /// Closes it.
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
    /// Reads the whole file and compares.
    ReadBack {
        file: File,
    },
    /// A checkpoint of the store.
    Checkpoint,
    /// So many background steps.
    Steps {
        count: u32,
    },
    /// The clock goes on.
    Wait {
        nanoseconds: u64,
    },
    /// A zone fails from now on.
    Fail(ZoneFailure),
}

impl Operation {
    /// The file whose bytes it works on, if it does.
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

    /// Whether it changes anything that can be seen, or could be.
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

    /// Whether a crash leaves all of it or nothing, though it takes many transactions.
    pub fn is_whole(&self) -> bool {
        matches!(self, Operation::Collapse { .. } | Operation::Insert { .. })
    }

    /// The write of only the first bytes; `None` when that is all of it.
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

/// The bytes of a write; those of a shorter one with the same tag are the first of them.
pub fn bytes(tag: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Rng::with_seed(tag).fill(&mut bytes);
    bytes
}
