//! What the kernel keeps of files and directories, where keeping it could show an old state.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::mem::MaybeUninit;

use rustix::fs::RawDir;

use crate::bench_or_skip;

/// A listing that goes on at any time, a few entries at a time.
struct Listing {
    directory: File,
    seen: BTreeMap<String, usize>,
}

impl Listing {
    /// Takes few enough entries that a listing of hundreds of names needs many steps.
    const STEP_BYTES: usize = 2048;

    fn begin(path: &std::path::Path) -> Listing {
        let mut listing = Listing { directory: File::open(path).unwrap(), seen: BTreeMap::new() };
        assert!(listing.step(), "a directory has entries");
        listing
    }

    /// Reads on; false at the end.
    fn step(&mut self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); Self::STEP_BYTES];
        let mut entries = RawDir::new(&self.directory, &mut buffer);
        let mut count = 0;
        // One system call: the next one is the next step's.
        while count == 0 || !entries.is_buffer_empty() {
            let Some(entry) = entries.next() else { break };
            *self.seen.entry(entry.unwrap().file_name().to_str().unwrap().to_owned()).or_default() += 1;
            count += 1;
        }
        count > 0
    }

    fn finish(mut self) -> BTreeMap<String, usize> {
        while self.step() {}
        self.seen
    }
}

/// Two processes listed a directory that a third one changed. The first listing filled the kernel's cache with the
/// old beginning of the directory and its new end. The second listing began after the change and continued from that
/// cache: names that had existed before it began were missing, and names that had been removed were there.
#[test]
fn a_listing_shows_every_change_that_was_made_before_it_began() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let directory = mounted.path("directory");
    fs::create_dir(&directory).unwrap();
    let make = |name: &str| drop(File::create_new(directory.join(name)).unwrap());
    (0..400).for_each(|number| make(&format!("stays {number}")));
    for round in 0..10 {
        let [removed, made] =
            ["removed", "made"].map(|what| (0..100).map(move |number| format!("{what} {round} {number}")));
        removed.clone().for_each(|name| make(&name));
        let early = Listing::begin(&directory);
        made.clone().for_each(|name| make(&name));
        removed.clone().for_each(|name| fs::remove_file(directory.join(name)).unwrap());
        let late = Listing::begin(&directory);
        let (early, late) = (early.finish(), late.finish());
        for number in 0..400 {
            let name = format!("stays {number}");
            assert_eq!((early.get(&name), late.get(&name)), (Some(&1), Some(&1)), "{name} in round {round}");
        }
        made.for_each(|name| assert_eq!(late.get(&name), Some(&1), "{name} was made before"));
        removed.for_each(|name| assert_eq!(late.get(&name), None, "{name} was removed before"));
    }
    mounted.umount();
    bench.check();
}
