//! The emulated device without power losses: batches, faults, state changes of zones, counters.

use crate::emulated::{CommandKind, Counters, CrashPlan, Effect, Emulated, Fault, Spec};
use crate::{pattern, tags};
use zone::{Command, Device, DeviceError, ZoneId, ZoneState};

const ZONE: ZoneId = ZoneId(1);

fn tiny() -> Emulated {
    Emulated::new(Spec::tiny())
}

fn append(device: &Emulated, tag: u8, blocks: u32) -> Result<u32, DeviceError> {
    device.append(ZONE, &pattern(device, tag, blocks))
}

/// The places where eight appends of one batch landed.
fn places(device: &Emulated) -> Vec<u32> {
    let written: Vec<Vec<u8>> = (0..8).map(|tag| pattern(device, tag, 1)).collect();
    let mut batch: Vec<_> = written.iter().map(|from| Command::Append { zone: ZONE, from }).collect();
    device.run(&mut batch).into_iter().map(|output| output.unwrap()).collect()
}

#[test]
fn the_seed_determines_the_order_of_appends_of_one_batch() {
    let in_order: Vec<u32> = (0..8).collect();
    let landed: Vec<_> = (0..4).map(|seed| places(&Emulated::new(Spec::tiny().seed(seed)))).collect();
    assert!(landed.iter().any(|places| *places != in_order), "{landed:?}");
    assert_eq!(landed[3], places(&Emulated::new(Spec::tiny().seed(3))), "the same seed, the same places");
    for mut places in landed {
        places.sort_unstable();
        assert_eq!(places, in_order);
    }
}

#[test]
fn a_failed_append_fails_the_later_ones_of_its_batch() {
    let device = tiny();
    device.inject(Fault::nth(CommandKind::Append, 2, Effect::Error).on(ZONE));
    let one = pattern(&device, 5, 1);
    let mut batch: Vec<_> = (0..5).map(|_| Command::Append { zone: ZONE, from: &one }).collect();
    batch.push(Command::Append { zone: ZoneId(2), from: &one });
    let outputs = device.run(&mut batch);
    assert_eq!(outputs[..5].iter().filter(|output| output.is_ok()).count(), 1);
    assert!(outputs[5].is_ok(), "other zones are not affected");
    assert_eq!(device.report_zone(ZONE).unwrap().pointer, 1);
}

#[test]
fn in_zones_without_a_pointer_the_reported_one_is_wrong() {
    let device = tiny();
    for zone in 0..8 {
        device.append(ZoneId(zone), &pattern(&device, 1, 5)).unwrap();
        device.finish(ZoneId(zone)).unwrap();
    }
    let zones = device.report().unwrap();
    assert!(zones[..8].iter().any(|zone| zone.pointer != zones[0].pointer), "{zones:?}");
}

#[test]
fn an_append_may_fail_and_still_move_the_pointer() {
    let device = tiny();
    append(&device, 1, 2).unwrap();
    device.inject(Fault::nth(CommandKind::Append, 1, Effect::Torn(3)));
    assert!(matches!(append(&device, 10, 8), Err(DeviceError::Io { .. })));
    assert_eq!(device.report_zone(ZONE).unwrap().pointer, 5);
    assert_eq!(tags(&device, 1, 0, 5), [1, 2, 10, 11, 12]);
    assert_eq!(append(&device, 20, 1).unwrap(), 5);
}

#[test]
fn a_zone_may_become_read_only_under_an_append() {
    let device = tiny();
    append(&device, 1, 2).unwrap();
    device.inject(Fault::nth(CommandKind::Append, 1, Effect::TurnReadOnly(1)));
    assert!(append(&device, 10, 2).unwrap_err().ends_zone());
    assert!(matches!(append(&device, 1, 1), Err(DeviceError::ReadOnly(ZONE))));
    assert!(matches!(device.reset(ZONE), Err(DeviceError::ReadOnly(ZONE))));
    assert!(matches!(device.finish(ZONE), Err(DeviceError::ReadOnly(ZONE))));
    assert_eq!(tags(&device, 1, 0, 3), [1, 2, 10]);
}

#[test]
fn an_offline_zone_can_be_neither_read_nor_written_nor_reset() {
    let device = tiny();
    append(&device, 1, 2).unwrap();
    device.set_zone_state_at(device.commands() + 1, ZONE, ZoneState::Offline);
    append(&device, 1, 1).unwrap();
    let refused = [
        append(&device, 1, 1).map(|_| ()),
        device.read(ZONE, 0, &mut pattern(&device, 0, 1)),
        device.open(ZONE),
        device.close(ZONE),
        device.finish(ZONE),
        device.reset(ZONE),
    ];
    for refusal in refused {
        assert!(matches!(refusal, Err(DeviceError::Offline(ZONE))), "{refusal:?}");
    }
    assert_eq!(device.report_zone(ZONE).unwrap().state, ZoneState::Offline);
    for zone in 2..10 {
        device.append(ZoneId(zone), &pattern(&device, 1, 1)).expect("a dead zone takes no slot");
    }
}

#[test]
fn commands_of_each_kind_can_be_made_to_fail() {
    let device = tiny();
    append(&device, 1, 4).unwrap();
    let io = |result: Result<(), DeviceError>| matches!(result, Err(DeviceError::Io { .. }));
    for kind in [CommandKind::Read, CommandKind::Flush, CommandKind::Reset, CommandKind::Finish] {
        device.inject(Fault::nth(kind, 2, Effect::Error));
    }
    let mut block = pattern(&device, 0, 1);
    device.read(ZONE, 0, &mut block).unwrap();
    assert!(io(device.read(ZONE, 0, &mut block)));
    device.read(ZONE, 0, &mut block).unwrap();
    device.flush().unwrap();
    assert!(io(device.flush()));
    device.reset(ZoneId(2)).unwrap();
    assert!(io(device.reset(ZONE)));
    assert_eq!(tags(&device, 1, 0, 4), [1, 2, 3, 4], "a failed reset does not empty the zone");
    device.finish(ZoneId(2)).unwrap();
    assert!(io(device.finish(ZONE)));
    device.inject(Fault::nth(CommandKind::Append, 1, Effect::HostFull).forever());
    for _ in 0..3 {
        let error = append(&device, 1, 1).unwrap_err();
        assert!(matches!(error, DeviceError::HostFull { .. }) && !error.ends_zone());
    }
    device.clear_faults();
    assert_eq!(append(&device, 1, 1).unwrap(), 4);
}

#[test]
fn the_capacity_may_change_at_a_reset() {
    let device = tiny();
    device.change_capacity_at_reset(ZONE, 7);
    append(&device, 1, 10).unwrap();
    assert_eq!(device.report_zone(ZONE).unwrap().capacity, 64);
    device.reset(ZONE).unwrap();
    assert_eq!(device.report_zone(ZONE).unwrap().capacity, 7);
    assert!(matches!(append(&device, 1, 8), Err(DeviceError::ZoneFull { .. })));
    append(&device, 1, 7).unwrap();
    assert_eq!(device.report_zone(ZONE).unwrap().state, ZoneState::Full);
    device.reset(ZONE).unwrap();
    assert_eq!(device.report_zone(ZONE).unwrap().capacity, 7, "it changes once");
}

#[test]
fn flipped_bits_and_unreadable_blocks_stay_until_the_reset() {
    let device = tiny();
    append(&device, 0x10, 3).unwrap();
    let intact = device.digest();
    device.corrupt(ZONE, 1, 0, 0x80);
    device.make_unreadable(ZONE, 2);
    assert_ne!(device.digest(), intact);
    assert_eq!(tags(&device, 1, 0, 2), [0x10, 0x91]);
    assert!(matches!(device.read(ZONE, 2, &mut pattern(&device, 0, 1)), Err(DeviceError::Io { .. })));
    device.reset(ZONE).unwrap();
    append(&device, 0x10, 3).unwrap();
    assert_eq!(device.digest(), intact);
}

#[test]
fn commands_and_bytes_are_counted_by_kind() {
    let device = tiny();
    append(&device, 1, 2).unwrap();
    append(&device, 1, 1).unwrap();
    append(&device, 1, Spec::tiny().max_append + 1).unwrap_err();
    device.read(ZONE, 0, &mut pattern(&device, 1, 3)).unwrap();
    device.flush().unwrap();
    let counters = device.counters();
    assert_eq!(counters.of(CommandKind::Append), 3);
    assert_eq!((counters.of(CommandKind::Read), counters.of(CommandKind::Flush)), (1, 1));
    assert_eq!((counters.bytes_written, counters.bytes_read, counters.failed), (3 * 4096, 3 * 4096, 1));
    assert_eq!(tiny().counters(), Counters::default());
    assert_eq!(device.commands(), 3, "refused commands and reads change nothing");
}

#[test]
fn blocks_of_one_word_read_the_same_with_and_without_stored_bytes() {
    let (plain, recording) = (tiny(), tiny());
    recording.record();
    let (mut written, block) = (vec![0; 3 * 4096], 4096);
    for (at, word) in written.chunks_mut(8).enumerate() {
        word.copy_from_slice(&(at as u64 / 512 * 0x0123_4567_89ab_cdef).to_ne_bytes());
    }
    let mut unlike = written[block..2 * block].to_vec();
    unlike[block - 1] ^= 1;
    for device in [&plain, &recording] {
        device.append(ZONE, &written).unwrap();
        device.append(ZONE, &unlike).unwrap();
        let mut found = vec![0; 4 * block];
        device.read(ZONE, 0, &mut found).unwrap();
        assert!(found == [written.as_slice(), &unlike].concat());
    }
    assert_eq!(plain.digest(), recording.digest());
    assert_eq!(plain.commands(), recording.commands());
}

#[test]
fn a_drive_that_loses_its_cache_fails_its_flush_and_keeps_flushed_data() {
    for number in 0..8 {
        let device = tiny();
        device.record();
        append(&device, 1, 2).unwrap();
        device.flush().unwrap();
        append(&device, 3, 2).unwrap();
        device.inject(Fault::nth(CommandKind::Flush, 1, Effect::LoseCache(number)));
        assert!(device.flush().is_err());
        assert_eq!(tags(&device, 1, 0, 2), [1, 2]);
        let mut block = pattern(&device, 0, 1);
        let is_there = device.read(ZONE, 2, &mut block).is_ok() && block == pattern(&device, 3, 1);
        assert!(!is_there || number % 4 == 3, "{number}: unflushed data is lost");
        // The rest is durable, and later flushes succeed.
        let info = device.report_zone(ZONE).unwrap();
        assert_eq!(device.image(&CrashPlan::LoseAll).report_zone(ZONE).unwrap(), info);
        device.flush().unwrap();
    }
}

#[test]
fn a_fault_of_opening_affects_the_append_that_opens_a_zone() {
    let device = tiny();
    append(&device, 1, 1).unwrap();
    device.inject(Fault { times: 2, ..Fault::nth(CommandKind::Open, 1, Effect::HostFull) });
    append(&device, 1, 1).unwrap();
    assert!(device.has_space_for(1), "no command was refused yet");
    let open = || device.append(ZoneId(5), &pattern(&device, 1, 1));
    let refused = open();
    assert!(matches!(refused, Err(DeviceError::HostFull { zone: ZoneId(5) })), "{refused:?}");
    assert!(!device.has_space_for(1));
    assert!(open().is_err() && device.has_space_for(1));
    open().unwrap();
}
