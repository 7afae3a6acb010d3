//! Shows that the tests notice mistakes: each rule is left out once, and a test must fail.

use std::path::Path;

use rt::trial;

/// The environment variable with the name of the bug.
const BUG: &str = "POLDER_OBJECT_BUG";

const CRASHES: &str = "crashes::a_process_may_end_at_any_request";
const FAULTS: &str = "crashes::replies_are_lost_and_requests_fail";
const LIVES: &str = "crashes::parts_are_deleted_up_to_the_life_that_is_durable";
const SLOWLY: &str = "owners::a_process_that_opens_slowly_has_what_the_owner_wrote_meanwhile";
const OWNERS: &str = "owners::a_process_that_continues_after_another_has_taken_over_acknowledges_nothing";

/// Each bug, and a test that must notice it.
const BUGS: [(&str, &str); 8] = [
    ("object-parts-first", CRASHES),
    ("object-tails-of-table", CRASHES),
    ("object-changes-of-table", CRASHES),
    ("object-trust-exists", FAULTS),
    ("object-trust-reply", OWNERS),
    ("object-list-again", SLOWLY),
    ("object-keep-owners", OWNERS),
    ("object-life-of-garbage", LIVES),
];

pub(crate) fn plant() {
    trial::plant(BUG);
}

#[test]
fn every_planted_bug_is_noticed() {
    assert_eq!(trial::unnoticed(BUG, &BUGS), Vec::<&str>::new());
}

#[test]
fn every_planted_bug_is_tried() {
    let named = trial::named_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert_eq!(named, BUGS.iter().map(|(bug, _)| (*bug).to_owned()).collect());
}
