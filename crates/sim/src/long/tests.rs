//! Places that misbehave, to show that the runs notice it.

use std::collections::HashMap;

use super::*;

/// Files in memory, with a limit.
#[derive(Default)]
struct Memory {
    files: HashMap<u32, Vec<u8>>,
    limit: u64,
    /// Bytes that a deleted file does not free.
    leak: u64,
    /// One of this many writes is lost; 0 for none.
    forgets: u32,
    /// The stored contents differ from those that were read, until caches are bypassed.
    rots: bool,
    writes: u32,
    /// Bytes that it accepts beyond the available space.
    takes_more: u64,
}

impl Memory {
    fn of(limit: u64) -> Self {
        Memory { limit, ..Memory::default() }
    }

    fn used(&self) -> u64 {
        self.files.values().map(|bytes| bytes.len().next_multiple_of(4096) as u64).sum()
    }
}

impl Place for Memory {
    fn create(&mut self, file: u32) -> Result<(), Refused> {
        self.files.insert(file, Vec::new());
        Ok(())
    }

    fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        self.writes += 1;
        if self.forgets > 0 && self.writes.is_multiple_of(self.forgets) {
            return Ok(());
        }
        let (before, end) = (self.files[&file].len(), offset as usize + bytes.len());
        let grown = end.next_multiple_of(4096).saturating_sub(before.next_multiple_of(4096)) as u64;
        if self.used() + grown > self.limit + self.takes_more {
            return Err(Refused::NoSpace);
        }
        let contents = self.files.get_mut(&file).unwrap();
        contents.resize(before.max(end), 0);
        contents[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn truncate(&mut self, file: u32, size: u64) -> Result<(), Refused> {
        self.files.get_mut(&file).unwrap().resize(size as usize, 0);
        Ok(())
    }

    fn remove(&mut self, file: u32) -> Result<(), Refused> {
        self.files.remove(&file);
        self.limit -= self.leak;
        Ok(())
    }

    fn read(&mut self, file: u32, offset: u64, into: &mut [u8]) -> Result<(u64, usize), Refused> {
        let contents = &self.files[&file];
        let rest = &contents[(offset as usize).min(contents.len())..];
        let read = rest.len().min(into.len());
        into[..read].copy_from_slice(&rest[..read]);
        Ok((contents.len() as u64, read))
    }

    fn fsync(&mut self, _file: u32) -> Result<(), Refused> {
        Ok(())
    }

    fn verify(&mut self) -> Result<(), Refused> {
        if self.rots {
            self.files.values_mut().flatten().for_each(|byte| *byte ^= 1);
        }
        Ok(())
    }

    fn available(&mut self) -> Result<u64, Refused> {
        Ok(self.limit.saturating_sub(self.used()))
    }

    fn regain(&mut self, _bytes: u64) -> Result<u64, Refused> {
        self.available()
    }
}

const LIMIT: u64 = 4 << 20;

fn endured(memory: &mut Memory) -> Result<Endured, Wrong> {
    endure(memory, &Asked { percent: 80, total: 10 * LIMIT, seed: 5, fill_up: false })
}

fn filled_up(memory: &mut Memory, percent: u64) -> Result<Endured, Wrong> {
    endure(memory, &Asked { percent, total: 10 * LIMIT, seed: 5, fill_up: true })
}

#[test]
fn a_place_that_is_right_passes() {
    let done = endured(&mut Memory::of(LIMIT)).unwrap();
    assert!(done.written >= 10 * LIMIT && done.compared > LIMIT && done.files > 0, "{done:?}");
    let filled = fill(&mut Memory::of(LIMIT), &Way::usual(4096, 2), 5).unwrap();
    assert!(filled.overwritten > LIMIT && filled.compared == 2 * LIMIT, "{filled:?}");
}

#[test]
fn exactly_the_available_space_can_be_written() {
    for percent in [80, 100] {
        let done = filled_up(&mut Memory::of(LIMIT), percent).unwrap();
        assert!(done.fill_ups > 1 && done.refused == 2 * done.fill_ups && done.filled > 0, "{done:?}");
        assert!(filled_up(&mut Memory { takes_more: LIMIT, ..Memory::of(LIMIT) }, percent).is_err());
    }
    assert!(endured(&mut Memory { takes_more: LIMIT, ..Memory::of(LIMIT) }).is_ok(), "not asked to fill up");
}

#[test]
fn a_place_that_leaks_or_loses_writes_fails() {
    assert!(endured(&mut Memory { leak: 1, ..Memory::of(LIMIT) }).is_err(), "a byte leaks at each deletion");
    assert!(endured(&mut Memory { forgets: 40, ..Memory::of(LIMIT) }).is_err(), "writes are forgotten");
    assert!(
        fill(&mut Memory { leak: 4096, ..Memory::of(LIMIT) }, &Way::usual(4096, 1), 5).is_err(),
        "a block leaks"
    );
    assert!(
        fill(&mut Memory { forgets: 5, ..Memory::of(LIMIT) }, &Way::usual(4096, 1), 5).is_err(),
        "writes are forgotten"
    );
}

/// Files used to be compared with the kernel's cache, never with the stored contents.
#[test]
fn a_place_that_stores_other_bytes_than_it_caches_fails() {
    assert!(endured(&mut Memory { rots: true, ..Memory::of(LIMIT) }).is_err());
    assert!(fill(&mut Memory { rots: true, ..Memory::of(LIMIT) }, &Way::usual(4096, 1), 5).is_err());
}

#[test]
fn a_place_that_reports_too_little_space_fails() {
    struct Modest(Memory);
    impl Place for Modest {
        fn create(&mut self, file: u32) -> Result<(), Refused> {
            self.0.create(file)
        }
        fn write(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
            self.0.write(file, offset, bytes)
        }
        fn truncate(&mut self, file: u32, size: u64) -> Result<(), Refused> {
            self.0.truncate(file, size)
        }
        fn remove(&mut self, file: u32) -> Result<(), Refused> {
            self.0.remove(file)
        }
        fn read(&mut self, file: u32, offset: u64, into: &mut [u8]) -> Result<(u64, usize), Refused> {
            self.0.read(file, offset, into)
        }
        fn fsync(&mut self, file: u32) -> Result<(), Refused> {
            self.0.fsync(file)
        }
        fn verify(&mut self) -> Result<(), Refused> {
            self.0.verify()
        }
        fn available(&mut self) -> Result<u64, Refused> {
            Ok(self.0.available()? - 4096)
        }
        fn regain(&mut self, _bytes: u64) -> Result<u64, Refused> {
            self.available()
        }
    }
    assert!(fill(&mut Modest(Memory::of(LIMIT)), &Way::usual(4096, 1), 5).is_err());
}

/// An operation that would never end is stopped, and counts as failed.
#[test]
fn an_endless_operation_counts_as_failed() {
    let spec = emulated::Spec::new(4096, 24, 64);
    let usual = Setup::usual(spec, fs::Reserve::default(), 64 << 20, 5);
    let run = |changes_max| {
        let mut library = Library::new(Setup { changes_max, ..usual.clone() }).unwrap();
        let filled = fill(&mut library, &Way { is_exact: false, ..Way::usual(4096, 1) }, 5);
        (filled.map(|filled| filled.overwritten), library.longest())
    };
    let (filled, longest) = run(None);
    assert!(filled.unwrap() > 0 && longest > 0);
    assert!(run(Some(longest + 1)).0.is_ok());
    let wrong = run(Some(longest)).0.unwrap_err();
    assert!(wrong.0.contains("it had not come to an end"), "{wrong}");
}

/// If space is available after all available space has been written, it is written as well, where that is allowed. A
/// file system that always has more space is rejected.
#[test]
fn the_rest_is_taken_and_compared() {
    let way =
        Way { files: 3, over: Order::Shuffled, is_replaced: true, is_exact: false, ..Way::usual(4096, 1) };
    let way =
        Way { filling: Order::Shuffled, filling_bytes: 12_288, over_bytes: 5 * 4096, fsync_every: 4, ..way };
    let filled = fill(&mut Memory::of(LIMIT), &way, 5).unwrap();
    assert!(filled.overwritten == 2 * LIMIT && filled.compared == 2 * LIMIT, "{filled:?}");
    for wrong in [
        Memory { takes_more: 2 * LIMIT, ..Memory::of(LIMIT) },
        Memory { forgets: 40, ..Memory::of(LIMIT) },
        Memory { leak: 4096, ..Memory::of(LIMIT) },
        Memory { rots: true, ..Memory::of(LIMIT) },
    ] {
        assert!(fill(&mut { wrong }, &way, 5).is_err());
    }
}

/// A file system that may refuse operations is run until it does. Wrong contents are an error all the same.
#[test]
fn churn_may_end_in_a_refusal_but_not_lose_data() {
    let reached = std::cell::Cell::new(0);
    let note = &mut || {
        reached.set(reached.get() + 1);
        Ok(())
    };
    let level = LIMIT / 10 * 8;
    let done = churn(&mut Memory::of(LIMIT), level, 3 * LIMIT, 5, note).unwrap();
    assert!(
        done.refused.is_none() && done.churning >= 3 * LIMIT && done.filling >= level / 10 * 9,
        "{done:?}"
    );
    assert_eq!(reached.get(), 1);
    let done = churn(&mut Memory::of(level / 2), level, 3 * LIMIT, 5, note).unwrap();
    assert!(done.refused == Some(Refused::NoSpace) && done.churning == 0, "{done:?}");
    assert_eq!(reached.get(), 1, "the level was reached once");
    // Each deleted file takes some space with it, until too little is left.
    let done = churn(&mut Memory { leak: 4096, ..Memory::of(LIMIT) }, level, 100 * LIMIT, 5, note).unwrap();
    assert!(done.refused == Some(Refused::NoSpace) && done.churning > 0, "{done:?}");
    assert!(churn(&mut Memory { forgets: 40, ..Memory::of(LIMIT) }, level, 3 * LIMIT, 5, note).is_err());
}
