use std::io;
use std::path::Path;
use std::sync::Arc;

use super::port::{Limits, ReportedZone, check_order, report_all};
use super::volume::Contents;
use super::*;
use crate::Life;
use crate::engine::Transfer;
use crate::format::{Role, ZoneIdentity, encode_header};

const BLOCK: u64 = 4096;
const LENGTH: u64 = 64 * BLOCK;

/// What other programs do to a zone, and its faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// Writes are refused until the zone is reported.
    NeedsReport,
    /// Writes are refused.
    Broken,
    /// Writes are refused with this errno.
    Refuses(Errno),
}

struct State {
    zones: Vec<ReportedZone>,
    trouble: Option<Trouble>,
    /// The next write there is refused until the zone is reported.
    trouble_at: Option<u64>,
    /// The writes that reached the device, by place and length.
    writes: Vec<(u64, usize)>,
    /// The contents of some places.
    contents: Vec<(u64, Vec<u8>)>,
    acts: Vec<(u64, Action)>,
    /// The number of changes before each flush.
    flushed: Vec<usize>,
    /// The number of commands in each batch.
    rounds: Vec<usize>,
}

/// Zones in memory without contents.
#[derive(Clone)]
struct Fake {
    limits: Limits,
    state: Arc<Mutex<State>>,
}

impl Fake {
    fn new() -> Fake {
        let zone = |index| ReportedZone {
            start: index * LENGTH,
            length: LENGTH,
            capacity: LENGTH,
            pointer: 0,
            state: Some(ZoneState::Empty),
            is_conventional: false,
        };
        let state = State {
            zones: (0..20).map(zone).collect(),
            trouble: None,
            trouble_at: None,
            writes: Vec::new(),
            contents: Vec::new(),
            acts: Vec::new(),
            flushed: Vec::new(),
            rounds: Vec::new(),
        };
        let limits = Limits {
            block_size: 4096,
            max_open: Some(6),
            max_active: Some(6),
            transfer_bytes: 8192,
            append_bytes: None,
            seeks: false,
        };
        Fake { limits, state: Arc::new(Mutex::new(state)) }
    }

    fn device(&self) -> ZonedDevice {
        let reported = self.state.lock().zones.clone();
        let shape = Shape::of(&self.limits, &reported).unwrap();
        let zones = volume::infos(self, &shape).unwrap();
        ZonedDevice::new(Box::new(self.clone()), shape, zones, FsId::default(), OpenMode::ReadWrite)
    }

    /// The device before it is opened.
    fn found(&self) -> volume::ProbedDevice {
        let reported = self.state.lock().zones.clone();
        volume::ProbedDevice {
            port: Box::new(self.clone()),
            shape: Shape::of(&self.limits, &reported).unwrap(),
            reported,
        }
    }

    fn turn_zone(&self, zone: usize, state: ZoneState, pointer: u64) {
        let mut fake = self.state.lock();
        (fake.zones[zone].state, fake.zones[zone].pointer) = (Some(state), pointer);
    }

    fn put_at(&self, zone: u64, bytes: Vec<u8>) {
        self.state.lock().contents.push((zone * LENGTH, bytes));
    }
}

impl Port for Fake {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn report(&self, from: u64, most: usize) -> io::Result<Vec<ReportedZone>> {
        let mut state = self.state.lock();
        if state.trouble == Some(Trouble::NeedsReport) {
            state.trouble = None;
        }
        // As many as one command of a small kernel reports.
        Ok(state.zones.iter().filter(|zone| zone.start >= from).take(most.min(7)).copied().collect())
    }

    fn act(&self, start: u64, _length: u64, action: Action) -> io::Result<()> {
        let mut state = self.state.lock();
        state.acts.push((start / LENGTH, action));
        let zone = &mut state.zones[(start / LENGTH) as usize];
        (zone.state, zone.pointer) = match action {
            Action::Reset => (Some(ZoneState::Empty), 0),
            Action::Open => (Some(ZoneState::Open), zone.pointer),
            Action::Close => (Some(ZoneState::Closed), zone.pointer),
            Action::Finish => (Some(ZoneState::Full), zone.capacity),
        };
        Ok(())
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock();
        if state.zones[(at / LENGTH) as usize].state == Some(ZoneState::Offline) {
            return Err(Errno::IO.into());
        }
        if let Some((_, bytes)) = state.contents.iter().find(|(place, _)| *place == at) {
            into[..bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn move_all(&self, transfers: &mut [Transfer<'_>]) -> Vec<io::Result<()>> {
        let mut zones: Vec<u64> = Vec::new();
        let mut one = |transfer: &mut Transfer<'_>| match transfer {
            Transfer::Read { offset, into } => self.read(*offset, into),
            Transfer::Write { offset, from, .. } => {
                assert!(!zones.contains(&(*offset / LENGTH)), "one write for each zone at a time");
                zones.push(*offset / LENGTH);
                self.write(*offset, from)
            }
        };
        let done: Vec<_> = transfers.iter_mut().map(&mut one).collect();
        self.state.lock().rounds.push(done.len());
        done
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        assert!(from.len() <= self.limits.transfer_bytes);
        if state.trouble_at.take_if(|place| *place == at).is_some() {
            state.trouble = Some(Trouble::NeedsReport);
        }
        match state.trouble {
            Some(Trouble::Refuses(errno)) => return Err(errno.into()),
            Some(_) => return Err(Errno::IO.into()),
            None => {}
        }
        let zone = &mut state.zones[(at / LENGTH) as usize];
        let is_open = matches!(zone.state, Some(state) if state.has_pointer());
        if !is_open || zone.start + zone.pointer != at {
            return Err(Errno::IO.into());
        }
        zone.pointer += from.len() as u64;
        zone.state = Some(if zone.pointer == zone.capacity { ZoneState::Full } else { ZoneState::Open });
        state.writes.push((at, from.len()));
        Ok(())
    }

    fn append(&self, start: u64, from: &[u8]) -> io::Result<u64> {
        let at = {
            let state = self.state.lock();
            start + state.zones[(start / LENGTH) as usize].pointer
        };
        self.write(at, from).map(|()| at)
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let acts = state.acts.len();
        state.flushed.push(acts);
        Ok(())
    }

    fn prepare_buffers(&self, _count: usize, _bytes: usize) {}
}

fn blocks(count: usize) -> Vec<u8> {
    vec![7; count * BLOCK as usize]
}

#[test]
fn large_appends_are_split_into_pieces_at_the_pointer() {
    let fake = Fake::new();
    let device = fake.device();
    assert_eq!(device.append(ZoneId(2), &blocks(5)).unwrap(), 0);
    assert_eq!(device.append(ZoneId(2), &blocks(1)).unwrap(), 5);
    let at = 2 * LENGTH;
    let expected = [(at, 8192), (at + 8192, 8192), (at + 16384, 4096), (at + 20480, 4096)];
    assert_eq!(fake.state.lock().writes, expected);
}

/// The kernel has its own copy of the pointer. It learns of changes through another device node (the generic device
/// of NVMe) only from a report. At first, a volume that was created through that node accepted no writes.
#[test]
fn a_write_that_the_kernel_refuses_for_an_outdated_pointer_is_repeated() {
    let fake = Fake::new();
    let device = fake.device();
    fake.state.lock().trouble = Some(Trouble::NeedsReport);
    assert_eq!(device.append(ZoneId(0), &blocks(1)).unwrap(), 0);
    assert_eq!(fake.state.lock().writes.len(), 1);
}

#[test]
fn a_write_that_fails_twice_fails_and_frees_its_slot() {
    let fake = Fake::new();
    let device = fake.device();
    fake.state.lock().trouble = Some(Trouble::Broken);
    for zone in 0..12 {
        let error = device.append(ZoneId(zone), &blocks(1)).unwrap_err();
        assert!(matches!(error, DeviceError::Io { operation: "append", .. }) && error.ends_zone(), "{error}");
    }
}

#[test]
fn a_refusal_for_the_open_limit_does_not_end_the_zone() {
    let fake = Fake::new();
    let device = fake.device();
    for errno in [Errno::TOOMANYREFS, Errno::OVERFLOW] {
        fake.state.lock().trouble = Some(Trouble::Refuses(errno));
        let error = device.append(ZoneId(1), &blocks(1)).unwrap_err();
        assert!(matches!(error, DeviceError::TooManyOpen { limit: 6, .. }) && !error.ends_zone(), "{error}");
    }
}

#[test]
fn zones_changed_by_others_are_reported_with_their_new_state() {
    let fake = Fake::new();
    let device = fake.device();
    for zone in 0..4 {
        device.append(ZoneId(zone), &blocks(2)).unwrap();
    }
    fake.turn_zone(0, ZoneState::ReadOnly, 0);
    fake.turn_zone(1, ZoneState::Offline, 0);
    fake.turn_zone(2, ZoneState::Full, 0);
    fake.turn_zone(3, ZoneState::Empty, 0);
    let failed = |zone| device.append(ZoneId(zone), &blocks(1)).unwrap_err();
    assert!(matches!(failed(0), DeviceError::ReadOnly(ZoneId(0))));
    assert!(matches!(failed(1), DeviceError::Offline(ZoneId(1))));
    assert!(failed(2).ends_zone() && failed(3).ends_zone());
    let states: Vec<ZoneState> = device.report().unwrap()[..4].iter().map(|zone| zone.state).collect();
    assert_eq!(states, [ZoneState::ReadOnly, ZoneState::Offline, ZoneState::Full, ZoneState::Empty]);
    device.read(ZoneId(0), 0, &mut blocks(2)).expect("a read-only zone can be read");
    let lost = device.read(ZoneId(3), 0, &mut blocks(1)).unwrap_err();
    assert!(matches!(lost, DeviceError::Unwritten { .. }), "{lost}");
}

#[test]
fn a_read_detects_an_offline_zone() {
    let fake = Fake::new();
    let device = fake.device();
    device.append(ZoneId(4), &blocks(2)).unwrap();
    fake.turn_zone(4, ZoneState::Offline, 0);
    let (mut one, mut two) = (blocks(1), blocks(1));
    let mut batch = [
        Command::Read { zone: ZoneId(4), block: 0, into: &mut one },
        Command::Read { zone: ZoneId(4), block: 1, into: &mut two },
    ];
    for output in device.run(&mut batch) {
        assert!(matches!(output, Err(DeviceError::Offline(ZoneId(4)))), "{output:?}");
    }
}

#[test]
fn appends_return_the_place_that_the_device_reports() {
    let mut fake = Fake::new();
    fake.limits.append_bytes = Some(8192);
    let device = fake.device();
    assert_eq!(device.append(ZoneId(0), &blocks(2)).unwrap(), 0);
    assert_eq!(device.append(ZoneId(0), &blocks(1)).unwrap(), 2);
    // Too large for one append, so it is a write.
    assert_eq!(device.append(ZoneId(0), &blocks(5)).unwrap(), 3);
    // The append that fills the zone waits for the others: its slot is freed only when the device frees it.
    for _ in 0..28 {
        device.append(ZoneId(0), &blocks(2)).unwrap();
    }
    assert_eq!(device.report_zone(ZoneId(0)).unwrap().state, ZoneState::Full);
    assert!(matches!(device.append(ZoneId(0), &blocks(1)), Err(DeviceError::ZoneFull { .. })));
}

#[test]
fn after_a_failed_append_the_pointer_is_that_of_the_device() {
    let mut fake = Fake::new();
    fake.limits.append_bytes = Some(8192);
    let device = fake.device();
    device.append(ZoneId(0), &blocks(2)).unwrap();
    fake.state.lock().trouble = Some(Trouble::Refuses(Errno::IO));
    let error = device.append(ZoneId(0), &blocks(1)).unwrap_err();
    assert!(matches!(error, DeviceError::Io { .. }), "{error}");
    fake.state.lock().trouble = None;
    assert_eq!(device.report_zone(ZoneId(0)).unwrap().pointer, 2);
    assert_eq!(device.append(ZoneId(0), &blocks(1)).unwrap(), 2);
}

#[test]
fn zones_left_open_by_a_killed_process_are_closed_or_finished() {
    let fake = Fake::new();
    fake.turn_zone(0, ZoneState::Open, 3 * BLOCK);
    fake.turn_zone(1, ZoneState::Closed, 3 * BLOCK);
    fake.turn_zone(2, ZoneState::Open, 0);
    fake.turn_zone(3, ZoneState::Closed, 0);
    // A power loss within a block of the volume, on a device with smaller blocks.
    fake.turn_zone(4, ZoneState::Open, 3 * BLOCK + 512);
    fake.turn_zone(5, ZoneState::Closed, 512);
    fake.turn_zone(6, ZoneState::Full, 0);
    fake.turn_zone(7, ZoneState::Offline, 0);
    fake.found().close_active_zones(Path::new("device")).unwrap();
    let expected = [
        (0, Action::Close),
        (2, Action::Reset),
        (3, Action::Reset),
        (4, Action::Finish),
        (5, Action::Finish),
    ];
    assert_eq!(fake.state.lock().acts, expected);
}

/// Resets that are not flushed may be undone. After a power loss during the creation of a volume over an old one, the
/// old log was present without the data it refers to. Or an older log zone was present alone, and was taken for the
/// newest.
#[test]
fn the_old_log_is_durably_erased_before_the_data_it_refers_to() {
    let fake = Fake::new();
    fake.turn_zone(0, ZoneState::Full, 0);
    fake.turn_zone(1, ZoneState::Closed, BLOCK);
    fake.turn_zone(5, ZoneState::Open, BLOCK);
    fake.found().empty(Path::new("device"), &mut |_, _| ()).unwrap();
    let state = fake.state.lock();
    let reset: Vec<u64> = state.acts.iter().map(|(zone, _)| *zone).collect();
    assert_eq!(reset, [0, 2, 3, 1].into_iter().chain(4..20).collect::<Vec<_>>());
    assert_eq!(state.flushed, [3, 4, 20]);
}

/// The contents of a device, in words.
fn contents(fake: &Fake) -> String {
    match fake.found().contents(Path::new("device")).unwrap() {
        Contents::Blank => "blank".to_owned(),
        Contents::Volume { fs_id, .. } => format!("volume {:x}", fs_id.0[0]),
        Contents::Newer(error) => error.to_string(),
        Contents::Damaged => "damaged".to_owned(),
        Contents::Member(label) => format!("member {} of {:x}", label.position(), label.fs_id().0[0]),
        Contents::Other(what) => what,
    }
}

#[test]
fn a_volume_is_found_by_the_headers_of_its_first_zones() {
    let fake = Fake::new();
    assert_eq!(contents(&fake), "blank");
    fake.turn_zone(9, ZoneState::Full, 0);
    assert_eq!(contents(&fake), "data in a zone");
    let geometry = fake.found().shape.geometry;
    let identity = ZoneIdentity { fs_id: FsId([7; 16]), zone: ZoneId(2), life: Life(3), role: Role::Log };
    let header = encode_header(&identity, &geometry);
    let mut damaged = header.clone();
    damaged[40] ^= 1;
    fake.put_at(1, damaged);
    fake.turn_zone(1, ZoneState::Closed, BLOCK);
    assert_eq!(contents(&fake), "damaged");
    fake.turn_zone(0, ZoneState::Offline, 0);
    fake.turn_zone(2, ZoneState::Closed, BLOCK);
    fake.put_at(2, header);
    assert_eq!(contents(&fake), "volume 7");
}

/// The zones of a set begin with headers of the volume, too.
#[test]
fn a_member_is_found_by_its_label_and_is_no_volume() {
    let fake = Fake::new();
    let geometry = fake.found().shape.geometry;
    let identity = ZoneIdentity { fs_id: FsId([7; 16]), zone: ZoneId(0), life: Life(3), role: Role::Log };
    let first = crate::set::LABEL_ZONES_OF_MEMBER;
    fake.put_at(first.into(), encode_header(&identity, &geometry));
    fake.turn_zone(first as usize, ZoneState::Closed, BLOCK);
    let mut label = crate::set::hostile::seed();
    label.resize(BLOCK as usize, 0);
    let mut damaged = label.clone();
    damaged[40] ^= 1;
    fake.put_at(0, damaged);
    fake.turn_zone(0, ZoneState::Full, 0);
    fake.turn_zone(1, ZoneState::Empty, 0);
    assert_eq!(contents(&fake), "a member of a set of Polder whose labels are damaged");
    fake.put_at(1, label);
    assert_eq!(
        contents(&fake),
        "a member of a set of Polder whose labels are damaged",
        "an empty zone has none"
    );
    fake.turn_zone(1, ZoneState::Full, 0);
    assert_eq!(contents(&fake), "member 1 of 7");
}

/// A device that reported the same zones for every request was asked without end, and memory was allocated for each.
#[test]
fn a_device_with_zones_out_of_order_is_refused() {
    let fake = Fake::new();
    assert_eq!(report_all(&fake).unwrap().len(), 20);
    // Zone 7 is the first of the second report, and then one of the first report follows.
    for wrong in [3 * LENGTH, 7 * LENGTH + 4096] {
        let mut reported = fake.report(7 * LENGTH, 7).unwrap();
        reported[0].start = wrong;
        assert!(check_order(7 * LENGTH, &reported).unwrap_err().contains(&format!("at byte {wrong} ")));
        reported[0].start = 7 * LENGTH;
        reported[1].start = wrong;
        assert!(check_order(7 * LENGTH, &reported).is_err());
    }
    fake.state.lock().zones.remove(9);
    assert!(report_all(&fake).unwrap_err().to_string().contains("one at"));
}

#[test]
fn contents_of_conventional_zones_are_recognised() {
    let fake = Fake::new();
    {
        let zone = &mut fake.state.lock().zones[0];
        (zone.state, zone.is_conventional) = (None, true);
    }
    assert_eq!(contents(&fake), "blank");
    fake.put_at(0, b"XFSB".to_vec());
    assert_eq!(contents(&fake), "an XFS file system");
}

#[test]
fn an_append_outside_the_expected_blocks_ends_the_zone() {
    let mut fake = Fake::new();
    fake.limits.append_bytes = Some(8192);
    let device = fake.device();
    device.append(ZoneId(0), &blocks(2)).unwrap();
    // Another program has appended.
    fake.turn_zone(0, ZoneState::Open, 5 * BLOCK);
    let error = device.append(ZoneId(0), &blocks(1)).unwrap_err();
    assert!(matches!(error, DeviceError::Io { .. }) && error.ends_zone(), "{error}");
    assert_eq!(device.report_zone(ZoneId(0)).unwrap().pointer, 6);
}

/// If another program emptied the open zone of the log, the next batch landed at its beginning, where no mount looks
/// for one, and was acknowledged as durable.
#[test]
fn an_append_to_a_zone_that_another_program_emptied_fails() {
    let mut fake = Fake::new();
    fake.limits.append_bytes = Some(8192);
    let device = fake.device();
    for zone in 0..2 {
        device.append(ZoneId(zone), &blocks(1)).unwrap();
        device.append(ZoneId(zone), &blocks(2)).unwrap();
        fake.turn_zone(zone as usize, ZoneState::Empty, 0);
    }
    let error = device.append(ZoneId(0), &blocks(1)).unwrap_err();
    assert!(matches!(error, DeviceError::Io { .. }) && error.ends_zone(), "{error}");
    // A writer that waited for the lock meanwhile assumes the old contents, and so does a reader that detects the
    // reset.
    assert!(device.append(ZoneId(0), &blocks(1)).is_err());
    assert!(device.append(ZoneId(0), &blocks(9)).is_err());
    assert_eq!(device.report_zone(ZoneId(1)).unwrap().pointer, 0);
    assert!(device.append(ZoneId(1), &blocks(1)).is_err());
    assert_eq!(fake.state.lock().zones[0].pointer, BLOCK);
    // After a reset here, writes continue at the beginning.
    device.reset(ZoneId(1)).unwrap();
    assert_eq!(device.append(ZoneId(1), &blocks(1)).unwrap(), 0);
}

/// Writes of garbage collection, user writes and reads were executed one after the other although they could be in
/// flight together.
#[test]
fn a_batch_writes_to_all_its_zones_at_once() {
    let fake = Fake::new();
    let device = fake.device();
    device.append(ZoneId(3), &blocks(2)).unwrap();
    fake.state.lock().rounds.clear();
    let (long, short, mut into) = (blocks(5), blocks(1), blocks(2));
    let mut batch = [
        Command::Append { zone: ZoneId(7), from: &long },
        Command::Read { zone: ZoneId(3), block: 0, into: &mut into },
        Command::Append { zone: ZoneId(2), from: &short },
        Command::Append { zone: ZoneId(2), from: &long },
    ];
    let landed: Vec<Blocks> = device.run(&mut batch).into_iter().map(Result::unwrap).collect();
    assert_eq!(landed, [0, 0, 0, 1]);
    // Two blocks per command: 5 in three pieces; 1, then 5 behind it.
    assert_eq!(fake.state.lock().rounds, [3, 2, 2, 1]);
}

#[test]
fn a_failed_append_fails_the_later_ones_of_its_zone_only() {
    let fake = Fake::new();
    let device = fake.device();
    for zone in [4, 5] {
        device.append(ZoneId(zone), &blocks(1)).unwrap();
    }
    fake.turn_zone(4, ZoneState::ReadOnly, 0);
    let (one, mut into) = (blocks(1), blocks(1));
    let append = |zone| Command::Append { zone: ZoneId(zone), from: &one };
    let unwritten = Command::Read { zone: ZoneId(9), block: 0, into: &mut into };
    let done = device.run(&mut [append(4), append(5), append(4), unwritten, append(5), append(99)]);
    assert!(matches!(done[0], Err(DeviceError::ReadOnly(ZoneId(4)))), "{done:?}");
    assert!(matches!(done[2], Err(DeviceError::ReadOnly(ZoneId(4)))), "{done:?}");
    assert!(matches!((&done[1], &done[4]), (Ok(1), Ok(2))), "{done:?}");
    assert!(matches!(done[3], Err(DeviceError::Unwritten { .. })), "{done:?}");
    assert!(matches!(done[5], Err(DeviceError::Invalid { .. })), "{done:?}");
}

/// The zone of a failed read is reported, for which the batch must have released its locks.
#[test]
fn a_batch_may_read_and_write_the_same_failing_zone() {
    let fake = Fake::new();
    let device = fake.device();
    for zone in [4, 5] {
        device.append(ZoneId(zone), &blocks(1)).unwrap();
    }
    fake.turn_zone(4, ZoneState::Offline, 0);
    let (one, mut into) = (blocks(1), blocks(1));
    let read = Command::Read { zone: ZoneId(4), block: 0, into: &mut into };
    let append = |zone| Command::Append { zone: ZoneId(zone), from: &one };
    let done = device.run(&mut [append(4), read, append(5)]);
    assert!(matches!(done[0], Err(DeviceError::Offline(ZoneId(4)))), "{done:?}");
    assert!(matches!(done[1], Err(DeviceError::Offline(ZoneId(4)))), "{done:?}");
    assert!(matches!(done[2], Ok(1)), "{done:?}");
}

/// The write was complete and was reported as failed: the pointer in the report was not where the write had begun.
#[test]
fn a_write_with_a_repeated_piece_is_complete() {
    let fake = Fake::new();
    let device = fake.device();
    fake.state.lock().trouble_at = Some(8192);
    assert_eq!(device.append(ZoneId(0), &blocks(5)).unwrap(), 0);
    assert_eq!(device.append(ZoneId(0), &blocks(1)).unwrap(), 5);
    assert_eq!(device.report_zone(ZoneId(0)).unwrap().pointer, 6);
}
