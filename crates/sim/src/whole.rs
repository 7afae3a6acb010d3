//! The whole system under one seed: several clients of one volume at once, its background work, and a device that
//! fails, loses power, and outlives killed processes, mount after mount.
//!
//! A run ([`Plan`]) is a number of rounds. In each round the volume is mounted, compared with the allowed states, and
//! used by all clients. The threads of the clients and of the background take turns as the seed determines
//! ([`rt::schedule`]), on a clock that only they advance. Meanwhile commands fail whose failure must not be visible.
//! Then the round ends: the volume is unmounted, its process is killed, or the power fails at any command since the
//! mount began, and the device loses what it may lose.
//!
//! There are two checks of the found state. Each client's directory must be one of the states of the client's own
//! history, no older than the promised state to the client ([`crate::allowed`]). And all clients together must be one
//! prefix of the log: there is an LSN so that of every client everything older is found, and nothing newer
//! ([`order`]). So no change survives without the changes of all clients that it may have followed.
//!
//! The same plan gives the same digest. A failing plan is made smaller ([`shrink`]). Its operations follow from their
//! places, so some can be left out without changing the others.
//!
//! Not here: faults that may cause losses ([`crate::faults`]), and every state that a cut may leave
//! ([`crate::states`]). Here many things happen at once, and chance chooses them.

mod life;
pub mod order;
pub mod shrink;
#[cfg(test)]
mod tests;
mod work;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::caught::{Wrong, caught};
use crate::shapes::{self, Shape};

/// Limit for the operations of a client in a round. Each may open a handle, and handles are numbered by bytes.
pub const OPERATIONS_MAX: u32 = 200;

/// The place of an operation in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The round, from 0.
    pub round: u32,
    /// The client, from 0.
    pub client: u32,
    /// The number among the operations of this client in this round, from 0.
    pub number: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.round, self.client, self.number)
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Result<Vec<u32>, _> = text.split('.').map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[round, client, number]) => Ok(Place { round, client, number }),
            _ => Err(format!("{text:?} is no place: give round, client and number, such as 0.1.17")),
        }
    }
}

/// A run. It follows from this plan alone.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The device.
    pub shape: Shape,
    /// The seed of all random choices.
    pub seed: u64,
    /// Clients that work at once, beside the background.
    pub clients: u32,
    /// Mounts.
    pub rounds: u32,
    /// Operations of each client in each round.
    pub operations: u32,
    /// Only these operations; all if `None`.
    pub only: Option<BTreeSet<Place>>,
}

impl Plan {
    /// The usual plan for a seed. Device shapes and numbers of clients take turns.
    pub fn usual(seed: u64) -> Plan {
        let shapes = shapes::all();
        let clients = 2 + (seed / shapes.len() as u64 % 3) as u32;
        let shape = shapes[(seed % shapes.len() as u64) as usize].clone();
        Plan { shape, seed, clients, rounds: 6, operations: 48, only: None }
    }

    /// All places of the plan.
    pub fn places(&self) -> BTreeSet<Place> {
        let of_client =
            |round, client| (0..self.operations).map(move |number| Place { round, client, number });
        let of_round = |round| (0..self.clients).flat_map(move |client| of_client(round, client));
        (0..self.rounds).flat_map(of_round).filter(|place| self.has(place)).collect()
    }

    fn has(&self, place: &Place) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(place))
    }

    /// Runs the plan.
    pub fn run(&self) -> Result<Report, Wrong> {
        caught(self, || life::live(self))
    }
}

/// The command that repeats it.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { shape, seed, clients, rounds, operations, only } = self;
        write!(f, "polder-sim run --once --seed {seed} --geometry {} --clients {clients}", shape.name)?;
        write!(f, " --rounds {rounds} --operations {operations}")?;
        let Some(only) = only else { return Ok(()) };
        let places: Vec<String> = only.iter().map(Place::to_string).collect();
        write!(f, " --only {}", places.join(","))
    }
}

/// The results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations of clients, including those that were refused.
    pub operations: u64,
    /// Switches from one thread to another.
    pub handovers: u64,
    /// Device commands.
    pub commands: u64,
    /// Zones that were reset.
    pub resets: u64,
    /// Commands that failed.
    pub faults: u64,
    /// Losses of power.
    pub cuts: u64,
    /// Losses of power during a recovery.
    pub cuts_in_recovery: u64,
    /// Processes killed.
    pub kills: u64,
    /// Unmounts.
    pub unmounts: u64,
    /// Rounds that ended during work, in which one client lost something and another did not, and whose clients were
    /// found to be one prefix.
    pub ordered: u64,
    /// Time on the clients' clock.
    pub simulated_ns: u64,
    /// The digest: the same for the same plan.
    pub digest: u64,
}

impl Report {
    /// Adds the results of another run.
    pub fn add(&mut self, other: &Report) {
        self.operations += other.operations;
        self.handovers += other.handovers;
        self.commands += other.commands;
        self.resets += other.resets;
        self.faults += other.faults;
        self.cuts += other.cuts;
        self.cuts_in_recovery += other.cuts_in_recovery;
        self.kills += other.kills;
        self.unmounts += other.unmounts;
        self.ordered += other.ordered;
        self.simulated_ns += other.simulated_ns;
        self.digest = self.digest.wrapping_add(other.digest);
    }

    /// Each count with its name.
    pub fn named(&self) -> [(&'static str, u64); 10] {
        [
            ("operations of clients", self.operations),
            ("turns between threads", self.handovers),
            ("device commands", self.commands),
            ("resets", self.resets),
            ("failed commands", self.faults),
            ("losses of power", self.cuts),
            ("of them in recoveries", self.cuts_in_recovery),
            ("kills", self.kills),
            ("unmounts", self.unmounts),
            ("clients found in one order", self.ordered),
        ]
    }
}
