//! The tests here would notice: each of these bugs (`rt::is_planted`) takes something away that keeps threads apart,
//! and the test beside it has to fail. A process makes one bug at most, so each is made in one of its own.

use std::process::Command;

const PLANT: &str = "POLDER_SHUTTLE_PLANT";
/// Makes the bug that this process was asked to make.
pub(crate) fn plant() {
    if let Ok(bug) = std::env::var(PLANT) {
        rt::plant(bug);
    }
}

/// The test fails when the bug is made.
fn notices(test: &str, bug: &str) {
    notices_within(1, test, bug);
}

/// The same in so many times as many schedules as the test takes; it ends with the first that fails. In which one that
/// is changes with every lock that is added anywhere.
fn notices_within(times: u64, test: &str, bug: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(PLANT, bug);
    let times = times * crate::setting("POLDER_SHUTTLE_TIMES", 1);
    let output = command.env("POLDER_SHUTTLE_TIMES", times.to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("running 1 test"), "there is a test {test}");
    assert!(!output.status.success(), "{test} does not notice {bug}");
    let why = String::from_utf8_lossy(&output.stderr);
    let mut lines = why.lines().skip_while(|line| !line.contains(" panicked at "));
    println!("{bug}: noticed by {test}: {}", lines.nth(1).unwrap_or_default());
}

#[test]
fn a_flush_that_says_too_much_is_noticed() {
    notices("group_commit::what_was_acknowledged_survives", "break-follower");
}

#[test]
fn a_node_that_is_saved_as_it_was_not_at_the_cut_is_noticed() {
    notices("checkpoint::what_is_found_is_a_prefix", "break-frozen");
}

#[test]
fn a_mark_of_a_later_epoch_than_what_comes_after_it_is_noticed() {
    notices_within(6, "checkpoint::what_is_said_to_be_durable_hides_nothing", "break-mark-epoch");
}

#[test]
fn a_block_that_is_moved_although_it_was_written_over_is_noticed() {
    notices("collection::nobody_reads_what_was_moved_or_reset", "break-gc-recheck");
}

#[test]
fn a_block_that_is_moved_ahead_although_it_was_written_over_is_noticed() {
    notices("quiet::nobody_misses_what_is_moved_ahead", "break-gc-recheck");
}

#[test]
fn a_zone_that_is_reset_under_its_reader_is_noticed() {
    notices_within(8, "collection::nobody_uses_a_zone_that_is_reset", "break-zone-reference");
}

#[test]
fn a_zone_that_is_reset_under_its_writer_is_noticed() {
    notices_within(4, "collection::nobody_uses_a_zone_that_is_reset", "break-pending");
}

#[test]
fn a_node_that_was_read_before_it_was_written_anew_is_noticed() {
    notices_within(4, "cache::look_ups_find_what_was_committed_last", "break-read-node");
}

#[test]
fn a_lease_too_many_is_noticed() {
    notices("leases::there_are_never_more_than_the_device_allows", "break-lease-count");
}

#[test]
fn room_that_is_given_back_without_a_word_is_noticed() {
    notices_within(4, "full::what_was_allocated_can_be_written_over", "break-returned");
}
