//! Compares the view of a device with a device that has such zones: the same commands give the same answers.

use std::sync::Arc;

use rt::sync::Mutex;

use super::*;
use zone::machine::Machine;
use zone::{Blocks, DeviceError, Geometry, ZoneId, ZoneInfo};

const BLOCK: u64 = 512;
const OPEN_MAX: u32 = 2;
const ACTIVE_MAX: u32 = 3;

/// The shape of a device in blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZoneLayout {
    pub(crate) zones: u32,
    /// The zone size.
    pub(crate) length: u64,
    pub(crate) capacity: Blocks,
    pub(crate) last_capacity: Blocks,
}

/// A device in memory with the rules of a strict zoned device.
#[derive(Clone)]
pub(crate) struct Memory {
    kind: ZoneLayout,
    limits: Limits,
    state: Arc<Mutex<State>>,
}

struct State {
    machine: Machine,
    bytes: Vec<u8>,
    flushes: u32,
}

impl Memory {
    pub(crate) fn new(kind: ZoneLayout) -> Memory {
        let geometry = Geometry {
            block_size: BLOCK as u32,
            zones: kind.zones,
            zone_blocks: kind.capacity,
            max_open: OPEN_MAX,
            max_active: ACTIVE_MAX,
            max_append: kind.capacity,
            conventional: 0,
            seek_bytes: Geometry::SEEK_BYTES,
        };
        let zone = |zone| ZoneInfo {
            state: ZoneState::Empty,
            capacity: if zone + 1 == kind.zones { kind.last_capacity } else { kind.capacity },
            pointer: 0,
        };
        let machine = Machine::new(geometry, (0..kind.zones).map(zone).collect());
        let bytes = vec![0; (u64::from(kind.zones) * kind.length * BLOCK) as usize];
        let limits = Limits {
            block_size: BLOCK as u32,
            max_open: Some(OPEN_MAX),
            max_active: Some(ACTIVE_MAX),
            transfer_bytes: 1 << 20,
            append_bytes: Some(1 << 20),
            seeks: false,
        };
        Memory { kind, limits, state: Arc::new(Mutex::new(State { machine, bytes, flushes: 0 })) }
    }

    fn zone_of(&self, at: u64) -> (ZoneId, Blocks) {
        let block = at / BLOCK;
        (ZoneId((block / self.kind.length) as u32), (block % self.kind.length) as Blocks)
    }

    pub(crate) fn set_zone_state(&self, zone: u32, state: ZoneState) {
        let mut inner = self.state.lock();
        let info = inner.machine.zones()[zone as usize];
        inner.machine.force(ZoneId(zone), ZoneInfo { state, ..info });
    }

    fn put(&self, zone: ZoneId, at: Option<Blocks>, from: &[u8]) -> io::Result<u64> {
        let mut state = self.state.lock();
        let block = state.machine.advance(zone, (from.len() as u64 / BLOCK) as Blocks, at).map_err(errno)?;
        let place = (u64::from(zone.0) * self.kind.length + u64::from(block)) * BLOCK;
        state.bytes[place as usize..place as usize + from.len()].copy_from_slice(from);
        Ok(place)
    }
}

fn errno(error: DeviceError) -> io::Error {
    match error {
        DeviceError::TooManyOpen { limit: OPEN_MAX, .. } => Errno::TOOMANYREFS.into(),
        DeviceError::TooManyOpen { .. } => Errno::OVERFLOW.into(),
        _ => Errno::IO.into(),
    }
}

impl Port for Memory {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn report(&self, from: u64, most: usize) -> io::Result<Vec<ReportedZone>> {
        let state = self.state.lock();
        let told = |(zone, info): (usize, &ZoneInfo)| ReportedZone {
            start: zone as u64 * self.kind.length * BLOCK,
            length: self.kind.length * BLOCK,
            capacity: u64::from(info.capacity) * BLOCK,
            pointer: if info.state.has_pointer() { u64::from(info.pointer) * BLOCK } else { 0 },
            state: Some(info.state),
            is_conventional: false,
        };
        // As many as a small device reports in one command.
        let zones = state.machine.zones().iter().enumerate().map(told).filter(|told| told.start >= from);
        Ok(zones.take(most.min(2)).collect())
    }

    fn act(&self, start: u64, _length: u64, action: Action) -> io::Result<()> {
        let (zone, block) = self.zone_of(start);
        assert_eq!(block, 0, "a zone is named by its beginning");
        let mut state = self.state.lock();
        match action {
            Action::Reset => state.machine.reset(zone, None),
            Action::Open => state.machine.open(zone),
            Action::Close => state.machine.close(zone),
            Action::Finish => state.machine.finish(zone),
        }
        .map_err(errno)?;
        if action == Action::Reset {
            let zone_bytes = (self.kind.length * BLOCK) as usize;
            state.bytes[start as usize..start as usize + zone_bytes].fill(0);
        }
        Ok(())
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock();
        let end = at + into.len() as u64;
        let zone_bytes = self.kind.length * BLOCK;
        for zone in at / zone_bytes..end.div_ceil(zone_bytes) {
            if state.machine.zone(ZoneId(zone as u32)).map_err(errno)?.state == ZoneState::Offline {
                return Err(Errno::IO.into());
            }
        }
        into.copy_from_slice(&state.bytes[at as usize..end as usize]);
        Ok(())
    }

    fn move_all(&self, reads: &mut [Transfer<'_>]) -> Vec<io::Result<()>> {
        let one = |read: &mut Transfer<'_>| match read {
            Transfer::Read { offset, into } => self.read(*offset, into),
            Transfer::Write { .. } => panic!("only reads were asked for"),
        };
        reads.iter_mut().map(one).collect()
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let (zone, block) = self.zone_of(at);
        self.put(zone, Some(block), from).map(drop)
    }

    fn append(&self, start: u64, from: &[u8]) -> io::Result<u64> {
        self.put(self.zone_of(start).0, None, from)
    }

    fn flush(&self) -> io::Result<()> {
        self.state.lock().flushes += 1;
        Ok(())
    }

    fn prepare_buffers(&self, _count: usize, _bytes: usize) {}
}

/// The commands to a device, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Do {
    Write { at: u64, blocks: u64 },
    Append { zone: u32, blocks: u64 },
    Change { zone: u32, change: ZoneChange },
    Turn { zone: u32, state: ZoneState },
}

/// The answer: the place where the data landed, or the error.
type Said = Result<u64, Option<Errno>>;

fn said<T>(done: io::Result<T>, value: impl FnOnce(T) -> u64) -> Said {
    done.map(value).map_err(|error| Errno::from_io_error(&error))
}

/// A device with zones of a power of two, and the view of one without.
struct Pair {
    plain: Memory,
    below: Memory,
    view: Po2View,
    zone_bytes: u64,
    done: u8,
}

impl Pair {
    fn new(kind: ZoneLayout) -> Pair {
        let below = Memory::new(kind);
        let length = kind.length.next_power_of_two();
        let plain = Memory::new(ZoneLayout { length, ..kind });
        let view = Po2View::of(Box::new(below.clone())).unwrap().unwrap();
        Pair { plain, below, view, zone_bytes: length * BLOCK, done: 0 }
    }

    fn step(&mut self, what: Do) {
        self.done = self.done.wrapping_add(1);
        let bytes = |blocks: u64| vec![self.done; (blocks * BLOCK) as usize];
        let (plain, view): (Said, Said) = match what {
            Do::Write { at, blocks } => {
                let from = bytes(blocks);
                (self.write_plainly(at * BLOCK, &from), said(self.view.write(at * BLOCK, &from), |()| 0))
            }
            Do::Append { zone, blocks } => {
                let (start, from) = (u64::from(zone) * self.zone_bytes, bytes(blocks));
                let landed = |at| at;
                (said(self.plain.append(start, &from), landed), said(self.view.append(start, &from), landed))
            }
            Do::Change { zone, change } => {
                let start = u64::from(zone) * self.zone_bytes;
                let action = match change {
                    ZoneChange::Reset => Action::Reset,
                    ZoneChange::Open => Action::Open,
                    ZoneChange::Close => Action::Close,
                    ZoneChange::Finish => Action::Finish,
                };
                let plain = self.plain.act(start, self.zone_bytes, action);
                (said(plain, |()| 0), said(self.view.change(start, change), |()| 0))
            }
            Do::Turn { zone, state } => {
                self.plain.set_zone_state(zone, state);
                self.below.set_zone_state(zone, state);
                (Ok(0), Ok(0))
            }
        };
        assert_eq!(plain, view, "{what:?}");
    }

    /// A device refuses a write that would leave its zone.
    fn write_plainly(&self, at: u64, from: &[u8]) -> Said {
        let end = at + from.len() as u64;
        let leaves = at / self.zone_bytes != (end - 1) / self.zone_bytes;
        let is_there = end <= self.zone_bytes * u64::from(self.plain.kind.zones);
        match !leaves && is_there {
            true => said(self.plain.write(at, from), |()| 0),
            false => Err(Some(Errno::IO)),
        }
    }

    /// Both report the same, and every range reads the same.
    fn compare(&self) {
        let zones = self.plain.kind.zones;
        let reported = report_all(&self.plain).unwrap();
        let shown = self.view.report(0, usize::MAX).unwrap();
        let same = |told: &ReportedZone| Po2Zone {
            start: told.start,
            capacity: told.capacity,
            written: told.pointer,
            state: told.state.unwrap(),
        };
        assert_eq!(shown, reported.iter().map(same).collect::<Vec<_>>());
        let end = u64::from(zones) * self.zone_bytes / BLOCK;
        for at in 0..end {
            for blocks in 1..=end - at {
                let mut plainly = vec![0xee; (blocks * BLOCK) as usize];
                let mut viewed = plainly.clone();
                let one = said(self.plain.read(at * BLOCK, &mut plainly), |()| 0);
                let other = said(self.view.read(at * BLOCK, &mut viewed), |()| 0);
                // If a zone is offline, a device may refuse reads of a range that the device below the view does not
                // have.
                if one.is_ok() || other.is_err() {
                    assert_eq!(one, other, "{blocks} blocks from {at}");
                    assert!(one.is_err() || plainly == viewed, "{blocks} blocks from {at}");
                }
            }
        }
    }
}

/// All commands to the first `zones` zones, with writes of one and two blocks.
fn all(zones: u32, zone_blocks: u64) -> Vec<Do> {
    let mut all = Vec::new();
    for at in 0..u64::from(zones) * zone_blocks {
        all.extend([1, 2].map(|blocks| Do::Write { at, blocks }));
    }
    for zone in 0..zones {
        all.extend([1, 2].map(|blocks| Do::Append { zone, blocks }));
        let changes = [ZoneChange::Reset, ZoneChange::Open, ZoneChange::Close, ZoneChange::Finish];
        all.extend(changes.map(|change| Do::Change { zone, change }));
    }
    all
}

/// Every sequence of three commands, on zones of three blocks with a capacity of two or three.
#[test]
fn every_short_sequence_behaves_as_on_a_device_with_such_zones() {
    let mut sequences = 0;
    for (capacity, last_capacity) in [(3, 3), (3, 2), (2, 2), (2, 1)] {
        let kind = ZoneLayout { zones: 2, length: 3, capacity, last_capacity };
        let all = all(2, 4);
        for first in &all {
            for second in &all {
                for third in &all {
                    let mut pair = Pair::new(kind);
                    [first, second, third].into_iter().for_each(|&what| pair.step(what));
                    pair.compare();
                    sequences += 1;
                }
            }
        }
    }
    println!("{sequences} sequences of 3 commands");
    assert_eq!(sequences, 4 * 28_usize.pow(3));
}

/// Longer sequences from a seed, on larger shapes, with zones that become read-only or offline, and with limits that
/// are reached.
#[test]
fn long_sequences_behave_as_on_a_device_with_such_zones() {
    let mut random = fastrand::Rng::with_seed(1);
    for (zones, length, capacity, last_capacity) in
        [(6, 3, 3, 3), (5, 5, 4, 2), (4, 6, 6, 6), (5, 9, 9, 1), (1, 7, 5, 5)]
    {
        let kind = ZoneLayout { zones, length, capacity, last_capacity };
        let all = all(zones, length.next_power_of_two());
        for _ in 0..20 {
            let mut pair = Pair::new(kind);
            for _ in 0..200 {
                let zone = random.u32(..zones);
                match random.u8(..100) {
                    0 => pair.step(Do::Turn { zone, state: ZoneState::ReadOnly }),
                    1 => pair.step(Do::Turn { zone, state: ZoneState::Offline }),
                    _ => pair.step(all[random.usize(..all.len())]),
                }
            }
            pair.compare();
        }
    }
}

#[test]
fn partial_blocks_and_places_beyond_the_end_are_refused() {
    let pair = Pair::new(ZoneLayout { zones: 2, length: 3, capacity: 3, last_capacity: 3 });
    let view = &pair.view;
    let end = 8 * BLOCK;
    for (at, bytes) in [(1, 512), (0, 511), (0, 0)] {
        let error = view.read(at, &mut vec![0; bytes]).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::INVAL));
        assert_eq!(said(view.write(at, &vec![0; bytes]), |()| 0), Err(Some(Errno::INVAL)));
    }
    for at in [end, u64::MAX / BLOCK * BLOCK] {
        assert!(view.read(at, &mut [0; 512]).is_err() && view.write(at, &[0; 512]).is_err());
        assert!(view.append(at, &[0; 512]).is_err() && view.change(at, ZoneChange::Reset).is_err());
    }
    assert!(view.read(end - BLOCK, &mut [0; 1024]).is_err());
    assert!(view.append(BLOCK, &[0; 512]).is_err(), "a zone is named by its beginning");
    assert_eq!(view.report(2, 5).unwrap(), []);
    assert_eq!(view.report(1, 5).unwrap().len(), 1);
}

#[test]
fn the_shape_describes_the_view() {
    let pair = Pair::new(ZoneLayout { zones: 3, length: 6, capacity: 5, last_capacity: 4 });
    let shape = pair.view.shape();
    assert_eq!((shape.zone_bytes, shape.device_zone_bytes, shape.capacity), (4096, 3072, 2560));
    assert_eq!((shape.zones, shape.max_open, shape.max_active), (3, Some(2), None), "three of three are all");
    pair.view.flush().unwrap();
    assert_eq!(pair.below.state.lock().flushes, 1);
    let even = Memory::new(ZoneLayout { zones: 3, length: 8, capacity: 5, last_capacity: 5 });
    let refused = Po2View::of(Box::new(even)).unwrap().err().unwrap();
    assert!(refused.to_string().contains("use the device itself"), "{refused}");
}
