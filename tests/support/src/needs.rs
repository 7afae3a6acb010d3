//! What the project's commands need from the machine, why, and how it gets there.
//!
//! For root, what is missing is installed. For other users it is named, with the one command that installs it.
//!
//! A need is met when a check says so (`machine.rs`), and not when there is a program of its name. Packages
//! that would replace others are not installed: `vm` unpacks them below the target folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::machine::{self, Machine, Shown, has_file};
use crate::shell::Line;
use crate::workspace;

/// The versions of cargo's tools that are installed where there is none that is compatible.
const CARGO_DENY: &str = "0.20.2";
const CARGO_MUTANTS: &str = "27.1.0";
const CARGO_LLVM_COV: &str = "0.9.1";
const CARGO_NEXTEST: &str = "0.9.151";
const MDBOOK: &str = "0.5.4";

/// The oldest compiler that the workspace takes.
const RUST: &str = env!("CARGO_PKG_RUST_VERSION");

/// The oldest kernel whose FUSE (7.32) the daemon takes.
const KERNEL: &str = "5.10";

/// Something that must be on the machine.
#[derive(Debug)]
pub struct Need {
    /// The package, component or tool, as its installer knows it, or the part of the kernel.
    name: &'static str,
    how: How,
    check: fn(&Machine) -> Shown,
    /// What would not work without it.
    why: &'static str,
}

/// How it is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// By the distribution: `apt-get install`.
    Package,
    /// By `rustup component add`.
    Component,
    /// By `cargo install --locked`, at this version.
    Tool(&'static str),
    /// Not at all: the kernel has it, or this command loads it.
    Kernel(&'static str),
}

/// Mounting needs its set-uid helper when the user is not root, and unmounting when the daemon died.
const FUSE: Need = package("fuse3", fusermount, "mounts: tests, `accept` and `try`");
/// Without the kernel's side of FUSE every mount fails with a message that names no cure.
const FUSE_DEVICE: Need =
    kernel("/dev/fuse", "modprobe fuse", fuse_device, "mounts: tests, `accept` and `try`");
/// The needs of a mount.
pub const MOUNT: [Need; 2] = [FUSE, FUSE_DEVICE];

/// What a mount is compared with.
pub const EXT4: Need = package(
    "e2fsprogs",
    |machine| machine.makes("mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0", &machine::EXT4),
    "an ext4 to compare with, in `accept` and `bench`",
);
/// The other file system that a mount is compared with.
pub const XFS: Need = package(
    "xfsprogs",
    |machine| machine.makes("mkfs.xfs -q", &machine::XFS),
    "an XFS to compare with, in `accept` and `bench`",
);
/// Devices for the file systems that a mount is compared with.
pub const LOOP: Need = kernel(
    "loop devices",
    "modprobe loop",
    |machine| machine.runs("losetup --find"),
    "an ext4 and an XFS to compare with, in `accept` and `bench`",
);

const CLANG: Need =
    package("clang", |machine| machine.compiles("clang"), "building pjdfstest and a part of `accept 6`");

/// The counter of instructions.
pub const VALGRIND: Need = package(
    "valgrind",
    |machine| machine.runs("valgrind --version"),
    "counting instructions, in `instructions`",
);

/// A database without a server.
pub const SQLITE: Need = package(
    "sqlite3",
    |machine| machine.says("sqlite3 :memory: .databases", &["main"]),
    "a database in a file, in `accept 10` and `bench`",
);

/// A database of sorted files.
pub const ROCKSDB_TOOLS: Need =
    package("rocksdb-tools", rocksdb_tools, "a database of sorted files, in `accept 10` and `rocksdb`");

/// The programs that point 10 runs.
pub const PROGRAMS: [Need; 5] = [
    package("rsync", |machine| machine.copies("rsync -aHAXS"), "copies of everything, in `accept 10`"),
    SQLITE,
    package("postgresql", postgres_server, "a database with a server, in `accept 10`"),
    ROCKSDB_TOOLS,
    package(
        "stress-ng",
        |machine| machine.runs("stress-ng --version"),
        "many system calls at once, in `accept 10`",
    ),
];

/// The programs that the application crash tests run beside those.
pub const CRASH: [Need; 2] = [
    package("lmdb-utils", |machine| machine.runs("mdb_dump -V"), "a database in mapped memory, in `crash`"),
    package(
        "python3-lmdb",
        |machine| machine.imports(PYTHON, "lmdb"),
        "the program that writes to it, in `crash`",
    ),
];

/// The distribution's, whose modules its packages install.
pub const PYTHON: &str = "/usr/bin/python3";

/// The needs of `ycsb`, whose library reads RocksDB's headers.
pub const YCSB: [Need; 2] = [CLANG, ROCKSDB];

const COMPILER_OF_CPP: Need = package(
    "g++",
    |machine| machine.runs("g++ --version"),
    "tests in C and C++ of the library, and the plugin of RocksDB",
);

const ROCKSDB: Need = package(
    "librocksdb-dev",
    |_| has_file("/usr/include/rocksdb/c.h"),
    "the database of `ycsb`, and the plugin in `stage` and `rocksdb`",
);

/// What builds the plugin of RocksDB.
pub const PLUGIN: [Need; 3] = [
    ROCKSDB,
    COMPILER_OF_CPP,
    package("make", |machine| machine.runs("make --version"), "the plugin in `stage` and `rocksdb`"),
];

/// What builds packages, on Debian.
pub const PACKAGES: [Need; 2] = [
    package("dpkg", |machine| machine.runs("dpkg-deb --version"), "the `.deb` of `package`"),
    package("rpm", |machine| machine.runs("rpmbuild --version"), "the `.rpm` of `package`"),
];

/// The guest with zoned devices.
pub const GUEST: [Need; 3] = [
    package("qemu-system-x86", emulator, "the machine of `vm`"),
    package(
        "binutils",
        |machine| machine.runs("strip --version"),
        "a guest of `vm` without debugging information",
    ),
    package("util-linux", util_linux, "starting the machine of `vm`, and reading its zones"),
];

/// What `mutants` makes mistakes with, and what stops at the first test that fails.
pub const MUTANTS: [Need; 2] = [
    tool(
        "cargo-mutants",
        CARGO_MUTANTS,
        |machine| machine.compatible("cargo-mutants mutants --version", CARGO_MUTANTS),
        "making mistakes in the sources, in `mutants`",
    ),
    tool(
        "cargo-nextest",
        CARGO_NEXTEST,
        |machine| machine.compatible("cargo-nextest nextest --version", CARGO_NEXTEST),
        "running tests until one fails, in `mutants`",
    ),
];

/// What counts lines, in `coverage`.
pub const COVERAGE: [Need; 1] = [tool(
    "cargo-llvm-cov",
    CARGO_LLVM_COV,
    |machine| machine.compatible("cargo-llvm-cov llvm-cov --version", CARGO_LLVM_COV),
    "counting which lines are run, in `coverage`",
)];

/// The needs of the gate, beside those of mounts and of [`PROGRAMS`].
pub const GATE: [Need; 18] = [
    component("rustfmt", |machine| machine.runs("cargo-fmt --version"), "the step fmt"),
    component("clippy", |machine| machine.runs("cargo-clippy --version"), "the step clippy"),
    package(
        "git",
        |machine| machine.runs("git --version"),
        "`tidy` reads the list of files, `accept 1` clones",
    ),
    FUSE,
    package(
        "attr",
        |machine| machine.runs("getfattr --version").and_then(|()| machine.runs("setfattr --version")),
        "tests of extended attributes through a mount",
    ),
    package(
        "acl",
        |machine| machine.runs("getfacl --version").and_then(|()| machine.runs("setfacl --version")),
        "tests of access control lists through a mount",
    ),
    package(
        "python3",
        |machine| machine.imports("python3", "mmap"),
        "tests of files that are mapped through a mount",
    ),
    package(
        "pkg-config",
        |machine| machine.runs("pkg-config --version"),
        "tests in C, which find the library by it",
    ),
    COMPILER_OF_CPP,
    CURL,
    IPROUTE2,
    EXT4,
    XFS,
    package("libacl1-dev", |_| has_file("/usr/include/sys/acl.h"), "building pjdfstest"),
    CLANG,
    VALGRIND,
    tool(
        "cargo-deny",
        CARGO_DENY,
        |machine| machine.compatible("cargo-deny --version", CARGO_DENY),
        "the step deny",
    ),
    BOOK,
];

/// Chapters of the book query the status page with it.
const CURL: Need = package(
    "curl",
    |machine| machine.says("curl --version", &["http"]),
    "commands of the book, in the tests",
);

/// It gives a chapter of the book a network of its own.
const IPROUTE2: Need = package(
    "iproute2",
    |machine| machine.runs("ip -Version"),
    "the network of a chapter of the book, in the tests",
);

const BOOK: Need =
    tool("mdbook", MDBOOK, |machine| machine.compatible("mdbook --version", MDBOOK), "the step book");

const fn package(name: &'static str, check: fn(&Machine) -> Shown, why: &'static str) -> Need {
    Need { name, how: How::Package, check, why }
}

const fn component(name: &'static str, check: fn(&Machine) -> Shown, why: &'static str) -> Need {
    Need { name, how: How::Component, check, why }
}

const fn tool(
    name: &'static str,
    version: &'static str,
    check: fn(&Machine) -> Shown,
    why: &'static str,
) -> Need {
    Need { name, how: How::Tool(version), check, why }
}

const fn kernel(
    name: &'static str,
    cure: &'static str,
    check: fn(&Machine) -> Shown,
    why: &'static str,
) -> Need {
    Need { name, how: How::Kernel(cure), check, why }
}

fn fusermount(machine: &Machine) -> Shown {
    machine.says("fusermount3 --version", &["version: 3"])?;
    if is_root().unwrap_or(false) { Ok(()) } else { machine.is_set_uid("fusermount3") }
}

fn fuse_device(machine: &Machine) -> Shown {
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    opened.map_err(|error| format!("/dev/fuse cannot be opened: {error}"))?;
    machine.at_least("uname -r", KERNEL).map_err(|reason| format!("the kernel's FUSE is too old: {reason}"))
}

/// `psql` alone could be a client's, and a server can be there without the programs that check its files.
fn postgres_server(machine: &Machine) -> Shown {
    machine.runs("id -u postgres")?;
    postgres_programs().map(drop).map_err(|error| format!("{error:#}"))
}

/// Where Debian keeps the programs of each version of PostgreSQL.
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";
/// The programs of a version that the system tests run.
const POSTGRES_PROGRAMS: [&str; 6] = ["initdb", "pg_amcheck", "pg_checksums", "pg_ctl", "pgbench", "psql"];

/// The folder of the newest version of PostgreSQL that is installed with all of its programs.
pub fn postgres_programs() -> Result<PathBuf> {
    let mut versions = Vec::new();
    for entry in std::fs::read_dir(POSTGRES_VERSIONS).context("PostgreSQL is not where Debian has it")? {
        let path = entry?.path();
        let version = path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
        let is_whole =
            |path: &Path| POSTGRES_PROGRAMS.iter().all(|program| path.join("bin").join(program).is_file());
        if let Some(version) = version.filter(|_| is_whole(&path)) {
            versions.push((version, path.join("bin")));
        }
    }
    versions.sort();
    let newest = versions
        .pop()
        .with_context(|| format!("no version in {POSTGRES_VERSIONS} has {}", POSTGRES_PROGRAMS.join(", ")))?;
    Ok(newest.1)
}

/// What the emulator has to log, so that the suites in the guest can count commands.
pub const EMULATOR_EVENTS: [&str; 4] =
    ["pci_nvme_io_cmd", "pci_nvme_read", "pci_nvme_write", "pci_nvme_enqueue_req_completion"];

/// Whether the machine's own emulator has zoned namespaces, works without hardware support, and logs the
/// commands that suites count. Placement handles are for one suite alone, which fetches an emulator that has them.
fn emulator(machine: &Machine) -> Shown {
    let zoned = ["zoned.zone_size", "zoned.zone_capacity", "zoned.max_open", "zoned.max_active"];
    machine.says("qemu-system-x86_64 -device nvme-ns,help", &zoned)?;
    machine.says("qemu-system-x86_64 -device nvme,help", &["zoned.zasl"])?;
    machine.says("qemu-system-x86_64 -accel help", &["tcg"])?;
    machine.says("qemu-system-x86_64 -trace help", &EMULATOR_EVENTS)
}

fn rocksdb_tools(machine: &Machine) -> Shown {
    ["db_bench --version", "ldb --version", "sst_dump --version"]
        .into_iter()
        .try_for_each(|command| machine.runs(command))
}

/// Other packages have programs of these names that know less.
fn util_linux(machine: &Machine) -> Shown {
    machine.says("blkzone --help", &["--force"])?;
    machine.says("setpriv --help", &["--pdeathsig"])
}

/// The packages of the distribution that any command needs, each once.
pub fn packages() -> impl Iterator<Item = &'static Need> {
    let all = [&GATE[..], &PROGRAMS, &CRASH, &YCSB, &PLUGIN, &GUEST];
    let packages = all.into_iter().flatten().filter(|need| need.how == How::Package);
    // Commands have needs in common.
    packages.map(|need| (need.name, need)).collect::<BTreeMap<_, _>>().into_values()
}

/// The exit status of a command that shows nothing because the machine lacks something.
pub const LACKS: u8 = 77;

/// The machine lacks something that this command cannot get.
#[derive(Debug)]
pub struct Lacks(String);

impl std::error::Error for Lacks {}

impl std::fmt::Display for Lacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The error of a command that shows nothing because the machine lacks something.
pub fn lacks(what: impl Into<String>) -> anyhow::Error {
    Lacks(what.into()).into()
}

/// Fails for others than root.
pub fn require_root(what: &str) -> Result<()> {
    if is_root()? { Ok(()) } else { Err(lacks(format!("only root can {what}: use sudo"))) }
}

/// Fails where there is no nightly compiler.
pub fn require_nightly() -> Result<()> {
    nightly()
        .map_err(|reason| lacks(format!("a nightly compiler is needed: {reason}; run: {}", nightly_line())))
}

/// Adds a component to the nightly compiler where it is missing.
pub fn require_nightly_component(name: &str) -> Result<()> {
    let line = Line::new("rustup component add --toolchain nightly").arg(name);
    line.run().map_err(|error| lacks(format!("the nightly compiler's {name} cannot be had: {error:#}")))
}

/// Installs a nightly compiler where there is none and this process may do so; whether there is one afterwards.
pub fn provide_nightly() -> Result<bool> {
    if let (Err(reason), true) = (nightly(), is_root()?) {
        println!("Installing: {} ({reason})", nightly_line());
        nightly_line().run()?;
    }
    Ok(has_nightly())
}

/// Whether there is a nightly compiler that takes the workspace.
pub fn has_nightly() -> bool {
    nightly().is_ok()
}

fn nightly() -> Shown {
    let machine = Machine::this();
    machine.at_least("rustc +nightly --version", RUST)?;
    machine.runs("cargo +nightly --version")
}

/// The command that installs it, or a newer one.
pub fn nightly_line() -> Line {
    Line::new("rustup toolchain install nightly --profile minimal")
}

/// A suite of tests for file systems that is a crate of its own. It is kept in the target folder, by its
/// version, so that it is built once and nothing outside of this checkout changes.
pub struct Suite {
    name: &'static str,
    version: &'static str,
}

/// POSIX by the letter: 398 tests of one system call each.
pub const PJDFSTEST: Suite = Suite { name: "pjdfstest", version: "0.2.2" };
/// Random operations on one file, compared with what they should have done.
pub const FSX: Suite = Suite { name: "fsx", version: "0.3.2" };

impl Suite {
    /// The program; built now where it is not there yet.
    pub fn program(&self) -> Result<PathBuf> {
        let tools = workspace::target_dir()?.join("tools");
        let root = tools.join(format!("{}-{}", self.name, self.version));
        let program = root.join("bin").join(self.name);
        let runs = || Line::program(&program).arg("--help").verdict().is_ok_and(|(runs, _)| runs);
        if !runs() {
            self.install_line(&root, &tools.join("build")).run()?;
            ensure!(runs(), "{} was built and does not run", program.display());
        }
        Ok(program)
    }

    fn install_line(&self, root: &Path, build: &Path) -> Line {
        let line = Line::new("cargo install --locked --force").args([self.name, "--version", self.version]);
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

/// The first reason why the plugin of RocksDB cannot be built here.
pub fn lacks_of_plugin() -> Option<String> {
    let machine = Machine::this();
    PLUGIN
        .iter()
        .find_map(|need| need.missing(&machine))
        .map(|(need, reason)| format!("{}: {reason}", need.name))
}

/// Makes sure of some needs: installs them as root, says what to do otherwise.
pub fn require<'a>(needs: impl IntoIterator<Item = &'a Need>) -> Result<()> {
    require_on(&Machine::this(), needs, is_root()?)
}

fn require_on<'a>(
    machine: &Machine,
    needs: impl IntoIterator<Item = &'a Need>,
    may_install: bool,
) -> Result<()> {
    let needs: Vec<&Need> = needs.into_iter().collect();
    let missing: Vec<(&Need, String)> = needs.iter().filter_map(|need| need.missing(machine)).collect();
    if missing.is_empty() {
        println!("Nothing to install: all {} needs are met.", needs.len());
        return Ok(());
    }
    for (need, reason) in &missing {
        println!("Missing: {}, needed for {}: {reason}.", need.name, need.why);
    }
    if let Some((need, cure, reason)) = missing.iter().find_map(|(need, reason)| match need.how {
        How::Kernel(cure) => Some((need, cure, reason)),
        _ => None,
    }) {
        let name = need.name;
        return Err(lacks(format!(
            "{name}: {reason}; no package has it, try (as root, on the host): {cure}"
        )));
    }
    let lines = install_lines(&missing.iter().map(|(need, _)| *need).collect::<Vec<_>>());
    if !may_install {
        let command = one_command(&lines);
        return Err(lacks(format!("not everything is installed, and only root may; run: {command}")));
    }
    lines.iter().try_for_each(|line| {
        println!("Installing: {line}");
        line.run()
    })?;
    after_installing(machine, &missing)
}

/// Fails if a need is still not met.
fn after_installing(machine: &Machine, missing: &[(&Need, String)]) -> Result<()> {
    match missing.iter().find_map(|(need, _)| need.missing(machine)) {
        Some((need, reason)) => bail!(
            "{} was installed, and still {reason}; if another program has that name, remove it or put it behind the \
             package's in PATH",
            need.name
        ),
        None => Ok(()),
    }
}

impl Need {
    /// Itself and the reason, if it is not met.
    fn missing(&self, machine: &Machine) -> Option<(&Need, String)> {
        (self.check)(machine).err().map(|reason| (self, reason))
    }
}

/// The commands that install what is missing, in order.
fn install_lines(missing: &[&Need]) -> Vec<Line> {
    let names = |how: How| {
        let names = missing.iter().filter(move |need| need.how == how).map(|need| need.name);
        names.collect::<BTreeSet<_>>()
    };
    let mut lines = Vec::new();
    if !names(How::Package).is_empty() {
        lines.push(Line::new("apt-get update"));
        lines.push(
            Line::new("apt-get install --yes --no-install-recommends")
                .args(names(How::Package))
                .env("DEBIAN_FRONTEND", "noninteractive"),
        );
    }
    if !names(How::Component).is_empty() {
        lines.push(Line::new("rustup component add").args(names(How::Component)));
    }
    lines.extend(missing.iter().filter_map(|need| match need.how {
        How::Tool(version) => Some(tool_line(need.name, version)),
        How::Package | How::Component | How::Kernel(_) => None,
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
pub fn is_root() -> Result<bool> {
    Ok(Line::new("id -u").output()?.trim() == "0")
}

#[cfg(test)]
mod tests;
