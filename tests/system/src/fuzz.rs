//! `cargo system fuzz`: libFuzzer on every decoder and on a mount, for a little while each (docs/testing.md).
//!
//! One program contains all targets of `fuzz/`. It needs a nightly compiler, because only that can count branches.
//! cargo-fuzz would be one more tool without further use, so it is not needed. The quick form, which the gate uses,
//! optimises less, and starts only from a small volume and `fuzz/corpus`, with the same seed each time. The usual
//! form keeps its findings below the target folder and continues from there.
//!
//! Memory is limited as well, because bytes that make a decoder request gigabytes are as bad as a panic. libFuzzer
//! can count requests only with a sanitizer, so the kernel limits them: a request beyond the limit fails and ends the
//! program. That is a finding with its input like any other.
//!
//! Findings can be kept (`--keep`): libFuzzer chooses the fewest inputs, the shortest first, that reach code which
//! `fuzz/corpus` does not.
//!
//! Two canaries must be found each time. One panics, and one requests too much memory.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail, ensure};
use support::shell::Line;
use support::{needs, workspace};

use crate::accept::simulator::simulator;

/// `cargo system fuzz --seconds N --only TARGET`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only as much as the gate has time for.
    #[arg(long)]
    quick: bool,
    /// Seconds for each target (default: 45, and 1 in the quick form).
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Only this target.
    #[arg(long)]
    only: Option<String>,
    /// Afterwards add to `fuzz/corpus` the fewest inputs that reach new code.
    #[arg(long, conflicts_with = "quick")]
    keep: bool,
    /// The seed of libFuzzer's mutations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Compiler flags, so that libFuzzer sees the code that an input reaches and the operands of comparisons. One code
/// unit, because the counter tables of several units are not always merged.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions=on -Ccodegen-units=1";
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// The longest input: `polder_sim::fuzz::INPUT_MAX`.
const INPUT_MAX: u64 = 64 << 10;
/// Time limit for an input, in seconds. A mount takes hundredths of a second.
const ENDLESS: u64 = 20;
/// Data that a decoding program may have besides libFuzzer's own, in MiB: a thousand times the longest input. The
/// output of a decoder should be a small multiple of its input.
const DECODER_MIB: u64 = 64;
/// The same for a program that mounts: this includes the device with its history and the volume's cache (8 MiB).
const MOUNT_MIB: u64 = 128;
/// Targets that mount.
const MOUNTS: [&str; 2] = ["mount", "volume-file"];
/// Limit for the printed bytes of an input.
const SHOWN_MAX: usize = 4096;
/// Targets that must fail.
const CANARIES: [&str; 2] = ["canary-panic", "canary-memory"];

pub(crate) fn run(args: &Args) -> Result<()> {
    needs::require_nightly()?;
    let folder = workspace::target_dir()?.join("fuzz");
    let line = build_line(&folder, args.quick);
    println!("    {line}");
    line.run()?;
    let program = folder.join(TRIPLE).join("release/offer");
    let fuzzer = Fuzzer { program, seconds: args.seconds(), seed: args.seed, folder };
    let targets = targets(args.only.as_deref())?;
    let corpus = fuzzer.corpus(args.quick);
    if args.quick && corpus.exists() {
        std::fs::remove_dir_all(&corpus).context("cannot begin anew")?;
    }
    simulator("fuzz").arg("--write-seeds").arg("--corpus").arg(&corpus).run()?;
    fuzzer.watch_canaries(&corpus)?;
    let mut inputs = 0;
    for some in targets.chunks(processors()) {
        let running = some.iter().map(|target| fuzzer.start(target, &corpus)).collect::<Result<Vec<_>>>()?;
        // Wait for all targets before reporting one of them.
        let ended = running.into_iter().map(Running::end).collect::<Result<Vec<_>>>()?;
        for ended in ended {
            inputs += ended.judge()?;
        }
    }
    println!("counted targets: {}\ncounted inputs: {inputs}", targets.len());
    if args.keep {
        targets.iter().try_for_each(|target| fuzzer.keep(target, &corpus))?;
    }
    Ok(())
}

impl Args {
    fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(if self.quick { 1 } else { 45 })
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The command that builds the program of the quick form, for the gate.
pub(crate) fn quick_build_line() -> Result<Line> {
    Ok(build_line(&workspace::target_dir()?.join("fuzz"), true))
}

/// The command that builds the program, below this folder.
fn build_line(folder: &Path, quick: bool) -> Line {
    let line = Line::new("cargo +nightly build --release --locked --target").arg(TRIPLE);
    let line = line.arg("--target-dir").arg(folder).in_dir(&workspace::root().join("fuzz"));
    let line = line.env("RUSTFLAGS", RUSTFLAGS);
    if !quick {
        return line;
    }
    // A program that runs for seconds is not worth minutes of optimising.
    line.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1").env("CARGO_PROFILE_RELEASE_DEBUG", "false")
}

/// The names of all targets, or the requested one.
fn targets(only: Option<&str>) -> Result<Vec<String>> {
    let listed = simulator("fuzz").arg("--list").output()?;
    let all: Vec<String> = listed.lines().map(str::to_owned).collect();
    let Some(only) = only else { return Ok(all) };
    ensure!(all.iter().any(|target| target == only), "no such target; there are: {}", all.join(", "));
    Ok(vec![only.to_owned()])
}

/// The program, and its time for each target.
struct Fuzzer {
    program: PathBuf,
    folder: PathBuf,
    seconds: u64,
    seed: u64,
}

/// A target that is being fuzzed.
struct Running {
    target: String,
    line: Line,
    child: Child,
    log: PathBuf,
}

/// A target whose time is over, or that has found something.
struct Ended {
    target: String,
    line: Line,
    passed: bool,
    printed: String,
}

impl Fuzzer {
    fn corpus(&self, quick: bool) -> PathBuf {
        self.folder.join(if quick { "quick" } else { "corpus" })
    }

    /// Checks that the canaries are found at once. Otherwise nothing would be found.
    fn watch_canaries(&self, corpus: &Path) -> Result<()> {
        for canary in CANARIES {
            std::fs::create_dir_all(corpus.join(canary))?;
            let ended = self.start(canary, corpus)?.end()?;
            let found = ended.input();
            let input =
                found.with_context(|| format!("{canary} was not found; its output:\n{}", ended.printed))?;
            ensure!(!ended.passed, "{canary} was found, but the program passed");
            std::fs::remove_file(&input).with_context(|| format!("{canary} left no {}", input.display()))?;
            println!("{canary}: found");
        }
        Ok(())
    }

    fn start(&self, target: &str, corpus: &Path) -> Result<Running> {
        let log = self.folder.join(format!("log-{target}"));
        let line = self.line(target, corpus);
        let (output, errors) = (File::create(&log)?, File::options().append(true).open(&log)?);
        let child = line.start(Stdio::null(), output.into(), errors.into())?;
        Ok(Running { target: target.to_owned(), line, child, log })
    }

    fn line(&self, target: &str, corpus: &Path) -> Line {
        let artifacts = format!("-artifact_prefix={}/found-{target}-", self.folder.display());
        let line = self.bounded(target).args([
            &format!("-max_total_time={}", self.seconds),
            &format!("-seed={}", self.seed),
            "-print_final_stats=1",
            &artifacts,
        ]);
        let line = line.arg(corpus.join(target));
        let kept = kept(target);
        if kept.is_dir() { line.arg(kept) } else { line }
    }

    fn keep(&self, target: &str, corpus: &Path) -> Result<()> {
        let kept = kept(target);
        std::fs::create_dir_all(&kept)?;
        // Only reached code counts, not how often it is reached.
        let line = self.bounded(target).args(["-set_cover_merge=1", "-use_counters=0"]);
        let line = line.arg(&kept).arg(corpus.join(target));
        let (passed, printed) = line.verdict()?;
        ensure!(passed, "the findings of {target} cannot be kept: {printed}\n    {line}");
        println!("{target}: {} inputs are kept", std::fs::read_dir(&kept)?.count());
        Ok(())
    }

    /// The program for a target, with its limits.
    fn bounded(&self, target: &str) -> Line {
        let mib = if MOUNTS.contains(&target) { MOUNT_MIB } else { DECODER_MIB };
        let line =
            Line::new("prlimit").arg(format!("--data={}", mib << 20)).arg("--core=0").arg(&self.program);
        // A panic without memory for the names in a backtrace would deadlock.
        line.env("RUST_BACKTRACE", "0").env("POLDER_FUZZ_TARGET", target).args([
            &format!("-max_len={INPUT_MAX}"),
            &format!("-timeout={ENDLESS}"),
            // The kernel limits requested memory. This limits used memory, including code and libFuzzer.
            &format!("-rss_limit_mb={}", 2 * mib),
        ])
    }
}

/// The corpus of a target.
fn kept(target: &str) -> PathBuf {
    workspace::root().join("fuzz/corpus").join(target)
}

impl Running {
    fn end(mut self) -> Result<Ended> {
        let passed = self.child.wait()?.success();
        let printed =
            std::fs::read(&self.log).with_context(|| format!("cannot read {}", self.log.display()))?;
        let printed = String::from_utf8_lossy(&printed).into_owned();
        Ok(Ended { target: self.target, line: self.line, passed, printed })
    }
}

impl Ended {
    /// The number of inputs. An error if one failed, or if there were none.
    fn judge(&self) -> Result<u64> {
        let Ended { target, line, .. } = self;
        if !self.passed {
            let mut message = format!("bytes do harm in {target}: {}\n    {line}", self.last_words());
            if let Some(input) = self.input() {
                let repeat = simulator("fuzz").args(["--target", target.as_str(), "--input"]).arg(&input);
                write!(message, "\nrepeat with:\n    {repeat}").expect("a String takes everything");
                message += &shown(&std::fs::read(&input).unwrap_or_default());
            }
            bail!(message);
        }
        let inputs =
            self.inputs().with_context(|| format!("{target} does not say how many inputs it had"))?;
        ensure!(inputs > 0, "{target} had no inputs");
        println!("{target}: {inputs} inputs");
        Ok(inputs)
    }

    /// `stat::number_of_executed_units: 123`.
    fn inputs(&self) -> Option<u64> {
        let line =
            self.printed.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
        line.trim().parse().ok()
    }

    /// The file with the failing input, from a line such as `Test unit written to PATH`.
    fn input(&self) -> Option<PathBuf> {
        let written = self.printed.lines().find_map(|line| line.split_once("Test unit written to "))?;
        Some(PathBuf::from(written.1.trim()))
    }

    /// The important lines of the output: the panic, and libFuzzer's summary.
    fn last_words(&self) -> String {
        let tells = |line: &&str| {
            ["panicked", "ERROR", "SUMMARY", "memory allocation"].iter().any(|word| line.contains(word))
        };
        let lines: Vec<&str> = self.printed.lines().filter(tells).collect();
        if lines.is_empty() { self.printed.clone() } else { lines.join("\n    ") }
    }
}

/// The input itself. On a machine that is not kept, only the output survives.
fn shown(input: &[u8]) -> String {
    if input.is_empty() || input.len() > SHOWN_MAX {
        return String::new();
    }
    let digits: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\nof these bytes (`xxd -r -p` makes a file of them):\n    {digits}")
}

#[cfg(test)]
mod tests;
