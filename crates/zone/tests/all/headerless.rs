//! Volumes in files without any copy of the header: which shapes their zones determine, and when they are not enough.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::zone::file::{FileContents, FileDevice, FileError, FileOptions, OpenMode};
use crate::zone::format::{Role, ZoneIdentity, encode_header};
use crate::zone::{Device, FsId, Geometry, Leases, Life, Traffic, ZoneId};

const FS_ID: FsId = FsId([9; 16]);
const OTHER: FsId = FsId([8; 16]);
const SIZE: u64 = 40 << 20;

/// A volume, its written zones, and its shape.
struct Home {
    _directory: tempfile::TempDir,
    path: PathBuf,
    geometry: Geometry,
    capacities: Vec<u32>,
    /// The offset of the first zone.
    first: u64,
    zone_bytes: u64,
}

fn options() -> FileOptions {
    FileOptions { size: Some(SIZE), fs_id: FS_ID, ..FileOptions::default() }
}

/// Zones of the log and others.
const USUAL: [(u32, Role); 4] = [(0, Role::Log), (1, Role::Log), (4, Role::Metadata), (6, Role::Data)];

impl Home {
    fn new(options: &FileOptions, written: &[(u32, Role)]) -> Home {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let path = directory.path().join("volume");
        let device: Arc<dyn Device> = Arc::new(FileDevice::create(&path, options).unwrap());
        let leases = Leases::new(Arc::clone(&device), options.fs_id, Arc::new(Traffic::default()));
        written.iter().for_each(|(zone, role)| drop(leases.begin(ZoneId(*zone), Life(1), *role).unwrap()));
        device.flush().unwrap();
        let geometry = device.geometry().clone();
        let capacities = device.report().unwrap().iter().map(|zone| zone.capacity).collect();
        drop((leases, device));
        let page = u64::from(geometry.block_size.max(4096));
        let first =
            8192_u64.next_multiple_of(page) + 2 * (u64::from(geometry.zones) * 32).next_multiple_of(page);
        let zone_bytes =
            options.zone_bytes.unwrap_or(u64::from(geometry.zone_blocks) * u64::from(geometry.block_size));
        Home { _directory: directory, path, geometry, capacities, first, zone_bytes }
    }

    /// Creates the other volume over this one, as on a disk without discards: the parts of this volume that the other
    /// does not write stay.
    fn put_over(&self, other: &Home) {
        let bytes = std::fs::read(&other.path).unwrap();
        let file = OpenOptions::new().write(true).open(&self.path).unwrap();
        let block_size = other.geometry.block_size as usize;
        for (offset, block) in (0..).step_by(block_size).zip(bytes.chunks(block_size)) {
            if offset < other.first || block.iter().any(|&byte| byte != 0) {
                file.write_all_at(block, offset).unwrap();
            }
        }
    }

    /// The offset of a zone.
    fn offset(&self, zone: u32) -> u64 {
        self.first + u64::from(zone) * self.zone_bytes
    }

    /// Erases the headers and everything else before the zones.
    fn lose_headers(&self) {
        put(&self.path, 0, &vec![0xa5; self.first as usize]);
        put(&self.path, SIZE / 65536 * 65536 - 131_072, &[0xa5; 4096]);
    }

    /// Writes the header of a zone of some volume at the place of a zone of this one.
    fn put_header(&self, fs_id: FsId, zone: u32, role: Role) {
        let identity = ZoneIdentity { fs_id, zone: ZoneId(zone), life: Life(1), role };
        put(&self.path, self.offset(zone), &encode_header(&identity, &self.geometry));
    }

    fn restore(&self) -> Result<FsId, FileError> {
        FileDevice::restore_header(&self.path, false, &mut |_, _| ()).map(|restored| restored.unwrap().fs_id)
    }

    fn refusal(&self) -> String {
        let before = std::fs::read(&self.path).unwrap();
        let said = self.restore().unwrap_err().to_string();
        assert!(std::fs::read(&self.path).unwrap() == before, "a refusal changes nothing");
        assert!(said.contains("salvage") && !said.contains("mkfs"), "{said}");
        said
    }
}

fn put(path: &Path, offset: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

#[test]
fn the_shape_of_every_volume_is_found_from_its_zones() {
    let usual = options();
    for options in [
        usual.clone(),
        FileOptions { zone_bytes: Some(1_081_344), ..usual.clone() },
        FileOptions { zone_bytes: Some(1 << 20), zone_capacity: Some(700 << 10), ..usual.clone() },
        FileOptions { block_size: 512, zone_bytes: Some(700 * 512), ..usual.clone() },
        FileOptions { block_size: 16384, max_open: 7, max_active: 11, ..usual.clone() },
        FileOptions { size: Some(SIZE + 1000), zone_bytes: Some(1 << 20), ..usual.clone() },
    ] {
        let home = Home::new(&options, &USUAL);
        home.lose_headers();
        let story = format!("{options:?}");
        let device = FileDevice::open_by_zones(&home.path, None, &mut |_, _| ()).expect(&story);
        assert_eq!((device.geometry(), device.fs_id()), (&home.geometry, FS_ID), "{story}");
        drop(device);
        assert_eq!(home.restore().expect(&story), FS_ID);
        let device = FileDevice::open(&home.path, OpenMode::ReadWrite).expect(&story);
        assert_eq!(device.geometry(), &home.geometry);
        let capacities: Vec<u32> = device.report().unwrap().iter().map(|zone| zone.capacity).collect();
        assert_eq!(capacities, home.capacities, "{story}");
    }
}

/// The last zone is shorter and in use: its own header contains its capacity.
#[test]
fn the_header_of_the_last_zone_determines_its_capacity() {
    let last = Home::new(&options(), &USUAL).geometry.zones - 1;
    let home = Home::new(&options(), &[&USUAL[..], &[(last, Role::Data)]].concat());
    assert!(home.capacities[last as usize] < home.geometry.zone_blocks);
    home.lose_headers();
    home.restore().unwrap();
    let device = crate::reopen(|| FileDevice::open(&home.path, OpenMode::ReadWrite));
    assert_eq!(device.report().unwrap()[last as usize].capacity, home.capacities[last as usize]);
}

/// The start has no information about zones: their headers are found further on, whatever their size is.
#[test]
fn zones_are_found_behind_megabytes_of_other_data() {
    for zone_bytes in [None, Some(1_081_344)] {
        let home = Home::new(&FileOptions { zone_bytes, ..options() }, &USUAL);
        home.lose_headers();
        put(&home.path, 0, &vec![0x77; (home.offset(1) - 4096) as usize]);
        assert_eq!(home.restore().unwrap(), FS_ID);
        assert_eq!(
            crate::reopen(|| FileDevice::open(&home.path, OpenMode::ReadWrite)).geometry(),
            &home.geometry
        );
    }
}

#[test]
fn one_zone_is_enough_for_reading_only() {
    let home = Home::new(&options(), &[(4, Role::Metadata)]);
    home.lose_headers();
    let device = FileDevice::open_by_zones(&home.path, None, &mut |_, _| ()).unwrap();
    assert_eq!((device.geometry(), device.fs_id()), (&home.geometry, FS_ID));
    drop(device);
    assert!(home.refusal().contains("only one zone has a valid header"));
}

#[test]
fn no_header_is_restored_without_a_log_zone() {
    let home = Home::new(&options(), &USUAL[2..]);
    home.lose_headers();
    assert!(home.refusal().contains("log zones"));
}

/// A disk with a volume created over another one: its zones have the contents of the old volume until they are used.
#[test]
fn the_log_distinguishes_a_volume_from_its_predecessor() {
    let home = Home::new(&options(), &USUAL);
    (7..20).for_each(|zone| home.put_header(OTHER, zone, Role::Data));
    home.lose_headers();
    assert_eq!(home.restore().unwrap(), FS_ID);
}

#[test]
fn two_volumes_with_a_log_are_reported_and_not_changed() {
    let home = Home::new(&options(), &USUAL);
    (7..9).for_each(|zone| home.put_header(OTHER, zone, Role::Data));
    home.put_header(OTHER, 1, Role::Log);
    home.lose_headers();
    let said = home.refusal();
    assert!(
        said.contains("several Polder volumes") && said.contains("09090909-") && said.contains("08080808-"),
        "{said}"
    );
}

/// The volume contains an image of another volume, whose zones have headers like its own.
#[test]
fn the_image_of_a_volume_in_a_volume_is_ignored() {
    let small = Home::new(&FileOptions { size: Some(6 << 20), fs_id: OTHER, ..options() }, &USUAL);
    let inner = std::fs::read(&small.path).unwrap();
    let home = Home::new(
        &FileOptions { zone_bytes: Some(2 << 20), ..options() },
        &[(12, Role::Log), (13, Role::Data)],
    );
    home.lose_headers();
    put(&home.path, home.offset(2) + 4096, &inner);
    let device = FileDevice::open_by_zones(&home.path, None, &mut |_, _| ()).unwrap();
    assert_eq!((device.geometry(), device.fs_id()), (&home.geometry, FS_ID));
}

/// The shapes of the volumes in tests with several: the sizes of zones and of blocks. The first zones of some begin
/// at the same place.
const SHAPES: [(Option<u64>, u32); 7] = [
    (None, 4096),
    (Some(256 << 10), 4096),
    (Some(1 << 20), 4096),
    (Some(1_081_344), 4096),
    (Some(260 << 10), 512),
    (Some(1 << 20), 512),
    (Some(2 << 20), 16384),
];

/// Two volumes of different shapes, one created over the other: all zones of the older one that fit have headers.
fn one_over_another(
    older: (Option<u64>, u32),
    newer: (Option<u64>, u32),
    written: &[(u32, Role)],
) -> [Home; 2] {
    let open = FileOptions { max_open: 200, max_active: 200, ..options() };
    let shape =
        |(zone_bytes, block_size), fs_id| FileOptions { zone_bytes, block_size, fs_id, ..open.clone() };
    let log = (0..4).map(|zone| (zone, Role::Log));
    let older = shape(older, OTHER);
    let zones = Home::new(&older, &[]).geometry.zones;
    let all: Vec<_> = log.chain((4..zones - 1).map(|zone| (zone, Role::Data))).collect();
    let (older, newer) = (Home::new(&older, &all), Home::new(&shape(newer, FS_ID), written));
    older.put_over(&newer);
    [older, newer]
}

/// The result of creating a volume on a disk, and of later writes.
const ON_DISK: [(u32, Role); 6] =
    [(0, Role::Log), (1, Role::Log), (2, Role::Log), (3, Role::Log), (4, Role::Metadata), (6, Role::Data)];

/// `check --repair` restored the headers of the previous volume of the disk, and `salvage` saved its files: the first
/// shape that two headers agreed on was used.
#[test]
fn the_newer_of_two_volumes_of_different_shapes_is_found() {
    let pairs = SHAPES.iter().flat_map(|older| SHAPES.iter().map(move |newer| (*older, *newer)));
    let mut found = 0;
    for (older, newer) in pairs.filter(|(older, newer)| older != newer) {
        let story = format!("{newer:?} over {older:?}");
        let [disk, present] = one_over_another(older, newer, &ON_DISK);
        let whole = std::fs::read(&disk.path).unwrap();
        for damage_end in [8192, present.first] {
            std::fs::write(&disk.path, &whole).unwrap();
            put(&disk.path, 0, &vec![0; damage_end as usize]);
            put(&disk.path, SIZE / 65536 * 65536 - 131_072, &[0; 4096]);
            let opened = FileDevice::open_by_zones(&disk.path, None, &mut |_, _| ());
            // Without the tables it is not certain that the first zone of the older volume was before that of the
            // newer.
            let may_be_uncertain = damage_end > 8192 && disk.first < present.first || older.1 != newer.1;
            if may_be_uncertain && matches!(opened, Err(FileError::Several { .. })) {
                assert!(disk.refusal().contains("several Polder volumes"), "{story}");
                continue;
            }
            let device = opened.expect(&story);
            assert_eq!((device.fs_id(), device.geometry()), (FS_ID, &present.geometry), "{story}");
            drop(device);
            assert_eq!(disk.restore().expect(&story), FS_ID, "{story}");
            let device = crate::reopen(|| FileDevice::open(&disk.path, OpenMode::ReadWrite));
            assert_eq!((device.fs_id(), device.geometry()), (FS_ID, &present.geometry), "{story}");
            found += 1;
        }
    }
    println!("{found} of 84");
    assert!(found >= 60, "{found}");
}

/// If the first zones of both volumes are lost, the other zones may decide: a zone of the newer volume may begin at
/// the place of a log zone of the older one. If none does, each volume may lie within the other.
#[test]
fn without_first_zones_other_zones_distinguish_two_shapes_or_none_do() {
    let lose = |disk: &Home| {
        put(&disk.path, 0, &[0; 64 << 10]);
        put(&disk.path, SIZE / 65536 * 65536 - 131_072, &[0; 4096]);
    };
    for (older, newer) in [(SHAPES[2], SHAPES[0]), (SHAPES[0], SHAPES[2])] {
        let [disk, present] = one_over_another(older, newer, &ON_DISK);
        lose(&disk);
        assert_eq!(disk.restore().unwrap(), FS_ID, "{newer:?} over {older:?}");
        let device = crate::reopen(|| FileDevice::open(&disk.path, OpenMode::ReadWrite));
        assert_eq!(device.geometry(), &present.geometry);
    }
    for (older, newer) in [(SHAPES[1], SHAPES[3]), (SHAPES[3], SHAPES[1]), (SHAPES[2], SHAPES[3])] {
        let [disk, present] = one_over_another(older, newer, &ON_DISK);
        lose(&disk);
        let said = disk.refusal();
        assert!(
            said.contains("several Polder volumes")
                && said.contains("09090909-")
                && said.contains("08080808-"),
            "{newer:?} over {older:?}: {said}"
        );
        // For reading, the user chooses a volume.
        let said = FileDevice::open_by_zones(&disk.path, None, &mut |_, _| ()).err().unwrap().to_string();
        assert!(
            said.contains("09090909-") && said.contains("08080808-") && said.contains("--volume"),
            "{said}"
        );
        for wanted in [&disk, &present] {
            let fs_id = if std::ptr::eq(wanted, &disk) { OTHER } else { FS_ID };
            let device = FileDevice::open_by_zones(&disk.path, Some(fs_id), &mut |_, _| ()).unwrap();
            assert_eq!((device.fs_id(), device.geometry()), (fs_id, &wanted.geometry));
        }
        let none = FileDevice::open_by_zones(&disk.path, Some(FsId([1; 16])), &mut |_, _| ());
        assert!(matches!(none, Err(FileError::NoZones(_))));
    }
}

/// Only the first zone of the present volume is left. It does not determine the distance of zones, but it shows that
/// the other volume is older.
#[test]
fn a_first_zone_of_an_unknown_shape_keeps_an_older_volume_from_being_restored() {
    for (older, newer) in [(SHAPES[2], SHAPES[0]), (SHAPES[0], SHAPES[2])] {
        let [disk, _] = one_over_another(older, newer, &ON_DISK[..1]);
        put(&disk.path, 0, &[0; 8192]);
        put(&disk.path, SIZE / 65536 * 65536 - 131_072, &[0; 4096]);
        let said = disk.refusal();
        assert!(said.contains("several Polder volumes") && said.contains("09090909-"), "{said}");
    }
}

/// The device was extended since the volume was created, so that neither its end nor its zones are where they would
/// be in a volume of that length.
#[test]
fn a_volume_without_its_start_is_damaged_on_an_extended_device() {
    let large = |zone_bytes| FileOptions { size: Some(16 << 30), zone_bytes, ..options() };
    let grow =
        |home: &Home, bytes| OpenOptions::new().write(true).open(&home.path).unwrap().set_len(bytes).unwrap();
    for (zone_bytes, written) in [(None, &USUAL), (Some(64 << 20), &USUAL), (Some(512 << 20), &USUAL)] {
        for lost in [8192, 1 << 20] {
            let home = Home::new(&large(zone_bytes), written);
            grow(&home, 20 << 30);
            is_a_damaged_volume(&home, lost);
        }
        // Its log is in its first zone, which is lost, and only one other zone is left.
        let home = Home::new(&large(zone_bytes), &[(4, Role::Metadata)]);
        put(&home.path, (16 << 30) - 131_072, &[0; 4096]);
        grow(&home, (20 << 30) + 12345);
        is_a_damaged_volume(&home, 1 << 20);
        // Only the old end copy.
        let home = Home::new(&large(zone_bytes), &[]);
        grow(&home, 20 << 30);
        is_a_damaged_volume(&home, 8192);
    }
}

/// Zones of an unusual size, of which the second begins far behind the start, and a log that fills the first.
#[test]
fn a_first_zone_in_place_is_a_trace_of_a_volume() {
    for zone_bytes in [80 << 20, 100 << 20] {
        let options = FileOptions { size: Some(4 << 30), zone_bytes: Some(zone_bytes), ..options() };
        let home = Home::new(&options, &USUAL);
        put(&home.path, (4 << 30) - 131_072, &[0; 4096]);
        put(&home.path, home.offset(0) + 4096, &vec![0x77; 70 << 20]);
        is_a_damaged_volume(&home, 8192);
        assert_eq!(home.restore().unwrap(), FS_ID);
        assert_eq!(
            crate::reopen(|| FileDevice::open(&home.path, OpenMode::ReadWrite)).geometry(),
            &home.geometry
        );
    }
}

/// Every command reports it, and none suggests or creates a new volume.
fn is_a_damaged_volume(home: &Home, lost: usize) {
    let story = format!("{:?}, {lost} bytes lost", home.geometry);
    put(&home.path, 0, &vec![0; lost]);
    assert_eq!(FileDevice::probe(&home.path).unwrap(), FileContents::Damaged { what: None }, "{story}");
    let said = FileDevice::open(&home.path, OpenMode::ReadOnly).err().unwrap().to_string();
    assert!(said.contains("a damaged Polder volume") && !said.contains("mkfs"), "{story}: {said}");
    let said =
        FileDevice::create(&home.path, &FileOptions { size: None, ..options() }).err().unwrap().to_string();
    assert!(said.contains("already contains a damaged Polder volume"), "{story}: {said}");
}

/// The disk is given instead of its partition: each header there makes another guess, and all are of one volume.
#[test]
fn a_volume_in_a_partition_is_found_once() {
    let home = Home::new(&FileOptions { zone_bytes: Some(1 << 20), ..options() }, &USUAL);
    let bytes = std::fs::read(&home.path).unwrap();
    put(&home.path, 0, &vec![0; 1 << 20]);
    put(&home.path, 1 << 20, &bytes);
    OpenOptions::new().write(true).open(&home.path).unwrap().set_len(3 * SIZE).unwrap();
    let device = FileDevice::open_by_zones(&home.path, None, &mut |_, _| ()).unwrap();
    assert_eq!(device.fs_id(), FS_ID);
    drop(device);
    assert!(home.refusal().contains("only one zone has a valid header"));
}

#[test]
fn a_volume_without_headers_is_overwritten_only_with_force() {
    let home = Home::new(&options(), &USUAL);
    home.lose_headers();
    put(&home.path, 0, &vec![0; home.first as usize]);
    assert_eq!(FileDevice::probe(&home.path).unwrap(), FileContents::Damaged { what: None });
    let error = FileDevice::create(&home.path, &options()).err().unwrap().to_string();
    assert!(
        error.contains("already contains a damaged Polder volume, which `polder check --repair` may repair"),
        "{error}"
    );
    put(&home.path, 0, b"XFSB");
    let said = FileDevice::open(&home.path, OpenMode::ReadOnly).err().unwrap().to_string();
    assert!(said.contains("its start contains an XFS file system") && said.contains("salvage"), "{said}");
    assert!(home.refusal().contains("its start contains an XFS file system"));
    let restored = FileDevice::restore_header(&home.path, true, &mut |_, _| ()).unwrap().unwrap();
    assert_eq!((restored.fs_id, restored.overwritten), (FS_ID, Some("an XFS file system")));
}

#[test]
fn other_data_is_no_volume() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    for bytes in [vec![0; 3 << 20], vec![0x55; 3 << 20], b"XFSB".repeat(1 << 20), Vec::new()] {
        std::fs::write(&path, &bytes).unwrap();
        let opened = FileDevice::open(&path, OpenMode::ReadWrite);
        assert!(matches!(opened, Err(FileError::Foreign { .. })));
        assert!(matches!(FileDevice::open_by_zones(&path, None, &mut |_, _| ()), Err(FileError::NoZones(_))));
        let restored = FileDevice::restore_header(&path, false, &mut |_, _| ());
        assert!(matches!(restored, Err(FileError::NoZones(_) | FileError::Foreign { .. })));
        assert!(std::fs::read(&path).unwrap() == bytes);
    }
}

/// The search handles any bytes at the place of a zone header.
#[test]
fn arbitrary_bytes_at_the_start_of_zones_are_handled() {
    let mut rng = fastrand::Rng::with_seed(1);
    let home = Home::new(&options(), &USUAL);
    home.lose_headers();
    for _ in 0..300 {
        for zone in [0, 1, 4, 6] {
            home.put_header(FS_ID, zone, Role::Log);
            let mut block = vec![0; 4096];
            let file = OpenOptions::new().read(true).write(true).open(&home.path).unwrap();
            file.read_exact_at(&mut block, home.offset(zone)).unwrap();
            for _ in 0..rng.usize(0..4) {
                block[rng.usize(32..112)] = *rng.choice([0, 1, 0x10, 0x80, 0xff].iter()).unwrap();
            }
            block[8..12].fill(0);
            let sum = crate::zone::format::checksum(&[&block]);
            block[8..12].copy_from_slice(&sum.to_le_bytes());
            file.write_all_at(&block, home.offset(zone)).unwrap();
        }
        if let Ok(device) = FileDevice::open_by_zones(&home.path, None, &mut |_, _| ()) {
            device.report().unwrap();
        }
    }
}
