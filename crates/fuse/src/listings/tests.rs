//! A model of the kernel's cache of one directory (`fs/fuse/readdir.c`), with listings and changes in random order.

use std::ops::Range;

use rt::random::Rng;

use super::*;

const DIRECTORY: InodeNo = InodeNo(77);
/// Requests for entries in one listing. Each reply is a page of the cache.
const PARTS: usize = 3;
const LISTINGS_MAX: usize = 4;

/// How the decisions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Product,
    /// Nothing is dropped.
    NoDrops,
    /// All is forgotten at the first FORGET.
    NoLookups,
}

/// A reply, and what is done before it is sent.
#[derive(Clone, Copy)]
struct Answer {
    /// The state of the directory at which its entries were read. At the end of a listing there are none.
    read: Option<u64>,
    drops: bool,
}

struct Lister {
    /// The state of the directory when the listing began.
    began: u64,
    position: usize,
    /// The version of the cache from which it has read last.
    reads_cache: Option<u64>,
    waits: Option<Answer>,
}

#[derive(Default)]
struct Cache {
    is_complete: bool,
    /// The states of the directory at which the parts were read.
    parts: Vec<u64>,
    has_first_page: bool,
    /// The state of the directory that the kernel noted when the first part was requested.
    checked_against: u64,
    /// Rises with each reset.
    version: u64,
}

impl Cache {
    fn reset(&mut self) {
        *self = Cache { version: self.version + 1, ..Cache::default() };
    }
}

/// The kernel and its programs.
struct Model {
    policy: Policy,
    listings: Listings,
    rng: Rng,
    cache: Cache,
    listers: Vec<Lister>,
    /// The state of the directory that is stored, and the one that programs know of.
    stored: u64,
    known: u64,
    /// Lookups of the directory since the kernel knows it, and those that FORGETs under way are for.
    lookups: u64,
    forgotten: Vec<u64>,
    from_cache: u64,
}

/// A listing had entries from before the change that it should show.
#[derive(Debug)]
struct Old;

impl Model {
    fn new(policy: Policy, seed: u64) -> Self {
        let listings = Listings::new();
        listings.note_lookup(DIRECTORY);
        Model {
            policy,
            listings,
            rng: Rng::with_seed(seed),
            cache: Cache::default(),
            listers: Vec::new(),
            stored: 0,
            known: 0,
            lookups: 1,
            forgotten: Vec::new(),
            from_cache: 0,
        }
    }

    fn step(&mut self) -> Result<(), Old> {
        match self.rng.u32(..100) {
            0..15 => self.change(),
            15..25 if self.listers.len() < LISTINGS_MAX => {
                let position = if self.rng.u32(..10) == 0 { self.rng.usize(..=PARTS) } else { 0 };
                // Where a program goes to a place that it has from elsewhere, the kernel checks nothing.
                let began = if position == 0 { self.known } else { 0 };
                self.listers.push(Lister { began, position, reads_cache: None, waits: None });
            }
            25 => self.cache.has_first_page = false,
            26 if self.listers.is_empty() => {
                self.cache.reset();
                self.forgotten.push(std::mem::take(&mut self.lookups));
                self.look_up();
            }
            27 => self.look_up(),
            28 if !self.forgotten.is_empty() => {
                let chosen = self.rng.usize(..self.forgotten.len());
                let lookups = self.forgotten.swap_remove(chosen);
                let counted = if self.policy == Policy::NoLookups { u64::MAX } else { lookups };
                self.listings.forget(DIRECTORY, counted);
            }
            29 => self.close(),
            30.. if !self.listers.is_empty() => {
                let chosen = self.rng.usize(..self.listers.len());
                let ends = match self.listers[chosen].waits {
                    Some(answer) => self.take(chosen, answer),
                    // The lock of the directory.
                    None if self.stored > self.known => false,
                    None => self.ask(chosen)?,
                };
                if ends {
                    self.listers.swap_remove(chosen);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn look_up(&mut self) {
        self.lookups += 1;
        self.listings.note_lookup(DIRECTORY);
    }

    /// A program stops before the end. If it waits for a reply, even a signal does not end it before.
    fn close(&mut self) {
        self.listers.retain(|lister| lister.waits.is_some() || self.rng.bool());
    }

    /// A change is stored and noted, and then its program learns that it is done.
    fn change(&mut self) {
        if self.stored > self.known {
            self.known = self.stored;
        } else if self.listers.iter().all(|lister| lister.waits.is_none()) {
            self.stored += 1;
            self.listings.note_change(DIRECTORY);
        }
    }

    /// A program asks for entries. Returns whether its listing has ended.
    fn ask(&mut self, chosen: usize) -> Result<bool, Old> {
        let lister = &mut self.listers[chosen];
        let cache = &mut self.cache;
        if cache.is_complete && lister.position == 0 && cache.checked_against != self.known {
            cache.reset();
        }
        let goes_on = lister.reads_cache == Some(cache.version) && lister.position > 0;
        if cache.is_complete && !goes_on && !cache.has_first_page {
            cache.reset();
        }
        if cache.is_complete && lister.position <= cache.parts.len() {
            lister.reads_cache = Some(cache.version);
            self.from_cache += 1;
            let Some(&read) = cache.parts.get(lister.position) else { return Ok(true) };
            lister.position += 1;
            return if read < lister.began { Err(Old) } else { Ok(false) };
        }
        if lister.position == 0 && cache.parts.is_empty() {
            cache.checked_against = self.known;
        }
        let answer = self.answer(self.listers[chosen].position);
        self.listers[chosen].waits = Some(answer);
        Ok(false)
    }

    /// The request arrives here and is answered.
    fn answer(&self, position: usize) -> Answer {
        self.listings.note_entries(DIRECTORY);
        let ends = position == PARTS;
        let drops = ends && self.listings.is_old(DIRECTORY) && self.policy != Policy::NoDrops;
        Answer { read: (!ends).then_some(self.stored), drops }
    }

    /// The first page is dropped, or the kernel takes the reply. Returns whether the listing has ended.
    fn take(&mut self, chosen: usize, answer: Answer) -> bool {
        let lister = &mut self.listers[chosen];
        if answer.drops {
            self.cache.has_first_page = false;
            self.listings.note_drop(DIRECTORY);
            lister.waits = Some(Answer { drops: false, ..answer });
            return false;
        }
        lister.waits = None;
        let is_next = lister.position == self.cache.parts.len();
        let Some(read) = answer.read else {
            self.cache.is_complete |= is_next;
            return true;
        };
        if !self.cache.is_complete && is_next {
            self.cache.parts.push(read);
            self.cache.has_first_page |= lister.position == 0;
        }
        lister.position += 1;
        false
    }
}

/// Runs many short histories. Returns how many requests for entries were answered from the cache.
fn run(policy: Policy, seeds: Range<u64>) -> Result<u64, Old> {
    let mut from_cache = 0;
    for seed in seeds {
        let mut model = Model::new(policy, seed);
        for _ in 0..400 {
            model.step()?;
        }
        from_cache += model.from_cache;
    }
    Ok(from_cache)
}

#[test]
fn no_listing_has_entries_from_before_it_began() {
    let from_cache = run(Policy::Product, 0..20_000).unwrap();
    assert!(from_cache > 100_000, "only {from_cache} requests were answered from the cache");
}

#[test]
fn the_model_finds_what_would_go_wrong() {
    for policy in [Policy::NoDrops, Policy::NoLookups] {
        assert!(run(policy, 0..20_000).is_err(), "{policy:?}");
    }
}

/// What the kernel has forgotten, once it has forgotten all lookups, is not remembered here.
#[test]
fn directories_are_known_as_long_as_to_the_kernel() {
    let listings = Listings::new();
    (0..3).for_each(|_| listings.note_lookup(DIRECTORY));
    listings.note_change(DIRECTORY);
    assert!(!listings.is_old(DIRECTORY), "nothing is collected");
    listings.note_entries(DIRECTORY);
    listings.note_change(DIRECTORY);
    assert!(listings.forget(DIRECTORY, 2) && listings.is_old(DIRECTORY));
    assert!(!listings.forget(DIRECTORY, 1) && !listings.forget(DIRECTORY, 1));
    assert_eq!(listings.shard(DIRECTORY).lock().len(), 0);
    assert!(listings.is_old(DIRECTORY), "nothing is known");
    listings.note_lookup(DIRECTORY);
    assert!(!listings.is_old(DIRECTORY));
    assert!(listings.forget(InodeNo::ROOT, u64::MAX) && !listings.is_old(InodeNo::ROOT));
}
