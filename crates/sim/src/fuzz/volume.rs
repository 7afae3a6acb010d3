//! Mounts a small volume that was edited with hostile intent, and walks over all of it.
//!
//! An input is a list of edits of written blocks. If a flag is set, the checksums of the edited blocks are then
//! corrected, as an attacker would do. The results of reading may be anything; nothing compares them.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use emulated::{CrashPlan, Emulated};
use fs::{Caller, Changes, DamagedCopies, Fs, InodeNo, Kind, MountOptions, OpenFlags, ScrubAt};
use zone::{Device, Role};

use crate::files::Volume;
use crate::flips::{Place, Target};
use crate::shapes;

/// Flag: correct the checksums.
pub(super) const COMPLETE: u8 = 1;
/// Flag: mount read-only.
pub(super) const READ_ONLY: u8 = 2;
/// Bytes of an edit before the new bytes.
pub(super) const EDIT: usize = 5;
/// Limit for the new bytes of an edit.
pub(super) const PUT_MAX: u8 = 32;

/// Limit for the visited inodes, because names may form cycles.
const INODES_MAX: usize = 200;
/// Limit for the visited names of one directory.
const NAMES_MAX: usize = 500;
/// Bytes to read from a file, at both ends and in the middle.
const READ: usize = 16 << 10;
/// Bytes to scrub: all of such a volume.
const SCRUB: u64 = 1 << 20;

/// The volume to edit, as it is when the power fails.
pub(super) fn target() -> &'static Target {
    static TARGET: OnceLock<Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let shape = shapes::all().into_iter().next().expect("the list of shapes is not empty");
        Target::new(shape, false).expect("a volume can be made on a device that works")
    })
}

/// Makes the edits, mounts, walks, checks, scrubs some metadata and data, changes a little, and unmounts.
pub fn mount(bytes: &[u8]) {
    let Some((&flags, edits)) = bytes.split_first() else { return };
    rt::random::repeat_from(1);
    let device = Arc::new(target().image().image_at(0, &CrashPlan::KeepAll));
    edit(&device, edits, flags & COMPLETE != 0);
    device.record();
    use_device(device, flags & READ_ONLY != 0);
}

pub(super) fn mount_options(read_only: bool) -> MountOptions {
    MountOptions {
        cache_bytes: 8 << 20,
        read_only,
        commit_interval_ns: 5_000_000_000,
        clock: Volume::clock(),
    }
}

/// Mounts the device in any state, walks, checks, scrubs, changes a little, and unmounts.
pub(super) fn use_device(device: Arc<dyn Device>, read_only: bool) {
    if let Ok((fs, _)) = Fs::mount(device, mount_options(read_only)) {
        walk(&fs);
        let _ = fs.check();
        for at in [ScrubAt::start(), ScrubAt::data()] {
            let _ = fs.scrub_step(at, SCRUB, DamagedCopies::Repair);
        }
        change(&fs);
        let _ = fs.unmount();
    }
}

fn edit(device: &Emulated, edits: &[u8], complete: bool) {
    let blocks = target().blocks();
    let size = device.geometry().block_size as usize;
    let mut edited = BTreeSet::new();
    for Edit { number, at, put } in Edits(edits) {
        let number = number % blocks.len();
        change_block(device, &blocks[number], |block| write_over(block, at % size, put));
        edited.insert(number);
    }
    if complete {
        for number in edited {
            let place = &blocks[number];
            change_block(device, place, |block| complete_checksums(place, block));
        }
    }
}

/// An edit: some bytes of a block and their new values.
pub(super) struct Edit<'a> {
    pub(super) number: usize,
    pub(super) at: usize,
    pub(super) put: &'a [u8],
}

/// The edits in an input.
pub(super) struct Edits<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Edits<'a> {
    type Item = Edit<'a>;

    fn next(&mut self) -> Option<Edit<'a>> {
        let (&[low, high, at_low, at_high, length], rest) = self.0.split_first_chunk::<EDIT>()?;
        let (put, rest) = rest.split_at(usize::from(1 + length % PUT_MAX).min(rest.len()));
        self.0 = rest;
        let number = |low, high| usize::from(u16::from_le_bytes([low, high]));
        Some(Edit { number: number(low, high), at: number(at_low, at_high), put })
    }
}

/// Overwrites bytes, up to the end of the block.
pub(super) fn write_over(block: &mut [u8], at: usize, put: &[u8]) {
    block.iter_mut().skip(at).zip(put).for_each(|(byte, new)| *byte = *new);
}

fn change_block(device: &Emulated, place: &Place, change: impl FnOnce(&mut [u8])) {
    let mut block = vec![0; device.geometry().block_size as usize];
    device.read(place.zone, place.block, &mut block).expect("written blocks can be read");
    let before = block.clone();
    change(&mut block);
    for (byte, (old, new)) in (0..).zip(before.iter().zip(&block)).filter(|(_, (old, new))| old != new) {
        device.corrupt(place.zone, place.block, byte, old ^ new);
    }
}

/// Corrects the checksums like a writer of the block. A block of this volume is a page.
fn complete_checksums(place: &Place, block: &mut [u8]) {
    match place.role {
        _ if place.block == 0 => zone::hostile::complete_checksum_of_header(block),
        Some(Role::Log) => tree::hostile::complete_checksums_of_log(block),
        Some(Role::Metadata) => tree::hostile::complete_checksum_of_page(block),
        _ => extent::hostile::complete_checksum_of_summary(block),
    }
}

pub(super) fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new(), umask: 0, checked: true }
}

pub(super) const READING: OpenFlags =
    OpenFlags { read: true, write: false, append: false, truncate: false, sync: false };
pub(super) const WRITING: OpenFlags = OpenFlags { write: true, ..READING };

/// Visits everything that can be reached by names.
fn walk(fs: &Fs) {
    let (mut waiting, mut seen) = (vec![InodeNo::ROOT], BTreeSet::new());
    while let Some(inode) = waiting.pop() {
        if seen.len() < INODES_MAX && seen.insert(inode) {
            look(fs, inode, &mut waiting);
        }
    }
}

fn look(fs: &Fs, inode: InodeNo, waiting: &mut Vec<InodeNo>) {
    let Ok(attributes) = fs.attributes(inode) else { return };
    for name in fs.list_xattrs(&caller(), inode).unwrap_or_default() {
        let _ = fs.get_xattr(&caller(), inode, &name);
    }
    let _ = fs.read_link(inode);
    let Ok(handle) = fs.open(&caller(), inode, READING) else { return };
    let mut names = Vec::new();
    let _ = fs.read_directory(&handle, 0, &mut |entry| {
        names.push(entry.name);
        waiting.push(entry.inode);
        names.len() < NAMES_MAX
    });
    for name in names {
        let _ = fs.lookup(&caller(), inode, &name);
    }
    if attributes.kind == Kind::File {
        let mut bytes = vec![0; READ];
        for at in [0, attributes.size / 2, attributes.size.saturating_sub(READ as u64)] {
            let _ = (fs.read(&handle, at, &mut bytes), fs.seek_data(&handle, at), fs.seek_hole(&handle, at));
        }
    }
}

/// Changes files that the volume had before the edits, and creates new ones, with background steps in between.
fn change(fs: &Fs) {
    let user = caller();
    let open = |name: &[u8]| {
        let found = fs.lookup(&user, InodeNo::ROOT, name)?;
        fs.open(&user, found.inode, WRITING)
    };
    let _ = fs.step();
    for name in [&b"a"[..], b"hard"] {
        if let Ok(handle) = open(name) {
            let shorter = Changes { size: Some(100), ..Changes::default() };
            let _ = (fs.write(&handle, 5000, &[1; 6000]), fs.set_attributes(&user, handle.inode(), &shorter));
            let _ = fs.write(&handle, 300, &[2; 30]);
        }
    }
    let _ = fs.set_xattr(&user, InodeNo::ROOT, b"user.new", b"value", false, false);
    let _ = fs.rename(&user, InodeNo::ROOT, b"hard", InodeNo::ROOT, b"a", fs::RenameFlags::default());
    if let Ok((_, handle)) = fs.create(&user, InodeNo::ROOT, b"made", 0o644, WRITING, false) {
        let _ = fs.write(&handle, 0, &[3; 9000]);
    }
    let _ = (fs.unlink(&user, InodeNo::ROOT, b"a"), fs.make_directory(&user, InodeNo::ROOT, b"newer", 0o755));
    for _ in 0..4 {
        let _ = fs.step();
    }
    let _ = (fs.sync(), fs.store().checkpoint());
}
