//! Damage to every copy of the header and of the tables, in all combinations; every moment of the writes that repair
//! them; and volumes without an end copy.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::super::format::{
    END_COPY_UNIT, bytes_with_end_copy, decode_header, encode_header, end_copy_place,
};
use super::super::{FileError, FileOptions, OpenMode};
use super::*;
use crate::engine::HostChange;
use crate::format::{Role, ZoneIdentity, checksum};
use crate::{Device, FsId, Leases, Life, Traffic, ZoneId, ZoneState};

const FS_ID: FsId = FsId([9; 16]);
/// The zones that are written, and their roles. The first must be written so that the header can be derived.
const WRITTEN: [(u32, Role); 3] = [(0, Role::Log), (4, Role::Metadata), (5, Role::Data)];
const SECTOR: usize = 512;
const RECORDS: [MetadataPart; 5] = [
    MetadataPart::FirstHeader,
    MetadataPart::SecondHeader,
    MetadataPart::EndHeader,
    MetadataPart::FirstTable,
    MetadataPart::SecondTable,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Zeros,
    Noise,
    /// One bit; in a table, one in the state of one zone.
    Flip,
}

/// A volume in a file, and its undamaged contents.
struct Home {
    _directory: tempfile::TempDir,
    path: PathBuf,
    sound: Vec<u8>,
    layout: Layout,
}

/// The size of the smallest volumes and a little more.
fn size(block_size: u32) -> u64 {
    16 * (u64::from(block_size) * 64).max(256 << 10) + (1 << 20)
}

fn options(block_size: u32) -> FileOptions {
    FileOptions { size: Some(size(block_size)), block_size, fs_id: FS_ID, ..FileOptions::default() }
}

impl Home {
    fn new(block_size: u32) -> Home {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let path = directory.path().join("volume");
        let device = FileDevice::create(&path, &options(block_size)).unwrap();
        Home::filled(directory, path, device)
    }

    /// A volume of a release without end copies. With `behind` bytes behind its last zone.
    fn without_end_copy(block_size: u32, behind: u64) -> Home {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let path = directory.path().join("volume");
        let layout = options(block_size).layout_without_end_copy(size(block_size)).unwrap();
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(layout.file_bytes() + behind).unwrap();
        for page in Slots::new(FS_ID, layout.clone(), true).take_changed() {
            file.write_all_at(&page.bytes, page.offset).unwrap();
        }
        let header = encode_header(FS_ID, &layout);
        START_COPIES.iter().for_each(|&offset| file.write_all_at(&header, offset).unwrap());
        // The zones are written without opening the volume for writing, which would add the copy.
        for (zone, role) in WRITTEN {
            let zone = ZoneId(zone);
            let identity = ZoneIdentity { fs_id: FS_ID, zone, life: Life(1), role };
            let block = crate::format::encode_header(&identity, &layout.geometry);
            file.write_all_at(&block, layout.offset(zone, 0)).unwrap();
            let info =
                crate::ZoneInfo { state: ZoneState::Full, capacity: layout.capacity(zone), pointer: 0 };
            let info = crate::ZoneInfo { pointer: info.capacity, ..info };
            for generation in [2, 3] {
                let recorded = super::super::format::Recorded { generation, info, is_discarded: false };
                let slot = super::super::format::encode_slot(FS_ID, zone, &recorded);
                let at =
                    layout.table_offset((generation % 2) as usize) + u64::from(zone.0) * slot.len() as u64;
                file.write_all_at(&slot, at).unwrap();
            }
        }
        let sound = std::fs::read(&path).unwrap();
        Home { _directory: directory, path, sound, layout }
    }

    fn filled(directory: tempfile::TempDir, path: PathBuf, device: FileDevice) -> Home {
        let layout = device.layout.clone();
        let device: std::sync::Arc<dyn Device> = std::sync::Arc::new(device);
        let leases =
            Leases::new(std::sync::Arc::clone(&device), FS_ID, std::sync::Arc::new(Traffic::default()));
        for (zone, role) in WRITTEN {
            drop(leases.begin(ZoneId(zone), Life(1), role).unwrap());
        }
        device.flush().unwrap();
        drop((leases, device));
        let sound = std::fs::read(&path).unwrap();
        Home { _directory: directory, path, sound, layout }
    }

    fn restore(&self) {
        write_sparse(&self.path, &self.sound);
    }

    fn put(&self, offset: u64, bytes: &[u8]) {
        put(&self.path, offset, bytes);
    }

    fn damage(&self, record: MetadataPart, how: Damage) {
        let (offset, length) = self.place(record);
        match how {
            Damage::Zeros => self.put(offset, &vec![0; length]),
            Damage::Noise => self.put(offset, &vec![0xa5; length]),
            Damage::Flip => self.put(offset + 60, &[self.sound[offset as usize + 60] ^ 4]),
        }
    }

    fn place(&self, record: MetadataPart) -> (u64, usize) {
        match record {
            MetadataPart::FirstHeader => (0, HEADER_BYTES),
            MetadataPart::SecondHeader => (4096, HEADER_BYTES),
            MetadataPart::EndHeader => (self.layout.end_copy.unwrap(), HEADER_BYTES),
            MetadataPart::FirstTable => (self.layout.table_offset(0), self.layout.table_bytes()),
            MetadataPart::SecondTable => (self.layout.table_offset(1), self.layout.table_bytes()),
        }
    }

    fn open(&self, mode: OpenMode) -> Result<FileDevice, FileError> {
        FileDevice::open(&self.path, mode)
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }
}

/// Creates a file with these contents, with holes for zeros.
fn write_sparse(path: &Path, bytes: &[u8]) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(0).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    let chunks = (0..).step_by(4096).zip(bytes.chunks(4096));
    for (offset, chunk) in chunks.filter(|(_, chunk)| *chunk != &[0; 4096][..chunk.len()]) {
        file.write_all_at(chunk, offset).unwrap();
    }
}

fn put(path: &Path, offset: u64, bytes: &[u8]) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

fn damaged(device: &FileDevice) -> Vec<MetadataPart> {
    let copies = device.verify_device_metadata();
    assert_eq!(copies.len(), RECORDS.len());
    copies.iter().filter(|copy| copy.damage().is_some()).map(|copy| copy.record).collect()
}

/// Checks that the volume has its id and that its data can be read.
fn holds_what_was_written(device: &FileDevice, layout: &Layout) {
    assert_eq!(device.fs_id(), FS_ID);
    assert_eq!(device.geometry(), &layout.geometry);
    assert_eq!(
        (device.layout.zone_size, device.layout.last_zone_blocks),
        (layout.zone_size, layout.last_zone_blocks)
    );
    for (zone, role) in WRITTEN {
        let mut block = vec![0; layout.geometry.block_size as usize];
        device.read(ZoneId(zone), 0, &mut block).unwrap();
        let (identity, _) = crate::format::decode_header(&block).unwrap();
        assert_eq!((identity.fs_id, identity.zone, identity.role), (FS_ID, ZoneId(zone), role));
    }
}

/// Opens it for writing, as a mount does, and checks that everything is intact afterwards.
fn is_repaired(home: &Home, story: &str) {
    let device = home.open(OpenMode::ReadWrite).unwrap_or_else(|error| panic!("{story}: {error}"));
    holds_what_was_written(&device, &home.layout);
    device.flush().unwrap();
    drop(device);
    let device = home.open(OpenMode::ReadOnly).unwrap();
    assert_eq!(damaged(&device), [], "{story}");
    let end = device.layout.end_copy.expect("there is one");
    let file = std::fs::File::open(&home.path).unwrap();
    let copies = [0, 4096, end].map(|offset| {
        let mut copy = vec![0; HEADER_BYTES];
        file.read_exact_at(&mut copy, offset).unwrap();
        copy
    });
    assert!(copies[0] == copies[1] && copies[1] == copies[2], "{story}");
    assert!(device.device_metadata_copies().iter().all(|copy| copy.state == CopyState::Whole), "{story}");
}

/// The only headers were in 8 KiB at the start of a volume. After an accidental partition table, neither mount nor
/// check nor salvage could access any file.
#[test]
fn any_copies_may_be_lost_in_any_combination() {
    for block_size in [4096, 16384] {
        let home = Home::new(block_size);
        for how in [Damage::Zeros, Damage::Noise, Damage::Flip] {
            for chosen in 1..1_u32 << RECORDS.len() {
                let lost: Vec<MetadataPart> =
                    RECORDS.into_iter().filter(|record| chosen >> *record as u32 & 1 == 1).collect();
                home.restore();
                lost.iter().for_each(|record| home.damage(*record, how));
                survives(&home, &lost, how);
            }
        }
    }
}

fn survives(home: &Home, lost: &[MetadataPart], how: Damage) {
    let story = format!("{lost:?} {how:?}");
    let before = home.bytes();
    let has = |record: MetadataPart| !lost.contains(&record);
    let has_start = has(MetadataPart::FirstHeader) || has(MetadataPart::SecondHeader);
    let has_header = has_start || has(MetadataPart::EndHeader);
    match home.open(OpenMode::ReadOnly) {
        Ok(device) => {
            assert!(has_header, "{story}");
            assert_eq!(damaged(&device), lost, "{story}");
            holds_what_was_written(&device, &home.layout);
        }
        Err(error) => {
            assert!(!has_header && matches!(error, FileError::Damaged { .. }), "{story}: {error}");
            let said = error.to_string();
            assert!(
                said.contains("check --repair") && said.contains("salvage") && !said.contains("mkfs"),
                "{said}"
            );
            let device = FileDevice::open_by_zones(&home.path, None, &mut |_, _| ()).unwrap();
            holds_what_was_written(&device, &home.layout);
        }
    }
    assert!(home.bytes() == before, "{story}: reading changes nothing");
    let has_states = has(MetadataPart::FirstTable) || has(MetadataPart::SecondTable) || how == Damage::Flip;
    let may_be_mounted = has_start || (has_header && has_states);
    if !may_be_mounted {
        let error = home.open(OpenMode::ReadWrite).err().unwrap();
        let is_expected = match has_header {
            true => matches!(error, FileError::Overwritten { .. }),
            false => matches!(error, FileError::Damaged { .. }),
        };
        assert!(is_expected && home.bytes() == before, "{story}: {error}");
        let restored = FileDevice::restore_header(&home.path, false, &mut |_, _| ()).unwrap().unwrap();
        assert_eq!((restored.fs_id, restored.zones.is_none()), (FS_ID, has_header), "{story}");
    }
    is_repaired(home, &story);
    if !has_header && how == Damage::Noise {
        // It is not known any more that Polder may overwrite the noise near the end.
        return;
    }
    let (now, place) = (home.bytes(), home.layout.end_copy.unwrap() as usize);
    for offset in [0, 4096, place] {
        assert!(
            now[offset..][..HEADER_BYTES] == home.sound[offset..][..HEADER_BYTES],
            "{story}: as it was made"
        );
    }
}

#[test]
fn every_flipped_bit_in_a_copy_of_the_header_is_reported_and_repaired() {
    let home = Home::new(4096);
    for record in &RECORDS[..3] {
        let offset = home.place(*record).0;
        for byte in (0..128).chain([200, HEADER_BYTES as u64 - 1]) {
            home.restore();
            let bit = 1 << (byte % 8);
            home.put(offset + byte, &[home.sound[(offset + byte) as usize] ^ bit]);
            assert_eq!(damaged(&home.open(OpenMode::ReadOnly).unwrap()), [*record], "byte {byte}");
            let device = home.open(OpenMode::ReadWrite).unwrap();
            let repaired: Vec<MetadataPart> = device.repaired().iter().map(|copy| copy.record).collect();
            assert_eq!(repaired, [*record]);
            drop(device);
            assert!(home.bytes() == home.sound, "byte {byte} of {record:?}");
        }
    }
}

#[test]
fn every_flipped_bit_in_a_state_of_a_zone_is_reported_and_repaired() {
    let home = Home::new(4096);
    for record in &RECORDS[3..] {
        let offset = home.place(*record).0;
        for byte in 0..2 * 32 {
            home.restore();
            home.put(offset + byte, &[home.sound[(offset + byte) as usize] ^ 0x10]);
            assert_eq!(damaged(&home.open(OpenMode::ReadOnly).unwrap()), [*record], "byte {byte}");
            is_repaired(&home, &format!("byte {byte} of {record:?}"));
        }
    }
}

/// The writes of a process that opens the volume, and the length of the file afterwards.
fn writes_of_opening(home: &Home) -> (Vec<HostChange>, usize) {
    let device = home.open(OpenMode::ReadWrite).unwrap();
    device.engine.forbid_rings();
    device.flush().unwrap();
    let seen = device.engine.recorder.seen();
    drop(device);
    (seen, home.bytes().len())
}

/// Power losses at every moment of an open that repairs, and in every write of it: behind each sector, and with each
/// sector missing. The volume is always the same, and the next open completes the repair.
fn power_cuts(home: &Home, before: &[u8], story: &str) -> usize {
    let (seen, length) = writes_of_opening(home);
    let mut synced = before.to_vec();
    let mut window: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut states = 0;
    for change in seen {
        match change {
            HostChange::Sync => {
                window.drain(..).for_each(|(offset, bytes)| apply(&mut synced, offset, &bytes, |_| true))
            }
            HostChange::Write { offset, bytes } => {
                let sectors = bytes.len() / SECTOR;
                window.push((offset, bytes));
                for cut in 0..=sectors {
                    states += cut_at(home, &synced, &window, cut, length, story);
                }
            }
            HostChange::Punch { .. } => panic!("nothing is discarded here"),
        }
    }
    states
}

/// The writes since the last sync reach the disk up to a sector, or all of them except one sector of each.
fn cut_at(
    home: &Home,
    synced: &[u8],
    window: &[(u64, Vec<u8>)],
    cut: usize,
    length: usize,
    story: &str,
) -> usize {
    let keeps: [&dyn Fn(usize) -> bool; 2] = [&|sector| sector < cut, &|sector| sector != cut];
    // A few cases with one missing sector are enough.
    let keeps = &keeps[..if cut < 2 { 2 } else { 1 }];
    for keeps in keeps {
        let mut file = synced.to_vec();
        for (offset, bytes) in window {
            apply(&mut file, *offset, bytes, keeps);
        }
        is_found_after_cut(home, file, length, &format!("{story}, cut {cut}"));
    }
    keeps.len()
}

fn apply(file: &mut Vec<u8>, offset: u64, bytes: &[u8], keeps: impl Fn(usize) -> bool) {
    let end = offset as usize + bytes.len();
    file.resize(file.len().max(end), 0);
    for (sector, bytes) in bytes.chunks(SECTOR).enumerate().filter(|(sector, _)| keeps(*sector)) {
        file[offset as usize + sector * SECTOR..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// The new length of an extended file may be durable or not.
fn is_found_after_cut(home: &Home, mut file: Vec<u8>, length: usize, story: &str) {
    file.resize(file.len().max(length), 0);
    write_sparse(&home.path, &file);
    let device = home.open(OpenMode::ReadOnly).unwrap_or_else(|error| panic!("{story}: {error}"));
    holds_what_was_written(&device, &home.layout);
    drop(device);
    is_repaired(home, story);
}

#[test]
fn a_power_loss_in_any_write_of_a_repair_loses_nothing() {
    let mut states = 0;
    for block_size in [512, 4096, 16384] {
        let home = Home::new(block_size);
        for chosen in 1..1_u32 << RECORDS.len() {
            let lost: Vec<MetadataPart> =
                RECORDS.into_iter().filter(|record| chosen >> *record as u32 & 1 == 1).collect();
            if block_size != 4096 && !chosen.is_power_of_two() && chosen != 3 {
                continue;
            }
            let is_opened = chosen & 3 != 3 || chosen & 7 == 3 && chosen & 24 != 24;
            // In the large block with both copies at the start, a good copy is overwritten with itself. If no other
            // copy is good, the block is written atomically, as a device does.
            let is_alone = block_size > 4096 && chosen & 4 == 4 && chosen & 3 != 0;
            if !is_opened || is_alone {
                continue;
            }
            home.restore();
            lost.iter().for_each(|record| home.damage(*record, Damage::Zeros));
            let before = home.bytes();
            states += power_cuts(&home, &before, &format!("blocks of {block_size}, {lost:?}"));
        }
    }
    println!("{states} states");
    assert!(states > 800, "{states}");
}

#[test]
fn a_power_loss_while_the_end_copy_is_added_loses_nothing() {
    let mut states = 0;
    for block_size in [512, 4096, 16384] {
        for behind in [0, 1000, bytes_behind(block_size), bytes_behind(block_size) + (1 << 20)] {
            let home = Home::without_end_copy(block_size, behind);
            let sound = home.sound.clone();
            states += power_cuts(&home, &sound, &format!("blocks of {block_size}, {behind} bytes behind"));
        }
    }
    println!("{states} states");
    assert!(states > 200, "{states}");
}

/// This number of bytes behind the last zone is enough.
fn bytes_behind(block_size: u32) -> u64 {
    let layout = options(block_size).layout_without_end_copy(size(block_size)).unwrap();
    bytes_with_end_copy(layout.file_bytes()) - layout.file_bytes()
}

#[test]
fn a_volume_without_an_end_copy_gets_one_when_it_is_first_opened_for_writing() {
    for behind in [0, 5, bytes_behind(4096), bytes_behind(4096) + 12345] {
        let home = Home::without_end_copy(4096, behind);
        let device = home.open(OpenMode::ReadOnly).unwrap();
        assert_eq!(damaged(&device), [], "a volume of an earlier release is sound");
        let end = &device.device_metadata_copies()[MetadataPart::EndHeader as usize];
        assert!(matches!(end.state, CopyState::Absent(why) if why.contains("next mount")), "{end:?}");
        drop(device);
        assert!(home.bytes() == home.sound);
        is_repaired(&home, "added");
        let (now, enough) = (home.bytes(), behind >= bytes_behind(4096));
        assert_eq!(now.len() == home.sound.len(), enough, "only a file without space is extended");
        let place = end_copy_place(now.len() as u64).unwrap();
        let (fs_id, layout, _) = decode_header(&now[place as usize..][..HEADER_BYTES]).unwrap();
        assert_eq!((fs_id, layout.end_copy), (FS_ID, Some(place)), "its place follows from the length");
        assert!(now.len() as u64 - place >= 2 * END_COPY_UNIT, "and not at the very end");
        let (seen, _) = writes_of_opening(&home);
        assert!(
            seen.iter().all(|change| matches!(change, HostChange::Sync)),
            "the next opening has nothing to do"
        );
    }
}

#[test]
fn an_end_copy_overwrites_no_foreign_data() {
    let home = Home::without_end_copy(4096, bytes_behind(4096));
    let place = end_copy_place(home.sound.len() as u64).unwrap();
    home.put(place + 4000, &[1]);
    let before = home.bytes();
    let (file, bytes) = (std::fs::File::open(&home.path).unwrap(), before.len() as u64);
    let mut headers = Headers::read(&file, bytes).unwrap();
    assert!(
        matches!(headers.place_end_copy(&file, bytes, false), EndPlace::Nowhere(why) if why.contains("has other data"))
    );
    // A file is extended.
    is_repaired(&home, "behind the foreign data");
    let now = home.bytes();
    assert!(now.len() > before.len() && now[8192..before.len()] == before[8192..]);
    // An old copy of a header of Polder may be overwritten.
    home.restore();
    home.put(place, &encode_header(FsId([1; 16]), &home.layout));
    is_repaired(&home, "over an old copy");
    assert_eq!(home.bytes().len(), home.sound.len());
}

#[test]
fn a_disk_without_space_has_no_end_copy() {
    let home = Home::without_end_copy(4096, bytes_behind(4096) - 1);
    let file = std::fs::File::open(&home.path).unwrap();
    let bytes = home.sound.len() as u64;
    let mut headers = Headers::read(&file, bytes).unwrap();
    assert!(
        matches!(headers.place_end_copy(&file, bytes, false), EndPlace::Nowhere(why) if why.contains("no space"))
    );
    assert!(matches!(headers.end, CopyState::Absent(why) if why.contains("no space")));
    let place = end_copy_place(bytes + 1).unwrap();
    home.put(bytes, &[0]);
    assert_eq!(headers.place_end_copy(&file, bytes + 1, false), EndPlace::At(place));
}

/// A file is extended: the copy stays at its place, and the zones lead to it if it is the only one.
#[test]
fn an_extended_file_keeps_its_end_copy() {
    let home = Home::new(4096);
    let file = std::fs::OpenOptions::new().write(true).open(&home.path).unwrap();
    file.set_len(size(4096) + (3 << 20)).unwrap();
    is_repaired(&home, "longer");
    assert_eq!(home.open(OpenMode::ReadOnly).unwrap().layout.end_copy, home.layout.end_copy);
    home.damage(MetadataPart::FirstHeader, Damage::Zeros);
    home.damage(MetadataPart::SecondHeader, Damage::Noise);
    assert!(matches!(home.open(OpenMode::ReadWrite), Err(FileError::Damaged { .. })));
    FileDevice::restore_header(&home.path, false, &mut |_, _| ()).unwrap().unwrap();
    is_repaired(&home, "longer, and without its start");
}

/// A file was truncated behind its zones.
#[test]
fn a_truncated_file_gets_its_end_copy_back() {
    let home = Home::new(4096);
    for bytes in [home.layout.file_bytes(), home.layout.end_copy.unwrap() + 100, size(4096) - 1] {
        home.restore();
        std::fs::OpenOptions::new().write(true).open(&home.path).unwrap().set_len(bytes).unwrap();
        let lost = if bytes == size(4096) - 1 { vec![] } else { vec![MetadataPart::EndHeader] };
        assert_eq!(damaged(&home.open(OpenMode::ReadOnly).unwrap()), lost);
        is_repaired(&home, &format!("{bytes} bytes left"));
    }
}

/// A partition table was created: a mount that wrote the header over it would destroy data that is wanted now.
#[test]
fn an_overwritten_start_is_repaired_only_with_force() {
    let home = Home::new(4096);
    let marks: [(u64, &[u8], &str); 3] =
        [(510, &[0x55, 0xaa], "a partition table"), (512, b"EFI PART", "GPT"), (1080, &[0x53, 0xef], "ext4")];
    for (offset, mark, name) in marks {
        home.restore();
        home.put(offset, mark);
        let before = home.bytes();
        let said = home.open(OpenMode::ReadWrite).err().unwrap().to_string();
        assert!(said.contains(name) && said.contains("check --repair") && !said.contains("mkfs"), "{said}");
        holds_what_was_written(&home.open(OpenMode::ReadOnly).unwrap(), &home.layout);
        let said = FileDevice::restore_header(&home.path, false, &mut |_, _| ()).unwrap_err().to_string();
        assert!(said.contains(name) && said.contains("check --repair --force"), "{said}");
        assert!(home.bytes() == before, "a repair may be for the wrong device");
        let restored = FileDevice::restore_header(&home.path, true, &mut |_, _| ()).unwrap().unwrap();
        assert_eq!((restored.repaired.len(), restored.overwritten.is_some()), (1, true));
        assert!(home.bytes() == home.sound, "{name}");
    }
}

/// Data of another program behind the headers, from the time before the volume, stays there until the log overwrites
/// it.
#[test]
fn a_signature_in_the_first_zone_counts_only_if_no_header_is_left_at_the_start() {
    let home = Home::new(4096);
    let raid_place = (home.sound.len() as u64 - (8 << 10)) / 4096 * 4096;
    let marks: [(u64, &[u8], &str); 4] = [
        (32768, b"JFS1", "JFS"),
        (0x10040, b"_BHRfS_M", "btrfs"),
        (130 << 10, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0], "ZFS"),
        (raid_place, &[0xfc, 0x4e, 0x2b, 0xa9], "MD RAID"),
    ];
    for (offset, mark, name) in marks {
        assert!(offset > home.layout.offset(ZoneId(0), 0));
        home.restore();
        home.put(offset, mark);
        home.damage(MetadataPart::FirstHeader, Damage::Noise);
        is_repaired(&home, name);
        home.damage(MetadataPart::FirstHeader, Damage::Zeros);
        home.damage(MetadataPart::SecondHeader, Damage::Zeros);
        let said = home.open(OpenMode::ReadWrite).err().unwrap().to_string();
        assert!(said.contains(name) && said.contains("check --repair --force"), "{said}");
        FileDevice::restore_header(&home.path, true, &mut |_, _| ()).unwrap().unwrap();
        is_repaired(&home, name);
    }
}

/// Fields of a later release in the header stay.
#[test]
fn adding_the_end_copy_keeps_unknown_fields() {
    let home = Home::without_end_copy(4096, 0);
    let mut header = encode_header(FS_ID, &home.layout);
    (header[33], header[HEADER_BYTES - 1]) = (0x80, 7);
    header[8..12].fill(0);
    let sum = checksum(&[&header]);
    header[8..12].copy_from_slice(&sum.to_le_bytes());
    START_COPIES.iter().for_each(|&offset| home.put(offset, &header));
    is_repaired(&home, "with features of a later release");
    let now = home.bytes();
    assert_eq!((now[32], now[33], now[HEADER_BYTES - 1]), (1, 0x80, 7));
}
