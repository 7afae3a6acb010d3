//! A full volume: what takes space is refused, what frees it succeeds.

use fs::{Caller, Changes, FallocateMode, FsError, Handle, InodeNo, Kind, RenameFlags};

use crate::support::{Volume, pattern};

const ROOT: InodeNo = InodeNo::ROOT;

fn fill(volume: &Volume, handle: &Handle) -> u64 {
    let piece = pattern(9, 256 << 10);
    let mut at = 0;
    loop {
        match volume.fs.write(handle, at, &piece) {
            Ok(written) => at += written as u64,
            Err(error) => {
                assert_eq!(error, FsError::NoSpace);
                return at;
            }
        }
    }
}

#[test]
fn space_can_be_freed_when_there_is_none() {
    let volume = Volume::new();
    let root = Caller::root();
    let directory = volume.directory(ROOT, "d");
    volume.directory(directory, "empty");
    for n in 0..20 {
        let handle = volume.file(directory, &format!("f{n}"));
        volume.write(&handle, 0, &pattern(n, 10_000));
    }
    let big = volume.file(ROOT, "big");
    let size = fill(&volume, &big);
    assert!(size > 10 << 20, "most of 40 MiB is for users: {size}");
    // Metadata too, as far as it lets itself be filled.
    let make = |n: u32| volume.fs.make_node(&root, ROOT, format!("node{n}").as_bytes(), Kind::File, 0o644, 0);
    let refused = (0..200_000).find_map(|n| make(n).err());
    assert_eq!(refused, Some(FsError::NoSpace), "metadata has its limit too");
    volume.fs.remove_directory(&root, directory, b"empty").unwrap();
    volume.fs.rename(&root, directory, b"f0", directory, b"f1", RenameFlags::default()).unwrap();
    volume.unlink(directory, "f2").unwrap();
    let cut = Changes { size: Some(5000), ..Changes::default() };
    volume.fs.set_attributes(&root, volume.find(directory, "f3").unwrap(), &cut).unwrap();
    volume.fs.set_attributes(&root, big.inode(), &cut).unwrap();
    volume.settle_and_check();
    let again = volume.file(directory, "again");
    volume.write(&again, 0, &pattern(1, (size / 2) as usize));
    let volume = volume.remount();
    volume.settle_and_check();
}

#[test]
fn a_deleted_file_makes_room_at_once() {
    let volume = Volume::new();
    for round in 0..3 {
        let handle = volume.file(ROOT, "f");
        let size = fill(&volume, &handle);
        assert!(size > 10 << 20, "round {round}: {size}");
        volume.unlink(ROOT, "f").unwrap();
        drop(handle);
    }
    volume.settle_and_check();
}

/// What was allocated can be written, however full the volume has become since; and again and again.
#[test]
fn what_was_allocated_can_be_written_when_nothing_else_can() {
    let volume = Volume::new();
    let length = 8 << 20;
    let kept = volume.file(ROOT, "kept");
    let allocate = FallocateMode::Allocate { keep_size: false };
    volume.fs.allocate(&kept, allocate, 0, length).unwrap();
    let big = volume.file(ROOT, "big");
    let mut at = fill(&volume, &big);
    // To the last block.
    while let Ok(written) = volume.fs.write(&big, at, &pattern(3, 4096)) {
        at += written as u64;
    }
    for round in 0..3 {
        let data = pattern(round, length as usize);
        for (number, piece) in data.chunks(300_000).enumerate() {
            let written = volume.fs.write(&kept, number as u64 * 300_000, piece);
            assert_eq!(written, Ok(piece.len()), "piece {number} of round {round}");
        }
        // Less than a block goes to the record, and the space stays the file's.
        volume.write(&kept, 5 * 4096 + 7, b"small");
        volume.write(&kept, 5 * 4096, &data[5 * 4096..6 * 4096]);
        assert!(volume.contents(&kept) == data);
        assert_eq!(volume.fs.write(&big, at, &pattern(3, 4096)), Err(FsError::NoSpace));
    }
    volume.settle_and_check();
}
