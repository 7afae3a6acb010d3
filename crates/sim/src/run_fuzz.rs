//! The command that offers bytes to decoders and to a mount: `polder-sim fuzz`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use polder_sim::fuzz::{self, Offered, Target};
use rt::{Clock, SystemClock};

/// Mutations for each decoder in the quick form.
const QUICK: usize = 6000;
/// Mutations for each decoder otherwise.
const USUAL: usize = 200_000;

#[derive(Args)]
pub(crate) struct Fuzz {
    /// Only as much as the gate has time for.
    #[arg(long)]
    quick: bool,
    /// Only this target. May be given several times.
    #[arg(long)]
    target: Vec<String>,
    /// Mutations for each decoder. Targets that mount get a twentieth of it.
    #[arg(long)]
    mutations: Option<usize>,
    /// Seed inputs, in a directory for each target.
    #[arg(long, default_value = "fuzz/corpus")]
    corpus: PathBuf,
    /// Determines the mutations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Offer only the contents of this file.
    #[arg(long)]
    input: Option<PathBuf>,
    /// Write the contents of a small volume into the directory of inputs, as seeds for a fuzzer.
    #[arg(long)]
    write_seeds: bool,
    /// List the targets.
    #[arg(long)]
    list: bool,
}

pub(crate) fn fuzz(options: &Fuzz) -> Result<()> {
    let mut targets = fuzz::all();
    targets
        .retain(|target| options.target.is_empty() || options.target.iter().any(|name| name == target.name));
    ensure!(!targets.is_empty(), "no such target; `polder-sim fuzz --list` shows all");
    if options.list {
        targets.iter().for_each(|target| println!("{}", target.name));
        return Ok(());
    }
    if options.write_seeds {
        return targets.iter().try_for_each(|target| write_seeds(target, options));
    }
    if let Some(path) = &options.input {
        let input = std::fs::read(path).with_context(|| path.display().to_string())?;
        return targets.iter().try_for_each(|target| Ok(fuzz::try_one(target, &input)?));
    }
    let mutations = options.mutations.unwrap_or(if options.quick { QUICK } else { USUAL });
    let (clock, count) = (SystemClock::new(), targets.len());
    let offered = fuzz::smoke(targets, &options.corpus, mutations, options.seed);
    println!("counted targets: {count}");
    println!("counted inputs to begin with: {}", offered.seeds);
    println!("counted mutations: {}", offered.mutations);
    println!("seed {}, {:.1} s", options.seed, clock.monotonic_ns() as f64 / 1e9);
    tell(&offered)
}

fn tell(offered: &Offered) -> Result<()> {
    for (target, input, wrong) in &offered.wrong {
        let path = PathBuf::from(format!("target/fuzz-{target}"));
        std::fs::write(&path, input).with_context(|| path.display().to_string())?;
        println!("FAILED: {}", wrong.0.replace('\n', "\n    "));
        println!("  repeat with: polder-sim fuzz --target {target} --input {}", path.display());
    }
    if !offered.wrong.is_empty() {
        bail!("bytes do harm in {} targets", offered.wrong.len());
    }
    Ok(())
}

fn write_seeds(target: &Target, options: &Fuzz) -> Result<()> {
    let directory = options.corpus.join(target.name);
    std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    for (number, input) in fuzz::seeds(target.name).into_iter().enumerate() {
        std::fs::write(directory.join(format!("volume-{number:02}")), input)?;
    }
    Ok(())
}
