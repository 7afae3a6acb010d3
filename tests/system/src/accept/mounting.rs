//! Point 7: a volume is mounted with the system's usual programs.
//!
//! The system's own programs mount it: `mount` by type and by `/etc/fstab`, `mount -a`, `fsck -A`, and a systemd of
//! our own. Each runs in namespaces of its own, so that the machine is not changed (`mounting/*.sh`). Then: a
//! read-only mount writes not one byte, not even after a crash, and shows the same as `polder ls`, `cat` and `cp`
//! without a mount. A mount whose daemon was killed is replaced. A signal waits for the last open file. And a daemon
//! with little memory accepts more dirty pages than fit into it.
//!
//! The quick form has fewer files and rounds. The system's own programs and the memory limit need root. systemd is
//! left out if it or its control groups are missing. The report lists everything that was left out.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use rt::thread::Stop;
use rt::{Clock, SystemClock};
use support::mounts::is_mounted;
use support::needs;
use support::shell::Line;
use support::workspace;

use super::volume::Volume;
use super::{Report, Run};

/// The memory limit of daemon and writer together, and the bytes to write.
const MEMORY_BYTES: usize = 64 << 20;
const WRITTEN_BYTES: usize = 160 << 20;
const SYSTEMD: &str = "/lib/systemd/systemd";
/// Time limit for the reaction to a signal, and the interval of checks.
const PATIENCE_NS: u64 = 10_000_000_000;
const LOOK: Duration = Duration::from_millis(1);

pub(super) fn run(run: &Run) -> Result<Report> {
    let size = if run.quick { "256M" } else { "1G" };
    let volume = Volume::make(&["--size", size], &["-o", "commit=3600"])?;
    let place =
        tempfile::Builder::new().prefix("accept-").tempdir().context("cannot make a temporary folder")?;
    let proof = Proof { volume: &volume, place: place.path(), random: fastrand::Rng::with_seed(run.seed) };
    volume.keep_if_failed("mounting", proof.run(run.quick))
}

struct Proof<'a> {
    volume: &'a Volume,
    /// An empty folder.
    place: &'a Path,
    random: fastrand::Rng,
}

impl Proof<'_> {
    fn run(mut self, quick: bool) -> Result<Report> {
        let is_root = Line::new("id -u").output()?.trim() == "0";
        let left_out = left_out(is_root);
        if !quick && !left_out.is_empty() {
            let all = left_out.join("; ");
            return Err(needs::lacks(format!("{all}: the quick form shows the rest")));
        }
        left_out.iter().for_each(|what| println!("left out: {what}"));
        let mut counts = if is_root { self.names_of_the_system()? } else { Vec::new() };
        self.volume.mount()?;
        let geometry = self.volume.geometry()?;
        let (files, rounds) = if quick { (150, 2) } else { (2000, 10) };
        let (mut entries, mut bytes) = (0, 0);
        for round in 0..rounds {
            self.fill(round, files)?;
            Line::program(self.volume.polder())
                .arg("sync")
                .arg(self.volume.dir())
                .env(super::volume::RUN_DIR, &self.volume.run_dir())
                .run()?;
            self.volume.kill()?;
            let seen = self.look(round)?;
            entries += seen.0;
            bytes += seen.1;
            self.dead_mount()?;
            self.signal(round)?;
            self.volume.check()?;
            self.volume.mount()?;
        }
        self.volume.unmount()?;
        self.volume.check()?;
        if is_root {
            counts
                .push(("times that the daemon and its writer met the limit of their memory", self.memory()?));
            self.volume.check()?;
        }
        counts.extend([
            ("crashes after which a reader wrote nothing", rounds),
            ("files and directories that ls, cat and cp showed as the mount does", entries),
            ("bytes in them", bytes),
            ("dead mounts replaced", rounds),
            ("signals that waited for an open file", rounds),
            ("mounts", self.volume.mounts()),
        ]);
        let geometry =
            left_out.iter().fold(geometry, |all, what| format!("{all}\n          left out: {what}"));
        Ok(Report { geometry, counts })
    }

    /// `mount`, `fsck` and systemd, which find Polder by the names that `polder install` creates.
    fn names_of_the_system(&self) -> Result<Vec<(&'static str, u64)>> {
        let names = self.script("unshare --mount sh", "names.sh")?;
        let mut counts = vec![("ways in which mount and fsck were used", names)];
        if has_systemd() {
            counts.push(("jobs of systemd", self.script("sh", "systemd.sh")?));
        }
        Ok(counts)
    }

    /// Runs a script with a folder and a volume of its own. Returns its count.
    fn script(&self, shell: &str, name: &str) -> Result<u64> {
        let place = self.place.join(name);
        fs::create_dir(&place)?;
        let volume = self.place.join(format!("{name}.volume"));
        Line::program(self.volume.polder()).arg("mkfs").arg(&volume).args(["--size", "256M"]).run()?;
        let line = Line::new(shell).arg(script(name)).arg(self.volume.polder()).arg(place).arg(volume);
        let printed = line.env(super::volume::RUN_DIR, &self.volume.run_dir()).output()?;
        printed.lines().for_each(|line| println!("{line}"));
        Ok(printed.lines().filter(|line| line.starts_with("seen: ")).count() as u64)
    }

    /// Writes files of all sizes into a directory of its own.
    fn fill(&mut self, round: u64, files: u64) -> Result<()> {
        let directory = self.volume.dir().join(format!("round-{round}/below"));
        fs::create_dir_all(&directory)?;
        for number in 0..files {
            let length = self.random.usize(0..40_000);
            let contents: Vec<u8> = std::iter::repeat_with(|| self.random.u8(..)).take(length).collect();
            fs::write(directory.join(format!("file-{number}")), contents)?;
        }
        std::os::unix::fs::symlink("below/file-0", directory.with_file_name("link"))?;
        Ok(fs::hard_link(directory.join("file-1"), directory.with_file_name("name"))?)
    }

    /// Reads a volume that was not unmounted, with a mount and without. Not one byte of it may change.
    fn look(&self, round: u64) -> Result<(u64, u64)> {
        let (file, copy) = (self.volume.file(), self.place.join(format!("copy-{round}")));
        let before = fs::read(&file)?;
        let polder = |name: &str| Line::program(self.volume.polder()).arg(name).arg(&file);
        polder("cp").arg("/").arg(&copy).arg("-r").run()?;
        let listed = polder("ls").arg(format!("round-{round}/below")).output()?;
        self.volume.mount_with(&["-o", "ro"])?;
        let root = self.volume.dir();
        let seen = compare(&root, &copy)?;
        let mut names = names(&root.join(format!("round-{round}/below")))?;
        names.sort();
        ensure!(
            listed.lines().eq(names.iter().map(String::as_str)),
            "`polder ls` lists other names than the mount"
        );
        self.volume.unmount()?;
        let cat = polder("cat").arg(format!("round-{round}/link")).output_bytes()?;
        ensure!(cat == fs::read(copy.join(format!("round-{round}/link")))?, "`polder cat` shows other bytes");
        ensure!(fs::read(&file)? == before, "reading has changed the volume");
        fs::remove_dir_all(&copy)?;
        Ok(seen)
    }

    /// Mounts over the dead mount of a killed daemon, with nothing in between.
    fn dead_mount(&self) -> Result<()> {
        self.volume.mount()?;
        self.volume.strike()?;
        self.volume.await_end()?;
        ensure!(is_mounted(&self.volume.dir())?, "the mount of a killed daemon has gone by itself");
        self.volume.mount()?;
        ensure!(self.volume.dir().join("round-0").is_dir(), "the new mount does not show the volume");
        Ok(())
    }

    /// SIGTERM while a file is open: the mount is lazily unmounted at once, and gone when the file is closed. Nothing
    /// is lost.
    fn signal(&self, round: u64) -> Result<()> {
        let name = format!("open-{round}");
        let mut open = File::create(self.volume.dir().join(&name))?;
        open.write_all(b"before ")?;
        let pid = self.volume.pid()?;
        kill(pid, Signal::SIGTERM)?;
        let clock = SystemClock::new();
        while is_mounted(&self.volume.dir())? {
            ensure!(clock.monotonic_ns() < PATIENCE_NS, "SIGTERM does not lazily unmount the volume");
            Stop::default().wait(LOOK);
        }
        open.write_all(b"and after the signal")?;
        kill(pid, None).context("the daemon has ended with a file open")?;
        drop(open);
        self.volume.await_end()?;
        let line = Line::program(self.volume.polder()).arg("cat").arg(self.volume.file()).arg(name);
        ensure!(line.output()? == "before and after the signal", "a write before or after a signal is lost");
        Ok(())
    }

    /// Writes more than fits into the memory of daemon and writer.
    fn memory(&mut self) -> Result<u64> {
        let source = self.place.join("source");
        let contents: Vec<u8> = (0..WRITTEN_BYTES).map(|at| (at / 4099 + at) as u8).collect();
        fs::write(&source, &contents)?;
        let line = Line::new("sh").arg(script("memory.sh")).arg(self.volume.polder()).arg(self.volume.file());
        let line = line.arg(self.volume.dir()).arg(&source).arg(MEMORY_BYTES.to_string());
        let printed = line.env(super::volume::RUN_DIR, &self.volume.run_dir()).output()?;
        let file = self.volume.file();
        let written =
            Line::program(self.volume.polder()).arg("cat").arg(file).arg("written").output_bytes()?;
        ensure!(written == contents, "the bytes written with little memory have changed");
        printed.trim().parse().with_context(|| format!("{printed}: no count"))
    }
}

fn has_systemd() -> bool {
    Path::new(SYSTEMD).exists() && Path::new("/sys/fs/cgroup").exists()
}

/// The parts that cannot be shown here, and why.
fn left_out(is_root: bool) -> Vec<&'static str> {
    let all = [
        (!is_root, "mount, fstab, fsck -A and limits of memory, which are root's"),
        (!is_root || !has_systemd(), "systemd, which is not here, or has no control groups, or is root's"),
    ];
    all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, what)| what).collect()
}

fn script(name: &str) -> PathBuf {
    workspace::root().join("tests/system/src/accept/mounting").join(name)
}

fn names(directory: &Path) -> Result<Vec<String>> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// Everything below two directories must be equal. Returns the number of entries, and of bytes in files.
fn compare(one: &Path, other: &Path) -> Result<(u64, u64)> {
    let (found, copied) = (fs::symlink_metadata(one)?, fs::symlink_metadata(other)?);
    let shown = one.display();
    ensure!(found.file_type() == copied.file_type(), "{shown} was copied as something else");
    ensure!(found.modified()? == copied.modified()?, "{shown} was copied with another time");
    if found.is_symlink() {
        ensure!(fs::read_link(one)? == fs::read_link(other)?, "{shown} was copied with another target");
        return Ok((1, 0));
    }
    if found.is_file() {
        ensure!(fs::read(one)? == fs::read(other)?, "{shown} was copied with other contents");
        return Ok((1, found.len()));
    }
    let (mut wanted, mut there) = (names(one)?, names(other)?);
    wanted.sort();
    there.sort();
    ensure!(wanted == there, "{shown} was copied with other names");
    let mut seen = (1, 0);
    for name in wanted {
        let below = compare(&one.join(&name), &other.join(&name))?;
        seen = (seen.0 + below.0, seen.1 + below.1);
    }
    Ok(seen)
}
