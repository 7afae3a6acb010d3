//! The ten most frequent operations, each many times, for a program that counts instructions (`cargo system
//! instructions`).
//!
//! There is one thread, a volume in memory, a clock that stands still, and no chance: the same program executes the
//! same instructions. The counting program counts only inside [`perform`]. What an operation leaves to the background
//! is done between the operations and not counted.

use std::sync::Arc;

use emulated::{Emulated, Spec};
use fs::{Caller, Fs, FsError, Handle, InodeNo, OpenFlags};
use rt::random::Rng;
use tree::Step;

use super::Result;
use crate::files::Volume;

/// How often each operation is performed.
pub const TIMES: u64 = 1000;
/// How often the directory is listed: now and then the allocator merges free memory, which costs more than an entry.
const LISTINGS: u64 = 16;
/// Bytes of each read and write, and the number of them in the file of bytes.
const BLOCK: u64 = 4096;
const BLOCKS: u64 = 4096;
const VOLUME: Volume = Volume { page_size: 16 << 10, groups: 2, cache_bytes: 64 << 20 };
const WRITING: OpenFlags = OpenFlags { read: true, write: true, append: false, truncate: false, sync: false };

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creates an empty file and closes it.
    Create,
    /// Finds a file by its name, with its attributes.
    Lookup,
    /// Reads the attributes of a known file.
    Attributes,
    /// Reads an entry of a directory.
    List,
    /// Opens a known file and closes it.
    Open,
    /// Writes a block behind the end of a file.
    Append,
    /// Writes another block of a file.
    Overwrite,
    /// Reads a block.
    Read,
    /// Writes a block and makes it durable.
    Fsync,
    /// Removes a file.
    Unlink,
}

impl Operation {
    /// All operations, in an order in which each finds what it needs.
    pub const ALL: [Operation; 10] = [
        Operation::Create,
        Operation::Lookup,
        Operation::Attributes,
        Operation::List,
        Operation::Open,
        Operation::Append,
        Operation::Overwrite,
        Operation::Read,
        Operation::Fsync,
        Operation::Unlink,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::Lookup => "lookup",
            Operation::Attributes => "attributes",
            Operation::List => "list",
            Operation::Open => "open",
            Operation::Append => "append",
            Operation::Overwrite => "overwrite",
            Operation::Read => "read",
            Operation::Fsync => "fsync",
            Operation::Unlink => "unlink",
        }
    }
}

/// What the operations work on.
pub struct Stage {
    fs: Arc<Fs>,
    user: Caller,
    names: Vec<String>,
    inodes: Vec<InodeNo>,
    /// The file of bytes.
    file: Handle,
    /// Blocks in a random order.
    blocks: Vec<u64>,
    bytes: Vec<u8>,
}

impl Stage {
    fn make() -> Result<Stage> {
        rt::random::repeat_from(1);
        let device = Arc::new(Emulated::new(Spec::new(BLOCK as u32, 64, 1024)));
        VOLUME.format(&device).map_err(|wrong| wrong.0)?;
        let fs = VOLUME.mount(&device, Volume::clock()).map_err(|wrong| wrong.0)?;
        let user = Caller::root();
        let file = fs.create(&user, InodeNo::ROOT, b"bytes", 0o644, WRITING, true).map_err(text)?.1;
        let mut rng = Rng::with_seed(1);
        let mut blocks: Vec<u64> = (0..BLOCKS).collect();
        rng.shuffle(&mut blocks);
        blocks.truncate(TIMES as usize);
        let mut bytes = vec![0; BLOCK as usize];
        rng.fill(&mut bytes);
        for number in 0..BLOCKS {
            write(&fs, &file, number, &bytes).map_err(text)?;
        }
        let names = (0..TIMES).map(|number| format!("file-{number}")).collect();
        let mut stage = Stage { fs, user, names, inodes: Vec::new(), file, blocks, bytes };
        stage.settle()?;
        Ok(stage)
    }

    /// Does what the background has to do.
    fn settle(&mut self) -> Result<()> {
        self.fs.sync().map_err(text)?;
        while self.fs.step().map_err(text)? == Step::Worked {}
        Ok(())
    }

    fn perform(&mut self, operation: Operation) -> std::result::Result<u64, FsError> {
        let (fs, user, root) = (&self.fs, &self.user, InodeNo::ROOT);
        match operation {
            Operation::Create => {
                for name in &self.names {
                    let made = fs.create(user, root, name.as_bytes(), 0o644, WRITING, true)?;
                    self.inodes.push(made.0.inode);
                }
            }
            Operation::Lookup => {
                for (name, &inode) in self.names.iter().zip(&self.inodes) {
                    assert_eq!(fs.lookup(user, root, name.as_bytes())?.inode, inode);
                }
            }
            Operation::Attributes => {
                for &inode in &self.inodes {
                    assert_eq!(fs.attributes(inode)?.inode, inode);
                }
            }
            Operation::List => {
                let mut entries = 0;
                let directory = fs.open(user, root, OpenFlags { write: false, ..WRITING })?;
                for _ in 0..LISTINGS {
                    fs.read_directory(&directory, 0, &mut |_| {
                        entries += 1;
                        true
                    })?;
                }
                return Ok(entries);
            }
            Operation::Open => {
                for &inode in &self.inodes {
                    fs.open(user, inode, WRITING)?;
                }
            }
            Operation::Append => {
                for number in 0..TIMES {
                    write(fs, &self.file, BLOCKS + number, &self.bytes)?;
                }
            }
            Operation::Overwrite => {
                for &block in &self.blocks {
                    write(fs, &self.file, block, &self.bytes)?;
                }
            }
            Operation::Read => {
                for &block in &self.blocks {
                    let read = fs.read(&self.file, block * BLOCK, &mut self.bytes)?;
                    assert_eq!(read, BLOCK as usize);
                }
            }
            Operation::Fsync => {
                for &block in &self.blocks {
                    write(fs, &self.file, block, &self.bytes)?;
                    fs.fsync(&self.file, true)?;
                }
            }
            Operation::Unlink => {
                for name in &self.names {
                    fs.unlink(user, root, name.as_bytes())?;
                }
            }
        }
        Ok(TIMES)
    }
}

fn write(fs: &Fs, file: &Handle, block: u64, bytes: &[u8]) -> std::result::Result<(), FsError> {
    assert_eq!(fs.write(file, block * BLOCK, bytes)?, bytes.len());
    Ok(())
}

/// Performs an operation many times, and returns how often. This function is what is counted, so it must
/// be neither inlined nor duplicated.
#[inline(never)]
pub fn perform(stage: &mut Stage, operation: Operation) -> Result<u64> {
    stage.perform(operation).map_err(text)
}

/// Performs each operation many times. After each of them it calls `done` with the operation and its number of times.
pub fn run(mut done: impl FnMut(Operation, u64)) -> Result<()> {
    let mut stage = Stage::make()?;
    for operation in Operation::ALL {
        let times = perform(&mut stage, operation)?;
        stage.settle()?;
        done(operation, times);
    }
    Ok(())
}

fn text(error: FsError) -> String {
    error.to_string()
}
