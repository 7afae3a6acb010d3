//! Shows that the tests of sets notice mistakes: each rule is left out once, and a test must fail.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Once;

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

/// Each bug, and a test that must notice it.
const BUGS: [(&str, &str); 13] = [
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

/// Plants the bug that the environment names.
pub(super) fn plant() {
    static PLANTED: Once = Once::new();
    PLANTED.call_once(|| {
        if let Ok(bug) = std::env::var(BUG) {
            rt::plant(bug);
        }
    });
}

fn passes(bug: Option<&str>, test: &str) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]);
    bug.map(|bug| command.env(BUG, bug));
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(words.contains("running 1 test"), "{test} exists: {words}");
    output.status.success()
}

#[test]
fn every_planted_bug_is_noticed() {
    let tests: BTreeSet<&str> = BUGS.iter().map(|(_, test)| *test).collect();
    assert!(tests.iter().all(|test| passes(None, test)), "without a bug nothing fails");
    let missed: Vec<&str> =
        BUGS.iter().filter(|(bug, test)| passes(Some(bug), test)).map(|(bug, _)| *bug).collect();
    assert!(missed.is_empty(), "these were not noticed: {missed:?}");
}

#[test]
fn every_planted_bug_is_tried() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/set");
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(sources).unwrap() {
        let path = entry.unwrap().path();
        let text = if path.is_file() { std::fs::read_to_string(path).unwrap() } else { String::new() };
        found.extend(
            text.split("is_planted(\"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned),
        );
    }
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/set.rs")).unwrap();
    found.extend(
        text.split("is_planted(\"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned),
    );
    assert_eq!(found, BUGS.iter().map(|(bug, _)| (*bug).to_owned()).collect());
}
