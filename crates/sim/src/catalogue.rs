//! Every scenario on each of its device shapes, by name.

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

/// A scenario on a device shape, from a seed.
#[derive(Clone)]
pub enum Entry {
    /// The metadata store alone.
    Store(Arc<StoreSubject>),
    /// The whole file system.
    Files(Arc<FilesSubject>),
    /// A volume during `mkfs`.
    Made(Arc<MadeSubject>),
}

impl Entry {
    /// The identity of its run.
    pub fn run(&self) -> &Run {
        match self {
            Entry::Store(subject) => subject.run_id(),
            Entry::Files(subject) => subject.run_id(),
            Entry::Made(subject) => subject.run_id(),
        }
    }

    /// Cuts it at every command.
    pub fn explore(&self, how: Thoroughness) -> (Counts, Option<Failure>) {
        match self {
            Entry::Store(subject) => explore(Arc::clone(subject), how),
            Entry::Files(subject) => explore(Arc::clone(subject), how),
            Entry::Made(subject) => explore(Arc::clone(subject), how),
        }
    }

    /// Runs it without a cut. Returns the number of commands, the signs, and the error if there is one.
    pub fn show(&self) -> (u64, Shown, Option<Wrong>) {
        match self {
            Entry::Store(subject) => show(subject),
            Entry::Files(subject) => show(subject),
            Entry::Made(subject) => show(subject),
        }
    }

    /// Cuts it at these places. Returns a description of the found states.
    pub fn repeat(&self, case: &Case) -> Result<String, Wrong> {
        match self {
            Entry::Store(subject) => repeat(subject.as_ref(), case),
            Entry::Files(subject) => repeat(subject.as_ref(), case),
            Entry::Made(subject) => repeat(subject.as_ref(), case),
        }
    }
}

/// All entries, with this seed.
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

/// Each scenario on only two shapes, which depend on the seed.
pub fn rotated(seed: u64) -> Vec<Entry> {
    let shapes = shapes::all().len();
    let is_turn = |number: usize| {
        let (scenario, shape) = (number / shapes, number % shapes);
        let first = (scenario + (seed % shapes as u64) as usize) % shapes;
        shape == first || shape == (first + 1) % shapes
    };
    all(seed).into_iter().enumerate().filter(|(number, _)| is_turn(*number)).map(|(_, entry)| entry).collect()
}
