//! Zones without a write pointer: they take data like others, and are full after a mount.

use std::sync::Arc;

use emulated::{CrashPlan, Spec};
use fs::InodeNo;
use zone::{Device, Role, ZoneId, ZoneState};

use crate::support::{Volume, mount, pattern};

const ROOT: InodeNo = InodeNo::ROOT;
const FILE_BYTES: usize = 80 << 10;
const SEQUENTIAL: u32 = 20;
const ZONES: u32 = 40;

/// A volume with so many files that one of its conventional zones is being written.
fn filled() -> (Volume, usize) {
    let volume = Volume::on(Spec::new(4096, ZONES, 128).conventional(ZONES - SEQUENTIAL));
    let mut files = 0;
    while open_conventional(&volume).is_none() {
        add(&volume, files);
        files += 1;
        assert!(files < 200, "data takes conventional zones when others are scarce");
    }
    volume.fs.sync().unwrap();
    (volume, files)
}

fn add(volume: &Volume, number: usize) {
    let file = volume.file(ROOT, &format!("file {number}"));
    volume.write(&file, 0, &pattern(number as u8, FILE_BYTES));
}

fn open_conventional(volume: &Volume) -> Option<ZoneId> {
    let open = volume.fs.extents().open_zones().into_iter().map(|(zone, _)| zone);
    open.rev().find(|zone| volume.device.geometry().is_conventional(*zone))
}

fn expect_files(volume: &Volume, files: usize) {
    for number in 0..files {
        let file = volume.open(volume.find(ROOT, &format!("file {number}")).unwrap());
        assert!(volume.contents(&file) == pattern(number as u8, FILE_BYTES), "file {number}");
    }
    assert_eq!(volume.fs.check().unwrap(), []);
}

#[test]
fn data_goes_to_conventional_zones_and_metadata_to_others() {
    let (volume, files) = filled();
    let pool = volume.fs.store().pool();
    let holds_data = |zone: &ZoneId| pool.entry(*zone).live > 0 && pool.entry(*zone).role.holds_data();
    assert!((SEQUENTIAL..ZONES).map(ZoneId).any(|zone| holds_data(&zone)));
    for role in [Role::Log, Role::Metadata] {
        assert!(pool.in_role(role).iter().all(|zone| zone.0 < SEQUENTIAL), "{role:?}");
    }
    expect_files(&volume, files);
}

/// If an unmount left such a zone open, its contents would have to be moved, because the place of its reverse map is
/// unknown.
#[test]
fn a_conventional_zone_that_is_being_written_is_closed_with_the_volume() {
    let (volume, files) = filled();
    let zone = open_conventional(&volume).unwrap();
    let volume = volume.remount();
    assert_eq!(volume.device.report_zone(zone).unwrap().state, ZoneState::Full);
    volume.settle();
    assert_eq!(volume.fs.extents().collector().stats().blocks_moved, 0);
    expect_files(&volume, files);
    let read_only = volume.remount();
    read_only.fs.make_read_only().unwrap();
    read_only.fs.make_writable().unwrap();
    add(&read_only, files);
    expect_files(&read_only, files + 1);
}

#[test]
fn durable_data_survives_every_crash_state_of_a_conventional_zone() {
    let (volume, files) = filled();
    volume.device.record();
    let zone = open_conventional(&volume).unwrap();
    add(&volume, files);
    volume.fs.sync().unwrap();
    let durable = volume.device.commands();
    add(&volume, files + 1);
    for at in [durable, volume.device.commands()] {
        for plan in volume.device.plans_at(at).into_iter().chain((0..6).map(CrashPlan::Subset)) {
            let device = Arc::new(volume.device.image_at(at, &plan));
            let fs = mount(&device, &volume.clock, false);
            let found = Volume { device, clock: volume.clock.clone(), fs };
            assert_eq!(found.device.report_zone(zone).unwrap().state, ZoneState::Full, "{plan}");
            expect_files(&found, files + 1);
            // It has no footer: its live blocks are moved, and then the zone is used again.
            found.settle_and_check();
            assert!(found.fs.extents().collector().stats().blocks_moved > 0, "{plan}");
            expect_files(&found.remount(), files + 1);
        }
    }
}

#[test]
fn a_volume_survives_many_mounts_with_little_space() {
    let (mut volume, mut files) = filled();
    for round in 0..40 {
        if round % 2 == 0 {
            add(&volume, files);
            files += 1;
        } else {
            files -= 1;
            volume.unlink(ROOT, &format!("file {files}")).unwrap();
        }
        volume.fs.sync().unwrap();
        volume = if round % 3 == 0 { volume.kill() } else { volume.remount() };
        volume.settle();
    }
    expect_files(&volume, files);
}
