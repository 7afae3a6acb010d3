//! Builds all mutants into the same test programs (`weave.rs`).
//!
//! Mutants that do not compile are removed until the rest compiles, by the lines that the compiler names. A removed
//! mutant may still compile alone, and is tried later.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use support::shell::Line;

use super::copy::Copy;
use super::drawing::Mutant;
use super::weave::{self, Woven};
use super::{ASKED, Package};

/// Files and their contents.
type Sources = BTreeMap<String, String>;

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Program {
    pub(super) package: String,
    pub(super) path: PathBuf,
    /// Its working directory, as cargo sets it.
    pub(super) dir: PathBuf,
}

/// Test programs that contain mutants.
pub(super) struct Together {
    pub(super) programs: Vec<Program>,
    /// The numbers of the contained mutants.
    pub(super) mutants: BTreeSet<usize>,
}

/// Builds as many of the mutants as possible. The copy is unchanged when this returns.
pub(super) fn build(copy: &Copy, folder: &Path, mutants: &[&Mutant]) -> Result<Together> {
    let libs = Package::ALL.map(|package| format!("{}/src/lib.rs", package.asked()[0].folder));
    let files = mutants.iter().map(|mutant| mutant.file.clone()).chain(libs.clone());
    let sources = files.map(|file| Ok((file.clone(), read(copy, &file)?))).collect::<Result<Sources>>()?;
    let built = compile(copy, folder, mutants, &sources, &libs);
    for (file, source) in &sources {
        write(copy, file, source)?;
    }
    built
}

fn compile(
    copy: &Copy,
    folder: &Path,
    mutants: &[&Mutant],
    sources: &Sources,
    libs: &[String],
) -> Result<Together> {
    let mut left: Vec<&Mutant> = mutants.to_vec();
    loop {
        let mut woven = BTreeMap::new();
        for (file, source) in sources {
            let members: Vec<&Mutant> = left.iter().copied().filter(|mutant| mutant.file == *file).collect();
            let with_mistakes = weave::weave(source, &members);
            let switch = if libs.contains(file) { switch() } else { String::new() };
            write(copy, file, &format!("{}{switch}", with_mistakes.text))?;
            woven.insert(file.as_str(), with_mistakes);
        }
        // A check is quick, and reports nearly all errors of a build.
        let mut blamed = blamed(&asked_of(copy, "check --keep-going"), &woven)?.0;
        if blamed.is_empty() {
            let (blamed_now, printed) = self::blamed(&asked_of(copy, "test --no-run"), &woven)?;
            if blamed_now.is_empty() {
                let mutants = woven.values().flat_map(Woven::numbers).collect();
                return Ok(Together { programs: copy_programs(&printed, folder)?, mutants });
            }
            blamed = blamed_now;
        }
        println!("{} mistakes do not compile beside the others", blamed.len());
        left.retain(|mutant| !blamed.contains(&mutant.place.number));
    }
}

/// The cargo command for all packages.
fn asked_of(copy: &Copy, what: &str) -> Line {
    let line = Line::new("cargo").args(what.split(' ')).args(["--locked", "--message-format", "json"]);
    let line = ASKED.iter().fold(line, |line, asked| line.args(["--package", asked.package]));
    line.env("CARGO_PROFILE_DEV_DEBUG", "false").in_dir(copy.root())
}

fn read(copy: &Copy, file: &str) -> Result<String> {
    fs::read_to_string(copy.root().join(file)).with_context(|| format!("cannot read {file}"))
}

fn write(copy: &Copy, file: &str, text: &str) -> Result<()> {
    fs::write(copy.root().join(file), text).with_context(|| format!("cannot write {file}"))
}

/// The module that selects the active mutant.
fn switch() -> String {
    let lines = weave::SWITCH.lines().filter(|line| !line.starts_with("//!"));
    format!("\nmod {} {{\n{}\n}}\n", weave::MODULE, lines.collect::<Vec<_>>().join("\n"))
}

/// The mutants that keep it from compiling, and the output of cargo.
fn blamed(line: &Line, woven: &BTreeMap<&str, Woven>) -> Result<(BTreeSet<usize>, String)> {
    let (succeeds, printed) = line.verdict()?;
    let mut blamed = BTreeSet::new();
    for (file, line) in errors(&printed) {
        let of = woven.get(file.as_str()).map(|woven| woven.blamed(line)).unwrap_or_default();
        ensure!(!of.is_empty(), "{file}:{line} does not compile, and there is no mutant");
        blamed.extend(of);
    }
    ensure!(succeeds || !blamed.is_empty(), "`{line}` fails, and no mutant is the cause");
    Ok((blamed, printed))
}

/// Files and lines with compiler errors.
fn errors(printed: &str) -> Vec<(String, usize)> {
    let messages = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let errors = messages.filter(|printed| printed["message"]["level"] == "error");
    let spans =
        errors.flat_map(|printed| printed["message"]["spans"].as_array().cloned().unwrap_or_default());
    spans
        .filter(|span| span["is_primary"] == true)
        .filter_map(|span| {
            Some((span["file_name"].as_str()?.to_owned(), span["line_start"].as_u64()? as usize))
        })
        .collect()
}

/// Copies the test programs, so that the next build does not replace them.
fn copy_programs(printed: &str, folder: &Path) -> Result<Vec<Program>> {
    fs::create_dir_all(folder).context("cannot make a folder for programs")?;
    let mut programs = Vec::new();
    for (built, dir) in built(printed) {
        let asked = ASKED.into_iter().find(|asked| dir.ends_with(asked.folder));
        let asked = asked.with_context(|| format!("{} was not requested", built.display()))?;
        let package = asked.package.to_owned();
        let path = folder.join(format!("{package}-{}", programs.len()));
        fs::copy(&built, &path).with_context(|| format!("cannot copy {}", built.display()))?;
        programs.push(Program { package, path, dir });
    }
    ensure!(!programs.is_empty(), "cargo built no tests");
    Ok(programs)
}

/// The test programs that cargo has built, and the folders of their packages.
fn built(printed: &str) -> Vec<(PathBuf, PathBuf)> {
    let messages = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_tests = messages.filter(|printed| printed["profile"]["test"] == true);
    of_tests
        .filter_map(|printed| {
            let (program, manifest) = (printed["executable"].as_str()?, printed["manifest_path"].as_str()?);
            Some((PathBuf::from(program), Path::new(manifest).parent()?.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests;
