use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::super::port::Limits;
use super::super::volume::{self, Contents};
use super::*;
use crate::file::OpenMode;
use crate::format::{Role, ZoneIdentity, encode_header};
use crate::{Device, DeviceError, FsId, Life};

const BLOCK: u64 = 512;
const BLOCKS: u64 = 16;
const LENGTH: u64 = BLOCKS * BLOCK;
/// Two conventional zones are before the others and one behind; the last zone is sequential and smaller.
const CONVENTIONAL: [u64; 3] = [0, 1, 10];
const RUNT: u64 = 11;
/// Their numbers in a volume.
const NUMBERS: [ZoneId; 3] = [ZoneId(8), ZoneId(9), ZoneId(10)];

type Block = Vec<u8>;

#[derive(Clone, Default)]
struct State {
    zones: Vec<ReportedZone>,
    /// The durable blocks that are not zeros, by place.
    durable: BTreeMap<u64, Block>,
    /// Later writes, block by block.
    unflushed: Vec<(u64, Block)>,
    acts: Vec<(u64, Action)>,
    reads_at_once: Vec<usize>,
    flushes: u32,
    /// The next flush fails, and the writes since the last one are lost.
    fails: bool,
}

/// A disk with a volatile cache: conventional zones with contents, others with pointers only.
#[derive(Clone)]
struct Disk {
    limits: Limits,
    state: Arc<Mutex<State>>,
}

impl Disk {
    fn new() -> Disk {
        let zone = |index| {
            let is_conventional = CONVENTIONAL.contains(&index);
            ReportedZone {
                start: index * LENGTH,
                length: if index == RUNT { LENGTH / 4 } else { LENGTH },
                capacity: if index == RUNT { LENGTH / 4 } else { LENGTH },
                pointer: 0,
                state: (!is_conventional).then_some(ZoneState::Empty),
                is_conventional,
            }
        };
        Disk::holding(State { zones: (0..=RUNT).map(zone).collect(), ..State::default() })
    }

    fn holding(state: State) -> Disk {
        let limits = Limits {
            block_size: BLOCK as u32,
            max_open: Some(6),
            max_active: Some(6),
            transfer_bytes: 2 * BLOCK as usize,
            append_bytes: Some(2 * BLOCK as usize),
            seeks: false,
        };
        Disk { limits, state: Arc::new(Mutex::new(state)) }
    }

    fn found(&self) -> volume::ProbedDevice {
        let reported = self.state.lock().zones.clone();
        volume::ProbedDevice {
            port: Box::new(self.clone()),
            shape: Shape::of(&self.limits, &reported).unwrap(),
            reported,
        }
    }

    /// Opens it as a volume with `zones` zones.
    fn open_with(&self, zones: u32) -> ZonedDevice {
        let path = Path::new("disk");
        let found = self.found().of_volume(path, zones).unwrap();
        found.into_device(path, FsId([7; 16]), OpenMode::ReadWrite).unwrap()
    }

    fn open(&self) -> ZonedDevice {
        self.open_with(11)
    }

    /// All disks that may result from a power loss now: any subset of the unflushed writes.
    fn after_power_losses(&self) -> Vec<Disk> {
        let state = self.state.lock();
        let writes = state.unflushed.len();
        assert!(writes <= 16, "{writes} writes are too many to try all subsets");
        let found = |kept: u32| {
            let mut left = state.clone();
            for (number, (at, block)) in std::mem::take(&mut left.unflushed).into_iter().enumerate() {
                if kept >> number & 1 == 1 {
                    left.durable.insert(at, block);
                }
            }
            Disk::holding(left)
        };
        (0..1 << writes).map(found).collect()
    }

    /// The present contents of a place.
    fn block(&self, at: u64) -> Block {
        let state = self.state.lock();
        let newest = state.unflushed.iter().rev().find(|(place, _)| *place == at).map(|(_, block)| block);
        newest.or_else(|| state.durable.get(&at)).cloned().unwrap_or_else(|| vec![0; BLOCK as usize])
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        let (block, offset) = (at / BLOCK * BLOCK, (at % BLOCK) as usize);
        let mut contents = self.block(block);
        contents[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.state.lock().durable.insert(block, contents);
    }

    fn zone_at(&self, at: u64) -> usize {
        (at / LENGTH) as usize
    }
}

impl Port for Disk {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn report(&self, from: u64, most: usize) -> io::Result<Vec<ReportedZone>> {
        let state = self.state.lock();
        Ok(state.zones.iter().filter(|zone| zone.start >= from).take(most.min(5)).copied().collect())
    }

    fn act(&self, start: u64, _length: u64, action: Action) -> io::Result<()> {
        let index = self.zone_at(start);
        let mut state = self.state.lock();
        assert!(!state.zones[index].is_conventional, "{action:?} is no command for zone {index}");
        state.acts.push((index as u64, action));
        if action == Action::Reset {
            (state.zones[index].state, state.zones[index].pointer) = (Some(ZoneState::Empty), 0);
        }
        Ok(())
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        if self.state.lock().zones[self.zone_at(at)].state == Some(ZoneState::Offline) {
            return Err(io::Error::other("it is offline"));
        }
        for (index, into) in into.chunks_mut(BLOCK as usize).enumerate() {
            into.copy_from_slice(&self.block(at + index as u64 * BLOCK)[..into.len()]);
        }
        Ok(())
    }

    fn move_all(&self, transfers: &mut [Transfer<'_>]) -> Vec<io::Result<()>> {
        let reads = transfers.iter().filter(|transfer| matches!(transfer, Transfer::Read { .. })).count();
        if reads > 0 {
            self.state.lock().reads_at_once.push(reads);
        }
        let one = |transfer: &mut Transfer<'_>| match transfer {
            Transfer::Read { offset, into } => self.read(*offset, into),
            Transfer::Write { offset, from, .. } => self.write(*offset, from),
        };
        transfers.iter_mut().map(one).collect()
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let index = self.zone_at(at);
        let mut state = self.state.lock();
        assert!(from.len() <= self.limits.transfer_bytes && at.is_multiple_of(BLOCK));
        assert!(at + from.len() as u64 <= state.zones[index].start + state.zones[index].length);
        if !state.zones[index].is_conventional {
            assert_eq!(at, state.zones[index].start + state.zones[index].pointer, "zone {index}");
            state.zones[index].pointer += from.len() as u64;
            return Ok(());
        }
        if state.zones[index].state.is_some() {
            return Err(io::Error::other("it takes no writes"));
        }
        let blocks = from.chunks(BLOCK as usize).enumerate();
        state.unflushed.extend(blocks.map(|(index, block)| (at + index as u64 * BLOCK, block.to_vec())));
        Ok(())
    }

    fn append(&self, start: u64, from: &[u8]) -> io::Result<u64> {
        let zone = self.state.lock().zones[self.zone_at(start)];
        assert!(!zone.is_conventional, "no place can be chosen in a zone without a pointer");
        self.write(start + zone.pointer, from).map(|()| start + zone.pointer)
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.flushes += 1;
        if std::mem::take(&mut state.fails) {
            state.unflushed.clear();
            return Err(io::Error::other("lost"));
        }
        for (at, block) in std::mem::take(&mut state.unflushed) {
            state.durable.insert(at, block);
        }
        Ok(())
    }

    fn prepare_buffers(&self, _count: usize, _bytes: usize) {}
}

/// Records the ranges that are written.
#[derive(Default)]
struct Wide(Mutex<Vec<(u64, u64)>>);

impl Port for Wide {
    fn limits(&self) -> &Limits {
        const LIMITS: Limits = Limits {
            block_size: BLOCK as u32,
            max_open: None,
            max_active: None,
            transfer_bytes: 1 << 20,
            append_bytes: None,
            seeks: false,
        };
        &LIMITS
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let mut ranges = self.0.lock();
        match ranges.last_mut().filter(|(start, bytes)| start + bytes == at) {
            Some((_, bytes)) => *bytes += from.len() as u64,
            None => ranges.push((at, from.len() as u64)),
        }
        Ok(())
    }

    fn report(&self, _from: u64, _most: usize) -> io::Result<Vec<ReportedZone>> {
        unreachable!()
    }

    fn act(&self, _start: u64, _length: u64, _action: Action) -> io::Result<()> {
        unreachable!()
    }

    fn read(&self, _at: u64, _into: &mut [u8]) -> io::Result<()> {
        unreachable!()
    }

    fn move_all(&self, _transfers: &mut [Transfer<'_>]) -> Vec<io::Result<()>> {
        unreachable!()
    }

    fn append(&self, _start: u64, _from: &[u8]) -> io::Result<u64> {
        unreachable!()
    }

    fn flush(&self) -> io::Result<()> {
        unreachable!()
    }

    fn prepare_buffers(&self, _count: usize, _bytes: usize) {}
}

fn blocks(count: usize, byte: u8) -> Vec<u8> {
    vec![byte; count * BLOCK as usize]
}

fn header(device: &ZonedDevice, zone: ZoneId, life: u32) -> Vec<u8> {
    let identity = ZoneIdentity { fs_id: FsId([7; 16]), zone, life: Life(life), role: Role::Data };
    encode_header(&identity, device.geometry())
}

fn read(device: &dyn Device, zone: ZoneId, block: u32) -> Block {
    let mut into = blocks(1, 0xee);
    device.read(zone, block, &mut into).unwrap();
    into
}

fn state(device: &ZonedDevice, zone: ZoneId) -> (ZoneState, u32) {
    let info = device.report_zone(zone).unwrap();
    (info.state, info.pointer)
}

#[test]
fn a_conventional_zone_is_written_sequentially() {
    let disk = Disk::new();
    let device = disk.open();
    let zone = NUMBERS[1];
    assert_eq!(device.append(zone, &blocks(5, 1)).unwrap(), 0);
    assert_eq!(state(&device, zone), (ZoneState::Open, 5));
    let unwritten = device.read(zone, 5, &mut blocks(1, 0)).unwrap_err();
    assert!(matches!(unwritten, DeviceError::Unwritten { block: 5, .. }), "{unwritten}");
    assert_eq!(device.append(zone, &blocks(1, 2)).unwrap(), 5);
    assert_eq!((read(&device, zone, 4), read(&device, zone, 5)), (blocks(1, 1), blocks(1, 2)));
    assert_eq!(disk.block(LENGTH + 5 * BLOCK), blocks(1, 2), "zone 9 is the second of the disk");
    device.append(zone, &blocks(10, 3)).unwrap();
    assert_eq!(state(&device, zone), (ZoneState::Full, 16));
    device.finish(NUMBERS[0]).unwrap();
    assert_eq!(state(&device, NUMBERS[0]).0, ZoneState::Full);
    device.reset(zone).unwrap();
    assert_eq!(state(&device, zone), (ZoneState::Empty, 0));
    assert_eq!(device.report().unwrap()[9].state, ZoneState::Empty);
    assert_eq!(disk.state.lock().acts, [], "the disk has no states of these zones");
}

#[test]
fn conventional_zones_count_against_the_limits_like_others() {
    let device = Disk::new().open();
    for zone in [0, 1, 2, 3, 8, 9] {
        device.append(ZoneId(zone), &blocks(1, 1)).unwrap();
    }
    for zone in [4, 10] {
        let error = device.append(ZoneId(zone), &blocks(1, 1)).unwrap_err();
        assert!(matches!(error, DeviceError::TooManyOpen { limit: 6, .. }), "{error}");
    }
}

#[test]
fn after_reopening_zones_with_data_are_full_and_the_rest_empty() {
    let disk = Disk::new();
    let device = disk.open();
    device.append(NUMBERS[0], &header(&device, NUMBERS[0], 1)).unwrap();
    device.append(NUMBERS[0], &blocks(2, 5)).unwrap();
    drop(device);
    disk.state.lock().reads_at_once.clear();
    let device = disk.open();
    assert_eq!(disk.state.lock().reads_at_once, [3], "all headers are read at once");
    let found: Vec<ZoneState> = device.report().unwrap()[8..].iter().map(|zone| zone.state).collect();
    assert_eq!(found, [ZoneState::Full, ZoneState::Empty, ZoneState::Empty]);
    assert_eq!(read(&device, NUMBERS[0], 2), blocks(1, 5));
    device
        .read(NUMBERS[0], 15, &mut blocks(1, 0))
        .expect("a read beyond the written blocks returns anything");
    device.reset(NUMBERS[0]).unwrap();
    drop(device);
    assert_eq!(state(&disk.open(), NUMBERS[0]), (ZoneState::Empty, 0));
}

/// A damaged header is invalid, but the zone behind it can still be read.
#[test]
fn a_zone_with_a_damaged_header_is_not_empty() {
    let disk = Disk::new();
    let device = disk.open();
    let mut damaged = header(&device, NUMBERS[2], 3);
    damaged[40] ^= 1;
    disk.put(CONVENTIONAL[2] * LENGTH, &damaged);
    assert_eq!(state(&disk.open(), NUMBERS[2]).0, ZoneState::Full);
}

#[test]
fn a_failed_conventional_zone_keeps_its_number_and_its_state_is_reported() {
    let disk = Disk::new();
    let device = disk.open();
    device.append(NUMBERS[0], &blocks(2, 1)).unwrap();
    disk.state.lock().zones[0].state = Some(ZoneState::ReadOnly);
    disk.state.lock().zones[1].state = Some(ZoneState::Offline);
    let failed = device.append(NUMBERS[0], &blocks(1, 1)).unwrap_err();
    assert!(matches!(failed, DeviceError::ReadOnly(ZoneId(8))), "{failed}");
    assert_eq!(read(&device, NUMBERS[0], 1), blocks(1, 1));
    for device in [device, disk.open()] {
        let found: Vec<ZoneState> = device.report().unwrap()[8..].iter().map(|zone| zone.state).collect();
        assert_eq!(found, [ZoneState::ReadOnly, ZoneState::Offline, ZoneState::Empty]);
    }
}

/// The states of zone 8 after a crash, when life 1 was durable, then reset, then life 2 begun: all of life 1,
/// nothing, or the flushed part of life 2. The header of life 1 before data of life 2 must not occur.
#[test]
fn every_crash_around_a_reset_leaves_what_the_contract_allows() {
    let zone = NUMBERS[0];
    let disk = Disk::new();
    let device = disk.open();
    device.append(zone, &header(&device, zone, 1)).unwrap();
    device.append(zone, &blocks(3, 1)).unwrap();
    device.flush().unwrap();
    let (one, two) = (header(&device, zone, 1), header(&device, zone, 2));
    let mut tried = 0;
    let mut look = |flushed: u32| {
        for after in disk.after_power_losses() {
            tried += 1;
            let device = after.open();
            match state(&device, zone).0 {
                ZoneState::Empty => {
                    assert_eq!(flushed, 0, "durable data is not lost");
                    let of_two =
                        (1..BLOCKS).filter(|block| after.block(block * BLOCK) == blocks(1, 2)).count();
                    assert_eq!(of_two, 0, "when life 2 begins once more it must not meet blocks of its own");
                }
                ZoneState::Full if read(&device, zone, 0) == one => {
                    assert_eq!(flushed, 0, "a durable life is not undone");
                    (1..4).for_each(|block| assert_eq!(read(&device, zone, block), blocks(1, 1)));
                }
                ZoneState::Full => {
                    assert_eq!(read(&device, zone, 0), two);
                    (1..flushed).for_each(|block| assert_eq!(read(&device, zone, block), blocks(1, 2)));
                }
                state => panic!("{state:?} has a pointer that is not stored"),
            }
        }
    };
    look(0);
    device.reset(zone).unwrap();
    look(0);
    device.append(zone, &two).unwrap();
    look(0);
    device.append(zone, &blocks(3, 2)).unwrap();
    look(1);
    device.flush().unwrap();
    look(4);
    device.append(zone, &blocks(5, 2)).unwrap();
    look(4);
    assert!(tried > 30, "{tried} states");
}

/// The same with one append of header and data.
#[test]
fn a_header_is_durable_before_the_rest_of_its_append() {
    let zone = NUMBERS[0];
    let disk = Disk::new();
    let device = disk.open();
    let bytes = [header(&device, zone, 1), blocks(4, 1)].concat();
    assert_eq!(device.append(zone, &bytes).unwrap(), 0);
    for after in disk.after_power_losses() {
        assert_eq!(state(&after.open(), zone).0, ZoneState::Full);
        assert_eq!(after.block(0), bytes[..BLOCK as usize]);
    }
    assert_eq!(disk.block(4 * BLOCK), blocks(1, 1));
}

/// The zeros of a killed process may be only in the disk's cache.
#[test]
fn nothing_is_written_to_a_zone_before_its_first_block_is_durable() {
    let disk = Disk::new();
    let device = disk.open();
    let flushes = || disk.state.lock().flushes;
    device.append(NUMBERS[0], &blocks(1, 1)).unwrap();
    assert_eq!(flushes(), 1, "its reset may not be durable");
    device.append(NUMBERS[1], &blocks(1, 1)).unwrap();
    device.append(ZoneId(0), &blocks(1, 1)).unwrap();
    assert_eq!(flushes(), 1, "all was durable already, or is the disk's business");
    for _ in 0..3 {
        device.append(NUMBERS[0], &blocks(1, 1)).unwrap();
    }
    assert_eq!(flushes(), 2, "its first block is to be durable before the others");
    device.append(NUMBERS[1], &blocks(1, 1)).unwrap();
    assert_eq!(flushes(), 2, "so was that of the other zone");
    device.reset(NUMBERS[0]).unwrap();
    device.append(NUMBERS[0], &blocks(1, 1)).unwrap();
    assert_eq!(flushes(), 3);
    device.reset(NUMBERS[0]).unwrap();
    device.flush().unwrap();
    device.append(NUMBERS[0], &blocks(1, 1)).unwrap();
    assert_eq!(flushes(), 4);
}

#[test]
fn a_flush_that_began_before_a_reset_does_not_make_it_durable() {
    let first_blocks = FirstBlocks::new(Disk::new().open().geometry());
    let early = first_blocks.begin_flush();
    first_blocks.note(0);
    first_blocks.end_flush(early);
    assert!(!first_blocks.is_durable(0) && first_blocks.is_durable(1));
    let late = first_blocks.begin_flush();
    assert!(!first_blocks.is_durable(0));
    first_blocks.end_flush(late);
    assert!(first_blocks.is_durable(0));
}

#[test]
fn a_new_volume_erases_all_foreign_signatures() {
    let disk = Disk::new();
    let device = disk.open();
    for (at, signature) in [
        (1024, &b"\x10\x20\xf5\xf2"[..]),
        (0, b"XFSB"),
        (LENGTH + 0x38, b"btrfs"),
        // At the end, as for a member of an array.
        (11 * LENGTH - 256, b"\xfc\x4e\x2b\xa9"),
        (10 * LENGTH, &header(&device, NUMBERS[2], 1)),
    ] {
        disk.put(at, signature);
    }
    let contents = disk.found().contents(Path::new("disk")).unwrap();
    assert!(matches!(contents, Contents::Other(_)), "{contents:?}");
    {
        let mut state = disk.state.lock();
        state.zones[4].state = Some(ZoneState::ReadOnly);
        let runt = &mut state.zones[RUNT as usize];
        (runt.state, runt.pointer) = (Some(ZoneState::Closed), BLOCK);
    }
    let mut reported = Vec::new();
    disk.found().empty(Path::new("disk"), &mut |done, all| reported.push((done, all))).unwrap();
    let all = 11 * LENGTH + LENGTH / 4;
    assert_eq!((reported.len(), reported.last()), (12, Some(&(all, all))));
    let state = disk.state.lock();
    assert!(state.unflushed.is_empty() && state.durable.values().all(|block| *block == blocks(1, 0)));
    let reset: Vec<u64> = state.acts.iter().map(|(zone, _)| *zone).collect();
    assert_eq!(reset, [2, 3, 5, 6, 7, 8, 9, 11], "unused zones occupy no slot either");
}

/// A new volume may overwrite data only on request: all blocks that it would write are examined first.
#[test]
fn data_that_a_new_volume_would_erase_is_detected() {
    let contents = |at: Option<u64>| {
        let disk = Disk::new();
        at.into_iter().for_each(|at| disk.put(at, b"unknown"));
        disk.found().contents(Path::new("disk")).unwrap()
    };
    assert!(matches!(contents(None), Contents::Blank));
    let disk = Disk::new();
    disk.put(LENGTH, b"unknown");
    disk.state.lock().zones[1].state = Some(ZoneState::ReadOnly);
    assert!(matches!(disk.found().contents(Path::new("disk")).unwrap(), Contents::Blank), "it is not erased");
    for at in [0, LENGTH, 2 * LENGTH - BLOCK, 10 * LENGTH, 11 * LENGTH - BLOCK] {
        let found = contents(Some(at));
        assert!(matches!(found, Contents::Other(_)), "{at}: {found:?}");
    }
}

/// No program searches for signatures between the ends of a large device, and a disk has five hundred conventional
/// zones.
#[test]
fn large_ranges_are_wiped_only_at_the_ends_of_a_device() {
    const MIB: u64 = 1 << 20;
    let erased = |start: u64, length: u64, end: u64| {
        let disk = Wide::default();
        let zone =
            ReportedZone { start, length, capacity: length, pointer: 0, state: None, is_conventional: true };
        wipe(&disk, &zone, end).unwrap();
        std::mem::take(&mut *disk.0.lock())
    };
    assert_eq!(erased(0, 256 * MIB, 1 << 40), [(0, 4 * MIB)]);
    assert_eq!(erased(MIB, MIB, 1 << 40), [(MIB, MIB)]);
    assert_eq!(erased(512 * MIB, 256 * MIB, 1 << 40), [(512 * MIB, BLOCK)]);
    assert_eq!(erased(512 * MIB, 256 * MIB, 768 * MIB), [(512 * MIB, BLOCK), (764 * MIB, 4 * MIB)]);
    assert_eq!(erased(767 * MIB, MIB, 768 * MIB), [(767 * MIB, MIB)]);
}

#[test]
fn a_volume_of_an_earlier_release_keeps_its_zones() {
    let disk = Disk::new();
    // The volume does not use this zone.
    disk.put(0, b"foreign data");
    let device = disk.open_with(8);
    assert_eq!((device.geometry().zones, device.report().unwrap().len()), (8, 8));
    assert_eq!(device.unused_zones().conventional, 3);
    device.append(ZoneId(7), &blocks(1, 1)).unwrap();
    device.flush().unwrap();
    assert!(disk.block(0).starts_with(b"foreign data"));
    // Its header contains the number of zones.
    let mut state = disk.state.lock();
    state.zones[2].state = Some(ZoneState::Closed);
    state.zones[2].pointer = BLOCK;
    drop(state);
    let identity = ZoneIdentity { fs_id: FsId([7; 16]), zone: ZoneId(0), life: Life(1), role: Role::Log };
    disk.put(2 * LENGTH, &encode_header(&identity, device.geometry()));
    let contents = disk.found().contents(Path::new("disk")).unwrap();
    assert!(matches!(contents, Contents::Volume { zones: 8, .. }), "{contents:?}");
}

/// Before the first write to a reset conventional zone, the device is flushed. When that flush failed, only the zone
/// was given up, and the next flush succeeded and acknowledged data that the device had lost.
#[test]
fn after_a_failed_flush_nothing_is_written_or_acknowledged() {
    let disk = Disk::new();
    let device = disk.open();
    let (acknowledged_next, reset) = (ZoneId(0), NUMBERS[0]);
    device.append(reset, &blocks(1, 1)).unwrap();
    device.flush().unwrap();
    device.reset(reset).unwrap();
    device.append(acknowledged_next, &blocks(1, 2)).unwrap();
    disk.state.lock().fails = true;
    let error = device.append(reset, &blocks(1, 3)).unwrap_err();
    assert!(matches!(error, DeviceError::Unusable(_)) && !error.ends_zone(), "{error}");
    let refused = [device.flush(), device.append(acknowledged_next, &blocks(1, 4)).map(drop)];
    for error in refused {
        assert!(matches!(error, Err(DeviceError::Unusable(_))), "{error:?}");
    }
    assert_eq!(read(&device, acknowledged_next, 0).len(), BLOCK as usize, "existing data can be read");
}
