use rt::schedule::{self, Body};

use super::*;
use crate::emulated::{Emulated, Spec};

const BLOCK: usize = 4096;

fn timed() -> Timed {
    let below = Emulated::new(Spec::new(BLOCK as u32, 32, 1024).max_append(256));
    Timed::new(Arc::new(below), Arc::default(), Model::ssd())
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
fn an_idle_device_has_the_times_of_the_model() {
    let timed = timed();
    assert_eq!(took(&timed, |t| append(t, 0, 1)), 15_000);
    assert_eq!(took(&timed, |t| append(t, 0, 256)), (1 << 20) * 10 / 12);
    assert_eq!(took(&timed, |t| t.read(ZoneId(0), 0, &mut [0; BLOCK]).unwrap()), 70_000);
    let mut large = vec![0; 256 * BLOCK];
    assert_eq!(took(&timed, |t| t.read(ZoneId(0), 0, &mut large).unwrap()), (1 << 20) / 3);
    assert_eq!(took(&timed, |t| t.flush().unwrap()), 15_000);
    assert_eq!(took(&timed, |t| t.finish(ZoneId(0)).unwrap()), 0);
    assert_eq!(took(&timed, |t| t.reset(ZoneId(0)).unwrap()), 3_000_000);
    assert_eq!(timed.times().of(CommandClass::Write).waited_ns_max, 0);
}

#[test]
fn channels_work_in_parallel_and_share_the_link() {
    let timed = timed();
    let block = vec![1; BLOCK];
    let appends = |zones: [u32; 8]| {
        let batch = zones.map(|zone| Command::Append { zone: ZoneId(zone), from: &block });
        took(&timed, |t| assert!(t.run(&mut Vec::from(batch)).iter().all(Result::is_ok)))
    };
    let transfer = BLOCK as u64 * 10 / 12;
    assert_eq!(appends([0, 1, 2, 3, 4, 5, 6, 7]), 8 * transfer);
    assert_eq!(appends([0, 8, 0, 8, 0, 8, 0, 8]), 8 * 15_000, "one channel, one after the other");
    assert_eq!(timed.times().of(CommandClass::Write).commands, 16);
    assert_eq!(timed.times().of(CommandClass::Write).waited_ns_max, 7 * 15_000);
}

/// Runs each work in a thread of its own; returns the time of each.
fn in_parallel(timed: &Timed, works: [fn(&Timed); 2]) -> Vec<u64> {
    let body =
        |work: fn(&Timed)| -> Body<'_, u64> { ("client".to_owned(), Box::new(move || took(timed, work))) };
    schedule::run_in_time(timed.clock(), 1, works.map(body).into()).returned
}

#[test]
fn each_thread_counts_the_times_of_its_own_commands() {
    let timed = timed();
    append(&timed, 0, 1);
    let read = || timed.read(ZoneId(0), 0, &mut [0; BLOCK]).unwrap();
    let sleep = || assert!(schedule::sleep_until(timed.clock().monotonic_ns() + 1_000_000));
    let waited = |work: &dyn Fn()| {
        let before = waited_by_this_thread_ns();
        work();
        waited_by_this_thread_ns() - before
    };
    let bodies: Vec<Body<'_, u64>> = vec![
        ("reads".to_owned(), Box::new(|| waited(&read))),
        ("reads as well".to_owned(), Box::new(|| waited(&read))),
        ("gives no command".to_owned(), Box::new(|| waited(&sleep))),
    ];
    let mut waited = schedule::run_in_time(timed.clock(), 1, bodies).returned;
    waited.sort_unstable();
    assert_eq!(waited, [0, 70_000, 140_000], "in whichever order they read");
}

#[test]
fn a_reset_delays_only_its_channel() {
    let timed = timed();
    append(&timed, 8, 1);
    let took = in_parallel(
        &timed,
        [
            |t| t.reset(ZoneId(8)).unwrap(),
            |t| {
                append(t, 1, 1);
                append(t, 0, 1);
            },
        ],
    );
    assert_eq!(took, [3_000_000, 3_015_000], "the second append is issued 15 µs later, and behind the reset");
}

#[test]
fn commands_queue_in_the_order_of_their_times() {
    let timed = timed();
    let transfer = |blocks: u64| blocks * BLOCK as u64 * 10 / 12;
    let took = in_parallel(
        &timed,
        [
            |t| (0..10).for_each(|_| append(t, 1, 96)),
            |t| {
                t.flush().unwrap();
                append(t, 2, 192);
            },
        ],
    );
    // The link is busy with one command of the other thread, not with all its later commands.
    assert_eq!(took, [transfer(10 * 96 + 192), transfer(96 + 192)]);
    assert_eq!(timed.times().of(CommandClass::Write).commands, 11);
}

#[test]
fn seeks_take_time() {
    let below = Emulated::new(Spec::new(BLOCK as u32, 32, 1024).max_append(256).disk());
    let timed = Timed::new(Arc::new(below), Arc::default(), Model::shingled());
    let (least, seek) = (100_000, 8_000_000);
    let read =
        |zone: u32, block: Blocks| took(&timed, |t| t.read(ZoneId(zone), block, &mut [0; BLOCK]).unwrap());
    assert_eq!(took(&timed, |t| append(t, 1, 100)), seek + 100 * BLOCK as u64 * 4);
    assert_eq!(took(&timed, |t| append(t, 1, 1)), least, "it continues at the end of the last command");
    assert_eq!(read(1, 0), seek + least);
    assert_eq!(read(1, 1), least);
    assert_eq!(read(1, 12), 10 * BLOCK as u64 * 4 + least, "no longer than reading the gap");
    assert_eq!(read(1, 11), seek + least, "it cannot go backwards without a seek");
    assert_eq!(took(&timed, |t| append(t, 2, 1)), seek + least);
    assert_eq!(took(&timed, |t| append(t, 1, 1)), seek + least);
}
