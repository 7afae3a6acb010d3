//! A few bits, and the expected effects.

use std::collections::BTreeSet;

use super::*;
use crate::shapes;

fn target(unmounted: bool) -> Target {
    Target::new(shapes::all().remove(0), unmounted).expect("a volume can be made")
}

#[test]
fn some_bits_are_harmless_some_are_noticed_and_none_gives_wrong_data() {
    for unmounted in [false, true] {
        let target = target(unmounted);
        let step = target.bits() / 400;
        let flips = (0..400).map(|number| target.flip(number * step + number % 97));
        let fates: BTreeSet<Fate> = flips
            .map(|flip| target.try_flip(&flip).unwrap_or_else(|wrong| panic!("{flip}: {wrong}")))
            .collect();
        assert!(fates.contains(&Fate::Harmless) && fates.contains(&Fate::Refused), "{fates:?}");
    }
}

/// The volume of the first shape had grown to 43 blocks of metadata, and 51 when it was unmounted, unnoticed.
#[test]
fn the_volume_is_small_and_has_trees_of_several_leaves() {
    for shape in shapes::all() {
        for unmounted in [false, true] {
            let (name, target) = (shape.name, Target::new(shape.clone(), unmounted).expect("it can be made"));
            assert!(target.is_small(), "{name}: {} blocks of metadata", target.metadata_blocks());
            // A zone without a write pointer must not be taken for written to its end.
            let last = target.try_flip(&target.flip(target.bits() - 1));
            last.unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
        }
    }
    let (target, clock) = (target(true), Volume::clock());
    let device = Arc::new(target.image.image_at(0, &CrashPlan::KeepAll));
    let fs = volume(&target.shape).mount(&device, clock as _).expect("it can be mounted");
    let level = |root| fs.store().view_node(root).expect("it can be read").expect("a root is there").level;
    assert!((1..=2).any(|root| level(root) > 0), "a root is above leaves");
}

#[test]
fn a_volume_that_differs_from_the_written_one_is_wrong() {
    let mut target = target(true);
    let harmless = (0..)
        .map(|number| target.flip(number * 7919))
        .find(|flip| target.try_flip(flip).expect("no bit has a forbidden effect") == Fate::Harmless);
    let mut other = target.states[1].model.clone();
    other
        .apply(&Operation::SetPermissions { file: File::Path("hard".to_owned()), permissions: 0o600 })
        .expect("it is there");
    target.states = [(); 2].map(|()| Arc::new(FilesState::new(other.clone())));
    let wrong = target.try_flip(&harmless.expect("most bits do not matter")).unwrap_err();
    assert!(wrong.0.contains("/hard has other attributes"), "{wrong}");
}

/// A mount that was refused for one block of a user's file once passed for a hostile volume.
#[test]
fn a_bit_of_data_may_cost_its_block_alone() {
    let target = target(false);
    let is_refused = |flip: &Flip| {
        flip.place.block > 0 && target.try_flip(flip).expect("no bit has a forbidden effect") == Fate::Refused
    };
    let blocks = (0..target.blocks.len() as u64).map(|block| target.flip(block * target.bits_of_block()));
    let Flip { place, bit } = blocks.into_iter().find(is_refused).expect("some blocks cannot be missed");
    let of_data = Flip { place: Place { role: Some(Role::Data), ..place }, bit };
    assert!(target.try_flip(&of_data).unwrap_err().0.contains("one block of data"));
}

#[test]
fn a_bit_is_found_by_its_name() {
    let target = target(false);
    let flip = target.flip(target.bits() - 1);
    assert_eq!(target.parse(&flip.to_string()).expect("its own name").to_string(), flip.to_string());
    assert!(target.parse("0:0:32768").is_none() && target.parse("0:0").is_none());
}
