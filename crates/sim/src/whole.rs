//! The whole system under one seed: several clients of one volume at once, its background work, and a device that
//! fails, is cut and killed, mount after mount.
//!
//! A run ([`Plan`]) is a number of rounds. In each the volume is mounted, found to be one that may be found, and used
//! by all clients; their threads and that of the background take turns as the seed says ([`rt::schedule`]), on a clock
//! that only they move. Meanwhile commands fail that nobody may notice. Then the round ends: the volume is unmounted,
//! its process is killed, or the power goes at any command since the mount began, and the device loses what it may.
//!
//! What may be found is asked twice. Each client's directory is one of the states of its own history, no older than
//! what was promised to it ([`crate::allowed`]). And all of them together are one prefix of the log: there is an LSN so
//! that of every client all is there that is older and nothing that is not ([`order`]). So nobody's change survives one
//! that it may have followed, whoever made that.
//!
//! The same plan gives the same digest. A plan that fails is made smaller ([`shrink`]): its operations follow from their
//! places, so that some can be left out and the others stay what they are.
//!
//! Not here: faults that may cost something ([`crate::faults`]), and every state that a cut may leave
//! ([`crate::states`]); here many things happen at once, and chance decides which.

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

/// Operations of a client in a round, at most: each may open a handle, whose numbers are bytes.
pub const OPERATIONS_MAX: u32 = 200;

/// Where an operation stands in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The round, from 0.
    pub round: u32,
    /// The client, from 0.
    pub client: u32,
    /// The number among those of this client in this round, from 0.
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

/// A run: what it does follows from this alone.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The device.
    pub shape: Shape,
    /// Decides everything that is left open.
    pub seed: u64,
    /// Who is at work at once, beside the background.
    pub clients: u32,
    /// Mounts.
    pub rounds: u32,
    /// What each client does in each round.
    pub operations: u32,
    /// Nothing but these; all when `None`.
    pub only: Option<BTreeSet<Place>>,
}

impl Plan {
    /// The usual one from a seed: shapes of device and numbers of clients take turns.
    pub fn usual(seed: u64) -> Plan {
        let shapes = shapes::all();
        let clients = 2 + (seed / shapes.len() as u64 % 3) as u32;
        let shape = shapes[(seed % shapes.len() as u64) as usize].clone();
        Plan { shape, seed, clients, rounds: 6, operations: 48, only: None }
    }

    /// All places of it.
    pub fn places(&self) -> BTreeSet<Place> {
        let of_client =
            |round, client| (0..self.operations).map(move |number| Place { round, client, number });
        let of_round = |round| (0..self.clients).flat_map(move |client| of_client(round, client));
        (0..self.rounds).flat_map(of_round).filter(|place| self.has(place)).collect()
    }

    fn has(&self, place: &Place) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(place))
    }

    /// Runs it.
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

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations of clients, those included that were refused.
    pub operations: u64,
    /// Turns that went from one thread to another.
    pub handovers: u64,
    /// Device commands.
    pub commands: u64,
    /// Zones that were reset.
    pub resets: u64,
    /// Commands that failed.
    pub faults: u64,
    /// Losses of power.
    pub cuts: u64,
    /// Losses of power amid a recovery.
    pub cuts_in_recovery: u64,
    /// Processes killed.
    pub kills: u64,
    /// Unmounts.
    pub unmounts: u64,
    /// Rounds that ended amid work, of which one client had lost something and another had not, and whose clients were
    /// found to be one prefix.
    pub ordered: u64,
    /// Time on the clock of the clients.
    pub simulated_ns: u64,
    /// The same for the same plan.
    pub digest: u64,
}

impl Report {
    /// Adds what another run came to.
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
