//! A model of the kernel's cache of one directory (`fs/fuse/readdir.c`), with listings and changes in random order.

use rt::random::Rng;

use super::*;

const DIRECTORY: InodeNo = InodeNo(77);
/// Requests for entries in one listing; each reply is a page of the cache.
const PARTS: usize = 3;
const LISTINGS_MAX: usize = 4;
const THREADS: usize = 3;

/// How the decisions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Product,
    /// Every listing ends with an empty reply.
    KeepAll,
    /// Nothing is dropped.
    NoDrops,
    /// Replies are taken for arrived as soon as they are sent.
    NoReaders,
}

/// A reply.
#[derive(Clone, Copy)]
enum Answer {
    /// Entries as of this state of the directory.
    Part(u64),
    End {
        is_empty: bool,
    },
}

struct Lister {
    /// The place of its number in [`Model::threads`].
    thread: usize,
    /// The state of the directory when the listing began.
    began: u64,
    position: usize,
    /// It has read from the cache since the cache was last complete.
    reads_cache: Option<u64>,
    /// The reply, and what must be done before it is sent.
    waits: Option<(Answer, Option<BeginsAfterDrop>)>,
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
        *self =
            Cache { version: self.version + 1, checked_against: self.checked_against, ..Cache::default() };
    }
}

/// The kernel and its programs.
struct Model {
    policy: Policy,
    listings: Listings,
    rng: Rng,
    cache: Cache,
    listers: Vec<Lister>,
    threads: [u32; THREADS],
    /// Drops for threads that were killed.
    drops: Vec<BeginsAfterDrop>,
    /// The state that is stored, and the one that programs know of.
    stored: u64,
    known: u64,
    has_noted: bool,
    from_cache: u64,
}

/// A listing had entries from before the change that it should show.
#[derive(Debug)]
struct Old;

impl Model {
    fn new(policy: Policy, seed: u64) -> Self {
        Model {
            policy,
            listings: Listings::new(),
            rng: Rng::with_seed(seed),
            cache: Cache::default(),
            listers: Vec::new(),
            threads: [1, 2, 3],
            drops: Vec::new(),
            stored: 0,
            known: 0,
            has_noted: true,
            from_cache: 0,
        }
    }

    fn step(&mut self) -> Result<(), Old> {
        match self.rng.u32(..100) {
            0..15 => self.change(),
            15..25 if self.listers.len() < LISTINGS_MAX => {
                let position = if self.rng.u32(..10) == 0 { self.rng.usize(..=PARTS) } else { 0 };
                let thread = self.rng.usize(..THREADS);
                // Where a program goes to a place that it has from elsewhere, the kernel checks nothing.
                let began = if position == 0 { self.known } else { 0 };
                let (reads_cache, waits) = (None, None);
                self.listers.push(Lister { thread, began, position, reads_cache, waits });
            }
            25 => self.cache.has_first_page = false,
            26 if self.listers.is_empty() => {
                self.cache = Cache { version: self.cache.version + 1, ..Cache::default() };
                self.listings.forget(DIRECTORY);
            }
            27 if !self.drops.is_empty() => {
                let drop = self.drops.swap_remove(0);
                self.drop_first_page(drop);
            }
            28 if !self.listers.is_empty() => self.close(),
            29.. if !self.listers.is_empty() => {
                let chosen = self.rng.usize(..self.listers.len());
                let ends = match self.listers[chosen].waits {
                    Some(_) => self.take(chosen),
                    None if self.is_waiting(self.listers[chosen].thread) => false,
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

    fn is_waiting(&self, thread: usize) -> bool {
        self.listers.iter().any(|lister| lister.thread == thread && lister.waits.is_some())
    }

    /// A program stops before the end. If it waits for a reply, its thread was killed.
    fn close(&mut self) {
        let chosen = self.rng.usize(..self.listers.len());
        let closed = self.listers.swap_remove(chosen);
        if closed.waits.is_some() {
            self.listers.retain(|lister| lister.thread != closed.thread);
            self.threads[closed.thread] += THREADS as u32;
        }
        // The page is dropped nevertheless.
        self.drops.extend(closed.waits.and_then(|(_, drop)| drop));
    }

    fn drop_first_page(&mut self, drop: BeginsAfterDrop) {
        self.cache.has_first_page = false;
        self.listings.dropped(DIRECTORY, drop);
    }

    /// A change is stored, then noted, then its program learns that it is done.
    fn change(&mut self) {
        match (self.stored > self.known, self.has_noted) {
            (false, _) => {
                self.stored += 1;
                self.has_noted = false;
            }
            (true, false) => {
                self.listings.note_change(DIRECTORY);
                self.has_noted = true;
            }
            (true, true) => self.known = self.stored,
        }
    }

    /// A program asks for entries. Returns whether its listing has ended.
    fn ask(&mut self, chosen: usize) -> Result<bool, Old> {
        let lister = &mut self.listers[chosen];
        if self.cache.is_complete && lister.position == 0 && self.cache.checked_against != self.known {
            self.cache.reset();
        }
        if self.cache.is_complete {
            let goes_on = lister.reads_cache == Some(self.cache.version) && lister.position > 0;
            if !goes_on && !self.cache.has_first_page {
                self.cache.reset();
            }
        }
        if self.cache.is_complete && lister.position <= self.cache.parts.len() {
            lister.reads_cache = Some(self.cache.version);
            self.from_cache += 1;
            let Some(&read) = self.cache.parts.get(lister.position) else { return Ok(true) };
            lister.position += 1;
            return if read < lister.began { Err(Old) } else { Ok(false) };
        }
        self.request(chosen);
        Ok(false)
    }

    /// The request arrives here and is answered.
    fn request(&mut self, chosen: usize) {
        let Lister { thread, position, .. } = self.listers[chosen];
        let thread = self.threads[thread];
        let (mut answer, mut drop) = (Answer::Part(self.stored), None);
        match position {
            0 => {
                if !self.cache.is_complete && self.cache.parts.is_empty() {
                    self.cache.checked_against = self.known;
                }
                drop = self.listings.begin(DIRECTORY, thread);
            }
            PARTS => {
                let is_complete = self.listings.end(DIRECTORY, thread);
                answer = Answer::End { is_empty: is_complete || self.policy == Policy::KeepAll };
            }
            _ => self.listings.go_on(DIRECTORY, thread),
        }
        match self.policy {
            Policy::KeepAll => drop = None,
            Policy::NoDrops => {
                drop.take().into_iter().for_each(|drop| self.listings.dropped(DIRECTORY, drop));
            }
            Policy::NoReaders if position < PARTS => self.listings.take_for_arrived(thread),
            _ => {}
        }
        self.listers[chosen].waits = Some((answer, drop));
    }

    /// The first page is dropped, or the kernel takes the reply. Returns whether the listing has ended.
    fn take(&mut self, chosen: usize) -> bool {
        let lister = &mut self.listers[chosen];
        match lister.waits.take() {
            Some((answer, Some(drop))) => {
                lister.waits = Some((answer, None));
                self.drop_first_page(drop);
                false
            }
            Some((Answer::Part(read), None)) => {
                if !self.cache.is_complete && lister.position == self.cache.parts.len() {
                    self.cache.parts.push(read);
                    self.cache.has_first_page |= lister.position == 0;
                }
                lister.position += 1;
                false
            }
            Some((Answer::End { is_empty }, None)) => {
                self.cache.is_complete |= is_empty && lister.position == self.cache.parts.len();
                true
            }
            None => unreachable!("it waits"),
        }
    }
}

impl Listings {
    fn take_for_arrived(&self, thread: u32) {
        if let Some(collected) = self.shard(DIRECTORY).lock().get_mut(&DIRECTORY) {
            collected.remove_reader(thread);
        }
    }
}

/// Runs many short histories. Returns how many requests for entries were answered from the cache.
fn run(policy: Policy, seeds: std::ops::Range<u64>) -> Result<u64, Old> {
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
    assert!(from_cache > 30_000, "only {from_cache} requests were answered from the cache");
}

#[test]
fn the_model_finds_what_would_go_wrong() {
    for policy in [Policy::KeepAll, Policy::NoDrops, Policy::NoReaders] {
        assert!(run(policy, 0..20_000).is_err(), "{policy:?}");
    }
}

/// Directories are listed from the cache again soon after a change, also after a listing that did not end.
#[test]
fn directories_are_listed_from_the_cache() {
    let listings = Listings::new();
    assert_eq!((listings.begin(DIRECTORY, 1), listings.end(DIRECTORY, 1)), (None, true));
    listings.note_change(DIRECTORY);
    let begin_after_drop = |thread| {
        let begun = listings.begin(DIRECTORY, thread).unwrap();
        listings.dropped(DIRECTORY, begun);
    };
    begin_after_drop(2);
    assert!(listings.end(DIRECTORY, 2));
    // A listing that does not end.
    assert_eq!(listings.begin(DIRECTORY, 3), None);
    listings.note_change(DIRECTORY);
    begin_after_drop(4);
    assert!(!listings.end(DIRECTORY, 4), "entries to thread 3 may be on their way");
    // Its thread does something else there.
    begin_after_drop(3);
    assert!(listings.end(DIRECTORY, 3));
}
