//! Proof that these tests can fail: each of these bugs (`rt::is_planted`) removes something that separates threads, and
//! the test beside it has to fail. A process plants at most one bug, so each bug has a process of its own.

use std::process::Command;

const PLANT: &str = "POLDER_SHUTTLE_PLANT";
/// Plants the bug that the environment names.
pub(crate) fn plant() {
    if let Ok(bug) = std::env::var(PLANT) {
        rt::plant(bug);
    }
}

/// The test fails with the bug.
fn notices(test: &str, bug: &str) {
    notices_within(1, test, bug);
}

/// The same with this number of times the schedules of the test. It ends with the first schedule that fails. Which one
/// that is changes with every lock that is added anywhere.
fn notices_within(times: u64, test: &str, bug: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(PLANT, bug);
    let times = times * crate::setting("POLDER_SHUTTLE_TIMES", 1);
    let output = command.env("POLDER_SHUTTLE_TIMES", times.to_string()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("running 1 test"), "there is a test {test}");
    assert!(!output.status.success(), "{test} does not notice {bug}");
    let errors = String::from_utf8_lossy(&output.stderr);
    let mut lines = errors.lines().skip_while(|line| !line.contains(" panicked at "));
    println!("{bug}: noticed by {test}: {}", lines.nth(1).unwrap_or_default());
}

#[test]
fn a_flush_that_acknowledges_too_much_is_noticed() {
    notices("group_commit::acknowledged_transactions_survive", "break-follower");
}

#[test]
fn a_node_that_is_written_in_a_version_after_the_cut_is_noticed() {
    notices("checkpoint::recovery_finds_a_prefix", "break-frozen");
}

#[test]
fn a_mark_with_a_later_epoch_than_the_next_batch_is_noticed() {
    notices_within(6, "checkpoint::durable_marks_hide_no_transaction", "break-mark-epoch");
}

#[test]
fn a_move_of_an_overwritten_block_is_noticed() {
    notices("gc::reads_return_no_moved_or_reset_blocks", "break-gc-recheck");
}

#[test]
fn a_move_of_an_overwritten_block_by_a_throttled_writer_is_noticed() {
    notices("throttle::writers_that_do_gc_in_turn_lose_nothing", "break-gc-recheck");
}

#[test]
fn a_zone_that_is_reset_under_its_reader_is_noticed() {
    notices_within(8, "gc::no_thread_uses_a_zone_that_is_reset", "break-zone-reference");
}

#[test]
fn a_zone_that_is_reset_under_its_writer_is_noticed() {
    notices_within(4, "gc::no_thread_uses_a_zone_that_is_reset", "break-pending");
}

#[test]
fn an_outdated_node_in_the_cache_is_noticed() {
    notices_within(4, "cache::lookups_find_the_newest_commit", "break-read-node");
}

#[test]
fn a_lease_too_many_is_noticed() {
    notices("leases::leases_never_exceed_the_limit_of_the_device", "break-lease-count");
}

#[test]
fn blocks_that_are_returned_without_notification_are_noticed() {
    notices_within(4, "full::allocated_blocks_can_be_overwritten", "break-returned");
}
