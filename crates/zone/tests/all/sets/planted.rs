//! Shows that the tests of sets notice mistakes: each rule is left out once, and a test must fail.

use std::collections::BTreeSet;
use std::path::Path;

use rt::trial;

/// The environment variable with the name of the bug.
const BUG: &str = "POLDER_SET_BUG";

const CUTS: &str = "sets::cuts::a_set_has_an_allowed_state_after_a_cut_at_every_command";
const LOST: &str = "sets::members::a_mirror_loses_a_member_at_every_command_and_then_its_power";
const STALE: &str = "sets::labels::a_member_that_was_missing_is_stale";

const COPIED: &str = "sets::repairs::a_zone_that_a_member_lost_survives_losses_of_power_while_it_is_copied";
const UNREADABLE: &str = "sets::repairs::recovery_does_not_accept_a_block_that_one_member_cannot_read";
const HEADER: &str = "sets::repairs::a_header_that_differs_between_members_reads_as_damaged";
const SLOT: &str = "sets::slots::a_full_superzone_keeps_its_slot_until_its_member_zones_are_finished";
const FIRST: &str = "sets::slots::a_zone_whose_first_append_failed_is_empty";
const READS: &str = "sets::dying::a_disk_that_only_reads_is_excluded_and_the_command_succeeds";
const IN_PLACE: &str = "sets::slots::the_only_label_of_a_member_is_not_replaced";
const REPLACED: &str = "sets::replaced::a_mirror_loses_its_power_at_every_command_of_a_replacement";
const JOINED: &str = "sets::replaced::a_replacement_has_happened_or_not";
const CONTINUED: &str = "sets::replaced::a_rebuild_that_was_interrupted_continues";
const AGAIN: &str = "sets::replaced::a_superzone_that_is_written_again_between_two_pieces_is_copied_anew";

/// Each bug, and a test that must notice it.
const BUGS: [(&str, &str); 18] = [
    ("set-joining", JOINED),
    ("set-rebuild-flush", REPLACED),
    ("set-rebuild-append", REPLACED),
    ("set-rebuild-reset", AGAIN),
    ("set-rebuild-compare", CONTINUED),
    ("set-repair", COPIED),
    ("set-one-copy", UNREADABLE),
    ("set-lost-header", HEADER),
    ("set-early-slot", SLOT),
    ("set-keep-header", FIRST),
    ("set-probe", READS),
    ("set-label-in-place", IN_PLACE),
    ("set-pad", CUTS),
    ("set-compare", CUTS),
    ("set-reset", CUTS),
    ("set-generation", LOST),
    ("set-label-zone", LOST),
    ("set-stale", STALE),
];

pub(super) fn plant() {
    trial::plant(BUG);
}

#[test]
fn every_planted_bug_is_noticed() {
    assert_eq!(trial::unnoticed(BUG, &BUGS), Vec::<&str>::new());
}

#[test]
fn every_planted_bug_is_tried() {
    let named = trial::named_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let of_sets: BTreeSet<String> = named.into_iter().filter(|bug| bug.starts_with("set-")).collect();
    assert_eq!(of_sets, BUGS.iter().map(|(bug, _)| (*bug).to_owned()).collect());
}
