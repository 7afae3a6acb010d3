//! Power losses of the host at every moment of a random history: any subset of the sectors written since the last
//! sync may be on the disk.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rt::random::Rng;

use super::*;
use crate::engine::HostChange;

const ZONES: u32 = 5;
const SECTOR: usize = 512;

/// What the device guarantees about one zone, and which other states are allowed.
#[derive(Clone, Debug, Default)]
struct Promise {
    /// The tags of the blocks that the last flush made durable.
    durable: Vec<u8>,
    /// Whether it was reset since.
    is_reset: bool,
    /// Whether it was finished in either life.
    is_finished: bool,
    /// The tags of all blocks of the present life.
    now: Vec<u8>,
    /// The largest number of blocks in the life of `durable`.
    blocks_max: usize,
    /// The largest number of blocks in any later life.
    new_blocks_max: usize,
}

/// A device, its commands, and its guarantees at each number of changes that the host has seen.
struct History {
    /// `None` only while another process takes over.
    device: Option<FileDevice>,
    path: PathBuf,
    /// The changes of earlier processes that the host has seen.
    seen: Vec<HostChange>,
    promises: Vec<Promise>,
    marks: Vec<(usize, Vec<Promise>)>,
    next_tag: u8,
}

impl History {
    fn new(path: &Path) -> Self {
        let options = FileOptions { size: Some(5 << 20), ..FileOptions::default() };
        let device = FileDevice::create(path, &options).unwrap();
        let promises = vec![Promise::default(); ZONES as usize];
        History {
            device: Some(device),
            path: path.to_owned(),
            seen: Vec::new(),
            marks: vec![(0, promises.clone())],
            promises,
            next_tag: 1,
        }
    }

    fn step(&mut self, rng: &mut Rng) {
        let zone = rng.u32(0..ZONES);
        match rng.u32(0..14) {
            12 | 13 => while self.device().discard_one_zone() {},
            10 => self.kill(),
            11 => self.break_flush(rng.u32(0..3)),
            0..5 => self.append(zone, rng.usize(1..6)),
            5 => self.batch(rng),
            6 | 7 => self.flush(),
            8 => self.reset(zone),
            _ => self.finish(zone),
        }
        self.mark();
    }

    /// Records the guarantees after a command.
    fn mark(&mut self) {
        let seen_count = self.seen.len() + self.device().engine.recorder.seen_count();
        self.marks.push((seen_count, self.promises.clone()));
    }

    /// All changes that the host has seen, and the guarantees at each time.
    fn end(mut self) -> (Vec<HostChange>, Vec<(usize, Vec<Promise>)>) {
        self.kill();
        (self.seen, self.marks)
    }

    fn tags(&mut self, count: usize) -> Vec<u8> {
        (0..count)
            .map(|_| {
                self.next_tag = self.next_tag % 250 + 1;
                self.next_tag
            })
            .collect()
    }

    fn note(&mut self, zone: u32, tags: &[u8]) {
        let promise = &mut self.promises[zone as usize];
        promise.now.extend_from_slice(tags);
        let most = if promise.is_reset { &mut promise.new_blocks_max } else { &mut promise.blocks_max };
        *most = promise.now.len().max(*most);
    }

    fn append(&mut self, zone: u32, blocks: usize) {
        let tags = self.tags(blocks);
        if self.device().append(ZoneId(zone), &bytes(&tags)).is_ok() {
            self.note(zone, &tags);
        }
    }

    fn batch(&mut self, rng: &mut Rng) {
        let parts: Vec<_> = (0..4).map(|_| (rng.u32(0..ZONES), self.tags(2))).collect();
        let written: Vec<_> = parts.iter().map(|(zone, tags)| (ZoneId(*zone), bytes(tags))).collect();
        let mut batch: Vec<_> =
            written.iter().map(|(zone, from)| Command::Append { zone: *zone, from }).collect();
        let outputs = self.device().run(&mut batch);
        for ((zone, tags), output) in parts.into_iter().zip(outputs) {
            if output.is_ok() {
                self.note(zone, &tags);
            }
        }
    }

    fn flush(&mut self) {
        self.device().flush().unwrap();
        self.promise();
    }

    /// A flush that fails between its writes, so that slots are in the file and not durable; then the process ends.
    fn break_flush(&mut self, successes: u32) {
        // Writes of a batch reach the file even if they are made to fail, and would not be recorded.
        self.device().engine.forbid_rings();
        self.device().engine.recorder.fail_after(Some(successes));
        if self.device().flush().is_ok() {
            self.promise();
        }
        self.kill();
    }

    fn promise(&mut self) {
        let zones = self.device().report().unwrap();
        for (info, promise) in zones.iter().zip(&mut self.promises) {
            promise.durable = promise.now.clone();
            promise.blocks_max = promise.now.len();
            promise.new_blocks_max = 0;
            promise.is_reset = false;
            promise.is_finished = info.state == ZoneState::Full;
        }
    }

    /// Another process takes over; the host keeps running and has all data written to it.
    fn kill(&mut self) {
        self.seen.extend(self.device().engine.recorder.seen());
        self.device = None;
        let device = FileDevice::open(&self.path, OpenMode::ReadWrite).unwrap();
        for (zone, promise) in (0..).map(ZoneId).zip(&mut self.promises) {
            let info = device.report_zone(zone).unwrap();
            promise.now = read_tags(&device, zone, info.pointer as usize);
            let is_old = promise.now.starts_with(&promise.durable);
            promise.is_reset &= !is_old || promise.durable.is_empty();
        }
        self.device = Some(device);
    }

    fn device(&self) -> &FileDevice {
        self.device.as_ref().expect("only kill() takes it out")
    }

    fn reset(&mut self, zone: u32) {
        self.device().reset(ZoneId(zone)).unwrap();
        let promise = &mut self.promises[zone as usize];
        (promise.is_reset, promise.now) = (true, Vec::new());
    }

    fn finish(&mut self, zone: u32) {
        self.device().finish(ZoneId(zone)).unwrap();
        self.promises[zone as usize].is_finished = true;
    }
}

fn bytes(tags: &[u8]) -> Vec<u8> {
    tags.iter().flat_map(|&tag| [tag; 4096]).collect()
}

/// The tags of the first blocks of a zone; 0 for a block that was not written completely.
fn read_tags(device: &FileDevice, zone: ZoneId, count: usize) -> Vec<u8> {
    let mut found = vec![0; count * 4096];
    if count > 0 {
        device.read(zone, 0, &mut found).unwrap();
    }
    let tag = |block: &[u8]| if block.iter().all(|byte| *byte == block[0]) { block[0] } else { 0 };
    found.chunks(4096).map(tag).collect()
}

/// Which sectors that were not yet synced the host has kept.
#[derive(Clone, Copy, Debug)]
enum Kept {
    All,
    Nothing,
    OnlySlots,
    OnlyZones,
    AnySectors,
}

/// Applies a change to the host for the sectors that it keeps.
fn apply(file: &mut [u8], change: &HostChange, mut keeps: impl FnMut(u64) -> bool) {
    let (offset, bytes) = match change {
        HostChange::Sync => return,
        HostChange::Write { offset, bytes } => (*offset, bytes.clone()),
        HostChange::Punch { offset, length } => (*offset, vec![0; *length as usize]),
    };
    for (sector, bytes) in (0..).zip(bytes.chunks(SECTOR)) {
        let offset = offset + sector * SECTOR as u64;
        if keeps(offset) {
            file[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
    }
}

/// The files that the host may have after this synced state and these later changes.
fn files_after(synced: &[u8], window: &[HostChange], zones_offset: u64, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for kept in [Kept::All, Kept::Nothing, Kept::OnlySlots, Kept::OnlyZones, Kept::AnySectors] {
        let mut file = synced.to_vec();
        for change in window {
            apply(&mut file, change, |offset| match kept {
                Kept::All => true,
                Kept::Nothing => false,
                Kept::OnlySlots => offset < zones_offset,
                Kept::OnlyZones => offset >= zones_offset,
                Kept::AnySectors => rng.bool(),
            });
        }
        files.push(file);
        if window.is_empty() {
            break;
        }
    }
    files
}

/// Checks a zone against these guarantees; `next` are the guarantees after the command in progress.
fn check(device: &FileDevice, zone: ZoneId, promise: &Promise, next: &Promise) {
    let info = device.report_zone(zone).unwrap();
    let story = format!("{zone:?} {info:?}, promised {promise:?}, then {next:?}");
    assert!(info.state != ZoneState::Open && info.state != ZoneState::ReadOnly, "{story}");
    assert!(info.state != ZoneState::Full || promise.is_finished || next.is_finished, "{story}");
    let pointer = if info.state == ZoneState::Full { info.capacity } else { info.pointer } as usize;
    let old_blocks_max = promise.blocks_max.max(if next.is_reset { 0 } else { next.now.len() });
    let is_old = pointer >= promise.durable.len()
        && (info.state == ZoneState::Full || pointer <= old_blocks_max)
        && read_tags(device, zone, promise.durable.len()) == promise.durable;
    let may_be_new = promise.is_reset || next.is_reset;
    let new_blocks_max = promise.new_blocks_max.max(next.now.len());
    let is_new = may_be_new && (info.state == ZoneState::Full || pointer <= new_blocks_max);
    assert!(
        is_old || is_new,
        "{story}: found {:?}",
        read_tags(device, zone, promise.durable.len().min(pointer))
    );
}

/// Changes a file with the contents `now` to `wanted`; writes only the differences.
fn change_file(path: &Path, now: &mut Vec<u8>, wanted: Vec<u8>) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    for (index, (now, wanted)) in (0..).zip(now.chunks(4096).zip(wanted.chunks(4096))) {
        if now != wanted {
            file.write_all_at(wanted, index * 4096).unwrap();
        }
    }
    *now = wanted;
}

/// Runs a history, and checks every power loss in it. Returns the number of files checked.
fn power_cuts(live: impl FnOnce(&mut History)) -> usize {
    // In memory if possible: this needs no disk, and thousands of files are read.
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = directory.path().join("volume");
    let mut rng = Rng::with_seed(1);
    let mut history = History::new(&path);
    let (mut synced, mut synced_count) = (std::fs::read(&path).unwrap(), 0);
    live(&mut history);
    let zones_offset = history.device().layout.offset(ZoneId(0), 0);
    let (seen, marks) = history.end();
    let mut on_disk = std::fs::read(&path).unwrap();
    let mut files = BTreeSet::new();
    for n in 0..=seen.len() {
        if n > 0 && matches!(seen[n - 1], HostChange::Sync) {
            seen[synced_count..n].iter().for_each(|change| apply(&mut synced, change, |_| true));
            synced_count = n;
        }
        let before = marks.partition_point(|(count, _)| *count <= n) - 1;
        let (promises, next) = (&marks[before].1, &marks[(before + 1).min(marks.len() - 1)].1);
        for file in files_after(&synced, &seen[synced_count..n], zones_offset, &mut rng) {
            if files.insert((crate::format::checksum(&[&file]), before)) {
                change_file(&path, &mut on_disk, file);
                check_all(&path, promises, next);
            }
        }
    }
    files.len()
}

fn check_all(path: &Path, promises: &[Promise], next: &[Promise]) {
    let device = FileDevice::open(path, OpenMode::ReadWrite).unwrap();
    for ((zone, promise), next) in (0..).map(ZoneId).zip(promises).zip(next) {
        check(&device, zone, promise, next);
    }
}

#[test]
fn a_power_loss_at_any_moment_keeps_flushed_data() {
    let random = |seed: u64| {
        let mut rng = Rng::with_seed(seed);
        power_cuts(|history| (0..30).for_each(|_| history.step(&mut rng)))
    };
    let files: usize = (0..4).map(random).sum();
    println!("{files} distinct files");
    assert!(files > 300, "{files}");
}

#[test]
fn a_reset_of_a_killed_process_is_durable_before_the_next_write() {
    // The slot is in the file, and a power loss may still undo it: then the old pointer would cover the first blocks
    // of the next life.
    let files = power_cuts(|history| {
        history.append(0, 5);
        history.mark();
        history.flush();
        history.mark();
        history.reset(0);
        history.mark();
        history.break_flush(1);
        history.mark();
        history.append(0, 2);
        history.mark();
        history.flush();
        history.mark();
    });
    assert!(files > 10, "{files}");
}

#[test]
fn a_zone_reset_by_a_killed_process_is_not_discarded_before_that_is_durable() {
    // A power loss may still undo the reset, and blocks that must be durable would be holes.
    let files = power_cuts(|history| {
        history.append(0, 5);
        history.mark();
        history.flush();
        history.mark();
        history.reset(0);
        history.mark();
        history.break_flush(1);
        history.mark();
        while history.device().discard_one_zone() {}
        history.mark();
        history.flush();
        while history.device().discard_one_zone() {}
        history.mark();
    });
    assert!(files > 5, "{files}");
}

/// The zones whose host blocks were freed, in order.
fn discarded(device: &FileDevice) -> Vec<u64> {
    let punched = |change: HostChange| match change {
        HostChange::Punch { offset, .. } => Some(offset),
        _ => None,
    };
    device.engine.recorder.seen().into_iter().filter_map(punched).collect()
}

#[test]
fn a_flush_discards_nothing_and_each_zone_is_discarded_once() {
    // A file of 400 zones had been deleted. The next flush freed all of them, one after the other, and the caller of
    // fsync waited for seconds. And each mount freed all empty zones, 16 of them in each of its flushes.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume");
    let options = FileOptions { size: Some(5 << 20), ..FileOptions::default() };
    let device = FileDevice::create(&path, &options).unwrap();
    device.flush().unwrap();
    assert!(!device.discard_one_zone(), "a new file has no blocks");
    let zones: Vec<_> = (0..ZONES).map(ZoneId).collect();
    zones.iter().for_each(|&zone| assert_eq!(device.append(zone, &bytes(&[1])).unwrap(), 0));
    device.flush().unwrap();
    zones.iter().for_each(|&zone| device.reset(zone).unwrap());
    device.flush().unwrap();
    assert_eq!(discarded(&device), [], "a flush makes durable and does nothing else");
    // A zone that is written meanwhile keeps its blocks.
    device.append(zones[1], &bytes(&[2])).unwrap();
    while device.discard_one_zone() {}
    let others = [0, 2, 3, 4].map(|zone| device.layout.offset(ZoneId(zone), 0));
    assert_eq!(discarded(&device), others);
    device.append(zones[2], &bytes(&[3])).unwrap();
    device.flush().unwrap();
    drop(device);

    let device = FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
    device.flush().unwrap();
    while device.discard_one_zone() {}
    assert_eq!(discarded(&device), [], "the empty zones were discarded before");
    device.reset(zones[2]).unwrap();
    device.flush().unwrap();
    while device.discard_one_zone() {}
    assert_eq!(discarded(&device), [device.layout.offset(zones[2], 0)]);
}

#[test]
fn after_a_failed_flush_the_file_is_not_written() {
    // The host may have dropped data that it could not write, and may report success for the next flush.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume");
    for successes in [0, 1] {
        let options = FileOptions { size: Some(5 << 20), force: true, ..FileOptions::default() };
        let device = FileDevice::create(&path, &options).unwrap();
        device.append(ZoneId(0), &bytes(&[1, 2])).unwrap();
        device.engine.recorder.fail_after(Some(successes));
        assert!(matches!(device.flush(), Err(DeviceError::Io { operation: "flush", .. })));
        device.engine.recorder.fail_after(None);
        assert!(matches!(device.flush(), Err(DeviceError::Unusable(_))));
        assert!(matches!(device.append(ZoneId(0), &bytes(&[3])), Err(DeviceError::Unusable(_))));
        device.read(ZoneId(0), 0, &mut [0; 4096]).expect("reads are still possible");
    }
}

#[test]
fn a_failed_write_leaves_the_pointer_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let options = FileOptions { size: Some(5 << 20), ..FileOptions::default() };
    let device = FileDevice::create(&directory.path().join("volume"), &options).unwrap();
    let zone = ZoneId(0);
    device.append(zone, &bytes(&[1, 2])).unwrap();
    device.engine.recorder.fail_after(Some(1));
    let (first, second, third) = (bytes(&[3]), bytes(&[4]), bytes(&[5]));
    let mut batch = [&first, &second, &third].map(|from| Command::Append { zone, from });
    let outputs = device.run(&mut batch);
    assert!(matches!(outputs[..], [Ok(2), Err(DeviceError::Io { .. }), Err(DeviceError::Io { .. })]));
    assert_eq!(device.report_zone(zone).unwrap().pointer, 3);
    device.engine.recorder.fail_after(None);
    assert_eq!(device.append(zone, &bytes(&[6])).unwrap(), 3);
    device.flush().unwrap();
}

#[test]
fn roles_have_separate_write_streams_if_there_are_enough() {
    let roles = [Role::Free, Role::Data, Role::Gc, Role::Log, Role::Metadata];
    for (streams, expected, by_class) in [
        (0, [0; 5], [0; 5]),
        (1, [0, 1, 1, 1, 1], [1; 5]),
        (2, [0, 1, 2, 1, 1], [1, 1, 1, 2, 2]),
        (5, [0, 1, 2, 3, 4], [1, 1, 1, 5, 5]),
        (6, [0, 1, 2, 3, 4], [1, 1, 6, 5, 5]),
        (8, [0, 1, 2, 3, 4], [1, 1, 6, 5, 7]),
    ] {
        assert_eq!(roles.map(|role| stream_of(role, 0, streams)), expected, "{streams} streams");
        let of_class = |class| stream_of(Role::Data, class, streams);
        assert_eq!([0, 1, 2, 3, 4].map(of_class), by_class, "{streams} streams");
    }
}
