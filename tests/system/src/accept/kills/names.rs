//! The names that a directory may have after a crash.
//!
//! Names are a prefix of the operations, over the whole volume: the state at some moment, no earlier than the last
//! acknowledged `fsync` of any thread and any file. The operations of one writer are ordered. Operations of two
//! writers are only ordered if one had ended before the other began. Inode numbers identify files.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

/// The number of an inode. Unknown if the call that created it was not answered.
pub(super) type Inode = Option<u64>;

/// A directory: names and their inodes.
pub(super) type Listing = BTreeMap<String, Inode>;

/// The change of a directory by one call.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Create { name: String, inode: Inode },
    Remove { name: String },
    Rename { from: String, to: String },
}

/// A change and its time.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) change: Change,
    pub(super) began: u64,
    /// `None` if it was never answered.
    pub(super) ended: Option<u64>,
}

/// The changes of one directory since its last known state.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) base: Listing,
    pub(super) done: Vec<Done>,
}

/// How much of a history a found directory contains.
#[derive(Debug)]
pub(super) struct Fit {
    /// The start of the last change that is certainly found.
    last_there_began: Option<u64>,
    /// The end of the first change that is certainly missing.
    first_missing_ended: Option<u64>,
}

impl Change {
    pub(super) fn apply(&self, listing: &mut Listing) {
        match self {
            Change::Create { name, inode } => {
                listing.insert(name.clone(), *inode);
            }
            Change::Remove { name } => {
                listing.remove(name);
            }
            Change::Rename { from, to } => {
                if let Some(inode) = listing.remove(from) {
                    listing.insert(to.clone(), inode);
                }
            }
        }
    }
}

impl History {
    /// Matches the found directory with the history. All changes that had ended before `durable` must be found.
    pub(super) fn fit(&self, found: &Listing, durable: u64) -> Result<Fit> {
        let must =
            self.done.iter().take_while(|done| done.ended.is_some_and(|ended| ended < durable)).count();
        let lengths = self.matching(found);
        let last = lengths.iter().copied().filter(|&length| length >= must).max();
        ensure!(
            last.is_some(),
            "names are lost or mixed: of {} changes the first {must} must be there, but what is there is \
             what it was after {lengths:?}; {}",
            self.done.len(),
            self.difference(found, must)
        );
        let least = lengths.into_iter().filter(|&length| length >= must).min();
        let there = least.and_then(|length| length.checked_sub(1)).map(|at| self.done[at].began);
        let missing = last.and_then(|length| self.done.get(length)).and_then(|done| done.ended);
        Ok(Fit { last_there_began: there, first_missing_ended: missing })
    }

    /// The numbers of changes after which the directory had these names.
    fn matching(&self, found: &Listing) -> Vec<usize> {
        let mut listing = self.base.clone();
        let mut lengths = Vec::new();
        for length in 0..=self.done.len() {
            if is_same(&listing, found) {
                lengths.push(length);
            }
            if let Some(done) = self.done.get(length) {
                done.change.apply(&mut listing);
            }
        }
        lengths
    }

    /// The difference to the oldest allowed state.
    fn difference(&self, found: &Listing, length: usize) -> String {
        let mut wanted = self.base.clone();
        self.done.iter().take(length).for_each(|done| done.change.apply(&mut wanted));
        let missing: Vec<_> = wanted.iter().filter(|(name, _)| !found.contains_key(*name)).collect();
        let added: Vec<_> = found.iter().filter(|(name, _)| !wanted.contains_key(*name)).collect();
        let other: Vec<_> = wanted
            .iter()
            .filter(|(name, inode)| found.get(*name).is_some_and(|there| there != *inode))
            .collect();
        let later: Vec<_> = self.done.iter().skip(length).collect();
        format!(
            "against that state: missing {missing:?}, added {added:?}, other {other:?}; then came {later:?}"
        )
    }
}

fn is_same(listing: &Listing, found: &Listing) -> bool {
    listing.len() == found.len()
        && listing.iter().zip(found).all(|((name, inode), (found_name, found_inode))| {
            name == found_name && (inode.is_none() || inode == found_inode)
        })
}

/// Over all writers: no found change began after a missing change had ended.
pub(super) fn judge_prefix(fits: &[Fit]) -> Result<()> {
    let last_there = fits.iter().filter_map(|fit| fit.last_there_began).max();
    let first_missing = fits.iter().filter_map(|fit| fit.first_missing_ended).min();
    if let (Some(there), Some(missing)) = (last_there, first_missing) {
        ensure!(
            there < missing,
            "names are no prefix: a change that began at {there} is found, one that ended at {missing} is not"
        );
    }
    Ok(())
}
