//! Runs groups in rounds, and then once more to count requests and instructions.

use anyhow::Result;

use super::cost::Instructions;
use super::figures::{CLIENT_INSTRUCTIONS, DAEMON_INSTRUCTIONS, Figures, Key, RATE, REQUESTS};
use super::groups::Group;
use super::place::{Place, Set};
use super::requests::Requests;
use super::step::{self, Client, Step};

/// What counts, if the machine can. The reason is printed if not.
pub(super) struct Counters {
    requests: Option<Requests>,
    instructions: Option<Instructions>,
}

impl Counters {
    pub(super) fn open() -> Counters {
        let why = |what: &str, error: &str| println!("no {what} are counted: {error}");
        Counters {
            requests: Requests::open().inspect_err(|error| why("requests", error)).ok(),
            instructions: Instructions::find().inspect_err(|error| why("instructions", error)).ok(),
        }
    }
}

/// Measures.
pub(super) struct Runner {
    pub(super) client: Client,
    pub(super) counters: Counters,
    pub(super) rounds: u64,
    pub(super) figures: Figures,
    /// A folder of the host for files that are soon overwritten.
    pub(super) scratch: tempfile::TempDir,
}

impl Runner {
    /// Measures a group in all places, in every round.
    pub(super) fn run(&mut self, group: &Group, set: &Set) -> Result<()> {
        for step in &group.once {
            set.in_turn(0).try_for_each(|place| self.client.measure(step, place, false).map(drop))?;
        }
        let is_kept = !group.once.is_empty();
        for round in 0..self.rounds {
            for beside in [false, true].into_iter().filter(|beside| !beside || group.is_beside) {
                for step in &group.steps {
                    set.in_turn(round).try_for_each(|place| self.measure(step, place, round, beside))?;
                }
                if !is_kept {
                    set.clear()?;
                }
            }
        }
        for step in &group.steps {
            set.ours().try_for_each(|place| self.count(step, place))?;
        }
        set.clear()
    }

    /// Measures a step in a place.
    pub(super) fn measure(&mut self, step: &Step, place: &Place, round: u64, beside: bool) -> Result<()> {
        let found = self.client.measure(step, place, beside)?;
        let Some(row) = step.row else { return Ok(()) };
        let key = Key::of(row, place.name, beside);
        found.iter().for_each(|(metric, value)| self.figures.add(&key, round, metric, *value));
        let rate = found.iter().find(|(metric, _)| metric == RATE).map_or(0.0, |found| found.1);
        let near = if beside { " beside a writer" } else { "" };
        println!("round {round}: {row} in {}{near}: {rate:.1} a second", place.name);
        Ok(())
    }

    /// Runs a step once more and counts its requests and instructions.
    pub(super) fn count(&mut self, step: &Step, place: &Place) -> Result<()> {
        place.prepare(step.before)?;
        let mut line = self.client.line_of(step, place);
        if let Some(instructions) = &self.counters.instructions {
            line = instructions.watch(line, place.daemon()?, self.scratch.path());
        }
        if let Some(requests) = &self.counters.requests {
            requests.start(place.connection()?)?;
        }
        step::run(step, &line)?;
        let counts = self.counters.requests.as_ref().map(Requests::stop).transpose()?;
        let Some(row) = step.row else { return Ok(()) };
        let key = Key::of(row, place.name, false);
        let mut add = |metric: &str, total: u64| {
            self.figures.add(&key, 0, metric, total as f64 / step.operations as f64);
        };
        if let Some(counts) = counts {
            add(REQUESTS, counts.values().sum());
            counts.iter().for_each(|(opcode, count)| add(&format!("{REQUESTS} {opcode}"), *count));
        }
        if let Some(instructions) = &self.counters.instructions {
            let counted = instructions.counted(self.scratch.path());
            for (metric, count) in [CLIENT_INSTRUCTIONS, DAEMON_INSTRUCTIONS].into_iter().zip(counted) {
                count.into_iter().for_each(|count| add(metric, count));
            }
        }
        Ok(())
    }
}
