//! What the gate needs from the machine, why, and how it gets there.
//!
//! This is the only part of the project's commands that uses the network. Root: what is missing is
//! installed. Everyone else: what is missing is named, with the one command that installs it.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::shell::{Line, has_program};
use crate::{vm, workspace};

/// The versions of cargo's tools that are installed where there are none.
const CARGO_DENY: &str = "0.20.2";
const CARGO_MUTANTS: &str = "27.1.0";
const CARGO_LLVM_COV: &str = "0.9.1";
const CARGO_NEXTEST: &str = "0.9.151";

/// Something that must be on the machine.
#[derive(Debug)]
pub(crate) struct Need {
    /// The package, component or tool, as its installer knows it.
    name: &'static str,
    how: How,
    /// The program that shows it is there, as it is called.
    probe: &'static str,
    /// What would not work without it.
    why: &'static str,
}

/// Who installs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// The distribution: `apt-get install`.
    Package,
    /// `rustup component add`.
    Component,
    /// `cargo install --locked`, at this version.
    Tool(&'static str),
}

/// Mounting needs its set-uid helper when the user is not root, and unmounting when the daemon died.
pub(crate) const FUSE: Need = package("fuse3", "fusermount3", "mounts: tests, `accept` and `try`");

/// What a mount is compared with.
pub(crate) const EXT4: Need =
    package("e2fsprogs", "mkfs.ext4", "an ext4 to compare with, in `accept` and `bench`");
pub(crate) const XFS: Need =
    package("xfsprogs", "mkfs.xfs", "an XFS to compare with, in `accept` and `bench`");

/// The programs that point 10 runs.
pub(crate) const PROGRAMS: [Need; 5] = [
    package("rsync", "rsync", "copies of everything, in `accept 10`"),
    package("sqlite3", "sqlite3", "a database in a file, in `accept 10`"),
    // `psql` alone could be a client's.
    package("postgresql", "pg_ctlcluster", "a database with a server, in `accept 10`"),
    package("rocksdb-tools", "db_bench", "a database of sorted files, in `accept 10`"),
    package("stress-ng", "stress-ng", "many system calls at once, in `accept 10`"),
];

/// The programs that `knife` runs beside those.
pub(crate) const KNIFE: [Need; 2] = [
    package("lmdb-utils", "mdb_dump", "a database in mapped memory, in `knife`"),
    // A module: no program shows that it is there.
    package(
        "python3-lmdb",
        "/usr/lib/python3/dist-packages/lmdb/__init__.py",
        "what writes to it, in `knife`",
    ),
];

/// What the programs of `ycsb` are built with.
pub(crate) const YCSB: [Need; 2] = [
    package("librocksdb-dev", "/usr/include/rocksdb/c.h", "the database of `ycsb`"),
    // Its library reads RocksDB's headers.
    package("clang", "clang", "building the driver of `ycsb`"),
];

/// The guest with zoned devices.
pub(crate) const GUEST: [Need; 4] = [
    package("qemu-system-x86", "qemu-system-x86_64", "the machine of `vm`"),
    package("busybox-static", "busybox", "what runs in the guest of `vm`, beside Polder"),
    package("binutils", "strip", "a guest of `vm` without debugging information"),
    package("util-linux", "blkzone", "what the kernel says of zones, in `vm`"),
];

/// What `mutants` makes mistakes with, and what stops at the first test that fails.
pub(crate) const MUTANTS: [Need; 2] = [
    tool("cargo-mutants", CARGO_MUTANTS, "making mistakes in the sources, in `mutants`"),
    tool("cargo-nextest", CARGO_NEXTEST, "running tests until one fails, in `mutants`"),
];

/// What counts lines, in `coverage`.
pub(crate) const COVERAGE: [Need; 1] =
    [tool("cargo-llvm-cov", CARGO_LLVM_COV, "counting which lines are run, in `coverage`")];

const NEEDS: [Need; 12] = [
    Need { name: "rustfmt", how: How::Component, probe: "cargo-fmt", why: "the step fmt" },
    Need { name: "clippy", how: How::Component, probe: "cargo-clippy", why: "the step clippy" },
    package("git", "git", "`tidy` reads the list of files, `accept 1` clones"),
    FUSE,
    package("attr", "getfattr", "tests of extended attributes through a mount"),
    package("acl", "setfacl", "tests of access control lists through a mount"),
    package("python3", "python3", "tests of files that are mapped through a mount"),
    EXT4,
    XFS,
    // Headers: no program shows that they are there.
    package("libacl1-dev", "/usr/include/sys/acl.h", "building pjdfstest"),
    package("clang", "clang", "building pjdfstest"),
    tool("cargo-deny", CARGO_DENY, "the step deny"),
];

const fn package(name: &'static str, probe: &'static str, why: &'static str) -> Need {
    Need { name, how: How::Package, probe, why }
}

const fn tool(name: &'static str, version: &'static str, why: &'static str) -> Need {
    Need { name, how: How::Tool(version), probe: name, why }
}

/// Installs (or names) everything that the gate needs and fetches the crates it is built from.
pub(crate) fn run() -> Result<()> {
    let needs: Vec<Need> = NEEDS.into_iter().chain(PROGRAMS).collect();
    require(&needs)?;
    check_fuse_device()?;
    Line::new("cargo fetch --locked").run()?;
    set_up_fuzzing()?;
    [PJDFSTEST, FSX].iter().try_for_each(|suite| suite.program().map(drop))?;
    // Others are told by the step that it does not run.
    if is_root()? { vm::prepare().map(drop) } else { Ok(()) }
}

/// The compiler that fuzzing needs. Others than root are told by the step that it does not run.
fn set_up_fuzzing() -> Result<()> {
    if !has_nightly() && is_root()? {
        println!("Installing: {}", nightly_line());
        nightly_line().run()?;
    }
    if !has_nightly() {
        return Ok(());
    }
    Line::new("cargo fetch --locked --manifest-path fuzz/Cargo.toml").run()
}

/// Whether there is a nightly compiler.
pub(crate) fn has_nightly() -> bool {
    Line::new("rustc +nightly --version").verdict().is_ok_and(|(works, _)| works)
}

/// What installs it.
pub(crate) fn nightly_line() -> Line {
    Line::new("rustup toolchain install nightly --profile minimal")
}

/// A suite of tests for file systems that is a crate of its own. It is kept in the target folder, by its
/// version, so that it is built once and nothing outside of this checkout changes.
pub(crate) struct Suite {
    name: &'static str,
    version: &'static str,
}

/// POSIX by the letter: 398 tests of one system call each.
pub(crate) const PJDFSTEST: Suite = Suite { name: "pjdfstest", version: "0.2.2" };
/// Random operations on one file, compared with what they should have done.
pub(crate) const FSX: Suite = Suite { name: "fsx", version: "0.3.2" };

impl Suite {
    /// The program; built now where it is not there yet.
    pub(crate) fn program(&self) -> Result<PathBuf> {
        let tools = workspace::target_dir()?.join("tools");
        let root = tools.join(format!("{}-{}", self.name, self.version));
        let program = root.join("bin").join(self.name);
        if !program.is_file() {
            self.install_line(&root, &tools.join("build")).run()?;
        }
        Ok(program)
    }

    fn install_line(&self, root: &Path, build: &Path) -> Line {
        let line = Line::new("cargo install --locked").args([self.name, "--version", self.version]);
        quickly_built(line.arg("--root").arg(root).arg("--target-dir").arg(build))
    }
}

/// What runs for seconds is not worth minutes of optimising.
fn quickly_built(line: Line) -> Line {
    line.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_RELEASE_LTO", "false")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "256")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
}

/// Makes sure of some needs: installs them as root, says what to do otherwise.
pub(crate) fn require(needs: &[Need]) -> Result<()> {
    let missing: Vec<&Need> = needs.iter().filter(|need| !has_program(need.probe)).collect();
    if missing.is_empty() {
        println!("Nothing to install: all {} needed programs are there.", needs.len());
        return Ok(());
    }
    for need in &missing {
        println!("Missing: {} (no program `{}`), needed for {}.", need.name, need.probe, need.why);
    }
    let lines = install_lines(&missing);
    if !is_root()? {
        bail!("not everything is installed, and only root may; run: {}", one_command(&lines));
    }
    lines.iter().try_for_each(|line| {
        println!("Installing: {line}");
        line.run()
    })?;
    match missing.iter().find(|need| !has_program(need.probe)) {
        Some(need) => bail!("{} was installed but there is still no program `{}`", need.name, need.probe),
        None => Ok(()),
    }
}

/// Without the kernel's side of FUSE every mount fails with a message that names no cure.
pub(crate) fn check_fuse_device() -> Result<()> {
    if std::path::Path::new("/dev/fuse").exists() {
        return Ok(());
    }
    bail!("there is no /dev/fuse, so nothing can be mounted; run: modprobe fuse (as root, on the host)")
}

/// The commands that install what is missing, in order.
fn install_lines(missing: &[&Need]) -> Vec<Line> {
    let names = |how: How| missing.iter().filter(move |need| need.how == how).map(|need| need.name);
    let mut lines = Vec::new();
    if names(How::Package).next().is_some() {
        lines.push(Line::new("apt-get update"));
        lines.push(
            Line::new("apt-get install --yes --no-install-recommends")
                .args(names(How::Package))
                .env("DEBIAN_FRONTEND", "noninteractive"),
        );
    }
    if names(How::Component).next().is_some() {
        lines.push(Line::new("rustup component add").args(names(How::Component)));
    }
    lines.extend(missing.iter().filter_map(|need| match need.how {
        How::Tool(version) => Some(tool_line(need.name, version)),
        How::Package | How::Component => None,
    }));
    lines
}

/// Installs one of cargo's tools, some of which ask for one code unit and link-time optimisation by themselves.
fn tool_line(name: &str, version: &str) -> Line {
    let line = Line::new("cargo install --locked --no-default-features");
    quickly_built(line.args([name, "--version", version]))
}

/// The same as something to paste into a shell: `sudo` where root is needed.
fn one_command(lines: &[Line]) -> String {
    let with_sudo = |line: &Line| {
        let shown = line.to_string();
        if shown.contains("apt-get") { format!("sudo {shown}") } else { shown }
    };
    lines.iter().map(with_sudo).collect::<Vec<_>>().join(" && ")
}

/// Whether this process may do everything.
pub(crate) fn is_root() -> Result<bool> {
    Ok(Line::new("id -u").output()?.trim() == "0")
}

#[cfg(test)]
mod tests;
