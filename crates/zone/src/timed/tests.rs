use super::*;
use crate::emulated::{Emulated, Spec};

const BLOCK: usize = 4096;

fn timed() -> Timed {
    let below = Emulated::new(Spec::new(BLOCK as u32, 32, 1024).max_append(256));
    Timed::new(Arc::new(below), Arc::default(), Model::ssd(), 2)
}

fn took(timed: &Timed, work: impl FnOnce(&Timed)) -> u64 {
    let before = timed.clock().monotonic_ns();
    work(timed);
    timed.clock().monotonic_ns() - before
}

fn append(timed: &Timed, zone: u32, blocks: usize) {
    timed.append(ZoneId(zone), &vec![1; blocks * BLOCK]).unwrap();
}

#[test]
fn an_idle_device_takes_what_the_model_says() {
    let timed = timed();
    assert_eq!(took(&timed, |t| append(t, 0, 1)), 15_000);
    assert_eq!(took(&timed, |t| append(t, 0, 256)), (1 << 20) * 10 / 12);
    assert_eq!(took(&timed, |t| t.read(ZoneId(0), 0, &mut [0; BLOCK]).unwrap()), 70_000);
    let mut large = vec![0; 256 * BLOCK];
    assert_eq!(took(&timed, |t| t.read(ZoneId(0), 0, &mut large).unwrap()), (1 << 20) / 3);
    assert_eq!(took(&timed, |t| t.flush().unwrap()), 15_000);
    assert_eq!(took(&timed, |t| t.finish(ZoneId(0)).unwrap()), 0);
    assert_eq!(took(&timed, |t| t.reset(ZoneId(0)).unwrap()), 3_000_000);
    assert_eq!(timed.times().of(Kind::Write).waited_ns_max, 0);
}

#[test]
fn channels_work_side_by_side_and_share_the_link() {
    let timed = timed();
    let block = vec![1; BLOCK];
    let appends = |zones: [u32; 8]| {
        let batch = zones.map(|zone| Command::Append { zone: ZoneId(zone), from: &block });
        took(&timed, |t| assert!(t.run(&mut Vec::from(batch)).iter().all(Result::is_ok)))
    };
    let transfer = BLOCK as u64 * 10 / 12;
    assert_eq!(appends([0, 1, 2, 3, 4, 5, 6, 7]), 8 * transfer);
    assert_eq!(appends([0, 8, 0, 8, 0, 8, 0, 8]), 8 * 15_000, "one channel, one after the other");
    assert_eq!(timed.times().of(Kind::Write).commands, 16);
    assert_eq!(timed.times().of(Kind::Write).waited_ns_max, 7 * 15_000);
}

#[test]
fn a_reset_holds_up_its_channel_only() {
    let timed = timed();
    append(&timed, 8, 1);
    timed.in_background(0, || timed.reset(ZoneId(8)).unwrap());
    assert_eq!(took(&timed, |t| append(t, 1, 1)), 15_000);
    assert_eq!(took(&timed, |t| append(t, 0, 1)), 3_000_000, "issued 15 µs later, and behind the reset");
}

#[test]
fn background_commands_are_issued_in_their_own_time() {
    let timed = timed();
    let large = 256 * BLOCK as u64 * 10 / 12;
    assert_eq!(took(&timed, |t| t.in_background(0, || (0..10).for_each(|_| append(t, 1, 100)))), 0);
    assert!(!timed.background_is_free(0));
    // The link is busy with one command of background work, not with all that it will issue.
    let behind_one = took(&timed, |t| append(t, 2, 256));
    assert_eq!(behind_one, 100 * BLOCK as u64 * 10 / 12 + large);
    timed.wait_until(u64::MAX);
    assert!(timed.background_is_free(0));
    assert_eq!(timed.times().of(Kind::Write).commands, 11);
    // A piece begins when the last is over, unless there was nothing to do meanwhile.
    let before = timed.clock().monotonic_ns();
    timed.clock().advance(1_000_000);
    timed.background_idles(0);
    timed.in_background(0, || append(&timed, 3, 1));
    timed.wait_until(u64::MAX);
    assert_eq!(timed.clock().monotonic_ns(), before + 1_015_000);
}

#[test]
fn waiting_ends_when_told_while_background_work_goes_on() {
    let timed = timed();
    timed.in_background(0, || append(&timed, 1, 256));
    timed.wait_until(1_000);
    assert_eq!((timed.clock().monotonic_ns(), timed.background_is_free(0)), (1_000, false));
}

#[test]
fn lanes_work_side_by_side_and_the_first_that_is_done_ends_a_wait() {
    let timed = timed();
    append(&timed, 8, 1);
    let began = timed.clock().monotonic_ns();
    (0..2).for_each(|lane| timed.background_idles(lane));
    timed.in_background(0, || timed.reset(ZoneId(8)).unwrap());
    timed.in_background(1, || (0..2).for_each(|_| append(&timed, 1, 256)));
    let transfer = 256 * BLOCK as u64 * 10 / 12;
    timed.wait_until(u64::MAX);
    assert_eq!(timed.clock().monotonic_ns() - began, 2 * transfer, "not behind the reset of the other");
    assert!(timed.background_is_free(1) && !timed.background_is_free(0));
    timed.wait_until(u64::MAX);
    assert_eq!(timed.clock().monotonic_ns() - began, 3_000_000);
    assert!(timed.background_is_free(0));
}

#[test]
fn an_arm_takes_its_time_to_go_elsewhere() {
    let below = Emulated::new(Spec::new(BLOCK as u32, 32, 1024).max_append(256).disk());
    let timed = Timed::new(Arc::new(below), Arc::default(), Model::shingled(), 1);
    let (least, seek) = (100_000, 8_000_000);
    let read =
        |zone: u32, block: Blocks| took(&timed, |t| t.read(ZoneId(zone), block, &mut [0; BLOCK]).unwrap());
    assert_eq!(took(&timed, |t| append(t, 1, 100)), seek + 100 * BLOCK as u64 * 4);
    assert_eq!(took(&timed, |t| append(t, 1, 1)), least, "it goes on where it was");
    assert_eq!(read(1, 0), seek + least);
    assert_eq!(read(1, 1), least);
    assert_eq!(read(1, 12), 10 * BLOCK as u64 * 4 + least, "no longer than what is passed over");
    assert_eq!(read(1, 11), seek + least, "it turns one way");
    assert_eq!(took(&timed, |t| append(t, 2, 1)), seek + least);
    assert_eq!(took(&timed, |t| append(t, 1, 1)), seek + least);
}
