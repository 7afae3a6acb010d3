//! The contents of the guest: one archive that the kernel unpacks into memory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use support::shell::Line;
use support::{busybox, needs, workspace};
use tempfile::TempPath;

use super::kernel::Kernel;
use super::peers;
use super::suite::{Program, Suite};

/// The prefix of folders from which an archive is made.
pub(super) const TREE: &str = "image-";
/// The suffix of archives.
pub(super) const ARCHIVE: &str = ".cpio";
/// The guest's first process.
pub(super) const INIT: &str = include_str!("init.sh");
/// The common part of suites that go through kinds of devices.
const KINDS: &str = include_str!("suites/kinds.sh");
/// The common part of suites that query the emulator.
const ASK: &str = include_str!("suites/ask.sh");
/// The common part of suites that compare the device's report of its zones with the volume's.
const REPORT: &str = include_str!("suites/report.sh");
/// The users of the guest.
const USERS: &str = "root:x:0:0::/:/bin/sh\ngames:x:5:60::/:/bin/false\nnobody:x:65534:65534::/:/bin/false\n";
const GROUPS: &str = "root:x:0:\ngames:x:60:\nnogroup:x:65534:\n";

/// Builds the programs of a suite, and packs them into an archive with everything that they need. The archive is
/// removed with the returned path, because another command may create another one meanwhile.
pub(super) fn build(home: &Path, kernel: &Kernel, suite: &Suite) -> Result<TempPath> {
    let folder = tempfile::Builder::new().prefix(TREE).tempdir_in(home)?;
    let tree = folder.path();
    // It is the guest's root, which all users may enter.
    fs::set_permissions(tree, fs::Permissions::from_mode(0o755))?;
    for folder in ["bin", "dev", "etc", "proc", "sys", "tmp", "run", "mnt", "suites"] {
        fs::create_dir_all(tree.join(folder))?;
    }
    kernel.put_modules(tree, suite.peers)?;
    let busybox = busybox::fetch(home)?;
    fs::copy(&busybox, tree.join("bin/busybox"))?;
    for program in suite.programs {
        let (program, name) = (program.build()?, program.name());
        Line::new("strip -o").arg(tree.join("bin").join(name)).arg(&program).run()?;
        libraries(&program)?.iter().try_for_each(|library| put(library, tree))?;
    }
    if suite.peers {
        Line::new("cp -a").arg(peers::fetch(home)?).arg(tree).run()?;
    }
    fs::write(tree.join("init"), INIT)?;
    fs::set_permissions(tree.join("init"), fs::Permissions::from_mode(0o755))?;
    fs::write(tree.join("etc/passwd"), USERS)?;
    fs::write(tree.join("etc/group"), GROUPS)?;
    fs::write(tree.join("suites/kinds"), KINDS)?;
    fs::write(tree.join("suites/ask"), ASK)?;
    fs::write(tree.join("suites/report"), REPORT)?;
    fs::write(tree.join("suites").join(suite.name), suite.script)?;
    let image = tempfile::Builder::new().suffix(ARCHIVE).tempfile_in(home)?.into_temp_path();
    pack(tree, &image, &busybox)?;
    Ok(image)
}

impl Program {
    /// The name that suites use.
    fn name(self) -> &'static str {
        match self {
            Program::Polder | Program::PolderReleased => "polder",
            Program::ZoneTests => "zone-tests",
            Program::ZoneUnitTests => "zone-unit-tests",
            Program::Po2UnitTests => "po2-unit-tests",
            Program::Pjdfstest => "pjdfstest",
            Program::Fsx => "fsx",
            Program::Simulator => "polder-sim",
            Program::Blkzone => "blkzone",
        }
    }

    /// The path of the program. Built now if necessary.
    fn build(self) -> Result<PathBuf> {
        match self {
            Program::Polder => built("polder-cli", "polder"),
            Program::PolderReleased => workspace::build_polder(),
            Program::ZoneTests => tests("polder-zone", "--test all"),
            Program::ZoneUnitTests => tests("polder-zone", "--lib"),
            Program::Po2UnitTests => tests("polder-po2", "--lib"),
            Program::Pjdfstest => needs::PJDFSTEST.program(),
            Program::Fsx => needs::FSX.program(),
            Program::Simulator => built("polder-sim", "polder-sim"),
            Program::Blkzone => Ok(Line::new("which blkzone").output()?.trim().into()),
        }
    }
}

fn built(package: &str, program: &str) -> Result<PathBuf> {
    Line::new("cargo build --locked --package").args([package, "--bin", program]).run()?;
    Ok(workspace::target_dir()?.join("debug").join(program))
}

/// A test program of a package.
fn tests(package: &str, which: &str) -> Result<PathBuf> {
    let line = Line::new("cargo test --locked --no-run --message-format json --package").arg(package);
    let printed = line.args(which.split(' ')).output()?;
    let mut programs = printed.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    programs.next_back().context("cargo names no program of the tests")
}

/// The shared libraries that a program needs, including its loader.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let printed = Line::new("ldd").arg(program).output()?;
    let files = printed.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect();
    Ok(files)
}

/// Copies a file of this machine to the same place in the tree.
fn put(file: &Path, tree: &Path) -> Result<()> {
    let place = tree.join(file.strip_prefix("/").context("libraries have absolute paths")?);
    fs::create_dir_all(place.parent().context("a library lies in a folder")?)?;
    fs::copy(file, place).with_context(|| file.display().to_string())?;
    Ok(())
}

fn pack(tree: &Path, image: &Path, busybox: &Path) -> Result<()> {
    let list = Line::new("find .").in_dir(tree).output()?;
    let names = tree.with_extension("names");
    fs::write(&names, list)?;
    let line = busybox::line(busybox, "cpio -o -H newc").in_dir(tree);
    let (input, output) = (fs::File::open(&names)?, fs::File::create(image)?);
    let packed = line.start(Stdio::from(input), Stdio::from(output), Stdio::null())?.wait()?;
    fs::remove_file(&names)?;
    ensure!(packed.success(), "`{line}` failed ({packed})");
    Ok(())
}
