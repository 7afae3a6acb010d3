//! What is in the guest: one archive that the kernel unpacks into memory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::kernel::Kernel;
use super::suite::SUITES;
use crate::shell::Line;
use crate::workspace;

/// The guest's first process.
const INIT: &str = include_str!("init.sh");

/// Builds Polder and its tests, and puts them into an archive with all that they need.
pub(super) fn build(home: &Path, kernel: &Kernel) -> Result<PathBuf> {
    let tree = home.join("image");
    let _ = fs::remove_dir_all(&tree);
    for folder in ["bin", "dev", "proc", "sys", "tmp", "run", "mnt", "suites"] {
        fs::create_dir_all(tree.join(folder))?;
    }
    Line::new("cp -a").arg(kernel.modules.join("lib")).arg(&tree).run()?;
    let busybox = Line::new("which busybox").output()?;
    fs::copy(busybox.trim(), tree.join("bin/busybox"))?;
    for (program, name) in [(polder()?, "polder"), (tests()?, "zone-tests")] {
        Line::new("strip -o").arg(tree.join("bin").join(name)).arg(&program).run()?;
        libraries(&program)?.iter().try_for_each(|library| put(library, &tree))?;
    }
    fs::write(tree.join("init"), INIT)?;
    fs::set_permissions(tree.join("init"), fs::Permissions::from_mode(0o755))?;
    for suite in &SUITES {
        fs::write(tree.join("suites").join(suite.name), suite.script)?;
    }
    let image = home.join("image.cpio");
    pack(&tree, &image)?;
    fs::remove_dir_all(&tree)?;
    Ok(image)
}

fn polder() -> Result<PathBuf> {
    Line::new("cargo build --locked --package polder --bin polder").run()?;
    Ok(workspace::target_dir()?.join("debug/polder"))
}

/// The program with the public tests of the crate `zone`.
fn tests() -> Result<PathBuf> {
    let line =
        Line::new("cargo test --locked --package polder-zone --test all --no-run --message-format json");
    let said = line.output()?;
    let mut programs = said.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    programs.next_back().context("cargo names no program of the tests")
}

/// The files of the shared libraries that a program needs, its loader among them.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let said = Line::new("ldd").arg(program).output()?;
    let files = said.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect();
    Ok(files)
}

/// Copies a file of this machine to the same place in the tree.
fn put(file: &Path, tree: &Path) -> Result<()> {
    let place = tree.join(file.strip_prefix("/").context("libraries have absolute paths")?);
    fs::create_dir_all(place.parent().context("a library lies in a folder")?)?;
    fs::copy(file, place).with_context(|| file.display().to_string())?;
    Ok(())
}

fn pack(tree: &Path, image: &Path) -> Result<()> {
    let list = Line::new("find .").in_dir(tree).output()?;
    let names = tree.with_extension("names");
    fs::write(&names, list)?;
    let line = Line::new("busybox cpio -o -H newc").in_dir(tree);
    let (input, output) = (fs::File::open(&names)?, fs::File::create(image)?);
    let packed = line.start(Stdio::from(input), Stdio::from(output), Stdio::null())?.wait()?;
    fs::remove_file(&names)?;
    ensure!(packed.success(), "`{line}` failed ({packed})");
    Ok(())
}
