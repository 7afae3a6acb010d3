use rt::ManualClock;

use super::data::Turn;
use super::names::Tree;
use super::*;

/// Names in memory. Every call takes a microsecond.
#[derive(Default)]
struct Memory {
    clock: std::sync::Arc<ManualClock>,
    files: rt::sync::Mutex<std::collections::BTreeMap<String, usize>>,
}

impl Memory {
    fn take_time(&self) {
        self.clock.advance(1000);
    }
}

impl Place for Memory {
    fn make_directory(&self, _name: &str) -> Result<()> {
        Ok(())
    }

    fn create(&self, path: &str, content: &[u8]) -> Result<()> {
        self.take_time();
        match self.files.lock().insert(path.to_owned(), content.len()) {
            None => Ok(()),
            Some(_) => Err(format!("{path} is made twice")),
        }
    }

    fn lookup(&self, path: &str) -> Result<u64> {
        self.take_time();
        self.files.lock().get(path).map(|&bytes| bytes as u64).ok_or(format!("{path} is not there"))
    }

    fn list(&self, directory: &str) -> Result<u64> {
        self.take_time();
        let inside = format!("{directory}/");
        Ok(self.files.lock().keys().filter(|path| path.starts_with(&inside)).count() as u64)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.take_time();
        self.files.lock().remove(path).map(drop).ok_or(format!("{path} is not there"))
    }

    fn open(&self, _path: &str) -> Result<Box<dyn Bytes>> {
        Err("there are only names".to_owned())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

fn trees(clock: &std::sync::Arc<ManualClock>, directories: u64) -> Vec<Tree> {
    let tree = |files| {
        let place = Memory { clock: std::sync::Arc::clone(clock), ..Memory::default() };
        Tree { named: Named { name: "memory".to_owned(), place: Box::new(place) }, files, directories }
    };
    vec![tree(names::SLICE), tree(6 * names::SLICE)]
}

#[test]
fn both_stages_measure_every_operation_in_every_round() {
    for directories in [1, 10] {
        let clock = std::sync::Arc::new(ManualClock::default());
        let trees = trees(&clock, directories);
        let mut seen = std::collections::BTreeMap::new();
        let mut note = |measured: names::Measured<'_>| {
            if measured.operation != "readdir" {
                // A microsecond for each operation.
                assert!((measured.rate - 1e6).abs() < 1.0, "{} {}", measured.operation, measured.rate);
            }
            *seen.entry((measured.files, measured.operation.to_owned())).or_insert(0) += 1;
        };
        names::make(&trees, 5, &*clock, &mut note).unwrap();
        names::visit(&trees, 5, &*clock, &mut note).unwrap();
        for files in [names::SLICE, 6 * names::SLICE] {
            for operation in ["create", "lookup", "lookup again", "unlink"] {
                assert_eq!(seen[&(files, operation.to_owned())], 5, "{files} {operation}");
            }
        }
    }
}

#[test]
fn a_tree_that_lost_a_name_is_noticed() {
    let clock = std::sync::Arc::new(ManualClock::default());
    let trees = trees(&clock, 1);
    names::make(&trees, 5, &*clock, &mut |_| {}).unwrap();
    trees[1].named.place.remove("g0d0/f59999").unwrap();
    let visited = names::visit(&trees, 5, &*clock, &mut |_| {});
    assert_eq!(visited.unwrap_err(), "memory: 59999 of 60000 names are listed");
}

#[test]
fn trees_that_cannot_be_shared_out_are_refused() {
    let clock = std::sync::Arc::new(ManualClock::default());
    assert!(names::make(&trees(&clock, 7), 5, &*clock, &mut |_| {}).is_err());
    assert!(names::make(&trees(&clock, 1), 7, &*clock, &mut |_| {}).is_err());
}

/// In a directory of the host, without direct I/O. The rates mean nothing, but the calls are real.
#[test]
fn every_operation_is_measured_in_a_directory() {
    let folder = Scratch::new();
    let turn = Turn { file_bytes: 2 << 20, small: 32, synced: 4, names: 10 };
    let place = Directory::open(&folder.0, false).unwrap();
    let places = [Named { name: "host".to_owned(), place: Box::new(place) }];
    let mut seen = Vec::new();
    data::run(&places, &turn, 2, &rt::SystemClock::new(), &mut |measured| {
        assert!(measured.rate > 0.0);
        seen.push(measured.operation);
    })
    .unwrap();
    assert_eq!(seen.len(), 2 * 9);
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
}

/// Bytes written across the ends of zones are read as they were written, from where they are stored.
#[test]
fn bytes_of_zones_are_moved_as_those_of_a_file() {
    let spec = emulated::Spec::new(4096, 8, 300);
    let device = std::sync::Arc::new(emulated::Emulated::new(spec));
    let place = Zones::begin(std::sync::Arc::clone(&device) as _).unwrap();
    let turn = Turn { file_bytes: 4 << 20, small: 64, synced: 0, names: 0 };
    let clock = rt::SystemClock::new();
    for what in [data::Transfer::Write, data::Transfer::Read, data::Transfer::ReadSmall] {
        assert!(data::transfer(&place, what, &turn, &clock).unwrap() > 0.0);
    }
    let zones = zone::Device::report(&*device).unwrap();
    assert!(zones[1..4].iter().all(|zone| zone.state == zone::ZoneState::Full));
    assert_eq!([zones[0].pointer, zones[4].pointer, zones[5].pointer], [1, 124, 0]);
    let longer = Turn { file_bytes: 5 << 20, ..turn };
    assert!(data::transfer(&place, data::Transfer::Read, &longer, &clock).is_err());
}

#[test]
fn a_block_of_many_extents_that_changed_is_noticed() {
    let folder = Scratch::new();
    let place = Directory::open(&folder.0, false).unwrap();
    let clock = rt::SystemClock::new();
    extents::make(&place, 100, &clock).unwrap();
    extents::compare(&place, 100, &clock).unwrap();
    for (block, what) in [(20, "extent 10"), (21, "extent 10")] {
        let before = std::fs::read(folder.0.join("extents")).unwrap();
        place.open("extents").unwrap().write(block * 4096 + 5, b"x").unwrap();
        let failure = extents::compare(&place, 100, &clock).unwrap_err();
        assert_eq!(failure, format!("{what} holds something else"));
        std::fs::write(folder.0.join("extents"), before).unwrap();
    }
    assert!(extents::compare(&place, 99, &clock).is_err());
    extents::remove(&place).unwrap();
}

/// A temporary folder.
pub(super) struct Scratch(pub(super) std::path::PathBuf);

impl Scratch {
    pub(super) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("polder-speed-{:x}", rt::random::Rng::new().u64(..)));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
