//! Mounts a file with a small volume that was edited with hostile intent: in the copies of its header, and in its
//! table of zone states.
//!
//! The file is in memory, so nothing waits for a disk, and a sync costs nothing. The contents of the zones are edited
//! as well, but without correcting their checksums: the target `mount` does that. In any case the file must keep its
//! length, or grow by a copy of the header behind its end.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use fs::{FormatOptions, Fs, InodeNo, Reserve};
use rustix::fs::{MemfdFlags, memfd_create};
use zone::file::{FileDevice, FileOptions, OpenMode};
use zone::{Device, FsId};

use super::volume::{
    COMPLETE, Edit, Edits, READ_ONLY, WRITING, caller, mount_options, use_device, write_over,
};
use crate::files::Volume;

/// Bytes of a zone: the smallest possible zone.
const ZONE: u64 = 256 << 10;
/// Bytes of the file: 32 zones, the blocks before them, and the copy of the header behind them.
const SIZE: u64 = 32 * ZONE + 3 * UNIT;
/// The copy of the header behind the zones begins at a multiple of this unit, the same number of units before the
/// end.
const UNIT: u64 = 64 << 10;
const END_UNITS: u64 = 2;
/// The unit of edits.
const BLOCK: usize = 4096;
/// Copies of the header at the start, each a block.
const HEADERS: usize = 2;
/// Blocks with the states of zones, behind the headers.
const TABLES: usize = 2;

/// The names of the files that the target changes, and the contents of each.
const NAMES: [&[u8]; 2] = [b"a", b"hard"];
static CONTENTS: [u8; 20_000] = [5; 20_000];

/// The non-empty blocks of the file.
fn blocks() -> &'static [(u64, Vec<u8>)] {
    static BLOCKS: OnceLock<Vec<(u64, Vec<u8>)>> = OnceLock::new();
    BLOCKS.get_or_init(|| {
        let file = make();
        let mut bytes = vec![0; SIZE as usize];
        file.read_exact_at(&mut bytes, 0).expect("it is as long as it was made");
        let blocks = (0..).step_by(BLOCK).zip(bytes.chunks(BLOCK).map(<[u8]>::to_vec));
        blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0)).collect()
    })
}

/// An empty file.
fn empty() -> File {
    let file = File::from(memfd_create("volume", MemfdFlags::CLOEXEC).expect("there is memory"));
    file.set_len(SIZE).expect("there is memory");
    file
}

fn path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// A volume with contents, as a killed process leaves it.
fn make() -> File {
    rt::random::repeat_from(1);
    // A volume must be created in a directory where its name can be made durable.
    let path = std::env::temp_dir().join(format!("polder-fuzz-{}", std::process::id()));
    let options = FileOptions {
        size: Some(SIZE),
        zone_bytes: Some(ZONE),
        fs_id: FsId([7; 16]),
        // The file may be left from a killed process with the same number.
        force: true,
        ..FileOptions::default()
    };
    let draft = FileDevice::draft(&path, &options).expect("there is space for a volume");
    let device: Arc<dyn Device> = Arc::new(draft.make(&mut |_, _| ()).expect("there is space for a volume"));
    let file = File::open(&path).expect("it was made just now");
    std::fs::remove_file(&path).expect("it was made just now");
    let options = FormatOptions {
        label: "file".to_owned(),
        fs_id: FsId([7; 16]),
        uid: 0,
        gid: 0,
        page_size: None,
        groups: None,
        reserve: Reserve::default(),
    };
    Fs::format(&device, &options, Volume::clock().as_ref()).expect("there is space for a volume");
    let (fs, _) = Fs::mount(device, mount_options(false)).expect("it was made just now");
    for name in NAMES {
        let created = fs.create(&caller(), InodeNo::ROOT, name, 0o644, WRITING, false);
        let (_, handle) = created.expect("there is space");
        fs.write(&handle, 0, &CONTENTS).expect("there is space");
    }
    fs.sync().expect("there is space");
    file
}

/// Edits the file, opens it, and uses the volume in it.
pub(super) fn mount(bytes: &[u8]) {
    let Some((&flags, edits)) = bytes.split_first() else { return };
    rt::random::repeat_from(1);
    let (file, mut edited) = (empty(), blocks().to_vec());
    let count = edited.len();
    let mut touched = vec![false; count];
    for Edit { number, at, put } in Edits(edits) {
        let number = number % count;
        write_over(&mut edited[number].1, at % BLOCK, put);
        touched[number] = true;
    }
    for (number, (at, block)) in edited.iter_mut().enumerate() {
        if flags & COMPLETE != 0 && touched[number] {
            complete_checksums(number, *at, block);
        }
        file.write_all_at(block, *at).expect("there is memory");
    }
    let read_only = flags & READ_ONLY != 0;
    let mode = if read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
    if let Ok(device) = FileDevice::open(&path(&file), mode) {
        use_device(Arc::new(device), read_only);
    }
    let length = file.metadata().expect("it is open").len();
    assert!(
        (SIZE..=SIZE + 3 * UNIT).contains(&length),
        "{length}: a copy of the header is behind the end at most"
    );
}

/// Corrects the checksums like a writer of the block. No block before the zones is empty.
fn complete_checksums(number: usize, at: u64, block: &mut [u8]) {
    match number {
        _ if number < HEADERS || at == SIZE - END_UNITS * UNIT => {
            zone::hostile::complete_checksum_of_header(block)
        }
        _ if number < HEADERS + TABLES => zone::hostile::complete_checksums_of_slots(block),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::volume::READING;

    /// The edited blocks are those that the code expects.
    #[test]
    fn headers_come_first_then_the_states_of_zones() {
        let starts: Vec<u64> = blocks().iter().map(|(at, _)| *at).collect();
        let before: Vec<u64> = (0..).step_by(BLOCK).take(HEADERS + TABLES).collect();
        assert!(starts.starts_with(&before) && starts.len() > before.len() + 10, "{starts:?}");
        assert_eq!(starts.last(), Some(&(SIZE - END_UNITS * UNIT)));
        let last = blocks().len() - 1;
        let outside = |number: &usize| *number < HEADERS + TABLES || *number == last;
        for (number, (at, block)) in blocks().iter().enumerate().filter(|(number, _)| outside(number)) {
            let mut completed = block.clone();
            complete_checksums(number, *at, &mut completed);
            let written = completed.iter().zip(block).filter(|(new, old)| new != old && **old != 0).count();
            assert_eq!(written, 0, "block {number}: the checksums were right");
        }
    }

    /// The unedited volume can be mounted, and has its files.
    #[test]
    fn the_file_is_a_volume() {
        let file = empty();
        blocks().iter().for_each(|(at, block)| file.write_all_at(block, *at).unwrap());
        let device = FileDevice::open(&path(&file), OpenMode::ReadWrite).unwrap();
        let (fs, _) = Fs::mount(Arc::new(device), mount_options(false)).unwrap();
        for name in NAMES {
            let found = fs.lookup(&caller(), InodeNo::ROOT, name).unwrap();
            let handle = fs.open(&caller(), found.inode, READING).unwrap();
            let mut bytes = vec![0; CONTENTS.len() + 1];
            assert_eq!(fs.read(&handle, 0, &mut bytes), Ok(CONTENTS.len()));
            assert_eq!(bytes[..CONTENTS.len()], CONTENTS);
        }
    }
}
