//! The states in which a volume may be found, for every moment at which the power may fail.
//!
//! A history is the list of states that a volume went through, and two marks that only rise with the number of device
//! commands: the *floor*, the last promised state, and the *ceiling*, the last state whose step had begun. A
//! recovered state is right if it is one of those from the floor to the ceiling. Then it is a prefix of the steps,
//! and contains everything acknowledged (I-TREE-1).

use std::ops::RangeInclusive;
use std::sync::Arc;

/// A state of a volume that can be compared with the found state.
pub trait State: Send + Sync + Sized + 'static {
    /// Equal states have equal digests.
    fn digest(&self) -> u64;

    /// How `found` differs from this state, as text.
    fn difference(&self, found: &Self) -> String;

    /// The index of `found` among the allowed states, in order.
    fn find(allowed: &[Arc<Self>], found: &Self) -> Option<usize> {
        let digest = found.digest();
        allowed.iter().rposition(|state| state.digest() == digest)
    }

    /// Why `found` is none of the allowed states.
    fn explain(allowed: &[Arc<Self>], found: &Self) -> String {
        let closest = |state: &&Arc<Self>| state.difference(found).lines().count();
        let nearest = allowed.iter().min_by_key(closest).expect("some state is allowed");
        nearest.difference(found)
    }
}

/// The states of one run, and the promises.
#[derive(Clone, Debug)]
pub struct History<S> {
    states: Vec<Arc<S>>,
    /// (commands, state): from this many commands on the state is promised. Both rise.
    floors: Vec<(u64, usize)>,
    /// (commands, state): from this many commands on the state can be on the device. Both rise.
    ceilings: Vec<(u64, usize)>,
}

impl<S> History<S> {
    /// A run that begins with a durable state.
    pub fn from(state: S) -> Self {
        History { states: vec![Arc::new(state)], floors: vec![(0, 0)], ceilings: vec![(0, 0)] }
    }

    /// A run that begins with a recovery. Until [`History::settle`], any of these states may be found.
    pub fn recovering(allowed: &[Arc<S>]) -> Self {
        assert!(!allowed.is_empty(), "some state may be found");
        let states = allowed.to_vec();
        History { floors: vec![(0, 0)], ceilings: vec![(0, states.len() - 1)], states }
    }

    /// The recovery has ended after this many commands and found this state. From now on nothing older is allowed.
    pub fn settle(&mut self, commands: u64, state: Arc<S>) {
        self.states.push(state);
        self.floors.push((commands, self.last()));
        self.ceilings.push((commands, self.last()));
    }

    /// A step that leads to `state` begins after this many commands.
    pub fn begin(&mut self, commands: u64, state: S) {
        self.states.push(Arc::new(state));
        self.ceilings.push((commands + 1, self.last()));
    }

    /// The last step was refused: no part of it can ever be found.
    pub fn withdraw(&mut self) {
        self.ceilings.pop();
        self.states.pop();
    }

    /// Promises everything up to `state` (an index from [`History::last`]) from now on.
    pub fn promise(&mut self, commands: u64, state: usize) {
        let (before, floor) = *self.floors.last().expect("a history begins with a floor");
        assert!(state < self.states.len() && before <= commands, "promises are made in order");
        if state > floor {
            self.floors.push((commands, state));
        }
    }

    /// The same history with other states.
    pub fn map<T>(&self, to: impl Fn(&Arc<S>) -> T) -> History<T> {
        let states = self.states.iter().map(|state| Arc::new(to(state))).collect();
        History { states, floors: self.floors.clone(), ceilings: self.ceilings.clone() }
    }

    /// After this many commands another history begins. Its first state is the newest of this one.
    pub fn go_on(&mut self, commands: u64, next: History<S>) {
        let before = self.states.len();
        let later = |(at, state): (u64, usize)| (at.max(commands), before + state);
        self.states.extend(next.states);
        self.floors.extend(next.floors.into_iter().map(later));
        self.ceilings.extend(next.ceilings.into_iter().map(later));
    }

    /// The index of the newest state.
    pub fn last(&self) -> usize {
        self.states.len() - 1
    }

    /// The newest state.
    pub fn newest(&self) -> &Arc<S> {
        &self.states[self.last()]
    }

    /// The states that may be found if the power fails right after this many commands.
    pub fn allowed(&self, commands: u64) -> &[Arc<S>] {
        &self.states[self.allowed_range(commands)]
    }

    /// Their indices.
    pub fn allowed_range(&self, commands: u64) -> RangeInclusive<usize> {
        let floor = last_at(&self.floors, commands);
        let ceiling = last_at(&self.ceilings, commands);
        // A step that needed no command may be promised as soon as it has begun.
        floor..=ceiling.max(floor)
    }
}

impl<S: State> History<S> {
    /// Like [`History::allowed`], but the last promise may be missing: the newest promise of another state than the
    /// promise before it.
    pub fn allowed_but_last(&self, commands: u64) -> &[Arc<S>] {
        let reached = self.floors.partition_point(|&(from, _)| from <= commands);
        let digest = |floor: usize| self.states[floor].digest();
        let mut floors = self.floors[..reached].iter().rev().map(|&(_, floor)| floor);
        let last = floors.next().expect("the first mark is at 0");
        let floor = floors.find(|&floor| digest(floor) != digest(last)).unwrap_or(0);
        &self.states[floor..=last_at(&self.ceilings, commands).max(last)]
    }
}

fn last_at(marks: &[(u64, usize)], commands: u64) -> usize {
    let reached = marks.partition_point(|&(from, _)| from <= commands);
    marks[reached.checked_sub(1).expect("the first mark is at 0")].1
}

#[cfg(test)]
mod tests;
