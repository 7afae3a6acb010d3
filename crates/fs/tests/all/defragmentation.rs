//! Defragmentation of files with any layout: the prediction agrees with the result.
//!
//! The story: whether a file is scattered was decided for the whole file, but it was defragmented part by part. If
//! each part was as good as it could be, the whole file stayed scattered for ever. If the reverse map or the end of a
//! zone came in between, every run moved the same blocks again. A run from a timer wore the device out for nothing.

use emulated::Spec;
use fs::{FallocateMode, Handle, InodeNo, Layout};
use rt::random::Rng;

use crate::support::{Volume, pattern};

const ROOT: InodeNo = InodeNo::ROOT;
const FILES: usize = 5;

/// Geometries with different zones, blocks and commands: parts of eight mebibytes and of half a zone, pieces of a
/// mebibyte and shorter ones, and some with an entry of the reverse map after each piece.
fn shapes() -> Vec<Spec> {
    vec![
        Spec::new(4096, 40, 8192),
        Spec::new(4096, 60, 2048).max_append(32),
        Spec::new(4096, 120, 256),
        Spec::new(4096, 120, 256).max_append(8).limits(6, 6),
        Spec::new(4096, 60, 1024).conventional(20),
        Spec::new(512, 200, 2048),
        Spec::new(512, 80, 1088).max_append(1),
        Spec::new(65536, 100, 64),
    ]
}

/// A volume with files of arbitrary layout.
struct Written {
    volume: Volume,
    files: Vec<Handle>,
    /// The file that is usually written, and for how many changes.
    file: usize,
    turn: u32,
    rng: Rng,
}

impl Written {
    fn new(spec: Spec, seed: u64) -> Self {
        let block = u64::from(spec.block_size);
        let volume = Volume::on(spec);
        let files = (0..FILES).map(|n| volume.file(ROOT, &n.to_string())).collect();
        let mut rng = Rng::with_seed(seed);
        let turn = 1 << rng.u32(..7);
        let mut written = Written { volume, files, file: 0, turn, rng };
        let longest = 1 << written.rng.u32(..9);
        for _ in 0..written.rng.usize(50..400) {
            // GC moves blocks too when it is needed.
            let space = written.volume.fs.space();
            if space.available > space.total / 2 {
                written.change(block, longest);
                written.come_and_go(block);
            }
        }
        written.volume.settle();
        written
    }

    /// Writes to one of the files, or removes a part of it.
    fn change(&mut self, block: u64, longest: u64) {
        if self.rng.u32(..self.turn) == 0 {
            self.file = self.rng.usize(..FILES);
        }
        let file = &self.files[self.file];
        let size = self.volume.fs.attributes(file.inode()).unwrap().size;
        let length = (block * self.rng.u64(1..=longest)).min(512 << 10);
        let at = match self.rng.u32(..10) {
            0..8 => size,
            8..9 => self.rng.u64(..=size) / block * block,
            _ => size + block * self.rng.u64(..20),
        };
        let length = if self.rng.u32(..16) == 0 { length.min(40) } else { length };
        if self.rng.u32(..32) == 0 {
            let mode = [FallocateMode::PunchHole, FallocateMode::Allocate { keep_size: false }];
            self.volume.fs.allocate(file, mode[self.rng.usize(..2)], at, length).unwrap();
        } else {
            let bytes = pattern(self.rng.u8(..), length as usize);
            let mut done = 0;
            while done < bytes.len() {
                done += self.volume.fs.write(file, at + done as u64, &bytes[done..]).expect("there is space");
            }
        }
    }

    /// A file of another class with a short life. What is learned about classes may change at the end of any zone.
    fn come_and_go(&mut self, block: u64) {
        let file = self.volume.file(ROOT, "brief.tmp");
        self.volume.write(&file, 0, &pattern(7, (block * self.rng.u64(1..4)) as usize));
        self.volume.unlink(ROOT, "brief.tmp").unwrap();
    }

    fn remount(self) -> Self {
        let inodes: Vec<InodeNo> = self.files.iter().map(Handle::inode).collect();
        drop(self.files);
        let volume = self.volume.remount();
        let files = inodes.into_iter().map(|inode| volume.open(inode)).collect();
        Written { volume, files, ..self }
    }

    fn layouts(&self) -> impl Iterator<Item = Layout> {
        self.files.iter().map(|file| self.volume.fs.layout(file.inode()).unwrap())
    }

    /// Defragments all files once. Returns the number of blocks that were moved of each.
    fn defragment(&self) -> Vec<u64> {
        self.files.iter().map(|file| put_together(&self.volume, file)).collect()
    }

    fn scattered(&self) -> Vec<bool> {
        self.layouts().map(|layout| layout.scattered).collect()
    }

    fn reads(&self) -> u64 {
        self.layouts().map(|layout| layout.reads).sum()
    }

    fn contents(&self) -> Vec<Vec<u8>> {
        self.files.iter().map(|file| self.volume.contents(file)).collect()
    }
}

fn put_together(volume: &Volume, file: &Handle) -> u64 {
    let (mut from, mut moved) = (Some(0), 0);
    while let Some(at) = from {
        let done = volume.fs.defragment(file.inode(), at).expect("there is space");
        (from, moved) = (done.next, moved + done.blocks_moved);
    }
    moved
}

/// Only files that are reported as scattered are moved, and afterwards no file is reported.
#[test]
fn one_run_defragments_a_scattered_file() {
    let mut counts = [0, 0];
    for (number, spec) in shapes().into_iter().enumerate() {
        for seed in 0..4 {
            let mut written = Written::new(spec.clone(), seed);
            if seed % 2 == 1 {
                written = written.remount();
            }
            let shown = format!("shape {number}, seed {seed}");
            let (before, reads, contents) = (written.scattered(), written.reads(), written.contents());
            let moved: Vec<bool> = written.defragment().iter().map(|&blocks| blocks > 0).collect();
            assert_eq!(moved, before, "{shown}: reported, and moved");
            let (after, again) = (written.scattered(), written.defragment());
            assert_eq!(after, [false; FILES], "{shown}");
            assert_eq!(again, [0; FILES], "{shown}: a second run");
            let fewer = written.reads();
            assert!(fewer <= reads, "{shown}: {reads} reads, then {fewer}");
            assert!(written.contents() == contents, "{shown}");
            written.volume.settle_and_check();
            counts = [counts[0] + before.iter().filter(|&&told| told).count(), counts[1] + FILES];
        }
    }
    println!("{} of {} files were scattered", counts[0], counts[1]);
    assert!(counts[0] > 0 && counts[0] < counts[1], "{counts:?}: both kinds are looked at");
}
