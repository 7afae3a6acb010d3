//! Requests of the kernel to the view of a device in memory.

use std::sync::Arc;

use rt::sync::Mutex;
use zerocopy::FromBytes;

use super::*;
use crate::view::tests::{Memory, ZoneLayout};

/// Blocks are sectors here; a zone has four of them and a capacity of three.
const KIND: ZoneLayout = ZoneLayout { zones: 3, length: 3, capacity: 3, last_capacity: 2 };

/// The bytes of a request.
#[derive(Default)]
struct Kernel(Mutex<Vec<u8>>);

impl Payload for Kernel {
    fn fetch(&self, from: usize, into: &mut [u8]) -> io::Result<()> {
        into.copy_from_slice(&self.0.lock()[from..from + into.len()]);
        Ok(())
    }

    fn give(&self, at: usize, from: &[u8]) -> io::Result<()> {
        let mut bytes = self.0.lock();
        assert!(bytes.len() >= at, "pieces follow one another");
        bytes.truncate(at);
        bytes.extend_from_slice(from);
        Ok(())
    }
}

struct Served {
    view: Po2View,
    kernel: Kernel,
    below: Memory,
}

impl Served {
    fn new() -> Served {
        let below = Memory::new(KIND);
        let view = Po2View::of(Box::new(below.clone())).unwrap().unwrap();
        Served { view, kernel: Kernel::default(), below }
    }

    fn ask(&self, operation: u32, sector: u64, count: u32) -> Answer {
        // Flags stand above the operation.
        let asked = Descriptor { operation: operation | 0xabcd00, count, sector, address: 7 };
        answer(&self.view, &asked, &self.kernel, &mut [0xee; 2 * 512])
    }

    fn put(&self, operation: u32, sector: u64, bytes: &[u8]) -> Answer {
        *self.kernel.0.lock() = bytes.to_vec();
        self.ask(operation, sector, (bytes.len() / 512) as u32)
    }

    fn zones(&self) -> Vec<Zone> {
        let answer = self.ask(operation::REPORT_ZONES, 0, KIND.zones);
        assert_eq!(answer.result, KIND.zones as i32 * 64);
        <[Zone]>::ref_from_bytes(&self.kernel.0.lock()).unwrap().to_vec()
    }
}

fn failure(errno: Errno) -> Answer {
    Answer { result: -errno.raw_os_error(), place: 0 }
}

#[test]
fn bytes_are_transferred_and_counted() {
    let served = Served::new();
    let (one, two) = ([1; 1024], [2; 512]);
    assert_eq!(served.put(operation::WRITE, 4, &one), Answer { result: 1024, place: 0 });
    assert_eq!(served.put(operation::ZONE_APPEND, 4, &two), Answer { result: 512, place: 6 });
    assert_eq!(served.ask(operation::READ, 4, 4), Answer { result: 2048, place: 0 });
    assert!(*served.kernel.0.lock() == [&one[..], &two, &[0; 512]].concat());
    assert_eq!(served.put(operation::WRITE, 7, &two), failure(Errno::IO), "beyond the capacity of the zone");
    assert_eq!(served.put(operation::WRITE, 1, &two), failure(Errno::IO), "not at the pointer");
    assert_eq!(
        served.ask(operation::READ, 0, 1 << 22),
        failure(Errno::INVAL),
        "more than the answer can count"
    );
    assert_eq!(served.put(operation::ZONE_APPEND, 0, &[1; 3 * 512]), failure(Errno::INVAL), "not in pieces");
    assert_eq!(served.ask(operation::READ, u64::MAX, 1), failure(Errno::INVAL));
    assert_eq!(served.ask(operation::READ, 12, 1), failure(Errno::IO), "beyond the end");
}

/// A write that is split into pieces is refused before the first piece if the last one would not fit.
#[test]
fn requests_larger_than_a_buffer_are_split() {
    let served = Served::new();
    let bytes: Vec<u8> = (0..3 * 512).map(|at| (at / 100) as u8).collect();
    assert_eq!(served.put(operation::WRITE, 0, &[1; 4 * 512]), failure(Errno::IO));
    assert_eq!(served.zones()[0].pointer, 0);
    assert_eq!(served.put(operation::WRITE, 0, &bytes), Answer { result: 3 * 512, place: 0 });
    assert_eq!(served.ask(operation::READ, 0, 8), Answer { result: 8 * 512, place: 0 });
    assert!(*served.kernel.0.lock() == [&bytes[..], &[0; 5 * 512]].concat());
}

#[test]
fn zones_are_reported_as_the_kernel_knows_them() {
    let served = Served::new();
    served.put(operation::WRITE, 4, &[1; 512]);
    assert_eq!(served.ask(operation::ZONE_FINISH, 8, 4).result, 0);
    served.below.set_zone_state(0, ZoneState::Offline);
    let zones = served.zones();
    let seen =
        |zone: &Zone| (zone.start, zone.length, zone.capacity, zone.pointer, zone.condition, zone.kind);
    let seen: Vec<_> = zones.iter().map(seen).collect();
    assert_eq!(seen, [(0, 4, 3, 3, 0xf, 2), (4, 4, 3, 5, 2, 2), (8, 4, 2, 10, 0xe, 2)]);
    served.ask(operation::REPORT_ZONES, 8, 1);
    assert_eq!(served.kernel.0.lock().len(), size_of::<Zone>());
}

/// A device reported fewer zones than it had, and the kernel requested the rest again and again. The program that had
/// requested the report hung; no signal ended that.
#[test]
fn a_report_of_too_few_zones_is_an_error() {
    let served = Served::new();
    assert_eq!(served.ask(operation::REPORT_ZONES, 4, 2).result, 2 * 64);
    for (sector, zones) in [(0, 4), (8, 2), (12, 1), (u64::MAX, 1)] {
        let answer = served.ask(operation::REPORT_ZONES, sector, zones);
        assert!(answer.result < 0, "{zones} zones from sector {sector}: {answer:?}");
    }
}

/// A failing disk below a view caused errors of the block device, without any message in the log.
#[test]
fn failed_requests_are_logged_with_the_reason() {
    let served = Served::new();
    served.below.set_zone_state(1, ZoneState::Offline);
    let lines = Lines::default();
    let into = lines.clone();
    let log = tracing_subscriber::fmt().with_writer(move || into.clone()).with_ansi(false).finish();
    tracing::subscriber::with_default(log, || {
        assert_eq!(served.ask(operation::READ, 0, 2).result, 1024);
        assert_eq!(served.ask(operation::READ, 4, 2), failure(Errno::IO));
        assert_eq!(served.ask(operation::REPORT_ZONES, 0, 4).result, failure(Errno::IO).result);
    });
    let said = String::from_utf8(lines.0.lock().clone()).unwrap();
    let said: Vec<_> = said.lines().collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].contains(r#"fails operation="read" sector=4 count=2 error=Input/output error"#),
        "{said:?}"
    );
    assert!(said[1].contains("fewer zones than before"), "{said:?}");
}

/// Lines of a log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn zones_are_changed_one_by_one_and_all_at_once() {
    let served = Served::new();
    let states = || served.zones().iter().map(|zone| zone.condition).collect::<Vec<_>>();
    assert_eq!(served.ask(operation::ZONE_OPEN, 0, 4), Answer::default());
    served.put(operation::WRITE, 0, &[1; 512]);
    assert_eq!(served.ask(operation::ZONE_CLOSE, 0, 4), Answer::default());
    assert_eq!(served.ask(operation::ZONE_FINISH, 4, 4), Answer::default());
    assert_eq!(states(), [4, 0xe, 1]);
    assert_eq!(served.ask(operation::ZONE_RESET, 4, 4), Answer::default());
    assert_eq!(states(), [4, 1, 1]);
    served.below.set_zone_state(2, ZoneState::ReadOnly);
    assert_eq!(served.ask(operation::ZONE_RESET_ALL, 0, 0), Answer::default());
    assert_eq!(states(), [1, 1, 0xd]);
    // The kernel sends the largest place, which has no meaning.
    assert_eq!(served.ask(operation::FLUSH, u64::MAX, 0), Answer::default());
    for other in [3, 4, 5, 9, 16, 17, 19, 255] {
        assert_eq!(served.ask(other, 0, 4), failure(Errno::OPNOTSUPP), "operation {other}");
    }
}

/// The error number shows why a zone was not opened.
#[test]
fn limits_are_reported_by_their_errors() {
    let served = Served::new();
    for zone in 0..2 {
        assert_eq!(served.ask(operation::ZONE_OPEN, zone * 4, 4).result, 0);
    }
    assert_eq!(served.put(operation::WRITE, 8, &[1; 512]), failure(Errno::TOOMANYREFS));
}
