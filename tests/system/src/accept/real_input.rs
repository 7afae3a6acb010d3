//! Point 4: real programs with real input find their data on Polder, also after a crash.
//!
//! A source tree is unpacked on the mount and compared with the same tree elsewhere. git commits it there, clones it,
//! packs it and verifies it. The daemon is killed while the tree is being copied to another place (which may be
//! lost). After the next mount everything is compared once more. Then cargo builds this workspace on the mount, with
//! all its output there too, and the result is run there.
//!
//! The tree is the kernel's source as packed by Debian. The quick form takes the last commit of this repository
//! instead, and builds one crate of it and a program of one line.
//! repository instead, and builds one crate of it and a program of one line.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use rt::thread::Stop;
use rt::{Clock, SystemClock};
use support::shell::Line;
use support::workspace;

use super::volume::{Volume, number};
use super::{Report, Run};

/// The package with the kernel's source, and the file in it.
const KERNEL_PACKAGE: &str = "linux-source-6.1";
const KERNEL_ARCHIVE: &str = "/usr/src/linux-source-6.1.tar.xz";

/// The prefix of copies that a crash may destroy.
const COPY: &str = "copy-";
/// How much of the copies must have reached the daemon before it is killed, and the time limit for that.
const COPIED_MIN: u64 = 256 << 10;
const COPY_NS_MAX: u64 = 60_000_000_000;
const LOOK: Duration = Duration::from_millis(1);

pub(super) fn run(run: &Run) -> Result<Report> {
    let elsewhere = tempfile::Builder::new()
        .prefix("accept-")
        .tempdir_in(workspace::target_dir()?)
        .context("cannot make a temporary folder")?;
    let archive = if run.quick { pack_this(elsewhere.path())? } else { kernel()? };
    let volume = Volume::make(&["--size", if run.quick { "512M" } else { "16G" }], &[])?;
    let proof = Proof { volume: &volume, archive, elsewhere: elsewhere.path(), quick: run.quick };
    volume.keep_if_failed("real-input", proof.run())
}

/// The last commit of this repository.
fn pack_this(folder: &Path) -> Result<PathBuf> {
    let archive = folder.join("source.tar");
    Line::new("git archive --format=tar --output").arg(&archive).arg("HEAD").run()?;
    Ok(archive)
}

/// The kernel's source. It is installed if it is missing and may be installed.
fn kernel() -> Result<PathBuf> {
    let archive = PathBuf::from(KERNEL_ARCHIVE);
    if !archive.exists() {
        println!("{KERNEL_ARCHIVE} is not there; installing {KERNEL_PACKAGE} (only root may)");
        Line::new("apt-get update").run()?;
        Line::new("apt-get install --yes --no-install-recommends")
            .arg(KERNEL_PACKAGE)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .run()?;
    }
    ensure!(archive.exists(), "{KERNEL_PACKAGE} brought no {KERNEL_ARCHIVE}");
    Ok(archive)
}

struct Proof<'a> {
    volume: &'a Volume,
    archive: PathBuf,
    elsewhere: &'a Path,
    quick: bool,
}

impl Proof<'_> {
    fn run(&self) -> Result<Report> {
        self.volume.mount()?;
        let geometry = format!("{}; {}", self.volume.geometry()?, self.archive.display());
        let clock = SystemClock::new();
        let wanted = self.unpack()?;
        let progress = |what: &str| println!("{what} after {} s", clock.monotonic_ns() / 1_000_000_000);
        self.compare("source", &wanted)?;
        progress("unpacked and compared");
        let objects = self.use_git()?;
        progress("committed, cloned, packed and verified");
        sync_all(&self.volume.dir())?;
        let user_bytes = number(&self.volume.stats()?, "/written/user_bytes")?;

        self.kill_while_copying()?;
        self.volume.mount_in_time()?;
        let compared = self.compare("source", &wanted)? + self.compare("clone", &wanted)?;
        let verified = self.verify_git("source")? + self.verify_git("clone")?;
        progress("killed, mounted and compared again");
        for copy in self.copies()? {
            std::fs::remove_dir_all(&copy).with_context(|| format!("cannot remove {}", copy.display()))?;
        }
        let built = self.build()?;
        progress("built and run");
        self.volume.unmount()?;
        self.volume.check()?;
        Ok(Report {
            geometry,
            counts: vec![
                ("files of the tree", wanted.len() as u64),
                ("bytes written before the crash", user_bytes),
                ("files compared after the crash", compared),
                ("objects of git", objects),
                ("repositories verified after the crash", verified),
                ("files that cargo made", built),
                ("mounts", self.volume.mounts()),
                ("longest mount, ms", (self.volume.mount_ns_max() / 1_000_000).max(1)),
            ],
        })
    }

    /// Unpacks the tree twice, on the mount and elsewhere. Returns the tree of the latter.
    fn unpack(&self) -> Result<Tree> {
        let (there, here) = (self.elsewhere.join("tree"), self.tree("source"));
        for folder in [&there, &here] {
            std::fs::create_dir(folder)?;
            let line = Line::new("tar --extract --no-same-owner --strip-components");
            line.arg(if self.quick { "0" } else { "1" })
                .arg("--file")
                .arg(&self.archive)
                .arg("--directory")
                .arg(folder)
                .run()?;
        }
        let tree = read_tree(&there)?;
        ensure!(!tree.is_empty(), "{} holds no file", self.archive.display());
        Ok(tree)
    }

    /// Commits the tree, clones it, packs and verifies both. Returns the number of objects.
    fn use_git(&self) -> Result<u64> {
        let (source, clone) = (self.tree("source"), self.tree("clone"));
        git(&source, &["init", "--quiet"])?;
        // Its own rules leave files out, and the clone must have all.
        git(&source, &["add", "--all", "--force"])?;
        git(&source, &["commit", "--quiet", "--message", "all"])?;
        git(&source, &["clone", "--quiet", "--no-local", ".", &clone.to_string_lossy()])?;
        for repository in [&source, &clone] {
            git(repository, &["gc", "--quiet"])?;
        }
        self.verify_git("source")?;
        self.verify_git("clone")?;
        let counted = git(&source, &["rev-list", "--all", "--objects"])?;
        Ok(counted.lines().count() as u64)
    }

    /// Checks that every object of a repository is intact, and its files are the committed ones.
    fn verify_git(&self, name: &str) -> Result<u64> {
        let repository = self.tree(name);
        git(&repository, &["fsck", "--full", "--strict", "--no-progress"])?;
        let changed = git(&repository, &["status", "--porcelain"])?;
        ensure!(changed.trim().is_empty(), "git sees unexpected changes in {name}: {changed}");
        Ok(1)
    }

    fn compare(&self, name: &str, wanted: &Tree) -> Result<u64> {
        let found = read_tree(&self.tree(name))?;
        judge(wanted, &found).with_context(|| format!("{name} differs from the unpacked tree"))?;
        Ok(found.len() as u64)
    }

    /// Copies the tree to the mount again and again, and kills the daemon during that.
    fn kill_while_copying(&self) -> Result<()> {
        let (from, to) = (self.elsewhere.join("tree"), self.volume.dir());
        let before = number(&self.volume.stats()?, "/written/user_bytes")?;
        let copying = rt::thread::spawn("copy", move || {
            // The first failed copy is the last one: the daemon is gone.
            (0..).find_map(|copy| {
                let line = Line::new("cp --recursive").env("LC_ALL", "C").arg(&from);
                let line = line.arg(to.join(format!("{COPY}{copy}")));
                match line.verdict() {
                    Ok((true, _)) => None,
                    failed => Some((copy, failed)),
                }
            })
        })?;
        let struck = self.await_copy(before).and_then(|()| self.volume.strike());
        if struck.is_err() {
            // It ends when it cannot write any more, and the thread with it.
            let _ = self.volume.strike();
        }
        let copied = copying.join().map_err(|_| anyhow!("the copying thread panicked"))?;
        struck?;
        let (copies, failed) = copied.context("copying ended by itself")?;
        let (_, printed) = failed?;
        let lost = printed.contains("not connected") || printed.contains("connection abort");
        ensure!(lost, "the copy failed, but not because of the kill: {printed}");
        println!("killed during copy {copies}");
        self.volume.await_end()?;
        self.volume.detach()
    }

    /// Waits until some of the copy has reached the daemon.
    fn await_copy(&self, before: u64) -> Result<()> {
        let clock = SystemClock::new();
        while number(&self.volume.stats()?, "/written/user_bytes")? < before + COPIED_MIN {
            ensure!(clock.monotonic_ns() < COPY_NS_MAX, "nothing of the copy reaches the daemon");
            Stop::default().wait(LOOK);
        }
        Ok(())
    }

    /// The copies after the crash.
    fn copies(&self) -> Result<Vec<PathBuf>> {
        let mut copies = Vec::new();
        for entry in std::fs::read_dir(self.volume.dir())? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(COPY) {
                copies.push(entry.path());
            }
        }
        Ok(copies)
    }

    /// Builds on the mount from sources on the mount, and runs the result. Returns the number of files.
    fn build(&self) -> Result<u64> {
        let target = self.volume.dir().join("target");
        let cargo = |words: &str, source: &Path| {
            let line = Line::new(words).args(["--quiet", "--offline"]).in_dir(source);
            line.env("CARGO_TARGET_DIR", &target.to_string_lossy()).run()
        };
        let program = if self.quick {
            cargo("cargo check --package polder-rt --locked", &self.tree("clone"))?;
            cargo("cargo build", &self.small_package()?)?;
            "small"
        } else {
            cargo("cargo build --workspace --locked", &self.workspace_here()?)?;
            "polder"
        };
        let printed = Line::program(target.join("debug").join(program)).arg("--version").output()?;
        let wanted = format!("{program} {}", env!("CARGO_PKG_VERSION"));
        ensure!(
            printed.trim() == wanted,
            "the program built on the mount prints {printed:?}, not {wanted:?}"
        );
        Ok(read_tree(&target)?.len() as u64)
    }

    /// A package on the mount whose program prints its name and version.
    fn small_package(&self) -> Result<PathBuf> {
        let dir = self.tree("small");
        std::fs::create_dir_all(dir.join("src"))?;
        let version = env!("CARGO_PKG_VERSION");
        let package = format!("[package]\nname = \"small\"\nversion = \"{version}\"\n[workspace]\n");
        std::fs::write(dir.join("Cargo.toml"), package)?;
        let program = r#"fn main() { println!("small {}", env!("CARGO_PKG_VERSION")); }"#;
        std::fs::write(dir.join("src/main.rs"), program)?;
        Ok(dir)
    }

    /// The last commit of this workspace, on the mount.
    fn workspace_here(&self) -> Result<PathBuf> {
        let dir = self.tree("workspace");
        Line::new("git clone --quiet --no-local .").arg(&dir).run()?;
        Ok(dir)
    }

    fn tree(&self, name: &str) -> PathBuf {
        self.volume.dir().join(name)
    }
}

/// Runs git without the user's settings, and with an author. Returns its output.
pub(crate) fn git(repository: &Path, args: &[&str]) -> Result<String> {
    Line::new("git -c user.name=polder -c user.email=polder@localhost -c gc.auto=0")
        .args(args)
        .in_dir(repository)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .without_env("GIT_DIR")
        .without_env("GIT_INDEX_FILE")
        .output()
}

/// Makes everything durable. `sync` does not reach a FUSE mount, so each file is synced.
fn sync_all(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sync_all(&entry.path())?;
        } else if kind.is_file() {
            File::open(entry.path())?
                .sync_all()
                .with_context(|| format!("{} cannot be synced", entry.path().display()))?;
        }
    }
    Ok(())
}

/// The properties of a path: kind and permissions, length, and a checksum of its contents.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    mode: u32,
    length: u64,
    sum: u64,
}

/// Every path below a folder, except git's own.
type Tree = BTreeMap<PathBuf, Entry>;

fn read_tree(root: &Path) -> Result<Tree> {
    let mut tree = Tree::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder);
        for entry in entries.with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry?.path();
            let relative = path.strip_prefix(root).expect("it was found below").to_owned();
            if relative == Path::new(".git") {
                continue;
            }
            let metadata = std::fs::symlink_metadata(&path)?;
            if metadata.is_dir() {
                folders.push(path);
            } else {
                tree.insert(relative, read_entry(&path, &metadata)?);
            }
        }
    }
    Ok(tree)
}

fn read_entry(path: &Path, metadata: &std::fs::Metadata) -> Result<Entry> {
    let bytes = if metadata.is_symlink() {
        std::fs::read_link(path)?.into_os_string().into_encoded_bytes()
    } else {
        std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?
    };
    ensure!(bytes.len() as u64 == metadata.len(), "{} is not as long as it says", path.display());
    // Git stores only one permission: whether a file is executable.
    let mode = metadata.mode() & !0o066;
    Ok(Entry { mode, length: metadata.len(), sum: sum(&bytes) })
}

/// A checksum of 64 bits that depends on every bit and its place.
fn sum(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    bytes.chunks(8).fold(bytes.len() as u64, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let mixed = (sum ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
        mixed ^ (mixed >> 29)
    })
}

/// Checks that both have the same paths with the same contents.
fn judge(wanted: &Tree, found: &Tree) -> Result<()> {
    for (path, entry) in wanted {
        let there = found.get(path).with_context(|| format!("{} is missing", path.display()))?;
        ensure!(there == entry, "{} is {there:?}, not {entry:?}", path.display());
    }
    let added = found.keys().find(|path| !wanted.contains_key(*path));
    ensure!(added.is_none(), "{added:?} was never unpacked");
    Ok(())
}

#[cfg(test)]
mod tests;
