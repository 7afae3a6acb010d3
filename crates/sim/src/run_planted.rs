//! The command that plants bugs and shows which harnesses notice them: `polder-sim planted`.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use clap::builder::PossibleValuesParser;
use polder_sim::planted::{self, BUGS, CANARIES, Harness, Outcome, Trial};

#[derive(Args)]
pub(crate) struct Planted {
    /// Only this bug, without first showing that Polder passes when none is planted. May be given several times.
    #[arg(long)]
    bug: Vec<String>,
    /// Only this harness. May be given several times.
    #[arg(long, value_parser = PossibleValuesParser::new(Harness::ALL.map(Harness::name)))]
    harness: Vec<String>,
    /// The device shape for scenarios that are cut.
    #[arg(long, default_value = "power-of-two")]
    geometry: String,
    /// The seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to build Polder with planted bugs (default: target/planted).
    #[arg(long)]
    target_dir: Option<PathBuf>,
    /// Only one bug for each harness, which that harness must notice, in a build that is quick to make.
    #[arg(long, conflicts_with_all = ["bug", "harness"])]
    canaries: bool,
    /// List the bugs.
    #[arg(long)]
    list: bool,
}

pub(crate) fn planted(options: &Planted) -> Result<()> {
    let wanted = |name: &&str| options.bug.is_empty() || options.bug.iter().any(|wanted| wanted == name);
    let chosen: Vec<&str> = BUGS.iter().map(|bug| bug.name).filter(wanted).collect();
    if options.list {
        BUGS.iter().for_each(|bug| println!("{:<38} {:?}", bug.name, bug.origin));
        return Ok(());
    }
    ensure!(!chosen.is_empty(), "no such bug; `polder-sim planted --list` shows all");
    let target = options.target_dir.clone().unwrap_or_else(planted::usual_target);
    let (shape, seed) = (options.geometry.clone(), options.seed);
    if options.canaries {
        return canaries(&Trial { target, release: false, harnesses: Vec::new(), shape, seed });
    }
    let named = |harness: &Harness| options.harness.iter().any(|name| name == harness.name());
    let harnesses = Harness::ALL.into_iter().filter(named).collect();
    let trial = Trial { target, release: true, harnesses, shape, seed };
    trial.build()?;
    if options.bug.is_empty() {
        let Outcome { noticed, seconds } = trial.run(None)?;
        let passes = noticed.is_none();
        ensure!(
            passes,
            "without a bug Polder fails: {}",
            noticed.map_or_else(String::new, |n| n.to_string())
        );
        println!("{:<38} every harness passes {seconds:>26.1} s", "nothing");
    }
    try_each(&trial, &chosen)
}

fn try_each(trial: &Trial, chosen: &[&str]) -> Result<()> {
    let mut survivors = Vec::new();
    for bug in chosen {
        let Outcome { noticed, seconds } = trial.run(Some(bug))?;
        let by = noticed.as_ref().map_or_else(|| "SURVIVED".to_owned(), ToString::to_string);
        println!("{bug:<38} {by:<46} {seconds:>6.1} s");
        if noticed.is_none() {
            survivors.push(*bug);
        }
    }
    println!("counted planted bugs: {}", chosen.len());
    println!("counted planted bugs found: {}", chosen.len() - survivors.len());
    println!("score: {} of {} found", chosen.len() - survivors.len(), chosen.len());
    ensure!(survivors.is_empty(), "no harness notices {}", survivors.join(", "));
    Ok(())
}

/// From now on Polder has this bug.
#[cfg(feature = "planted")]
pub(crate) fn plant(bug: String) {
    assert!(BUGS.iter().any(|known| known.name == bug), "there is no bug {bug:?} to plant");
    rt::plant(bug);
}

/// This build has no planted bugs.
#[cfg(not(feature = "planted"))]
pub(crate) fn plant(bug: String) {
    panic!("this build cannot plant {bug:?}: build it with `--features planted`");
}

/// Each harness by itself must notice its canary.
fn canaries(trial: &Trial) -> Result<()> {
    trial.build()?;
    for &(harness, bug) in CANARIES {
        let alone = Trial { harnesses: vec![harness], ..trial.clone() };
        let Outcome { noticed, seconds } = alone.run(Some(bug))?;
        // A process that only ends might end without a planted bug as well.
        let is_reported = noticed.is_some_and(|noticed| noticed.verdict.is_reported());
        ensure!(is_reported, "`{}` does not report {bug} any more", harness.name());
        println!("{:<38} {:<10} {seconds:>10.1} s", bug, harness.name());
    }
    println!("counted canaries noticed: {}", CANARIES.len());
    Ok(())
}
