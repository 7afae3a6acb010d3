//! The states in which a file system may be found after a crash.
//!
//! There are two oracles. The *strong* one is the library's promise: the writes of one handle commit in order, and
//! every operation is one transaction, so the whole tree is a prefix of the operations. Only a write of several
//! blocks may be found in part, by whole blocks, if it was in progress. A collapse range or insert range may not. The
//! *contract* is what every user may rely on, with any mix of writers: the names are a prefix, and each block of a
//! file, by itself, is one whole version no older than the file's last acknowledged fsync.
//!
//! The strong oracle decides. If it refuses a state, the contract tells how bad that is.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::history::State;
use crate::model::{Content, Item, Model, Operation, Snapshot};

/// A state of the model, and its visible part.
#[derive(Debug)]
pub struct FilesState {
    /// The model, with earlier versions of blocks.
    pub model: Model,
    /// The visible part.
    pub snapshot: Snapshot,
    /// The operation that led here is found as a whole or not at all, however many blocks it changed.
    whole: bool,
    digest: u64,
}

impl FilesState {
    /// The state of a model.
    pub fn new(model: Model) -> Self {
        let snapshot = model.snapshot();
        FilesState { digest: snapshot.digest(), snapshot, model, whole: false }
    }

    /// The state after an operation. The model has already performed it.
    pub fn after(operation: &Operation, model: Model) -> Self {
        FilesState { whole: operation.is_whole(), ..FilesState::new(model) }
    }

    /// The found state.
    pub fn found(snapshot: Snapshot, block_size: usize) -> Self {
        let model = Model::of(&snapshot, block_size);
        FilesState { digest: snapshot.digest(), snapshot, model, whole: false }
    }
}

impl State for FilesState {
    fn digest(&self) -> u64 {
        self.digest
    }

    fn difference(&self, found: &Self) -> String {
        self.snapshot.difference(&found.snapshot)
    }

    fn find(allowed: &[Arc<Self>], found: &Self) -> Option<usize> {
        let exact = allowed.iter().rposition(|state| state.digest == found.digest);
        exact.or_else(|| under_way(allowed, &found.snapshot, &Unreadable::new()))
    }

    fn explain(allowed: &[Arc<Self>], found: &Self) -> String {
        let nearest = allowed
            .iter()
            .map(|state| state.difference(found))
            .min_by_key(|difference| difference.lines().count())
            .expect("some state is allowed");
        match contract(allowed, &found.snapshot) {
            Ok(()) => format!("{nearest}(each block by itself would be allowed)"),
            Err(why) => format!("{nearest}(the crash contract is broken: {why})"),
        }
    }
}

/// Blocks of files that cannot be read.
pub type Unreadable = BTreeMap<String, BTreeSet<u64>>;

/// The place in `allowed` of a write that was in progress and left this state, as far as it can be read: between that
/// state and the next.
pub fn under_way(allowed: &[Arc<FilesState>], found: &Snapshot, unreadable: &Unreadable) -> Option<usize> {
    allowed.windows(2).rposition(|pair| is_under_way(pair, found, unreadable))
}

fn is_under_way(pair: &[Arc<FilesState>], found: &Snapshot, unreadable: &Unreadable) -> bool {
    !pair[1].whole && is_between([&pair[0].snapshot, &pair[1].snapshot], found, unreadable)
}

/// All places in `allowed` at which this state may have been found: at that state, or between it and the next.
pub fn places(allowed: &[Arc<FilesState>], found: &FilesState) -> Vec<usize> {
    let nothing = Unreadable::new();
    let is_here = |&place: &usize| {
        let pair = allowed.get(place..place + 2);
        allowed[place].digest == found.digest
            || pair.is_some_and(|pair| is_under_way(pair, &found.snapshot, &nothing))
    };
    (0..allowed.len()).filter(is_here).collect()
}

/// Whether a write from `before` to `after` was in progress. It changes one file, and each block of that file is one
/// of the two versions. Everything else is unchanged.
fn is_between([before, after]: [&Snapshot; 2], found: &Snapshot, unreadable: &Unreadable) -> bool {
    if !before.same_names(found) || !after.same_names(found) {
        return false;
    }
    let nothing = BTreeSet::new();
    let items = || before.items.values().zip(after.items.values()).zip(&found.items);
    let changed: Vec<&Item> =
        items().filter(|((before, after), _)| before != after).map(|(_, (_, found))| found).collect();
    let one_file = changed.windows(2).all(|pair| pair[0].same_as == pair[1].same_as);
    one_file
        && items().all(|((before, after), (path, found))| {
            content_between([before, after], found, unreadable.get(path).unwrap_or(&nothing))
        })
}

fn content_between([before, after]: [&Item; 2], found: &Item, unreadable: &BTreeSet<u64>) -> bool {
    let (before, after, found) = (&before.content, &after.content, &found.content);
    let (low, high) = (before.size().min(after.size()), before.size().max(after.size()));
    let blocks = before.blocks().chain(after.blocks()).chain(found.blocks());
    (low..=high).contains(&found.size())
        && blocks.into_iter().filter(|block| !unreadable.contains(block)).all(|block: u64| {
            let version = found.block(block);
            found.is_beyond(block) || [before.block(block), after.block(block)].contains(&version)
        })
}

/// The crash contract: whether `found` may be found where these states may. If not, why.
pub fn contract(allowed: &[Arc<FilesState>], found: &Snapshot) -> Result<(), String> {
    let mut why = "the names are not a prefix of the operations".to_owned();
    for at in (0..allowed.len()).rev().filter(|&at| allowed[at].snapshot.same_names(found)) {
        match check_contents(&allowed[at..], found) {
            Ok(()) => return Ok(()),
            Err(reason) => why = reason,
        }
    }
    Err(why)
}

/// Checks contents if the names are those of the first of these states. Each state has all versions since the last
/// fsync of a file, so it needs none of the states before.
fn check_contents(states: &[Arc<FilesState>], found: &Snapshot) -> Result<(), String> {
    for (path, item) in &found.items {
        let number = states[0].model.number_at(path);
        let histories: Vec<&Content> =
            states.iter().filter_map(|state| state.model.content_of(number?)).collect();
        if histories.is_empty() {
            continue;
        }
        let (content, size) = (&item.content, item.content.size());
        if !histories.iter().any(|history| history.size_was(size)) {
            return Err(format!("/{path} never had {size} bytes since its last fsync"));
        }
        let blocks = content.blocks_with(&histories);
        if let Some(block) = blocks.into_iter().find(|&block| {
            !content.is_beyond(block) && !histories.iter().any(|history| history.block_was(block, content))
        }) {
            return Err(format!("block {block} of /{path} is no version since its last fsync"));
        }
    }
    Ok(())
}
