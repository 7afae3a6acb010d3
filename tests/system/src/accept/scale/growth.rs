//! Four times as much of anything costs about four times as much: making it in a mount, and every command on it.
//!
//! Each kind of thing is created in a volume of its own, N and 4 N of it, and every command runs on both. The
//! processor time of command and daemon is compared. For mounts and unmounts, which end with a process, the elapsed
//! time is compared. A quadratic algorithm costs sixteen times as much. The same for the library, and for work that a
//! mount leaves to the kernel, is in `crates/fs/tests/all/growth`.
//!
//! Two kinds are not here. Zones: `crates/fs/tests/all/growth/zones.rs` compares time and device commands of each
//! operation and mount on N and 4 N zones, and point 13 compares mounts, memory, GC and deletes on 1,000 and 100,000
//! zones. Advisory locks: a mount requests neither of FUSE's two features for them, so the kernel keeps them and sends
//! no request; `growth/locks.rs` there measures those of the library.
//!
//! Everything runs on one processor. If the scheduler may choose, a request that wakes the daemon on another processor
//! costs it three times as much as on the same one, and which of the two happens is chance.
//!
//! The quick form has fewer kinds.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use rt::{Clock, SystemClock};
use rustix::fs::{CWD, Mode, OFlags, XattrFlags, copy_file_range, fsetxattr, mkdirat, openat};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use support::shell::Line;

use super::{Report, Run};
use crate::accept::volume::Volume;

/// Linear costs are 4 times as much. If the data no longer fits into a cache, a little more.
const RATIO_MAX: f64 = 8.0;
/// A shorter time with 4 N proves nothing.
const TIME_NS_MIN: u64 = 100_000_000;
/// An excessive time is measured again. The minimum counts.
const ROUNDS_MAX: usize = 6;
const BLOCK: u64 = 4096;

/// A kind of thing of which there can be many.
struct Kind {
    name: &'static str,
    number: u64,
    /// Creates this many. The returned files stay open until the daemon is killed.
    make: fn(&Path, u64) -> Result<Vec<File>>,
    is_quick: bool,
}

const KINDS: [Kind; 11] = [
    Kind { name: "names", number: 3000, make: names, is_quick: false },
    Kind { name: "levels", number: 700, make: levels, is_quick: true },
    Kind { name: "links of one inode", number: 3000, make: links, is_quick: false },
    Kind { name: "linked inodes", number: 2000, make: linked_inodes, is_quick: false },
    Kind { name: "extents", number: 1500, make: extents, is_quick: true },
    Kind { name: "holes", number: 1500, make: holes, is_quick: false },
    Kind { name: "attributes of one inode", number: 900, make: attributes, is_quick: true },
    Kind { name: "inodes with attributes", number: 1500, make: inodes_with_attributes, is_quick: false },
    Kind { name: "files that share blocks", number: 1000, make: clones, is_quick: true },
    Kind { name: "open files", number: 200, make: open_files, is_quick: false },
    Kind { name: "orphans", number: 200, make: orphans, is_quick: false },
];

/// The time of each command, in order.
type Costs = Vec<(String, u64)>;

pub(crate) fn run(run: &Run) -> Result<Report> {
    let _one = OneProcessor::choose()?;
    let (mut rows, mut too_much) = (0, Vec::new());
    println!("{:<46} {:>6} {:>10} {:>10} {:>6}", "what", "N", "N, ms", "4 N, ms", "ratio");
    for kind in KINDS.iter().filter(|kind| kind.is_quick || !run.quick) {
        let compared = Compared::of(kind)?;
        rows += compared.show(kind);
        too_much.extend(compared.too_much().into_iter().map(|what| format!("{}: {what}", kind.name)));
    }
    ensure!(
        too_much.is_empty(),
        "four times as much costs more than {RATIO_MAX} times as much: {}",
        too_much.join("; ")
    );
    let geometry = "growth: volumes of 512 MiB, mounted with no options".to_owned();
    Ok(Report { geometry, counts: vec![("rows of N against 4 N", rows)] })
}

/// Keeps this thread and the processes that it starts on one processor, until dropped.
struct OneProcessor {
    allowed_before: CpuSet,
}

impl OneProcessor {
    fn choose() -> Result<Self> {
        let allowed_before = sched_getaffinity(None)?;
        let mut one = CpuSet::new();
        one.set(sched_getcpu());
        sched_setaffinity(None, &one)?;
        Ok(OneProcessor { allowed_before })
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        if let Err(error) = sched_setaffinity(None, &self.allowed_before) {
            eprintln!("the tests stay on one processor: {error}");
        }
    }
}

/// The minimum time of each command with N and with 4 N.
#[derive(Default)]
struct Compared(BTreeMap<(usize, String), [Option<u64>; 2]>);

impl Compared {
    fn of(kind: &Kind) -> Result<Self> {
        let mut compared = Compared::default();
        for _ in 0..ROUNDS_MAX {
            for (size, number) in [kind.number, 4 * kind.number].into_iter().enumerate() {
                for (place, (what, cost)) in measure(kind, number)?.into_iter().enumerate() {
                    let least = &mut compared.0.entry((place, what)).or_default()[size];
                    *least = Some(least.map_or(cost, |least| least.min(cost)));
                }
            }
            if compared.too_much().is_empty() {
                break;
            }
        }
        Ok(compared)
    }

    fn rows(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.0.iter().filter_map(|((_, what), costs)| Some((what.as_str(), costs[0]?, costs[1]?)))
    }

    fn too_much(&self) -> Vec<&str> {
        let is_too_much =
            |&(_, small, large): &(&str, u64, u64)| large >= TIME_NS_MIN && ratio(small, large) > RATIO_MAX;
        self.rows().filter(is_too_much).map(|(what, ..)| what).collect()
    }

    fn show(&self, kind: &Kind) -> u64 {
        for (what, small, large) in self.rows() {
            let name = format!("{}: {what}", kind.name);
            let ms = |ns: u64| ns as f64 / 1e6;
            let ratio = ratio(small, large);
            println!("{name:<46} {:>6} {:>10.1} {:>10.1} {ratio:>6.1}", kind.number, ms(small), ms(large));
        }
        self.rows().count() as u64
    }
}

fn ratio(small: u64, large: u64) -> f64 {
    large as f64 / small.max(1) as f64
}

/// Creates this many, and runs every command on them.
fn measure(kind: &Kind, number: u64) -> Result<Costs> {
    let volume = Volume::make(&["--size", "512M"], &[])?;
    let mut costs = Costs::new();
    let done = (|| {
        costs.push(("mount, empty".to_owned(), volume.mount()?));
        mounted(kind, number, &volume, &mut costs)?;
        costs.push(("mount after the daemon was killed".to_owned(), volume.mount()?));
        costs.push(("umount".to_owned(), passed(|| volume.unmount())?));
        unmounted(&volume, &mut costs)?;
        costs.push(("mount".to_owned(), volume.mount()?));
        volume.unmount()
    })();
    let name = format!("growth-{}", kind.name.replace(' ', "-"));
    volume.keep_if_failed(&name, done.with_context(|| format!("{number} {}", kind.name)))?;
    Ok(costs)
}

/// Ends with the killing of the daemon.
fn mounted(kind: &Kind, number: u64, volume: &Volume, costs: &mut Costs) -> Result<()> {
    let (daemon, dir) = (Some(volume.pid()?), volume.dir());
    let before = spent(daemon)?;
    let open = (kind.make)(&dir, number)?;
    // Recently created files are not written yet.
    volume.command("sync").arg(&dir).run()?;
    costs.push(("make (daemon)".to_owned(), spent(daemon)? - before));
    let mut time = |what: &str, line: Line| cost(what, &line, daemon, costs);
    time("find, mounted", Line::new("find").arg(&dir).args(["-printf", "."]))?;
    time("du, mounted", Line::new("du -s").arg(&dir))?;
    for command in ["info", "stats", "zones", "sync", "check", "scrub", "fragments", "defrag", "gc"] {
        time(&format!("{command}, mounted"), volume.command(command).arg(&dir))?;
    }
    volume.kill()?;
    drop(open);
    Ok(())
}

fn unmounted(volume: &Volume, costs: &mut Costs) -> Result<()> {
    let file = volume.file();
    let folder = tempfile::Builder::new().prefix("accept-").tempdir_in(memory()?)?;
    let mut time = |what: &str, line: Line| cost(what, &line, None, costs);
    for command in ["info", "stats", "zones", "check", "scrub", "ls"] {
        time(command, volume.command(command).arg(&file))?;
    }
    time("check --data", volume.command("check").arg("--data").arg(&file))?;
    time("check --repair", volume.command("check").arg("--repair").arg(&file))?;
    time("dump journal", volume.command("dump").arg(&file).arg("journal"))?;
    time("dump inode 1", volume.command("dump").arg(&file).arg("inode").arg("1"))?;
    time("fragments", volume.command("fragments").arg(&file).arg("/"))?;
    time("cp -r", volume.command("cp").arg("-r").arg(&file).arg("/").arg(folder.path().join("copied")))?;
    time("salvage", volume.command("salvage").arg(&file).arg(folder.path().join("saved")))?;
    time("defrag", volume.command("defrag").arg(&file).arg("/"))?;
    time("gc", volume.command("gc").arg(&file))?;
    // Files deeper than the longest path are removed by a program that descends step by step.
    Line::new("rm -rf").arg(folder.path().join("copied")).arg(folder.path().join("saved")).run()
}

/// A folder in memory, because the time of a disk's file system is not in proportion and does not matter here.
fn memory() -> Result<PathBuf> {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { Ok(memory) } else { support::workspace::target_dir() }
}

/// Notes the processor time of a command and of the daemon.
fn cost(what: &str, line: &Line, daemon: Option<Pid>, costs: &mut Costs) -> Result<()> {
    let before = spent(daemon)?;
    line.output_bytes()?;
    costs.push((what.to_owned(), spent(daemon)?.saturating_sub(before)));
    Ok(())
}

/// Processor time of all ended commands and of the daemon so far.
fn spent(daemon: Option<Pid>) -> Result<u64> {
    let children = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let commands = (children.user_time() + children.system_time()).num_nanoseconds() as u64;
    Ok(commands + daemon.map_or(Ok(0), spent_by)?)
}

/// Processor time of one process.
fn spent_by(process: Pid) -> Result<u64> {
    let clock =
        clock_getcpuclockid(process).context("the system does not report the processor time of a process")?;
    Ok(TimeSpec::num_nanoseconds(&clock_gettime(clock)?) as u64)
}

fn passed(work: impl FnOnce() -> Result<()>) -> Result<u64> {
    let clock = SystemClock::new();
    let began_ns = clock.monotonic_ns();
    work()?;
    Ok(clock.monotonic_ns() - began_ns)
}

fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("name-{number:06}"))
}

fn names(dir: &Path, number: u64) -> Result<Vec<File>> {
    for n in 0..number {
        std::fs::write(path(dir, n), "a few bytes")?;
    }
    Ok(Vec::new())
}

/// Created and entered one by one. The last level is deeper than any path can be long.
fn levels(dir: &Path, number: u64) -> Result<Vec<File>> {
    let open = |within: &OwnedFd, name: &str| openat(within, name, OFlags::DIRECTORY, Mode::empty());
    let mut at = openat(CWD, dir, OFlags::DIRECTORY, Mode::empty())?;
    for _ in 0..number {
        mkdirat(&at, "a-level", Mode::RWXU)?;
        at = open(&at, "a-level")?;
    }
    let flags = OFlags::CREATE | OFlags::WRONLY;
    File::from(openat(&at, "deepest", flags, Mode::RWXU)?).write_all_at(b"a few bytes", 0)?;
    Ok(Vec::new())
}

fn links(dir: &Path, number: u64) -> Result<Vec<File>> {
    std::fs::write(dir.join("file"), "a few bytes")?;
    for n in 0..number {
        std::fs::hard_link(dir.join("file"), path(dir, n))?;
    }
    Ok(Vec::new())
}

fn linked_inodes(dir: &Path, number: u64) -> Result<Vec<File>> {
    names(dir, number)?;
    std::fs::create_dir(dir.join("links"))?;
    for n in 0..number {
        std::fs::hard_link(path(dir, n), path(&dir.join("links"), n))?;
    }
    Ok(Vec::new())
}

/// A file whose blocks are written in an order without neighbours.
fn extents(dir: &Path, number: u64) -> Result<Vec<File>> {
    let file = OpenOptions::new().write(true).create_new(true).open(dir.join("file"))?;
    for n in (0..number).rev() {
        file.write_all_at(&[n as u8; BLOCK as usize], n * BLOCK)?;
        if n % 16 == 0 {
            file.sync_data()?;
        }
    }
    Ok(Vec::new())
}

fn holes(dir: &Path, number: u64) -> Result<Vec<File>> {
    let file = OpenOptions::new().write(true).create_new(true).open(dir.join("file"))?;
    for n in 0..number {
        file.write_all_at(&[n as u8; BLOCK as usize], 3 * n * BLOCK)?;
    }
    file.sync_all()?;
    Ok(Vec::new())
}

fn set_attributes(file: &File, number: u64) -> Result<()> {
    for n in 0..number {
        fsetxattr(file, format!("user.{n:05}"), b"a value", XattrFlags::empty())?;
    }
    Ok(())
}

fn attributes(dir: &Path, number: u64) -> Result<Vec<File>> {
    set_attributes(&File::create(dir.join("file"))?, number)?;
    Ok(Vec::new())
}

fn inodes_with_attributes(dir: &Path, number: u64) -> Result<Vec<File>> {
    for n in 0..number {
        set_attributes(&File::create(path(dir, n))?, 2)?;
    }
    Ok(Vec::new())
}

/// Copies of one file, which share its blocks. Each has changed one of them.
fn clones(dir: &Path, number: u64) -> Result<Vec<File>> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(dir.join("file"))?;
    file.write_all_at(&[7; 8 * BLOCK as usize], 0)?;
    file.sync_all()?;
    for n in 0..number {
        let clone = File::create(path(dir, n))?;
        let copied = copy_file_range(&file, Some(&mut 0), &clone, None, 8 * BLOCK as usize)?;
        ensure!(copied as u64 == 8 * BLOCK, "{copied} bytes are copied");
        clone.write_all_at(&[n as u8; BLOCK as usize], n % 8 * BLOCK)?;
    }
    Ok(Vec::new())
}

fn open_files(dir: &Path, number: u64) -> Result<Vec<File>> {
    let open = |n| -> Result<File> {
        let file = File::create(path(dir, n))?;
        file.write_all_at(&[7; 2 * BLOCK as usize], 0)?;
        Ok(file)
    };
    (0..number).map(open).collect()
}

/// Files that have lost their names while they are open.
fn orphans(dir: &Path, number: u64) -> Result<Vec<File>> {
    let open = open_files(dir, number)?;
    for n in 0..number {
        std::fs::remove_file(path(dir, n))?;
    }
    Ok(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_quadratic_times_are_too_much() {
        let mut compared = Compared::default();
        for (place, (what, small, large)) in
            [("linear", 100, 500), ("quadratic", 100, 1600), ("too short to tell", 1, 16)]
                .into_iter()
                .enumerate()
        {
            let costs = [small, large].map(|ms| Some(ms * 1_000_000));
            compared.0.insert((place, what.to_owned()), costs);
        }
        assert_eq!(compared.too_much(), ["quadratic"]);
        assert_eq!(compared.show(&KINDS[0]), 3);
    }
}
