//! One kind of operation in a directory of any mounted file system, with the latency of each: the client of
//! `cargo system bench`.
//!
//! Each kind runs in a process of its own, so that the caller can tell the processor time and the requests of one
//! kind from those of another. Kinds use the files that earlier kinds have left: `create`, `stat`, `open-read`,
//! `chmod` and `unlink` share the names, `write` to `random-write` the file of bytes, and `churn` and `read-all` the
//! files of `fill`.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use rt::Clock;
use rt::random::Rng;
use rt::thread::JoinHandle;
use rustix::fs::OFlags;

use super::Result;
use super::data::{Buffer, SMALL};
use super::latencies::Latencies;

const LARGE: usize = 1 << 20;
/// The byte that named files consist of.
const FILLING: u8 = 0x5a;
/// Sizes of the files of `churn`: as many of them between 4 and 8 KiB as between 2 and 4 MiB.
const CHURNED_BYTES: (u64, u64) = (4 << 10, 4 << 20);
/// The large sequential writer overwrites a file of this size.
const STREAM_BYTES: u64 = 64 << 20;

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Call {
    /// Creates a file with its contents and closes it.
    Create,
    /// Finds a file by its name.
    Stat,
    /// Opens a file, reads it and closes it.
    OpenRead,
    /// Changes the permissions of a file.
    Chmod,
    /// Removes a file.
    Unlink,
    /// Writes 1 MiB of a new file, directly.
    Write,
    /// Writes 1 MiB of an existing file, directly.
    Overwrite,
    /// Reads 1 MiB, directly.
    Read,
    /// Reads 4 KiB, directly.
    RandomRead,
    /// Writes 4 KiB, directly.
    RandomWrite,
    /// Appends 4 KiB, directly, and makes them durable.
    Append,
    /// Writes 1 MiB through the kernel's cache. The file is made durable at the end.
    BufferedWrite,
    /// Reads 1 MiB through the kernel's cache.
    BufferedRead,
    /// Creates a file of `churn`.
    Fill,
    /// Replaces the contents of a file.
    Churn,
    /// Reads a file of `churn`.
    ReadAll,
    /// Writes 1 MiB, directly, again and again until the process is killed.
    Stream,
}

/// The amount of work.
#[derive(Clone)]
pub struct Work {
    /// A directory that only this work uses.
    pub directory: PathBuf,
    /// How many operations all threads perform. For pieces of a file, the size of the file gives the number.
    pub operations: u64,
    /// How many threads perform them.
    pub threads: u64,
    /// Bytes of each named file, or of the one file.
    pub bytes: u64,
    /// Determines random choices.
    pub seed: u64,
}

/// What was done.
pub struct Done {
    /// How long each operation took.
    pub latencies: Latencies,
    /// How long all of them took, with the `fsync` at the end.
    pub took_ns: u64,
}

impl Done {
    /// Operations per second.
    pub fn rate(&self) -> f64 {
        self.latencies.operations() as f64 * 1e9 / self.took_ns.max(1) as f64
    }
}

/// Performs the operations. `Stream` calls `ready` when it writes, and does not end.
pub fn run(call: Call, work: &Work, clock: Arc<dyn Clock>, ready: &mut dyn FnMut()) -> Result<Done> {
    let timer = Timer(clock);
    match call {
        Call::Create => timer.names(work, |path| {
            let mut file = File::create_new(path)?;
            file.write_all(&vec![FILLING; work.bytes as usize])
        }),
        Call::Stat => timer.names(work, |path| {
            let bytes = path.symlink_metadata()?.len();
            expect(bytes == work.bytes, "a file has another size")
        }),
        Call::OpenRead => timer.names(work, |path| {
            let mut found = vec![0; work.bytes as usize];
            File::open(path)?.read_exact(&mut found)?;
            expect(found.iter().all(|&byte| byte == FILLING), "a file has other contents")
        }),
        Call::Chmod => {
            timer.names(work, |path| std::fs::set_permissions(path, Permissions::from_mode(0o600)))
        }
        Call::Unlink => timer.names(work, |path| std::fs::remove_file(path)),
        Call::Write => timer.write_pieces(work, &direct(&path_of(work, BYTES), true)?),
        Call::Overwrite => timer.write_pieces(work, &direct(&path_of(work, BYTES), false)?),
        Call::Read => timer.read_pieces(work, &direct(&path_of(work, BYTES), false)?),
        Call::RandomRead => timer.together(work, Part::Read),
        Call::RandomWrite => timer.together(work, Part::Write),
        Call::Append => timer.together(work, Part::Append),
        Call::BufferedWrite => timer.write_pieces(work, &create(&path_of(work, BUFFERED))?),
        Call::BufferedRead => timer.read_pieces(work, &open(&path_of(work, BUFFERED))?),
        Call::Fill => timer.churn(work, 0..work.operations),
        Call::Churn => {
            let mut rng = Rng::with_seed(work.seed);
            let files = std::fs::read_dir(&work.directory).map_err(text)?.count() as u64;
            timer.churn(work, (0..work.operations).map(|_| rng.u64(0..files)))
        }
        Call::ReadAll => timer.read_all(work),
        Call::Stream => stream(work, ready),
    }
}

const BYTES: &str = "bytes";
const BUFFERED: &str = "buffered";

/// Times operations.
struct Timer(Arc<dyn Clock>);

impl Timer {
    /// Times each operation, and all with what follows them.
    fn each<T>(
        &self,
        items: impl Iterator<Item = T>,
        mut operation: impl FnMut(T) -> Result<()>,
        end: impl FnOnce() -> Result<()>,
    ) -> Result<Done> {
        let mut latencies = Latencies::default();
        let began_ns = self.0.monotonic_ns();
        let mut before_ns = began_ns;
        for item in items {
            operation(item)?;
            let now_ns = self.0.monotonic_ns();
            latencies.add(now_ns - before_ns);
            before_ns = now_ns;
        }
        end()?;
        Ok(Done { latencies, took_ns: self.0.monotonic_ns() - began_ns })
    }

    /// An operation for each name.
    fn names(&self, work: &Work, mut operation: impl FnMut(&Path) -> std::io::Result<()>) -> Result<Done> {
        let mut path = work.directory.join("name");
        self.each(
            0..work.operations,
            |number| {
                path.set_file_name(format!("f{number}"));
                operation(&path).map_err(|error| format!("{}: {error}", path.display()))
            },
            || Ok(()),
        )
    }

    fn write_pieces(&self, work: &Work, file: &File) -> Result<Done> {
        let buffer = Buffer::new(LARGE, work.seed);
        let write = |piece| file.write_all_at(buffer.get(), piece * LARGE as u64).map_err(text);
        self.each(0..pieces(work)?, write, || file.sync_data().map_err(text))
    }

    /// Reads what was written with the same seed.
    fn read_pieces(&self, work: &Work, file: &File) -> Result<Done> {
        let (mut buffer, written) = (Buffer::new(LARGE, 0), Buffer::new(LARGE, work.seed));
        let read = |piece| file.read_exact_at(buffer.get_mut(), piece * LARGE as u64).map_err(text);
        let done = self.each(0..pieces(work)?, read, || Ok(()))?;
        if buffer.get() == written.get() { Ok(done) } else { Err("something else was written".to_owned()) }
    }

    /// Small operations of several threads.
    fn together(&self, work: &Work, part: Part) -> Result<Done> {
        let began_ns = self.0.monotonic_ns();
        let start = |thread: u64| {
            let (timer, work) = (Timer(Arc::clone(&self.0)), work.clone());
            rt::thread::spawn("calls", move || timer.small(&work, part, thread)).map_err(text)
        };
        let threads: Vec<JoinHandle<Result<Done>>> = (0..work.threads).map(start).collect::<Result<_>>()?;
        let mut latencies = Latencies::default();
        for thread in threads {
            let done = thread.join().map_err(|_| "a thread panicked".to_owned())??;
            latencies.merge(&done.latencies);
        }
        Ok(Done { latencies, took_ns: self.0.monotonic_ns() - began_ns })
    }

    /// The operations of one thread.
    fn small(&self, work: &Work, part: Part, thread: u64) -> Result<Done> {
        let mut rng = Rng::with_seed(work.seed * work.threads + thread);
        let mut buffer = Buffer::new(SMALL, thread);
        let blocks = (work.bytes / SMALL as u64).max(1);
        let file = match part {
            Part::Append => direct(&path_of(work, &format!("appended{thread}")), true)?,
            Part::Read | Part::Write => direct(&path_of(work, BYTES), false)?,
        };
        let operation = |number: u64| match part {
            Part::Read => {
                file.read_exact_at(buffer.get_mut(), rng.u64(0..blocks) * SMALL as u64).map_err(text)
            }
            Part::Write => file.write_all_at(buffer.get(), rng.u64(0..blocks) * SMALL as u64).map_err(text),
            Part::Append => {
                let appended = file.write_all_at(buffer.get(), number * SMALL as u64);
                appended.and_then(|()| file.sync_data()).map_err(text)
            }
        };
        self.each(0..work.operations / work.threads, operation, || Ok(()))
    }

    /// Writes whole files by their numbers.
    fn churn(&self, work: &Work, files: impl Iterator<Item = u64>) -> Result<Done> {
        let buffer = Buffer::new(CHURNED_BYTES.1 as usize, work.seed);
        let mut path = work.directory.join("file");
        self.each(
            files,
            |number| {
                path.set_file_name(format!("c{number}"));
                let bytes = churned_bytes(number);
                let written = File::create(&path).and_then(|mut file| file.write_all(&buffer.get()[..bytes]));
                written.map_err(|error| format!("{}: {error}", path.display()))
            },
            || Ok(()),
        )
    }

    /// Reads all files of the directory, in the order of their names.
    fn read_all(&self, work: &Work) -> Result<Done> {
        let entries = std::fs::read_dir(&work.directory).map_err(text)?;
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<std::io::Result<_>>()
            .map_err(text)?;
        paths.sort();
        let mut buffer = vec![0; LARGE];
        let read = |path: PathBuf| {
            let mut file = File::open(&path).map_err(text)?;
            while file.read(&mut buffer).map_err(text)? > 0 {}
            Ok(())
        };
        self.each(paths.into_iter(), read, || Ok(()))
    }
}

/// Operations of several threads.
#[derive(Clone, Copy)]
enum Part {
    Read,
    Write,
    Append,
}

/// The size of a file of `churn`, always the same for the same number.
fn churned_bytes(number: u64) -> usize {
    let (least, most) = (CHURNED_BYTES.0 as f64, CHURNED_BYTES.1 as f64);
    let part = Rng::with_seed(number).u64(0..1 << 20) as f64 / f64::from(1 << 20);
    (least * (most / least).powf(part)) as usize
}

/// Overwrites a file until this process is killed.
fn stream(work: &Work, ready: &mut dyn FnMut()) -> Result<Done> {
    let file = direct(&path_of(work, "stream"), true)?;
    let buffer = Buffer::new(LARGE, work.seed);
    let pieces = STREAM_BYTES / LARGE as u64;
    for number in 0_u64.. {
        file.write_all_at(buffer.get(), number % pieces * LARGE as u64).map_err(text)?;
        if number == pieces / 8 {
            ready();
        }
    }
    Err("the large writer has written as much as can be counted".to_owned())
}

fn path_of(work: &Work, name: &str) -> PathBuf {
    work.directory.join(name)
}

fn pieces(work: &Work) -> Result<u64> {
    match work.bytes / LARGE as u64 {
        0 => Err("the file has less than 1 MiB".to_owned()),
        pieces => Ok(pieces),
    }
}

/// A file past the kernel's cache: a new one, or one that must exist.
fn direct(path: &Path, new: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(new).truncate(new).custom_flags(OFlags::DIRECT.bits() as i32);
    options.open(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn create(path: &Path) -> Result<File> {
    File::create(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn expect(is_so: bool, otherwise: &str) -> std::io::Result<()> {
    if is_so { Ok(()) } else { Err(std::io::Error::other(otherwise)) }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests;
