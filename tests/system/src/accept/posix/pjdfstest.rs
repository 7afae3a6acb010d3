//! `pjdfstest` on a mount and on an ext4 for comparison.
//!
//! It disables tests that it cannot run, so a pass is only worth the tests that were not skipped. Every test that
//! passes on ext4 and not on Polder must be in [`EXCLUDES`].

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use support::needs;
use support::shell::Line;
use support::workspace;

use crate::accept::ext4::Ext4;
use crate::accept::volume::Volume;

/// Tests that pass on ext4 and are skipped on Polder, each with its reason.
const EXCLUDES: [(&str, &str); 1] = [(
    "link::link_count_max",
    "the C library tells the most links by the type of file system and does not know FUSE's, so the test \
     cannot know when to stop",
)];

/// The listed features exist on every file system here. The thirteen tests that remount read-only are left out. They
/// fail on every file system, also on ext4, because the suite still has a file open for writing then, and the kernel
/// reports that the mount is busy.
const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
utime_now = {}
utimensat = {}
rename_ctime = {}
stat_st_birthtime = {}

[settings]
naptime = 0.01
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["games", "games"]]
"#;

const EXT4_BYTES: u64 = 256 << 20;
/// At least this many must pass on ext4. Otherwise the suite has disabled more than it should.
const PASSED_MIN: usize = 380;

/// The tests that passed.
pub(super) struct Passed {
    pub(super) geometry: String,
    pub(super) tests: u64,
    pub(super) tests_of_ext4: u64,
}

pub(super) fn run() -> Result<Passed> {
    needs::require(&[needs::EXT4])?;
    let volume = Volume::make(&["--size", "1G"], &[])?;
    volume.keep_if_failed("pjdfstest", compare(&volume))
}

fn compare(volume: &Volume) -> Result<Passed> {
    let folder = tempfile::Builder::new().prefix("accept-").tempdir_in(workspace::target_dir()?)?;
    let ext4 = Ext4::mount(folder.path(), EXT4_BYTES)?;
    volume.mount()?;
    let geometry = volume.geometry()?;
    let theirs = Verdicts::of(&ext4.dir, folder.path())?;
    let ours = Verdicts::of(&volume.dir(), folder.path())?;
    volume.unmount()?;
    volume.check()?;
    for (test, why) in &ours.skipped {
        let reason =
            EXCLUDES.iter().find(|(excluded, _)| excluded == test).map_or(why.as_str(), |(_, why)| why);
        println!("  skipped {test}: {reason}");
    }
    println!(
        "pjdfstest: Polder passed {} and skipped {}, ext4 passed {} and skipped {}",
        ours.passed.len(),
        ours.skipped.len(),
        theirs.passed.len(),
        theirs.skipped.len()
    );
    ensure!(theirs.passed.len() >= PASSED_MIN, "only {} tests passed on ext4", theirs.passed.len());
    judge(&ours, &theirs)?;
    Ok(Passed { geometry, tests: ours.passed.len() as u64, tests_of_ext4: theirs.passed.len() as u64 })
}

/// Checks that nothing failed on Polder, and that every test that passes on ext4 passes on Polder or is excluded.
fn judge(ours: &Verdicts, theirs: &Verdicts) -> Result<()> {
    ensure!(ours.failed.is_empty(), "failed on Polder: {}", ours.failed.join(", "));
    let missing = theirs.passed.iter().filter(|test| !ours.passed.contains(test));
    let excluded = |test: &String| EXCLUDES.iter().any(|(excluded, _)| excluded == test);
    let unexplained: Vec<&str> = missing.filter(|test| !excluded(test)).map(String::as_str).collect();
    ensure!(unexplained.is_empty(), "passed on ext4 and not on Polder: {}", unexplained.join(", "));
    let needless = EXCLUDES.iter().find(|(test, _)| ours.passed.iter().any(|passed| passed == test));
    if let Some((test, _)) = needless {
        bail!("{test} is excluded but passes");
    }
    Ok(())
}

/// The result of each test.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdicts {
    passed: Vec<String>,
    failed: Vec<String>,
    /// With the suite's own reason.
    skipped: BTreeMap<String, String>,
}

impl Verdicts {
    /// Runs all tests in a directory; `folder` is on another file system.
    fn of(dir: &Path, folder: &Path) -> Result<Verdicts> {
        let configuration = folder.join("pjdfstest.toml");
        std::fs::write(&configuration, CONFIGURATION)?;
        let line = Line::program(needs::PJDFSTEST.program()?)
            .arg("--configuration-file")
            .arg(&configuration)
            .arg("--secondary-fs")
            .arg(folder)
            .arg("--path")
            .arg(dir)
            .in_dir(dir);
        println!("{line}");
        let (succeeded, printed) = line.verdict()?;
        let verdicts = Verdicts::read(&printed)?;
        if !succeeded {
            printed.lines().for_each(|line| println!("  {line}"));
            ensure!(!verdicts.failed.is_empty(), "`{line}` failed without a failed test");
        }
        Ok(verdicts)
    }

    /// Parses `chmod::errno::enoent  ok`, with the reason of a skipped test on the next line, and compares the number
    /// of tests with the summary.
    fn read(printed: &str) -> Result<Verdicts> {
        let mut verdicts = Verdicts::default();
        let mut lines = printed.lines().peekable();
        while let Some(line) = lines.next() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [test, verdict] = words[..] else { continue };
            if line.starts_with(char::is_whitespace) || !test.contains("::") {
                continue;
            }
            match verdict {
                "ok" => verdicts.passed.push(test.to_owned()),
                "skipped" => {
                    let reason = lines.next_if(|next| next.starts_with(char::is_whitespace));
                    let reason = reason.map_or("the suite gives no reason", str::trim);
                    verdicts.skipped.insert(test.to_owned(), reason.to_owned());
                }
                _ => verdicts.failed.push(test.to_owned()),
            }
        }
        let total = verdicts.passed.len() + verdicts.failed.len() + verdicts.skipped.len();
        let counted = total_of(printed).context("pjdfstest prints no summary")?;
        ensure!(total == counted && total > 0, "{total} verdicts were read, the summary counts {counted}");
        Ok(verdicts)
    }
}

/// `Summary: 0 failed, 15 skipped, 383 passed, 0 expected failures, 398 total`.
fn total_of(printed: &str) -> Option<usize> {
    let summary = printed.lines().find_map(|line| line.strip_prefix("Summary: "))?;
    let (_, total) = summary.rsplit_once(", ")?;
    total.strip_suffix(" total")?.parse().ok()
}

#[cfg(test)]
mod tests;
