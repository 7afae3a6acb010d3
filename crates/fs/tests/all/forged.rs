//! A log forged inside users' data: files that contain blocks of this volume's own log, real ones and ones of a later
//! epoch with valid checksums. After a crash none of them counts.
//!
//! The forgery is the worst possible one: the log that the volume itself would write next, in which every file is
//! deleted. It is taken from a copy of the device, on which that was done. A first test shows that it would be
//! accepted in the log.

use std::sync::Arc;

use emulated::{CrashPlan, Emulated, Spec};
use fs::{Caller, Fs, InodeNo};
use rt::{ManualClock, Timestamp};
use zone::format::{Role, checksum, decode_header};
use zone::{Blocks, Device, ZoneId, ZoneInfo, ZoneState};

use crate::support::{READ, Volume, mount, pattern};

const ROOT: InodeNo = InodeNo::ROOT;
const VICTIMS: [&str; 3] = ["first", "second", "third"];

/// The offsets of the fields of a frame (`docs/format.md`). They are repeated here, because a forger does not use
/// Polder's own encoder.
const MAGIC: &[u8; 4] = b"PLOG";
const CHECKSUM: std::ops::Range<usize> = 4..8;
const FS_ID: std::ops::Range<usize> = 8..24;
const ZONE: std::ops::Range<usize> = 24..28;
const SEQUENCE: std::ops::Range<usize> = 32..40;
const EPOCH: std::ops::Range<usize> = 40..48;

/// A block of a log, and where it was found.
struct LogBlock {
    zone: ZoneId,
    block: Blocks,
    bytes: Vec<u8>,
}

fn read(device: &Emulated, zone: ZoneId, block: Blocks) -> Option<Vec<u8>> {
    let mut bytes = vec![0; device.geometry().block_size as usize];
    device.read(zone, block, &mut bytes).ok().map(|()| bytes)
}

/// The written blocks of all zones of these roles, without headers.
fn blocks_of(device: &Emulated, roles: &[Role]) -> Vec<LogBlock> {
    let mut found = Vec::new();
    for (index, info) in device.report().unwrap().iter().enumerate() {
        let zone = ZoneId(index as u32);
        let header = read(device, zone, 0).map(|block| decode_header(&block));
        let is_one = matches!(header, Some(Ok((identity, _))) if roles.contains(&identity.role));
        let blocks = if is_one { 1..written(info) } else { 0..0 };
        found.extend(
            blocks.filter_map(|block| Some(LogBlock { zone, block, bytes: read(device, zone, block)? })),
        );
    }
    found
}

fn written(info: &ZoneInfo) -> Blocks {
    match info.state {
        ZoneState::Empty | ZoneState::Offline => 0,
        ZoneState::Full => info.capacity,
        _ => info.pointer,
    }
}

/// Whether the bytes begin with a valid frame.
fn is_frame(bytes: &[u8], fs_id: &[u8]) -> bool {
    let sum = || checksum(&[&bytes[..4], &[0; 4], &bytes[8..]]);
    bytes.starts_with(MAGIC) && &bytes[FS_ID] == fs_id && bytes[CHECKSUM] == sum().to_le_bytes()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// The block as one of a later epoch and sequence, and of another log zone if one is given.
fn later(original: &[u8], epochs: u64, zone: Option<ZoneId>) -> Vec<u8> {
    let mut block = original.to_vec();
    let epoch = number(&block[EPOCH]) + epochs;
    let sequence = number(&block[SEQUENCE]) + epochs;
    block[EPOCH].copy_from_slice(&epoch.to_le_bytes());
    block[SEQUENCE].copy_from_slice(&sequence.to_le_bytes());
    if let Some(zone) = zone {
        block[ZONE].copy_from_slice(&zone.0.to_le_bytes());
    }
    block[CHECKSUM].fill(0);
    let sum = checksum(&[&block]);
    block[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    block
}

/// A volume with durable files.
fn with_victims(spec: Spec) -> Volume {
    let volume = Volume::on(spec);
    volume.device.record();
    for (seed, name) in VICTIMS.iter().enumerate() {
        let file = volume.file(ROOT, name);
        volume.write(&file, 0, &pattern(seed as u8, 100 + 9000 * seed));
    }
    volume.fs.sync().unwrap();
    volume
}

/// The log blocks that the volume would write next if it crashed now and its files were then deleted.
fn future(volume: &Volume) -> Vec<LogBlock> {
    let device = Arc::new(volume.device.image(&CrashPlan::KeepAll));
    let before = device.report().unwrap();
    let fs = mount(&device, &Arc::new(ManualClock::at(Timestamp(0))), false);
    for name in VICTIMS {
        fs.unlink(&Caller::root(), ROOT, name.as_bytes()).unwrap();
        fs.sync().unwrap();
    }
    let new = |block: &LogBlock| block.block >= written(&before[block.zone.0 as usize]);
    blocks_of(&device, &[Role::Log]).into_iter().filter(new).collect()
}

fn file_contents(fs: &Fs, name: &str) -> Option<Vec<u8>> {
    let inode = fs.lookup(&Caller::root(), ROOT, name.as_bytes()).ok()?.inode;
    let handle = fs.open(&Caller::root(), inode, READ).unwrap();
    let mut bytes = vec![0; fs.attributes(inode).unwrap().size as usize];
    assert_eq!(fs.read(&handle, 0, &mut bytes), Ok(bytes.len()));
    Some(bytes)
}

/// Every possible forgery: the present log, the next log, and both of later epochs and for every zone that may
/// contain a log.
fn forgeries(volume: &Volume, future: &[LogBlock]) -> Vec<Vec<u8>> {
    let present = blocks_of(&volume.device, &[Role::Log]);
    let real: Vec<&[u8]> = present.iter().chain(future).map(|block| block.bytes.as_slice()).collect();
    assert!(real.iter().all(|block| is_frame(block, &[5; 16])), "a log holds frames and nothing else");
    let mut forged: Vec<Vec<u8>> = real.iter().map(|block| block.to_vec()).collect();
    for epochs in [1, u64::from(u32::MAX) * 2, 1 << 62] {
        forged.extend(real.iter().map(|block| later(block, epochs, None)));
    }
    for zone in 0..4 {
        forged.extend(future.iter().map(|block| later(&block.bytes, 1 << 40, Some(ZoneId(zone)))));
    }
    forged
}

/// Writes the forgeries as users may: block after block into one file, and each into a small file of its own, whose
/// bytes the journal contains.
fn write_all(volume: &Volume, forged: &[Vec<u8>]) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = vec![("large".to_owned(), forged.concat())];
    for (index, block) in forged.iter().enumerate() {
        // A large block is cut to the length that fits in a record, and each begins at another place in its record.
        let pad = index * 4 % 256;
        let small = [vec![0; pad], block[..block.len().min(512)].to_vec()].concat();
        files.push((format!("small-{index}"), small));
    }
    for (name, bytes) in &files {
        let file = volume.file(ROOT, name);
        volume.write(&file, 0, bytes);
        volume.fs.fsync(&file, false).unwrap();
    }
    files
}

/// How many frames are at the beginning of a block of data, and how many inside the blocks of the log.
fn count_frames(device: &Emulated) -> (usize, usize) {
    let data = blocks_of(device, &[Role::Data, Role::Gc]);
    let at_start = data.iter().filter(|block| is_frame(&block.bytes, &[5; 16])).count();
    let log = blocks_of(device, &[Role::Log]);
    let inside = |block: &LogBlock| block.bytes[4..].windows(4).filter(|four| four == MAGIC).count();
    (at_start, log.iter().map(inside).sum())
}

fn story(spec: Spec) {
    let volume = with_victims(spec);
    let future = future(&volume);
    assert!(future.len() > VICTIMS.len(), "a seal and {} commits", VICTIMS.len());
    let mut files: Vec<(String, Vec<u8>)> =
        VICTIMS.iter().map(|name| ((*name).to_owned(), file_contents(&volume.fs, name).unwrap())).collect();

    let forged = forgeries(&volume, &future);
    files.extend(write_all(&volume, &forged));
    let (data, log) = count_frames(&volume.device);
    assert!(data >= forged.len(), "{data} of {} frames begin a block of data", forged.len());
    assert!(log >= forged.len() / 2, "{log} of {} frames lie in records of the log", forged.len());
    let durable = volume.device.commands();
    // More of the same, of which a crash may leave any part.
    let more = volume.file(ROOT, "more");
    volume.write(&more, 0, &forged.concat());
    volume.fs.fsync(&more, false).unwrap();

    let mut states = 0;
    for command in durable..=volume.device.commands() {
        for plan in volume.device.plans_at(command) {
            let device = Arc::new(volume.device.image_at(command, &plan));
            // Mounted twice: the first mount writes a seal and a checkpoint after the records that it accepts.
            for _ in 0..2 {
                let clock = Arc::new(ManualClock::at(Timestamp(0)));
                let fs = mount(&device, &clock, false);
                for (name, bytes) in &files {
                    let found = file_contents(&fs, name);
                    assert!(found.as_ref() == Some(bytes), "command {command}, {plan:?}: {name} is another");
                }
                Volume { device: Arc::clone(&device), clock, fs }.settle_and_check();
            }
            states += 1;
        }
    }
    assert!(states > 10, "{states} states were looked at");
}

/// The forgery is valid: in the log itself it is accepted, and every file is gone.
#[test]
fn the_same_blocks_in_the_log_would_count() {
    for spec in [Spec::new(4096, 40, 256), Spec::new(512, 40, 2048)] {
        let volume = with_victims(spec);
        let future = future(&volume);
        let device = Arc::new(volume.device.image(&CrashPlan::KeepAll));
        for block in &future {
            assert_eq!(device.append(block.zone, &block.bytes).unwrap(), block.block);
        }
        device.flush().unwrap();
        let fs = mount(&device, &volume.clock, false);
        assert!(VICTIMS.iter().all(|name| file_contents(&fs, name).is_none()));
    }
}

#[test]
fn a_log_forged_in_files_counts_for_nothing() {
    story(Spec::new(4096, 40, 256));
}

/// With such small blocks, whole blocks of the forged log are in records of the real one.
#[test]
fn a_log_forged_in_small_blocks_counts_for_nothing() {
    story(Spec::new(512, 40, 2048));
}
