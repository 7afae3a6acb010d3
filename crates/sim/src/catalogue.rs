//! Every scenario on every shape of device that it runs on, by name.

use std::sync::Arc;

use crate::case::{Case, Run};
use crate::caught::Wrong;
use crate::explore::{Subject, Thoroughness, explore, repeat, show};
use crate::files::{self, FilesSubject};
use crate::made::{self, MadeSubject};
use crate::report::{Counts, Failure};
use crate::shapes;
use crate::shows::Shown;
use crate::store::{self, StoreSubject};

/// A scenario on a shape of device from a seed.
#[derive(Clone)]
pub enum Entry {
    /// The metadata store alone.
    Store(Arc<StoreSubject>),
    /// The whole file system.
    Files(Arc<FilesSubject>),
    /// A volume that is being made.
    Made(Arc<MadeSubject>),
}

impl Entry {
    /// What identifies it.
    pub fn run(&self) -> &Run {
        match self {
            Entry::Store(subject) => subject.run_id(),
            Entry::Files(subject) => subject.run_id(),
            Entry::Made(subject) => subject.run_id(),
        }
    }

    /// Cuts it everywhere.
    pub fn explore(&self, how: Thoroughness) -> (Counts, Option<Failure>) {
        match self {
            Entry::Store(subject) => explore(Arc::clone(subject), how),
            Entry::Files(subject) => explore(Arc::clone(subject), how),
            Entry::Made(subject) => explore(Arc::clone(subject), how),
        }
    }

    /// Only runs it: how many commands, what it shows, and what is wrong with that.
    pub fn show(&self) -> (u64, Shown, Option<Wrong>) {
        match self {
            Entry::Store(subject) => show(subject),
            Entry::Files(subject) => show(subject),
            Entry::Made(subject) => show(subject),
        }
    }

    /// Cuts it at these places; what was found, for people.
    pub fn repeat(&self, case: &Case) -> Result<String, Wrong> {
        match self {
            Entry::Store(subject) => repeat(subject.as_ref(), case),
            Entry::Files(subject) => repeat(subject.as_ref(), case),
            Entry::Made(subject) => repeat(subject.as_ref(), case),
        }
    }
}

/// All of them, with this seed.
pub fn all(seed: u64) -> Vec<Entry> {
    let stores = store::all().into_iter().flat_map(|profile| {
        shapes::all()
            .into_iter()
            .map(move |shape| Entry::Store(Arc::new(StoreSubject::new(profile, shape, seed))))
    });
    let files = files::all().into_iter().flat_map(|scenario| {
        shapes::all()
            .into_iter()
            .map(move |shape| Entry::Files(Arc::new(FilesSubject::new(scenario, shape, seed))))
    });
    let made = made::ALL.into_iter().flat_map(|scenario| {
        shapes::all()
            .into_iter()
            .map(move |shape| Entry::Made(Arc::new(MadeSubject::new(scenario, shape, seed))))
    });
    stores.chain(files).chain(made).collect()
}

/// Each scenario on two shapes only, other ones for another seed.
pub fn rotated(seed: u64) -> Vec<Entry> {
    let shapes = shapes::all().len();
    let is_turn = |number: usize| {
        let (scenario, shape) = (number / shapes, number % shapes);
        let first = (scenario + (seed % shapes as u64) as usize) % shapes;
        shape == first || shape == (first + 1) % shapes
    };
    all(seed).into_iter().enumerate().filter(|(number, _)| is_turn(*number)).map(|(_, entry)| entry).collect()
}
