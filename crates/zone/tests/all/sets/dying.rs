//! Members that fail without an error of the whole device: disks that die, or that only read.

use std::sync::Arc;

use super::cuts::small;
use super::wrapped::{Health, WrappedSet, dynamic};
use crate::zone::set::{Layout, MemberState, Set};
use crate::zone::{Blocks, Device, Result, ZoneId};
use emulated::CommandKind;

fn mirror(width: usize) -> WrappedSet {
    WrappedSet::new(Layout::Mirror, &vec![small(); width])
}

fn append(set: &Set, zone: u32, tag: u8) -> Result<Blocks> {
    set.append(ZoneId(zone), &crate::pattern(set, tag, 1))
}

type Try = fn(&Set) -> bool;

const CHANGES: [(&str, Try); 4] = [
    ("append", |set| append(set, 1, 2).is_ok_and(|at| at == 1)),
    ("first append", |set| append(set, 2, 2).is_ok_and(|at| at == 0)),
    ("finish", |set| set.finish(ZoneId(1)).is_ok()),
    ("reset", |set| set.reset(ZoneId(1)).is_ok()),
];

const OTHERS: [(&str, Try); 3] = [
    ("flush", |set| set.flush().is_ok()),
    ("report", |set| set.report().is_ok() && set.report_zone(ZoneId(1)).is_ok()),
    ("read in recovery", |set| crate::tags(set, 1, 0, 1) == [1]),
];

fn is_excluded(width: usize, position: usize, health: Health, (name, command): (&str, Try)) {
    let WrappedSet { members, wrapped, set } = mirror(width);
    append(&set, 1, 1).unwrap();
    wrapped[position].set_health(health);
    assert!(command(&set), "{name} of {width} without {position}");
    assert_eq!(set.members()[position], MemberState::Failed, "{name}");
    append(&set, 3, 1).unwrap();
    let again = Set::open(super::devices(&members), true).unwrap();
    assert_eq!(again.members()[position], MemberState::Failed, "{name}");
}

#[test]
fn a_disk_that_dies_is_excluded_and_the_command_succeeds() {
    for (width, position) in [(2, 0), (2, 1), (3, 1)] {
        for command in CHANGES.into_iter().chain(OTHERS) {
            is_excluded(width, position, Health::Dead, command);
        }
    }
}

#[test]
fn a_disk_that_only_reads_is_excluded_and_the_command_succeeds() {
    for (width, position) in [(2, 0), (2, 1), (3, 1)] {
        for command in CHANGES {
            is_excluded(width, position, Health::ReadsOnly, command);
        }
    }
}

#[test]
fn a_disk_that_is_dead_at_opening_counts_as_missing() {
    let WrappedSet { wrapped, set, .. } = mirror(2);
    append(&set, 1, 1).unwrap();
    drop(set);
    wrapped[0].set_health(Health::Dead);
    let set = Set::open(dynamic(&wrapped), true).unwrap();
    assert_eq!(set.members(), [MemberState::Failed, MemberState::Counts]);
    assert_eq!(crate::tags(&set, 1, 0, 1), [1]);
}

/// A flush that begins after a reset was noted, and before the member has executed it, does not make it durable.
#[test]
fn a_flush_during_a_reset_does_not_cover_it() {
    let WrappedSet { members, wrapped, set } = mirror(2);
    append(&set, 1, 1).unwrap();
    set.flush().unwrap();
    let weak = Arc::downgrade(&set);
    wrapped[1].before_commands(move |operation, _| {
        if let Some(set) = weak.upgrade().filter(|_| operation == "reset") {
            set.flush().unwrap();
        }
    });
    set.reset(ZoneId(1)).unwrap();
    let flushes = || members[1].counters().of(CommandKind::Flush);
    let before = flushes();
    append(&set, 1, 2).unwrap();
    assert_eq!(flushes(), before + 1, "the reset is made durable before the new life");
    append(&set, 1, 3).unwrap();
    assert_eq!(flushes(), before + 1);
}

/// Reads do not wait for a label, which is flushed several times.
#[test]
fn a_read_does_not_wait_while_labels_are_written() {
    let WrappedSet { members, wrapped, set } = mirror(3);
    append(&set, 1, 1).unwrap();
    set.end_recovery();
    let (weak, reads) = (Arc::downgrade(&set), Arc::new(std::sync::atomic::AtomicU32::new(0)));
    let count = Arc::clone(&reads);
    wrapped[2].before_commands(move |operation, zone| {
        let Some(set) = weak.upgrade().filter(|_| operation == "append" && zone.0 < super::LABEL_ZONES)
        else {
            return;
        };
        let (sender, receiver) = std::sync::mpsc::channel();
        rt::thread::spawn("reader", move || sender.send(crate::tags(&*set, 1, 0, 1))).unwrap();
        let read = receiver.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(read.expect("the read does not wait for the label"), [1]);
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    members[1].lose_power_after(0);
    set.flush().unwrap();
    assert_eq!(reads.load(std::sync::atomic::Ordering::Relaxed), 2, "one for each copy of the label");
}
