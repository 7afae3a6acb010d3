//! Files in which each block is an extent of its own, on zones so small that transactions are short: operations on
//! many extents take several transactions.
//!
//! The story: collapsing a range of a file while a zone with its data was offline lost its blocks one by one. A later
//! step overwrote a mebibyte of these, up to 2,048 extents, in one transaction. This was longer than the log of a
//! volume with small zones allows: the daemon ended, and so did the next one, which found the intent and continued
//! with it. A write of a mebibyte over blocks that had been written one by one did the same without any fault.

use emulated::Spec;
use fs::{Caller, Changes, FallocateMode, Handle, InodeNo};

use crate::support::{Volume, pattern};

const ROOT: InodeNo = InodeNo::ROOT;
const MIB: usize = 1 << 20;

/// How a file was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// Every second block by itself, so that the others are separate as well.
    Apart,
    /// A few bytes of every block, which are stored in metadata above the preallocated space of the block.
    Resident,
    /// The same with blocks that had no space before.
    Sparse,
}

const ALL: [Written; 3] = [Written::Apart, Written::Resident, Written::Sparse];

/// A file on a volume with blocks of this size, and its contents.
struct Scattered {
    volume: Volume,
    handle: Handle,
    bytes: Vec<u8>,
}

impl Scattered {
    fn new(block: usize, written: Written) -> Scattered {
        Scattered::on(Spec::new(block as u32, 80, (272 << 10) / block as u32), block, written)
    }

    fn on(spec: Spec, block: usize, written: Written) -> Scattered {
        let volume = Volume::on(spec);
        let handle = volume.file(ROOT, "f");
        let mut file = Scattered { volume, handle, bytes: vec![0; MIB + 4 * block] };
        if written != Written::Sparse {
            file.write(0, &pattern(1, MIB + 4 * block));
        }
        let blocks = (MIB + 4 * block) / block;
        for at in (0..blocks).filter(|at| written != Written::Apart || at % 2 == 1) {
            match written {
                Written::Apart => file.write(at * block, &pattern(at as u8, block)),
                Written::Resident | Written::Sparse => file.write(at * block + 5, &[at as u8 | 1; 9]),
            }
        }
        file.bytes.truncate(file.volume.fs.attributes(file.handle.inode()).unwrap().size as usize);
        file.holds();
        file
    }

    fn write(&mut self, at: usize, data: &[u8]) {
        self.volume.write(&self.handle, at as u64, data);
        self.bytes[at..at + data.len()].copy_from_slice(data);
    }

    fn allocate(&self, mode: FallocateMode, from: usize, length: usize) {
        self.volume.fs.allocate(&self.handle, mode, from as u64, length as u64).unwrap();
    }

    fn holds(&self) {
        assert!(self.volume.contents(&self.handle) == self.bytes, "the file has other contents");
    }

    fn end_sound(self) {
        self.holds();
        self.volume.settle_and_check();
        self.holds();
        let again = self.volume.remount();
        assert!(again.contents(&again.open(self.handle.inode())) == self.bytes, "mounted again");
    }
}

/// Runs it on files of every kind, with blocks of 512 bytes and of 4 KiB.
fn each(does: impl Fn(&mut Scattered, usize)) {
    for (block, written) in [512, 4096].into_iter().flat_map(|block| ALL.map(|written| (block, written))) {
        let mut file = Scattered::new(block, written);
        does(&mut file, block);
        file.end_sound();
    }
}

#[test]
fn a_mebibyte_is_written_over_many_extents() {
    each(|file, _| file.write(0, &pattern(77, MIB)));
    // Within blocks at both ends, and across pieces.
    each(|file, block| file.write(block + 3, &pattern(78, MIB)));
}

#[test]
fn a_mebibyte_is_appended_in_commands_of_a_block() {
    let spec = Spec::new(512, 80, 544).max_append(1);
    let mut file = Scattered::on(spec, 512, Written::Apart);
    file.write(0, &pattern(79, MIB));
    file.end_sound();
}

/// A write or range operation over up to 2,048 extents on small zones made a transaction too long: the daemon ended,
/// and after a range operation the next daemon too.
#[test]
fn ranges_are_inserted_and_collapsed_among_many_extents() {
    each(|file, block| {
        file.allocate(FallocateMode::InsertRange, block, 2 * block);
        let hole = vec![0; 2 * block];
        drop(file.bytes.splice(block..block, hole));
        file.holds();
        file.allocate(FallocateMode::CollapseRange, 4 * block, 3 * block);
        file.bytes.drain(4 * block..7 * block);
    });
}

#[test]
fn space_is_preallocated_cleared_and_freed_among_many_extents() {
    each(|file, _| file.allocate(FallocateMode::Allocate { keep_size: true }, 0, MIB));
    each(|file, block| {
        file.allocate(FallocateMode::ZeroRange { keep_size: true }, block, MIB);
        file.bytes[block..block + MIB].fill(0);
    });
    each(|file, block| {
        file.allocate(FallocateMode::PunchHole, block, MIB);
        file.bytes[block..block + MIB].fill(0);
    });
    each(|file, block| {
        let changes = Changes { size: Some(block as u64), ..Changes::default() };
        file.volume.fs.set_attributes(&Caller::root(), file.handle.inode(), &changes).unwrap();
        file.bytes.truncate(block);
    });
}

#[test]
fn many_extents_are_shared_and_written_over_on_either_side() {
    each(|file, _| {
        let copy = file.volume.file(ROOT, "copy");
        file.volume.fs.clone_range(&file.handle, 0, &copy, 0, 0).unwrap();
        let before = file.bytes.clone();
        assert!(file.volume.contents(&copy) == before);
        file.write(0, &pattern(80, MIB));
        assert!(file.volume.contents(&copy) == before);
        file.volume.write(&copy, 0, &pattern(81, MIB));
        // Shared blocks replace extents of the file's own.
        let other = file.volume.file(ROOT, "other");
        for at in (0..MIB / 512).step_by(2) {
            file.volume.write(&other, at as u64 * 512, &[at as u8; 512]);
        }
        file.volume.fs.clone_range(&file.handle, 0, &other, 0, 0).unwrap();
        assert!(file.volume.contents(&other)[..file.bytes.len()] == file.bytes);
    });
}

/// Manual GC never ended here: metadata GC in zones of sixteen pages gained four of them, and the checkpoint after it
/// left as many dead, for ever. `polder gc` wrote until it was stopped.
#[test]
fn many_extents_are_defragmented_and_moved_by_gc() {
    each(|file, block| {
        let mut from = Some(0);
        while let Some(at) = from {
            from = file.volume.fs.defragment(file.handle.inode(), at).unwrap().next;
        }
        file.holds();
        for at in (0..MIB / block).step_by(3) {
            file.write(at * block, &pattern(at as u8, block));
        }
        let pieces = (0..).take_while(|_| file.volume.fs.collect_garbage().unwrap()).take(2000).count();
        assert!(pieces < 2000, "it comes to an end");
    });
}
