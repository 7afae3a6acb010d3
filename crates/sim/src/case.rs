//! One case: a scenario on a device shape from a seed, with its losses of power, as a command line that repeats it.

use std::fmt;
use std::str::FromStr;

use crate::digest::{Digest, mix};
use emulated::{CrashPlan, Emulated, InvalidCrashPlan};

/// How a run ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// The process is killed. The power stays on, so that unflushed data can still be lost later.
    Killed,
    /// The power fails, and the device comes back in this state.
    Power(CrashPlan),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Killed => f.write_str("killed"),
            Loss::Power(plan) => plan.fmt(f),
        }
    }
}

impl FromStr for Loss {
    type Err = InvalidCrashPlan;

    fn from_str(text: &str) -> Result<Self, InvalidCrashPlan> {
        match text {
            "killed" => Ok(Loss::Killed),
            plan => plan.parse().map(Loss::Power),
        }
    }
}

/// The end of a run right after one device command.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cut {
    /// The number of device changes before it.
    pub at: u64,
    /// How the run ended.
    pub loss: Loss,
}

impl Cut {
    /// The device as the next mount finds it, recording.
    pub fn apply(&self, device: &Emulated) -> Emulated {
        match &self.loss {
            Loss::Killed => device.killed_at(self.at),
            Loss::Power(plan) => {
                let image = device.image_at(self.at, plan);
                image.record();
                image
            }
        }
    }
}

/// The identity of a run before anything is cut.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The name of the scenario.
    pub scenario: &'static str,
    /// The name of the device shape.
    pub shape: &'static str,
    /// The seed of all random choices.
    pub seed: u64,
}

/// A run and its cuts. The second cut falls into the recovery from the first (or into the steps after it), and so on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Case {
    /// The run.
    pub run: Run,
    /// The cuts, the first one first.
    pub cuts: Vec<Cut>,
}

impl Case {
    /// The same case with one more cut.
    pub fn then(&self, cut: Cut) -> Case {
        let mut case = self.clone();
        case.cuts.push(cut);
        case
    }

    /// A number for random choices after the last cut.
    pub fn choice(&self) -> u64 {
        let cuts = self
            .cuts
            .iter()
            .flat_map(|cut| [cut.at, Digest::new().bytes(cut.loss.to_string().as_bytes()).finish()]);
        mix(&std::iter::once(self.run.seed).chain(cuts).collect::<Vec<_>>())
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Run { scenario, shape, seed } = &self.run;
        write!(f, "polder-sim cuts --scenario {scenario} --geometry {shape} --seed {seed}")?;
        self.cuts.iter().try_for_each(|cut| write!(f, " --cut {} --plan {}", cut.at, cut.loss))
    }
}
