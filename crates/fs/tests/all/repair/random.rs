//! Rows are damaged at random. Everything that could be read before the repair can be read after it, and names lead
//! to it.

use std::collections::BTreeSet;

use emulated::Spec;
use fs::{Caller, InodeNo};
use rt::random::Rng;

use super::damage::Damage;
use super::picture::{Picture, excused};
use super::repaired_as_mounted;
use crate::support::{Volume, pattern};

const ROOT: InodeNo = InodeNo::ROOT;
const SEEDS: u64 = 60;

/// Nested directories, files with attributes, some of which share blocks; and their inodes.
pub(super) fn populated(rng: &mut Rng) -> (Volume, BTreeSet<InodeNo>) {
    populated_on(Spec::new(4096, 40, 256), rng)
}

pub(super) fn populated_on(spec: Spec, rng: &mut Rng) -> (Volume, BTreeSet<InodeNo>) {
    let volume = Volume::on(spec);
    let (mut directories, mut known) = (vec![ROOT], BTreeSet::from([ROOT]));
    for number in 0..8 {
        let parent = directories[rng.usize(0..directories.len())];
        directories.push(volume.directory(parent, &format!("d{number}")));
    }
    for number in 0..30 {
        let parent = directories[rng.usize(0..directories.len())];
        let file = volume.file(parent, &format!("f{number}"));
        volume.write(&file, 0, &pattern(number, [100, 9000, 50_000][rng.usize(0..3)]));
        let value = pattern(number, 5 + usize::from(number) * 900);
        volume.fs.set_xattr(&Caller::root(), file.inode(), b"user.a", &value, false, false).unwrap();
        if number % 5 == 0 {
            let clone = volume.file(parent, &format!("g{number}"));
            volume.fs.clone_range(&file, 0, &clone, 0, 0).unwrap();
            known.insert(clone.inode());
        }
        known.insert(file.inode());
    }
    known.extend(directories);
    volume.settle_and_check();
    (volume, known)
}

/// None of this damage is left.
fn is_harmless(damage: Damage) -> bool {
    use Damage::*;
    !matches!(
        damage,
        Elsewhere(_)
            | Gone(_)
            | Nonsense(_)
            | InodeGone
            | InodeTwice
            | IntentToMove
            | Shifting
            | ReferenceCount
    )
}

fn damage_and_repair(seed: u64, kinds: &[Damage], seen: &mut BTreeSet<Damage>) {
    let mut rng = Rng::with_seed(seed);
    let (volume, known) = populated(&mut rng);
    let mut done = Vec::new();
    for _ in 0..1 + seed % 8 {
        let damage = kinds[rng.usize(0..kinds.len())];
        if damage.apply(&volume, &mut rng) {
            done.push(damage);
        }
    }
    let story = format!("seed {seed}, {done:?}");
    seen.extend(&done);
    volume.fs.sync().unwrap();
    let volume = volume.kill();
    let before = Picture::of(&volume, &known);
    let (volume, left) = repaired_as_mounted(volume.kill());
    before.assert_kept(&Picture::of(&volume, &known), &excused(&volume, &left), &story);
    if done.iter().copied().all(is_harmless) {
        assert_eq!(left, [], "{story}");
    }
}

#[test]
fn random_damage_of_rows_is_repaired_and_loses_nothing() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        damage_and_repair(seed, &Damage::ALL, &mut seen);
    }
    assert_eq!(seen.len(), Damage::ALL.len(), "each kind is done: {seen:?}");
}

/// All small cases before random ones: each kind of damage alone, to several rows.
#[test]
fn each_kind_of_damage_is_repaired_and_loses_nothing() {
    let mut seen = BTreeSet::new();
    for damage in Damage::ALL {
        for seed in [0, 8] {
            damage_and_repair(seed, &[damage], &mut seen);
        }
    }
}
