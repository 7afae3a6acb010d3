//! The space of workloads: every sequence of a few operations on a few files and directories. Each operation is
//! followed by nothing, by a sync, or by an fsync of its file or directory.
//!
//! This is the space of ACE (Mohan et al., "Finding Crash-Consistency Bugs with Bounded Black-Box Crash Testing",
//! OSDI 2018, section 5), but with an existing tree in place of operations that create one. Workloads have numbers,
//! so that all of them can be enumerated and any of them can be drawn. The text form of a workload is its steps with
//! commas between them: `append-a+fsync:a,rename-a-c`.

use std::fmt;

use crate::digest::mix;
use crate::model::{File, Model, Operation};

/// An operation and its sync, for any position in a workload.
#[derive(Clone, Debug)]
pub struct Step {
    /// The name of the operation.
    name: &'static str,
    make: Make,
    /// How it is made durable.
    sync: Sync,
}

/// Makes an operation, from the block size and a tag for the written bytes.
type Make = fn(u64, u64) -> Operation;

/// How an operation is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    Nothing,
    All,
    Fsync(&'static str),
    Fdatasync(&'static str),
    Directory(&'static str),
}

impl Step {
    /// The operations of this step at position `place` of a workload.
    pub fn operations(&self, block: u64, place: u64) -> Vec<Operation> {
        let name = self.name.bytes().fold(0, |sum, byte| mix(&[sum, byte.into()]));
        let operation = (self.make)(block, mix(&[name, place]));
        let file = |path: &str| File::Path(path.to_owned());
        let sync = match self.sync {
            Sync::Nothing => None,
            Sync::All => Some(Operation::Sync),
            Sync::Fsync(path) => Some(Operation::Fsync { file: file(path), data_only: false }),
            Sync::Fdatasync(path) => Some(Operation::Fsync { file: file(path), data_only: true }),
            Sync::Directory(path) => Some(Operation::FsyncDirectory { path: path.to_owned() }),
        };
        std::iter::once(operation).chain(sync).collect()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        match self.sync {
            Sync::Nothing => Ok(()),
            Sync::All => f.write_str("+sync"),
            Sync::Fsync(path) => write!(f, "+fsync:{path}"),
            Sync::Fdatasync(path) => write!(f, "+fdatasync:{path}"),
            Sync::Directory(path) => write!(f, "+fsync:{path}/"),
        }
    }
}

/// A sequence of steps.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The steps, in order; at least one.
    pub steps: Vec<Step>,
    /// Whether a checkpoint is taken at the end, after everything has become durable through the commit interval.
    pub checkpoint: bool,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<String> = self.steps.iter().map(Step::to_string).collect();
        f.write_str(&steps.join(","))?;
        f.write_str(if self.checkpoint { ",checkpoint" } else { "" })
    }
}

/// All steps, and thus all workloads.
#[derive(Debug)]
pub struct Space {
    steps: Vec<Step>,
}

impl Space {
    /// The whole space.
    pub fn new() -> Self {
        let steps = operations().into_iter().flat_map(|(name, make, file, directories)| {
            let files = file.into_iter().flat_map(|path| [Sync::Fsync(path), Sync::Fdatasync(path)]);
            let directories = directories.iter().map(|&path| Sync::Directory(path));
            let syncs = [Sync::Nothing, Sync::All].into_iter().chain(files).chain(directories);
            syncs.map(move |sync| Step { name, make, sync }).collect::<Vec<_>>()
        });
        Space { steps: steps.collect() }
    }

    /// How many workloads of this many operations there are, including those with a step that is refused.
    pub fn count(&self, operations: u32) -> u64 {
        (self.steps.len() as u64).pow(operations)
    }

    /// The number of different operations.
    pub fn operations(&self) -> usize {
        self.steps.iter().filter(|step| step.sync == Sync::Nothing).count()
    }

    /// A workload by its number. Every fourth ends with a checkpoint, and every workload of one operation.
    pub fn workload(&self, operations: u32, number: u64) -> Workload {
        let base = self.steps.len() as u64;
        let digits = (0..operations).map(|place| number / base.pow(place) % base);
        let steps = digits.map(|digit| self.steps[digit as usize].clone()).collect();
        Workload { steps, checkpoint: operations == 1 || mix(&[number]).is_multiple_of(4) }
    }

    /// The workload that a text names.
    pub fn parse(&self, text: &str) -> Result<Workload, String> {
        let (names, checkpoint) = match text.strip_suffix(",checkpoint") {
            Some(names) => (names, true),
            None => (text, false),
        };
        let find = |name: &str| {
            let step = self.steps.iter().find(|step| step.to_string() == name);
            step.cloned().ok_or_else(|| format!("there is no step {name:?}; `--list` shows all"))
        };
        Ok(Workload { steps: names.split(',').map(find).collect::<Result<_, _>>()?, checkpoint })
    }

    /// The names of all steps.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.steps.iter().map(Step::to_string)
    }
}

impl Default for Space {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether the model accepts every step. Otherwise a shorter workload does the same.
pub fn is_possible(workload: &Workload, start: &Model, block: u64) -> bool {
    let mut model = start.clone();
    let steps = (0..).zip(&workload.steps);
    let mut operations = steps.flat_map(|(place, step)| step.operations(block, place));
    operations.all(|operation| model.apply(&operation).is_ok())
}

/// The initial tree: two directories, one of them in the other, a file with a hole, and a small file with inline
/// data.
pub fn prepare(block: u64) -> Vec<Operation> {
    vec![
        Operation::MakeDirectory { path: "d".to_owned() },
        Operation::MakeDirectory { path: "d/e".to_owned() },
        create("a"),
        write("a", 0, 2 * block, 1),
        write("a", 4 * block, block + 100, 2),
        set("a", "user.x", 1),
        create("d/b"),
        write("d/b", 0, 300, 3),
    ]
}

/// An operation's name, its constructor, the file that it leaves, and the directories that it changes.
type Known = (&'static str, Make, Option<&'static str>, &'static [&'static str]);

fn operations() -> Vec<Known> {
    [on_names(), on_bytes(), on_space(), on_attributes()].concat()
}

fn on_names() -> Vec<Known> {
    vec![
        ("create-c", |_, _| create("c"), Some("c"), &[""]),
        ("create-d_c", |_, _| create("d/c"), Some("d/c"), &["d"]),
        ("mkdir-f", |_, _| Operation::MakeDirectory { path: "f".to_owned() }, None, &["", "f"]),
        ("mkdir-d_f", |_, _| Operation::MakeDirectory { path: "d/f".to_owned() }, None, &["d", "d/f"]),
        ("rmdir-d_e", |_, _| Operation::RemoveDirectory { path: "d/e".to_owned() }, None, &["d"]),
        ("symlink-s", |_, _| symlink("a", "s"), None, &[""]),
        ("symlink-d_s", |_, _| symlink("b", "d/s"), None, &["d"]),
        ("link-a-c", |_, _| link("a", "c"), Some("c"), &[""]),
        ("link-a-d_c", |_, _| link("a", "d/c"), Some("a"), &["d"]),
        ("link-d_b-c", |_, _| link("d/b", "c"), Some("c"), &[""]),
        ("unlink-a", |_, _| unlink("a"), None, &[""]),
        ("unlink-d_b", |_, _| unlink("d/b"), None, &["d"]),
        ("unlink-c", |_, _| unlink("c"), None, &[""]),
        ("rename-a-c", |_, _| rename("a", "c"), Some("c"), &[""]),
        ("rename-a-d_c", |_, _| rename("a", "d/c"), Some("d/c"), &["", "d"]),
        ("rename-a-d_b", |_, _| rename("a", "d/b"), Some("d/b"), &["", "d"]),
        ("rename-d_b-a", |_, _| rename("d/b", "a"), Some("a"), &["", "d"]),
        ("rename-c-a", |_, _| rename("c", "a"), Some("a"), &[""]),
        ("rename-d-f", |_, _| rename("d", "f"), None, &["", "f"]),
        ("rename-d_e-f", |_, _| rename("d/e", "f"), None, &["", "d"]),
        ("exchange-a-d_b", |_, _| exchange("a", "d/b"), Some("a"), &["", "d"]),
        ("exchange-a-d", |_, _| exchange("a", "d"), Some("d"), &[""]),
    ]
}

fn on_bytes() -> Vec<Known> {
    vec![
        ("append-a", |block, tag| append("a", block, tag), Some("a"), &[""]),
        ("append-a-3", |block, tag| append("a", 3 * block, tag), Some("a"), &[]),
        ("append-a-small", |_, tag| append("a", 50, tag), Some("a"), &[]),
        ("append-c", |block, tag| append("c", block, tag), Some("c"), &[""]),
        ("append-d_b", |_, tag| append("d/b", 100, tag), Some("d/b"), &[]),
        ("write-a-block", |block, tag| write("a", 0, block, tag), Some("a"), &[""]),
        ("write-a-part", |block, tag| write("a", block + 10, 30, tag), Some("a"), &[]),
        ("write-a-across", |block, tag| write("a", block / 2, block, tag), Some("a"), &[]),
        ("write-a-hole", |block, tag| write("a", 2 * block, block, tag), Some("a"), &[]),
        ("write-a-beyond", |block, tag| write("a", 7 * block, block + 1, tag), Some("a"), &[]),
        ("write-d_b", |_, tag| write("d/b", 100, 100, tag), Some("d/b"), &["d"]),
        ("write-d_b-large", |block, tag| write("d/b", 0, 2 * block, tag), Some("d/b"), &[]),
        ("truncate-a-0", |_, _| truncate("a", 0), Some("a"), &[""]),
        ("truncate-a-part", |block, _| truncate("a", block + 9), Some("a"), &[]),
        ("truncate-a-grow", |block, _| truncate("a", 8 * block + 1), Some("a"), &[]),
        ("truncate-d_b-10", |_, _| truncate("d/b", 10), Some("d/b"), &["d"]),
        ("truncate-d_b-grow", |block, _| truncate("d/b", 3 * block), Some("d/b"), &[]),
    ]
}

fn on_space() -> Vec<Known> {
    vec![
        ("falloc-a", |block, _| allocate("a", 4 * block, 4 * block, false, false), Some("a"), &[""]),
        ("falloc-a-hole", |block, _| allocate("a", block, 3 * block, false, false), Some("a"), &[]),
        ("falloc-a-keep", |block, _| allocate("a", 5 * block, 4 * block, true, false), Some("a"), &[]),
        ("falloc-d_b", |block, _| allocate("d/b", 0, 2 * block, false, false), Some("d/b"), &[]),
        ("falloc-d_b-keep", |block, _| allocate("d/b", 0, 2 * block, true, false), Some("d/b"), &[]),
        ("punch-a-block", |block, _| punch("a", block, block), Some("a"), &[""]),
        ("punch-a-part", |block, _| punch("a", block / 2, block + 9), Some("a"), &[]),
        ("punch-a-end", |block, _| punch("a", 4 * block, 3 * block), Some("a"), &[]),
        ("punch-d_b", |_, _| punch("d/b", 10, 50), Some("d/b"), &[]),
        ("zero-a", |block, _| allocate("a", block / 2, 2 * block, true, true), Some("a"), &[]),
        ("zero-a-grow", |block, _| allocate("a", 5 * block, 2 * block, false, true), Some("a"), &[]),
        ("collapse-a", |block, _| collapse("a", block, block), Some("a"), &[]),
        ("insert-a", |block, _| insert("a", block, 2 * block), Some("a"), &[]),
        ("clone-a-d_b", |_, _| clone(("a", 0), ("d/b", 0), 0), Some("d/b"), &["d"]),
        ("clone-a-c", |_, _| clone(("a", 0), ("c", 0), 0), Some("c"), &[""]),
        ("clone-a-a", |block, _| clone(("a", 0), ("a", 6 * block), 2 * block), Some("a"), &[]),
        ("clone-d_b-a", |block, _| clone(("d/b", 0), ("a", 8 * block), 0), Some("a"), &[]),
    ]
}

fn on_attributes() -> Vec<Known> {
    vec![
        ("setxattr-a", |_, _| set("a", "user.x", 2), Some("a"), &[""]),
        ("setxattr-a-new", |_, _| set("a", "user.y", 3), Some("a"), &[]),
        ("setxattr-d", |_, _| set("d", "user.x", 4), None, &["d"]),
        ("setxattr-d_b-large", |_, _| large("d/b"), Some("d/b"), &[]),
        ("removexattr-a", |_, _| remove("a", "user.x"), Some("a"), &[""]),
        ("chmod-a", |_, _| chmod("a"), Some("a"), &[""]),
        ("chmod-d", |_, _| chmod("d"), None, &["d"]),
    ]
}

fn at(path: &str) -> File {
    File::Path(path.to_owned())
}

fn create(path: &str) -> Operation {
    Operation::Create { path: path.to_owned() }
}

fn symlink(target: &str, path: &str) -> Operation {
    Operation::Symlink { target: target.to_owned(), path: path.to_owned() }
}

fn link(from: &str, to: &str) -> Operation {
    Operation::Link { from: from.to_owned(), to: to.to_owned() }
}

fn unlink(path: &str) -> Operation {
    Operation::Unlink { path: path.to_owned() }
}

fn rename(from: &str, to: &str) -> Operation {
    Operation::Rename { from: from.to_owned(), to: to.to_owned() }
}

fn exchange(a: &str, b: &str) -> Operation {
    Operation::Exchange { a: a.to_owned(), b: b.to_owned() }
}

fn append(path: &str, length: u64, tag: u64) -> Operation {
    Operation::Append { file: at(path), length: length as usize, tag }
}

fn write(path: &str, offset: u64, length: u64, tag: u64) -> Operation {
    Operation::Write { file: at(path), offset, length: length as usize, tag }
}

fn truncate(path: &str, size: u64) -> Operation {
    Operation::Truncate { file: at(path), size }
}

fn allocate(path: &str, offset: u64, length: u64, keep_size: bool, clear: bool) -> Operation {
    Operation::Allocate { file: at(path), offset, length, keep_size, clear }
}

fn punch(path: &str, offset: u64, length: u64) -> Operation {
    Operation::Punch { file: at(path), offset, length }
}

fn collapse(path: &str, offset: u64, length: u64) -> Operation {
    Operation::Collapse { file: at(path), offset, length }
}

fn insert(path: &str, offset: u64, length: u64) -> Operation {
    Operation::Insert { file: at(path), offset, length }
}

fn clone((from, offset): (&str, u64), (to, place): (&str, u64), length: u64) -> Operation {
    Operation::Clone { from: at(from), offset, file: at(to), at: place, length }
}

fn set(path: &str, name: &str, value: u8) -> Operation {
    Operation::SetXattr { file: File::Path(path.to_owned()), name: name.to_owned(), value: vec![value; 20] }
}

fn large(path: &str) -> Operation {
    Operation::SetXattr {
        file: File::Path(path.to_owned()),
        name: "user.large".to_owned(),
        value: vec![7; 3000],
    }
}

fn remove(path: &str, name: &str) -> Operation {
    Operation::RemoveXattr { file: File::Path(path.to_owned()), name: name.to_owned() }
}

fn chmod(path: &str) -> Operation {
    Operation::SetPermissions { file: File::Path(path.to_owned()), permissions: 0o700 }
}

#[cfg(test)]
mod tests;
