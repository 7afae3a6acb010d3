//! A few bits, and what must be noticed of them.

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

#[test]
fn a_volume_that_is_not_what_was_written_is_wrong() {
    let mut target = target(true);
    let harmless = (0..)
        .map(|number| target.flip(number * 7919))
        .find(|flip| target.try_flip(flip).expect("no bit does what it may not") == Fate::Harmless);
    let mut other = target.states[1].model.clone();
    other
        .apply(&Operation::SetPermissions { path: "hard".to_owned(), permissions: 0o600 })
        .expect("it is there");
    target.states = [(); 2].map(|()| Arc::new(FilesState::new(other.clone())));
    let wrong = target.try_flip(&harmless.expect("most bits are beyond what counts")).unwrap_err();
    assert!(wrong.0.contains("/hard has other attributes"), "{wrong}");
}

#[test]
fn a_bit_is_found_by_its_name() {
    let target = target(false);
    let flip = target.flip(target.bits() - 1);
    assert_eq!(target.parse(&flip.to_string()).expect("its own name").to_string(), flip.to_string());
    assert!(target.parse("0:0:32768").is_none() && target.parse("0:0").is_none());
}
