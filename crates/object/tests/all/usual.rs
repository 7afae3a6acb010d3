//! Volumes are opened, closed and refused, and unneeded objects are deleted.

use std::sync::Arc;

use bytes::Bytes;
use polder_object::{Holder, Mode, ObjectDevice, ObjectError, OpenOptions};
use rt::{ManualClock, Timestamp};
use zone::{Device, ZoneId};

use crate::model::{GRACE_NS, Owner, found, make, options, shape};
use crate::simulated::{At, Plan, World};

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp(0)))
}

fn made() -> World {
    let world = World::default();
    make(&world);
    world
}

fn open(world: &World, options: &OpenOptions) -> Result<ObjectDevice, ObjectError> {
    ObjectDevice::open(Arc::new(world.process(Plan::default())), options)
}

#[test]
fn a_closed_volume_has_what_was_written() {
    let world = made();
    for round in 0..60 {
        let process = world.process(Plan { seed: round, ..Plan::default() });
        let device = ObjectDevice::open(Arc::new(process.clone()), &options(&clock(), 1, false)).unwrap();
        drop(device);
        let mut owner = Owner::open(&process, &clock(), 1, round).unwrap();
        (0..40).for_each(|_| assert!(owner.step()));
        owner.verify();
        let contents = owner.contents.clone();
        drop(owner);
        let read_only = OpenOptions { mode: Mode::ReadOnly, ..options(&clock(), 9, false) };
        let device = open(&world, &read_only).unwrap();
        assert_eq!(found(&device), contents);
        let refusal = device.append(ZoneId(0), &[0; 512]).unwrap_err().to_string();
        assert!(refusal.contains("open it for writing"), "{refusal}");
    }
}

#[test]
fn a_volume_in_use_is_refused_with_its_owner() {
    let world = made();
    let owner = open(&world, &options(&clock(), 41, false)).unwrap();
    let refusal = open(&world, &options(&clock(), 42, false)).err().unwrap();
    assert!(matches!(&refusal, ObjectError::InUse { process: 41, .. }), "{refusal}");
    assert!(refusal.to_string().contains("process 41 on elsewhere"), "{refusal}");
    assert!(refusal.to_string().contains("-o takeover"), "{refusal}");
    drop(owner);
    assert!(open(&world, &options(&clock(), 42, false)).is_ok());
}

/// A command that reads says that what it reads may be old.
#[test]
fn a_reader_learns_of_the_owner() {
    let world = made();
    let reader = || OpenOptions { mode: Mode::ReadOnly, ..options(&clock(), 42, false) };
    assert_eq!(open(&world, &reader()).unwrap().other_owner(), None);
    let owner = open(&world, &options(&clock(), 41, false)).unwrap();
    let reading = open(&world, &reader()).unwrap();
    assert!(matches!(reading.other_owner(), Some(ObjectError::InUse { process: 41, is_here: false, .. })));
    drop(owner);
    assert_eq!(open(&world, &reader()).unwrap().other_owner(), None);
}

#[test]
fn a_device_that_was_released_changes_nothing_more() {
    let world = made();
    let device = open(&world, &options(&clock(), 41, false)).unwrap();
    device.append(ZoneId(0), &[1; 512]).unwrap();
    device.flush().unwrap();
    device.release().unwrap();
    let next = open(&world, &options(&clock(), 42, false)).unwrap();
    for failed in [device.append(ZoneId(0), &[1; 512]).map(drop), device.flush(), device.release()] {
        assert!(failed.unwrap_err().to_string().contains("was closed"));
    }
    drop(device);
    next.append(ZoneId(0), &[2; 512]).unwrap();
    next.flush().unwrap();
    assert_eq!(next.report_zone(ZoneId(0)).unwrap().pointer, 2);
}

/// The objects of a mounted volume were deleted.
#[test]
fn a_volume_in_use_is_not_overwritten() {
    let world = made();
    let process = world.process(Plan::default());
    let owner = open(&world, &options(&clock(), 41, false)).unwrap();
    for force in [false, true] {
        let refusal = ObjectDevice::create(&process, &crate::model::shape(8), force).unwrap_err();
        let expected = if force { "process 41 on elsewhere" } else { "--force" };
        assert!(refusal.to_string().contains(expected), "{refusal}");
        assert_eq!(ObjectDevice::draft(&process, &crate::model::shape(8), force).unwrap_err(), refusal);
    }
    drop(owner);
    ObjectDevice::create(&process, &crate::model::shape(8), true).unwrap();
    assert_eq!(ObjectDevice::probe(&process).unwrap(), Some(zone::FsId([8; 16])));
}

#[test]
fn a_device_of_this_process_that_failed_can_be_opened_again() {
    let world = made();
    let mine = || OpenOptions { holder: Holder::this_process(), ..options(&clock(), 0, false) };
    let process = world.process(Plan::default());
    let device = ObjectDevice::open(Arc::new(process.clone()), &mine()).unwrap();
    assert!(matches!(open(&world, &mine()), Err(ObjectError::InUse { .. })), "it is alive");
    device.append(ZoneId(0), &[1; 512]).unwrap();
    process.end();
    assert!(device.flush().is_err());
    let why = device.append(ZoneId(0), &[1; 512]).unwrap_err().to_string();
    assert!(why.contains("open the volume again"), "{why}");
    drop(device);
    assert!(open(&world, &mine()).is_ok());
}

#[test]
fn stores_that_ignore_conditions_are_refused() {
    let world = World::default();
    world.ignore_conditions();
    let refusal = ObjectDevice::create(&world.process(Plan::default()), &shape(7), false).unwrap_err();
    assert!(matches!(refusal, ObjectError::IgnoresConditions(_)), "{refusal}");
    assert!(refusal.to_string().contains("conditional writes"));
    assert_eq!(world.names(), Vec::<String>::new());
    let world = made();
    world.ignore_conditions();
    let refusal = open(&world, &options(&clock(), 1, false)).err().unwrap();
    assert!(matches!(refusal, ObjectError::IgnoresConditions(_)), "{refusal}");
}

#[test]
fn a_volume_is_overwritten_only_on_request_and_leaves_nothing() {
    let world = made();
    let mut owner = Owner::open(&world.process(Plan::default()), &clock(), 1, 1).unwrap();
    (0..40).for_each(|_| assert!(owner.step()));
    drop(owner);
    let store = world.process(Plan::default());
    let refusal = ObjectDevice::create(&store, &shape(8), false).unwrap_err();
    assert!(refusal.to_string().contains("--force"), "{refusal}");
    ObjectDevice::create(&store, &shape(8), true).unwrap();
    assert_eq!(world.names().len(), 2, "{:?}", world.names());
    let missing =
        ObjectDevice::open(Arc::new(World::default().process(Plan::default())), &options(&clock(), 1, false));
    assert!(matches!(missing, Err(ObjectError::NoVolume(_))));
}

#[test]
fn what_is_not_needed_is_deleted() {
    let world = made();
    let clock = clock();
    let mut owner = Owner::open(&world.process(Plan::default()), &clock, 1, 5).unwrap();
    let mut most = 0;
    for round in 0..400 {
        (0..10).for_each(|_| assert!(owner.step()));
        assert!(owner.flush());
        clock.advance(2 * GRACE_NS);
        while owner.device.discard_one_zone() {}
        if round > 20 {
            most = most.max(world.names().len());
        }
    }
    // A zone has at most 3 parts; the rest is a few bundles, and the chunks of the table.
    println!("at most {most} objects");
    assert!(most < 12 * 3 + 30, "{most} objects: {:?}", world.names());
    let before = world.names().len();
    let contents = owner.contents.clone();
    assert!(owner.flush());
    owner.kill();
    // Another owner deletes what this one has left.
    let mut owner = Owner::open(&world.process(Plan::default()), &clock, 2, 6).unwrap();
    assert_eq!(owner.contents, contents);
    for _ in 0..20 {
        assert!(owner.append(ZoneId(1)) && owner.reset(ZoneId(1)) && owner.flush());
        clock.advance(2 * GRACE_NS);
        while owner.device.discard_one_zone() {}
    }
    assert!(world.names().len() < before + 12, "{} of {before}", world.names().len());
}

#[test]
fn one_flush_is_one_request() {
    let world = made();
    let process = world.process(Plan::default());
    let device = ObjectDevice::open(Arc::new(process.clone()), &options(&clock(), 1, false)).unwrap();
    device.append(ZoneId(0), &[1; 512]).unwrap();
    let before = process.requests();
    for zone in [1, 2, 0] {
        device.append(ZoneId(zone), &[2; 512]).unwrap();
        device.append(ZoneId(3), &[2; 512]).unwrap();
        device.flush().unwrap();
    }
    assert_eq!(process.requests() - before, 3);
    device.flush().unwrap();
    assert_eq!(process.requests() - before, 3, "nothing has changed");
}

/// Any object may be damaged or missing: the volume is refused, or what can be read is right.
#[test]
fn damaged_and_missing_objects_are_noticed() {
    let world = made();
    let mut owner = Owner::open(&world.process(Plan::default()), &clock(), 1, 3).unwrap();
    (0..80).for_each(|_| assert!(owner.step()));
    assert!(owner.flush());
    let (contents, _) = owner.kill();
    let (mut refused, mut unread, mut harmless) = (0, 0, 0);
    let last = world.names().into_iter().filter(|name| name.contains("/b/")).max().unwrap();
    for name in world.names() {
        let bytes = world.bytes_of(&name).unwrap();
        let mut flipped = bytes.to_vec();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 4;
        for replacement in [None, Some(Bytes::from(flipped)), Some(bytes.slice(..bytes.len() / 3))] {
            let world = world.copied();
            world.replace(&name, replacement);
            let read_only = OpenOptions { mode: Mode::ReadOnly, ..options(&clock(), 9, false) };
            let Ok(device) = open(&world, &read_only) else {
                refused += 1;
                continue;
            };
            // Parts have no checksum here: the layers above verify what is in them.
            if name.contains("/p/") {
                unread += 1;
                continue;
            }
            // Without the last bundle, the chain is that of the flush before. Nothing can tell.
            if name != last {
                assert_eq!(found(&device), contents, "{name}");
            }
            harmless += 1;
        }
    }
    println!("{refused} refused, {unread} parts, {harmless} not needed");
    assert!(refused > 3 && unread > 3);
}

/// `mkfs --force` in the directory of another program would have deleted its file `volume`, also a mounted one.
#[test]
fn what_another_program_has_there_is_not_replaced() {
    let world = World::default();
    world.replace("volume", Some(Bytes::from(vec![7; 1 << 20])));
    let process = world.process(Plan::default());
    for force in [false, true] {
        let refusal = ObjectDevice::create(&process, &shape(7), force).unwrap_err();
        assert!(matches!(refusal, ObjectError::Foreign(_)), "{force}: {refusal}");
    }
    assert_eq!(world.names(), ["volume"]);
    assert!(matches!(open(&world, &options(&clock(), 1, false)), Err(ObjectError::Foreign(_))));
}

/// A volume whose owner could not be read, because the store failed, was taken for one without an owner.
#[test]
fn a_volume_is_not_replaced_while_its_owner_cannot_be_read() {
    let world = made();
    let _owner = open(&world, &options(&clock(), 41, false)).unwrap();
    let before = world.names();
    let mut refused_by_store = 0;
    for end in 0..40 {
        let process = world.process(Plan { end: Some((end, At::Before)), ..Plan::default() });
        let refusal = ObjectDevice::create(&process, &shape(7), true).unwrap_err();
        refused_by_store += usize::from(matches!(refusal, ObjectError::Store { .. }));
        assert_eq!(world.names(), before, "{end}: {refusal}");
    }
    assert!(refused_by_store > 1, "{refused_by_store}");
}
