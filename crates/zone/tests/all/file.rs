//! Zones in a file: their states after a crash, and the effects on the host.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use crate::zone::file::{FileContents, FileDevice, FileOptions, OpenMode};
use crate::zone::{Command, Device, DeviceError, FsId, ZoneId, ZoneInfo, ZoneState};
use crate::{pattern, tags};

const ZONE: ZoneId = ZoneId(1);
/// The places of the tables of slots of a volume with [`options`], and the length of a slot.
const TABLES: [u64; 2] = [8192, 12288];
const SLOT: u64 = 32;

/// A directory with a volume in it.
struct Home {
    /// Deleted when dropped.
    _directory: tempfile::TempDir,
    path: PathBuf,
}

fn options() -> FileOptions {
    FileOptions { size: Some(24 << 20), fs_id: FsId([9; 16]), ..FileOptions::default() }
}

impl Home {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("volume");
        Home { _directory: directory, path }
    }

    fn create(&self, options: &FileOptions) -> FileDevice {
        FileDevice::create(&self.path, options).unwrap()
    }

    fn open(&self) -> FileDevice {
        crate::reopen(|| FileDevice::open(&self.path, OpenMode::ReadWrite))
    }

    fn file(&self) -> File {
        OpenOptions::new().read(true).write(true).open(&self.path).unwrap()
    }

    /// The host's bytes for the file.
    fn host_bytes(&self) -> u64 {
        std::fs::metadata(&self.path).unwrap().blocks() * 512
    }

    fn flip(&self, offset: u64) {
        let mut byte = [0];
        self.file().read_exact_at(&mut byte, offset).unwrap();
        self.file().write_all_at(&[byte[0] ^ 1], offset).unwrap();
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }
}

fn append(device: &FileDevice, tag: u8, blocks: u32) -> u32 {
    device.append(ZONE, &pattern(device, tag, blocks)).unwrap()
}

fn info(device: &FileDevice) -> ZoneInfo {
    device.report_zone(ZONE).unwrap()
}

/// Two blocks that are flushed and three that are not; then the process ends.
fn killed() -> Home {
    let home = Home::new();
    let device = home.create(&options());
    append(&device, 10, 2);
    device.flush().unwrap();
    append(&device, 20, 3);
    home
}

#[test]
fn after_a_crash_the_pointer_is_the_recorded_one() {
    let home = killed();
    let device = home.open();
    assert_eq!((info(&device).state, info(&device).pointer), (ZoneState::Closed, 2));
    assert_eq!(tags(&device, 1, 0, 2), [10, 11]);
    assert!(matches!(device.read(ZONE, 2, &mut pattern(&device, 0, 1)), Err(DeviceError::Unwritten { .. })));
    assert_eq!(append(&device, 30, 1), 2, "the zone continues at its pointer");
    device.flush().unwrap();
    drop(device);
    assert_eq!(tags(&home.open(), 1, 0, 3), [10, 11, 30]);
}

#[test]
fn every_flushed_state_is_restored() {
    let home = Home::new();
    let device = home.create(&options());
    append(&device, 1, 4);
    device.append(ZoneId(2), &pattern(&device, 2, 1)).unwrap();
    device.finish(ZoneId(2)).unwrap();
    device.append(ZoneId(3), &pattern(&device, 3, 1)).unwrap();
    device.reset(ZoneId(3)).unwrap();
    device.flush().unwrap();
    drop(device);
    let device = home.open();
    let states: Vec<_> = device.report().unwrap()[..5].iter().map(|zone| zone.state).collect();
    use ZoneState::{Closed, Empty, Full};
    assert_eq!(states, [Empty, Closed, Full, Empty, Empty]);
    assert_eq!((device.fs_id(), device.mode()), (FsId([9; 16]), OpenMode::ReadWrite));
}

#[test]
fn a_reset_that_was_not_flushed_is_undone_with_the_old_contents() {
    let home = killed();
    let device = home.open();
    device.reset(ZONE).unwrap();
    drop(device);
    let device = home.open();
    assert_eq!(tags(&device, 1, 0, info(&device).pointer), [10, 11]);
}

#[test]
fn a_write_after_a_reset_makes_the_reset_durable_first() {
    // Otherwise the crash would restore the old pointer over the new block: a reader of the old life would get bytes
    // of the next one.
    let home = killed();
    let device = home.open();
    device.reset(ZONE).unwrap();
    append(&device, 77, 1);
    drop(device);
    let device = home.open();
    assert_eq!((info(&device).state, info(&device).pointer), (ZoneState::Empty, 0));
}

#[test]
fn the_host_blocks_of_a_reset_zone_are_freed_after_the_flush() {
    let home = Home::new();
    let device = home.create(&options());
    let empty = home.host_bytes();
    append(&device, 1, 2);
    let taken = home.host_bytes();
    let zone_bytes = u64::from(device.geometry().zone_blocks) * 4096;
    assert!(taken >= empty + zone_bytes, "a zone is allocated completely when it is opened: {empty} {taken}");
    device.flush().unwrap();
    device.reset(ZONE).unwrap();
    assert!(
        !device.discard_one_zone() && home.host_bytes() >= taken,
        "the old contents may still be asked for"
    );
    device.flush().unwrap();
    assert!(device.discard_one_zone());
    assert!(home.host_bytes() < taken, "{taken} {}", home.host_bytes());
    append(&device, 5, 1);
    assert_eq!(tags(&device, 1, 0, 1), [5]);
}

#[test]
fn a_preallocated_file_keeps_its_blocks() {
    let home = Home::new();
    let device = home.create(&FileOptions { preallocate: true, ..options() });
    assert!(home.host_bytes() >= 24 << 20);
    append(&device, 1, 2);
    device.reset(ZONE).unwrap();
    device.flush().unwrap();
    drop(device);
    let device = home.open();
    append(&device, 1, 2);
    device.reset(ZONE).unwrap();
    device.flush().unwrap();
    assert!(home.host_bytes() >= 24 << 20);
}

/// A user who waits for the allocation of all blocks sees its progress.
#[test]
fn allocating_blocks_reports_its_progress() {
    let home = Home::new();
    let size = 160 << 20;
    let options = FileOptions { size: Some(size), preallocate: true, ..options() };
    let mut told = Vec::new();
    let draft = FileDevice::draft(&home.path, &options).unwrap();
    draft.make(&mut |taken, all| told.push((taken, all))).unwrap();
    assert_eq!(told, [(64 << 20, size), (128 << 20, size), (size, size)]);
    assert!(home.host_bytes() >= size);
}

#[test]
fn a_zone_with_a_damaged_slot_is_full_and_keeps_its_data() {
    // The damaged slot may have been the newer one: a pointer from the other would hide durable blocks. `Full` hides
    // none.
    for table in [0, 1] {
        let home = killed();
        home.flip(TABLES[table] + SLOT + 16);
        let device = home.open();
        assert_eq!(info(&device).state, ZoneState::Full, "slot {table}");
        assert_eq!(tags(&device, 1, 0, 2), [10, 11]);
        let others = device.report().unwrap().iter().filter(|zone| zone.state == ZoneState::Empty).count();
        assert_eq!(others as u32, device.geometry().zones - 1);
        device.reset(ZONE).unwrap();
        device.flush().unwrap();
        append(&device, 1, 1);
        device.flush().unwrap();
        drop(device);
        assert_eq!(info(&home.open()).state, ZoneState::Closed, "two states later both slots are intact");
    }
}

#[test]
fn a_torn_table_has_the_effect_of_damaged_slots() {
    let home = killed();
    home.file().write_all_at(&[0xff; 4096], TABLES[0]).unwrap();
    home.file().write_all_at(&[0; 512], TABLES[1]).unwrap();
    let device = home.open();
    assert!(device.report().unwrap().iter().all(|zone| zone.state == ZoneState::Full));
    assert_eq!(tags(&device, 1, 0, 2), [10, 11]);
}

#[test]
fn the_slots_of_a_flush_may_be_missing_after_a_power_cut() {
    // The host writes slots and data in any order: an older slot is the state at the previous flush.
    let home = killed();
    let before = home.bytes();
    let device = home.open();
    append(&device, 30, 1);
    device.flush().unwrap();
    drop(device);
    let mut put_back = 0;
    for table in TABLES {
        let slot = (table + SLOT) as usize..(table + 2 * SLOT) as usize;
        if home.bytes()[slot.clone()] != before[slot.clone()] {
            home.file().write_all_at(&before[slot], table + SLOT).unwrap();
            put_back += 1;
        }
    }
    assert_eq!(put_back, 1, "a flush writes one of the two");
    let device = home.open();
    assert_eq!(tags(&device, 1, 0, info(&device).pointer), [10, 11]);
}

#[test]
fn a_flush_writes_one_page_for_one_zone_and_none_for_none() {
    let home = Home::new();
    let device = home.create(&options());
    append(&device, 1, 1);
    assert_eq!(device.device_metadata_bytes_written(), 0);
    device.flush().unwrap();
    assert_eq!(device.device_metadata_bytes_written(), 4096);
    device.flush().unwrap();
    assert_eq!(device.device_metadata_bytes_written(), 4096, "nothing changed since");
    append(&device, 1, 1);
    device.flush().unwrap();
    assert_eq!(device.device_metadata_bytes_written(), 8192);
}

#[test]
fn a_read_only_open_does_not_change_the_file() {
    let home = killed();
    let before = home.bytes();
    let readers = [(); 2].map(|()| FileDevice::open(&home.path, OpenMode::ReadOnly).unwrap());
    for device in &readers {
        assert_eq!(tags(device, 1, 0, 2), [10, 11]);
        device.flush().unwrap();
        let one = pattern(device, 1, 1);
        let refused = [device.append(ZONE, &one).map(|_| ()), device.finish(ZONE), device.reset(ZONE)];
        assert!(
            refused.iter().all(|refusal| matches!(refusal, Err(DeviceError::Unusable(_)))),
            "{refused:?}"
        );
    }
    assert!(FileDevice::open(&home.path, OpenMode::ReadWrite).is_err(), "it is being read");
    drop(readers);
    assert!(home.bytes() == before);
}

#[test]
fn a_second_process_is_refused() {
    let home = Home::new();
    let device = home.create(&options());
    for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
        let error = FileDevice::open(&home.path, mode).err().unwrap();
        assert!(error.to_string().contains("in use by another process"), "{error}");
    }
    let error = FileDevice::create(&home.path, &FileOptions { force: true, ..options() }).err().unwrap();
    assert!(error.to_string().contains("in use by another process"), "{error}");
    assert!(matches!(FileDevice::probe(&home.path).unwrap(), FileContents::Volume { .. }));
    drop(device);
    home.open();
}

#[test]
fn a_large_batch_of_appends_to_many_zones_can_be_read_back_in_one() {
    let home = Home::new();
    let device = home.create(&options());
    let written: Vec<Vec<u8>> = (0..120).map(|tag| pattern(&device, tag, 1)).collect();
    let zone = |index: usize| ZoneId(index as u32 % 7);
    let mut batch: Vec<_> =
        written.iter().enumerate().map(|(index, from)| Command::Append { zone: zone(index), from }).collect();
    let places: Vec<u32> = device.run(&mut batch).into_iter().map(|output| output.unwrap()).collect();
    device.flush().unwrap();
    drop(device);
    let device = home.open();
    let mut found = vec![vec![0; 4096]; 120];
    let mut batch: Vec<_> = found
        .iter_mut()
        .enumerate()
        .map(|(index, into)| Command::Read { zone: zone(index), block: places[index], into })
        .collect();
    assert!(device.run(&mut batch).iter().all(|output| output.is_ok()));
    assert!(found == written);
}

#[test]
fn flushes_and_appends_of_many_threads_do_not_disturb_each_other() {
    let home = Home::new();
    let device = home.create(&options());
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let device = &device;
            scope.spawn(move || {
                let zone = ZoneId(thread);
                for round in 0..30u32 {
                    device.append(zone, &pattern(device, thread as u8, 1)).unwrap();
                    if round % 5 == 4 {
                        device.flush().unwrap();
                        assert!(device.report_zone(zone).unwrap().pointer > 0);
                    }
                    if round % 10 == 9 {
                        device.reset(zone).unwrap();
                    }
                }
                device.append(zone, &pattern(device, 100 + thread as u8, 1)).unwrap();
                device.flush().unwrap();
            });
        }
    });
    drop(device);
    let device = home.open();
    for thread in 0..4u8 {
        assert_eq!(tags(&device, thread.into(), 0, 1), [100 + thread]);
    }
}

#[test]
fn a_host_without_space_refuses_the_zone_and_the_volume_continues() {
    // A memory file system immediately refuses a file that is larger than itself.
    let host = std::path::Path::new("/dev/shm");
    let Some(room) = memory_file_system_bytes(host) else {
        println!("skipped: {} is no memory file system", host.display());
        return;
    };
    let zone_bytes = (room + 1).next_multiple_of(1 << 20);
    let directory = tempfile::tempdir_in(host).unwrap();
    let path = directory.path().join("volume");
    let size = Some(17 * zone_bytes);
    let device =
        FileDevice::create(&path, &FileOptions { size, zone_bytes: Some(zone_bytes), ..options() }).unwrap();
    for _ in 0..2 {
        let error = device.append(ZONE, &pattern(&device, 1, 1)).unwrap_err();
        assert!(matches!(error, DeviceError::HostFull { zone: ZONE }) && !error.ends_zone(), "{error}");
        assert_eq!(info(&device).state, ZoneState::Empty, "it occupies no slot either");
    }
    device.flush().unwrap();
    drop(device);
    let options = FileOptions { size, preallocate: true, force: true, ..options() };
    let error = FileDevice::create(&path, &options).err().unwrap();
    assert!(error.to_string().contains("has no space"), "{error}");
}

/// The last zone of this volume is shorter, and its end lies within the range that the others leave unused.
#[test]
fn zones_with_less_capacity_keep_their_size() {
    let home = Home::new();
    let wanted = FileOptions { zone_bytes: Some(1 << 20), zone_capacity: Some(768 << 10), ..options() };
    let device = home.create(&wanted);
    assert_eq!(device.geometry().zone_blocks, 192, "the largest capacity");
    let zones = device.geometry().zones;
    for zone in [0, 1, zones - 1].map(ZoneId) {
        let info = device.report_zone(zone).unwrap();
        assert!((1..=192).contains(&info.capacity), "{info:?}");
        let data = pattern(&device, zone.0 as u8, info.capacity);
        device.append(zone, &data).unwrap();
        assert_eq!(device.report_zone(zone).unwrap().state, ZoneState::Full);
        assert!(device.append(zone, &pattern(&device, 1, 1)).is_err());
    }
    device.flush().unwrap();
    drop(device);
    let device = home.open();
    for zone in [0, 1, zones - 1].map(ZoneId) {
        let capacity = device.report_zone(zone).unwrap().capacity;
        let data = pattern(&device, zone.0 as u8, capacity);
        let mut read = vec![0; data.len()];
        device.read(zone, 0, &mut read).unwrap();
        assert!(read == data, "{zone:?}");
    }
}

/// The size of the memory file system that is mounted there, if it is one.
fn memory_file_system_bytes(path: &std::path::Path) -> Option<u64> {
    const MEMORY: i64 = 0x0102_1994;
    let found = rustix::fs::statfs(path).ok()?;
    (found.f_type as i64 == MEMORY && found.f_blocks > 0).then_some(found.f_blocks * found.f_bsize as u64)
}
