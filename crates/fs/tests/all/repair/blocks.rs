//! Blocks of the device are damaged at random, of every kind, besides rows that contradict each other. Everything
//! that could be read before the repair can be read after it, and names lead to it. No more is lost than the damage
//! took.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use emulated::{CrashPlan, Emulated, Spec};
use extent::format::{FOOTER_MAGIC, SUMMARY_MAGIC};
use fs::{Finding, Fs, FsError, InodeNo, MountOptions, Repaired};
use rt::random::Rng;
use rt::{ManualClock, Timestamp};
use salvage::{Item, Paths, Salvage};
use zone::{Blocks, Device, Role, ZoneId};

use super::damage::Damage;
use super::picture::{Picture, excused};
use super::random::populated_on;
use crate::support::Volume;

const SEEDS: u64 = 60;
const BLOCK: u32 = 4096;
/// How often the command repairs at most.
const REPAIRS_MAX: usize = 16;
/// Rows are damaged so that all of them can be repaired.
const ROWS: [Damage; 5] =
    [Damage::EntryGone, Damage::EntryOfNobody, Damage::Links, Damage::EntryCount, Damage::LiveCount];

/// The contents of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Header,
    Log,
    Metadata,
    Data,
    ReverseMap,
}

type Places = BTreeMap<Part, Vec<(ZoneId, Blocks)>>;

/// Every written block. In a full zone, those before its footer.
fn places(device: &Emulated) -> Places {
    let mut places = Places::new();
    let read = |zone, block| {
        let mut bytes = vec![0; BLOCK as usize];
        device.read(zone, block, &mut bytes).map(|()| bytes)
    };
    for (zone, info) in (0..).map(ZoneId).zip(device.report().unwrap()) {
        let Some(role) = read(zone, 0).ok().and_then(|bytes| role(&bytes)) else { continue };
        let end = if info.state.has_pointer() { info.pointer } else { info.capacity };
        let blocks: Vec<_> = (1..end).map(|block| read(zone, block).unwrap()).collect();
        let footer = blocks.iter().rposition(|bytes| magic(bytes) == FOOTER_MAGIC);
        let written = if info.state.has_pointer() { blocks.len() } else { footer.map_or(0, |at| at + 1) };
        places.entry(Part::Header).or_default().push((zone, 0));
        for (block, bytes) in (1..).zip(&blocks[..written]) {
            places.entry(part(role, bytes)).or_default().push((zone, block));
        }
    }
    places
}

fn magic(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

fn role(header: &[u8]) -> Option<Role> {
    zone::format::decode_header(header).ok().map(|(identity, _)| identity.role)
}

fn part(role: Role, bytes: &[u8]) -> Part {
    match role {
        Role::Log => Part::Log,
        Role::Metadata => Part::Metadata,
        _ if [SUMMARY_MAGIC, FOOTER_MAGIC].contains(&magic(bytes)) => Part::ReverseMap,
        _ => Part::Data,
    }
}

/// One bit is flipped, or the whole block is noise, or it cannot be read.
fn hurt(device: &Emulated, (zone, block): (ZoneId, Blocks), rng: &mut Rng) {
    match rng.u8(0..3) {
        0 => device.corrupt(zone, block, rng.u32(0..BLOCK), 1 << rng.u8(0..8)),
        1 => (0..BLOCK).for_each(|byte| device.corrupt(zone, block, byte, rng.u8(1..=255))),
        _ => device.make_unreadable(zone, block),
    }
}

/// Damages up to `most` blocks of these kinds. Returns how often each kind was damaged.
pub(super) fn damage(device: &Emulated, parts: &[Part], most: usize, rng: &mut Rng) -> Vec<Part> {
    let places = places(device);
    let mut hit = Vec::new();
    for _ in 0..rng.usize(1..=most) {
        let part = parts[rng.usize(0..parts.len())];
        if let Some(at) = places.get(&part) {
            hurt(device, at[rng.usize(0..at.len())], rng);
            hit.push(part);
        }
    }
    hit
}

fn mounted(device: Emulated) -> Result<Volume, FsError> {
    let (device, clock) = (Arc::new(device), Arc::new(ManualClock::at(Timestamp(2_000_000_000))));
    let options = MountOptions {
        cache_bytes: 4 << 20,
        read_only: false,
        commit_interval_ns: 5_000_000_000,
        clock: clock.clone(),
    };
    let (fs, _) = Fs::mount(device.clone(), options)?;
    Ok(Volume { device, clock, fs })
}

/// As the command does: until nothing more can be repaired.
fn repaired(mut volume: Volume) -> (Volume, usize, Vec<Finding>) {
    let mut repaired = 0;
    for _ in 0..REPAIRS_MAX {
        let done = volume.fs.repair().unwrap();
        if done.repaired.is_empty() {
            let volume = volume.kill();
            let again = volume.fs.repair().unwrap();
            assert_eq!(again, Repaired { repaired: Vec::new(), left: done.left.clone() });
            return (volume.kill(), repaired, done.left);
        }
        repaired += done.repaired.len();
        volume = volume.remount();
    }
    panic!("repairs come to an end");
}

/// `polder salvage` saves volumes that cannot be mounted: most inodes have a name there.
fn assert_saved(device: &Arc<Emulated>, inodes: usize, story: &str) {
    let salvage =
        Salvage::open(device.clone(), &mut |_, _| ()).unwrap_or_else(|why| panic!("{story}: {why}"));
    let mut saved = BTreeSet::new();
    let each = &mut |item: &Item, _: &Paths| {
        saved.insert(item.inode);
        Ok::<_, FsError>(())
    };
    salvage.walk(each).unwrap();
    assert!(saved.len() * 2 > inodes, "{story}: {} of {inodes} inodes are saved", saved.len());
}

/// The results for the volumes.
#[derive(Debug, Default)]
struct Tally {
    /// No mount, and so no repair.
    refused: usize,
    /// Metadata could not be read: nothing was repaired.
    unreadable: usize,
    repaired: usize,
    /// Blocks of files that could not be read.
    lost: usize,
    hit: BTreeSet<Part>,
}

/// A volume in which rows contradict each other, unmounted or not.
struct Trial {
    device: Emulated,
    known: BTreeSet<InodeNo>,
    sound: Picture,
    is_closed: bool,
}

impl Trial {
    fn new(seed: u64, rng: &mut Rng) -> Trial {
        let (volume, known) = populated_on(Spec::new(BLOCK, 60, 96).limits(6, 6), rng);
        for damage in ROWS.iter().cycle().skip(seed as usize).take(seed as usize % 3) {
            damage.apply(&volume, rng);
        }
        let is_closed = seed.is_multiple_of(2);
        volume.device.record();
        if is_closed { volume.fs.unmount() } else { volume.fs.sync() }.unwrap();
        drop(volume.fs);
        let image = || volume.device.image(&CrashPlan::KeepAll);
        let sound = Picture::of(&mounted(image()).unwrap(), &known);
        Trial { device: image(), known, sound, is_closed }
    }

    fn run(self, parts: &[Part], rng: &mut Rng, story: &str, tally: &mut Tally) {
        let hit = damage(&self.device, parts, 6, rng);
        let story = format!("{story}, {hit:?}");
        tally.hit.extend(&hit);
        self.device.record();
        let copy = || self.device.image_at(0, &CrashPlan::KeepAll);
        let Ok(volume) = mounted(copy()) else {
            tally.refused += 1;
            return assert_saved(&Arc::new(copy()), self.known.len(), &story);
        };
        let before = Picture::of(&volume, &self.known);
        let (volume, count, left) = repaired(mounted(copy()).unwrap());
        let after = Picture::of(&volume, &self.known);
        tally.repaired += count;
        if left.iter().any(|finding| matches!(finding, Finding::Store(_))) {
            assert_eq!(count, 0, "{story}: what cannot be read was taken for what does not exist");
            assert!(before == after, "{story}: {left:?}");
            tally.unreadable += 1;
            return;
        }
        before.assert_kept(&after, &excused(&volume, &left), &story);
        let is_of_data = |part: &Part| [Part::Data, Part::ReverseMap].contains(part);
        if self.is_closed && hit.iter().all(is_of_data) {
            let lost = self.sound.lost_blocks(&after);
            tally.lost += lost;
            // A clone and its source share a block.
            assert!(lost <= 2 * hit.len(), "{story}: {lost} blocks are lost");
        }
    }
}

#[test]
fn random_damage_of_blocks_is_repaired_and_loses_nothing_more() {
    let mut tally = Tally::default();
    let all = [Part::Header, Part::Log, Part::Metadata, Part::Data, Part::ReverseMap];
    for seed in 0..SEEDS {
        let mut rng = Rng::with_seed(seed);
        let parts = if seed % 4 < 2 { &all[3..] } else { &all };
        Trial::new(seed, &mut rng).run(parts, &mut rng, &format!("seed {seed}"), &mut tally);
    }
    assert_eq!(tally.hit.len(), all.len(), "every part was hit: {tally:?}");
    let Tally { refused, unreadable, repaired, lost, .. } = tally;
    assert!(refused > 0 && unreadable > 0 && repaired > 0 && lost > 0, "all of it happens: {tally:?}");
}
