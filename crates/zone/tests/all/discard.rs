//! Zones in software on a block device without zones: reset zones are discarded, and blocks are no smaller than those
//! of the device. The tests use loop devices, which root can make; their statistics count the requests to the device.

use std::fs::{File, read_to_string, write};
use std::path::PathBuf;
use std::process::Command;

use polder_zone::file::{FileDevice, FileOptions, OpenMode};
use polder_zone::medium::{MediumKind, VolumeOptions};
use polder_zone::{Device, DeviceError, Medium, ZoneId, ZoneState};

const SECTOR: u64 = 512;
const ZONE_BYTES: u64 = 1 << 20;
const ZONE: ZoneId = ZoneId(2);
const OTHER: ZoneId = ZoneId(5);

/// A loop device; detached when dropped.
struct Loop {
    path: PathBuf,
    _backing: tempfile::NamedTempFile,
}

/// Sectors since the device was created.
#[derive(Clone, Copy, Debug)]
struct Counted {
    written: u64,
    discarded: u64,
}

impl Loop {
    fn new() -> Result<Loop, String> {
        Loop::of_sectors(SECTOR)
    }

    fn of_sectors(bytes: u64) -> Result<Loop, String> {
        let backing = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
        backing.as_file().set_len(32 << 20).map_err(|error| error.to_string())?;
        let mut run = Command::new("losetup");
        let run =
            run.args(["--find", "--show", "--sector-size", &bytes.to_string()]).arg(backing.path()).output();
        let output = run.map_err(|error| format!("losetup: {error}"))?;
        if !output.status.success() {
            return Err(format!("losetup: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        let path = String::from_utf8(output.stdout).unwrap().trim().into();
        Ok(Loop { path, _backing: backing })
    }

    fn about(&self, what: &str) -> PathBuf {
        PathBuf::from("/sys/block").join(self.path.file_name().unwrap()).join(what)
    }

    fn counted(&self) -> Counted {
        let stat = read_to_string(self.about("stat")).unwrap();
        let numbers: Vec<u64> = stat.split_whitespace().map(|number| number.parse().unwrap()).collect();
        Counted { written: numbers[6], discarded: numbers[13] }
    }

    fn can_discard(&self) -> bool {
        read_to_string(self.about("queue/discard_max_bytes")).unwrap().trim() != "0"
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

fn create(disk: &Loop) -> FileDevice {
    let options = FileOptions { zone_bytes: Some(ZONE_BYTES), ..FileOptions::default() };
    FileDevice::create(&disk.path, &options).unwrap()
}

/// Makes everything durable and discards all empty zones.
fn flush_and_discard(device: &FileDevice) {
    device.flush().unwrap();
    while device.discard_one_zone() {}
    device.flush().unwrap();
}

/// Fills two zones, empties one of them, and checks the contents then and after reopening. Returns the requests to
/// the device in between, in sectors.
fn fill_and_empty(disk: &Loop) -> Counted {
    let device = create(disk);
    flush_and_discard(&device);
    let payload = vec![0x5a; ZONE_BYTES as usize / 4];
    for zone in [ZONE, OTHER] {
        for block in (0..4).map(|piece| piece * (ZONE_BYTES / 4 / 4096) as u32) {
            assert_eq!(device.append(zone, &payload).unwrap(), block);
        }
    }
    device.flush().unwrap();
    let before = disk.counted();
    device.reset(ZONE).unwrap();
    while device.discard_one_zone() {}
    assert_eq!(disk.counted().discarded, before.discarded, "the reset may still be undone");
    flush_and_discard(&device);
    let after = disk.counted();
    drop(device);

    let device = crate::reopen(|| FileDevice::open(&disk.path, OpenMode::ReadWrite));
    assert_eq!(device.report_zone(ZONE).unwrap().state, ZoneState::Empty);
    let mut found = vec![0; payload.len()];
    let refused = device.read(ZONE, 0, &mut found);
    assert!(matches!(refused, Err(DeviceError::Unwritten { zone: ZONE, block: 0 })), "{refused:?}");
    device.read(OTHER, 0, &mut found).unwrap();
    assert_eq!(found, payload);
    // Its next life begins like the first, and no discard affects the data written now.
    device.append(ZONE, &payload).unwrap();
    flush_and_discard(&device);
    device.read(ZONE, 0, &mut found).unwrap();
    assert_eq!(found, payload);
    Counted { written: after.written - before.written, discarded: after.discarded - before.discarded }
}

/// A reset on a disk punched a hole: a disk without a fast way to write zeros wrote the whole zone. It is discarded.
#[test]
fn a_reset_zone_is_discarded_after_the_reset_is_durable() {
    let disk = match Loop::new() {
        Ok(disk) if disk.can_discard() => disk,
        Ok(_) => {
            return eprintln!("skipped: a loop device in the directory for temporary files cannot discard");
        }
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let asked = fill_and_empty(&disk);
    assert_eq!(asked.discarded * SECTOR, ZONE_BYTES, "{asked:?}");
    // This kind of device loses the old contents.
    assert!(asked.written * SECTOR < ZONE_BYTES / 8, "nothing but states is written: {asked:?}");
}

/// A reset on a disk punched a hole: a disk without a fast way to write zeros wrote the whole zone. It is discarded.
#[test]
fn a_device_that_cannot_discard_is_not_filled_with_zeros() {
    let disk = match Loop::new() {
        Ok(disk) => disk,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    if let Err(error) = write(disk.about("queue/discard_max_bytes"), "0") {
        return eprintln!("skipped: discards of the device cannot be disabled: {error}");
    }
    assert!(!disk.can_discard() && File::open(&disk.path).is_ok());
    let asked = fill_and_empty(&disk);
    assert_eq!(asked.discarded, 0);
    assert!(asked.written * SECTOR < ZONE_BYTES / 8, "nothing but states is written: {asked:?}");
}

/// With blocks of 512 bytes on a disk that writes 4 KiB atomically, a power loss could damage the neighbours of a
/// written block, and the contract says that one block is atomic.
#[test]
fn blocks_smaller_than_those_of_the_disk_are_refused() {
    let disk = match Loop::of_sectors(4096) {
        Ok(disk) => disk,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let options =
        |block_size| FileOptions { block_size, zone_bytes: Some(ZONE_BYTES), ..FileOptions::default() };
    for block_size in [512, 2048] {
        let refused = FileDevice::draft(&disk.path, &options(block_size)).err().unwrap();
        assert!(refused.to_string().contains("--getpbsz"), "{refused}");
    }
    FileDevice::draft(&disk.path, &options(4096)).unwrap();
    // The default is the block size of the disk.
    let options = VolumeOptions { zone_bytes: Some(ZONE_BYTES), ..VolumeOptions::default() };
    let made = Medium::draft(&disk.path, &options).unwrap().make(&mut |_, _| {}).unwrap();
    assert_eq!(made.kind(), MediumKind::Disk { discards: disk.can_discard(), streams: 0 });
}
