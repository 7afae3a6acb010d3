//! Members that get their parts of a command at the same time.

use std::sync::Arc;
use std::time::Duration;

use rt::sync::{Condvar, Mutex};
use rt::thread::Stop;
use rt::{Clock, SystemClock};

use super::wrapped::{Health, WrappedSet};
use super::{VOLUME, devices};
use crate::zone::set::{Layout, MemberState, Set};
use crate::zone::{Blocks, Command, Device, Geometry, Output, Result, ZoneId, ZoneInfo, ZoneState};
use emulated::{CommandKind, Effect, Emulated, Fault, Spec};

/// A chunk that makes all members take part in a large command.
const STRIPE: Layout = Layout::Stripe { chunk: 4 };

/// Blocks of a large command.
const LARGE: u32 = 96;

fn spec() -> Spec {
    Spec::power_of_two().max_append(128)
}

/// A place at which a number of threads wait for each other.
#[derive(Default)]
struct Meeting {
    /// How many have come since all met, and how often all met.
    state: Mutex<(usize, u64)>,
    changed: Condvar,
}

impl Meeting {
    fn wait_for(&self, count: usize) {
        let mut state = self.state.lock();
        let round = state.1;
        state.0 += 1;
        if state.0 == count {
            *state = (0, round + 1);
            self.changed.notify_all();
        }
        for _ in 0..20 {
            if state.1 > round {
                return;
            }
            self.changed.wait_for(&mut state, Duration::from_secs(1));
        }
        assert!(state.1 > round, "the members get their parts at the same time");
    }

    fn rounds(&self) -> u64 {
        self.state.lock().1
    }
}

#[test]
fn members_get_large_commands_and_flushes_at_the_same_time() {
    for (layout, width) in [(STRIPE, 3), (Layout::Mirror, 2), (Layout::Mirror, 3)] {
        let WrappedSet { wrapped, set, .. } = WrappedSet::new(layout, &vec![spec(); width]);
        set.append(ZoneId(1), &crate::pattern(&*set, 0, 1)).unwrap();
        set.end_recovery();
        let meeting = Arc::new(Meeting::default());
        for member in &wrapped {
            let meeting = Arc::clone(&meeting);
            member.before_commands(move |operation, _| {
                if matches!(operation, "append" | "flush" | "batch") {
                    meeting.wait_for(width);
                }
            });
        }
        let bytes: Vec<u8> = (1..=LARGE as u8).flat_map(|tag| crate::pattern(&*set, tag, 1)).collect();
        assert_eq!(set.append(ZoneId(1), &bytes).unwrap(), 1);
        set.flush().unwrap();
        assert_eq!(meeting.rounds(), 2, "{layout:?}");
        if layout == STRIPE {
            let mut found = vec![0; bytes.len()];
            set.read(ZoneId(1), 1, &mut found).unwrap();
            assert!(found == bytes);
            assert_eq!(meeting.rounds(), 3);
        }
    }
}

/// A member fails in a command of which the others get their parts at the same time.
#[test]
fn a_member_fails_in_a_large_command() {
    for (width, position) in [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)] {
        for health in [Health::ReadsOnly, Health::Dead] {
            let WrappedSet { members, wrapped, set } = WrappedSet::new(Layout::Mirror, &vec![spec(); width]);
            let bytes: Vec<u8> = (0..LARGE as u8).flat_map(|tag| crate::pattern(&*set, tag, 1)).collect();
            assert_eq!(set.append(ZoneId(1), &bytes).unwrap(), 0);
            wrapped[position].set_health(health);
            assert_eq!(set.append(ZoneId(1), &bytes).unwrap(), LARGE);
            assert_eq!(set.members()[position], MemberState::Failed);
            set.flush().unwrap();
            drop(set);
            let set = Set::open(devices(&members), true).unwrap();
            assert_eq!(set.members()[position], MemberState::Failed);
            let expected: Vec<u8> = (0..LARGE as u8).chain(0..LARGE as u8).collect();
            assert_eq!(crate::tags(&set, 1, 0, 2 * LARGE), expected);
        }
    }
}

/// One zone of one member fails: members agree about the superzone, and others can be used.
#[test]
fn an_append_to_one_member_fails_in_a_large_command() {
    for (layout, effect) in [STRIPE, Layout::Mirror].into_iter().flat_map(|layout| {
        [Effect::Error, Effect::Torn(5), Effect::TurnReadOnly(3)].map(|effect| (layout, effect))
    }) {
        for position in 0..3 {
            let WrappedSet { members, set, .. } = WrappedSet::new(layout, &vec![spec(); 3]);
            let bytes = vec![7; LARGE as usize * 4096];
            assert_eq!(set.append(ZoneId(1), &bytes).unwrap(), 0);
            members[position].inject(Fault::nth(CommandKind::Append, 1, effect).on(super::member_zone(1)));
            set.append(ZoneId(1), &bytes).unwrap_err();
            let info = set.report_zone(ZoneId(1)).unwrap();
            match effect {
                Effect::TurnReadOnly(_) => assert_eq!(info.state, ZoneState::ReadOnly),
                _ => assert!(info.state == ZoneState::Open && info.pointer >= LARGE, "{info:?}"),
            }
            assert!(crate::tags(&*set, 1, 0, LARGE).iter().all(|&tag| tag == 7), "{layout:?} {effect:?}");
            assert_eq!(set.append(ZoneId(2), &bytes).unwrap(), 0);
            assert_eq!(set.members(), [MemberState::Counts; 3]);
        }
    }
}

/// Bytes that a device of the comparison transfers in a second.
const RATE: f64 = 50e6;

/// The commands of one mebibyte that are compared.
const COMMANDS: u32 = 24;

/// A device with a limited rate in real time, which executes one command after the other.
struct Paced {
    device: Emulated,
    rate: f64,
    line: Mutex<()>,
    clock: Stop,
}

impl Paced {
    fn with_rate(rate: f64) -> Arc<dyn Device> {
        let device = Emulated::new(Spec::new(4096, 40, 4096).max_append(256));
        Arc::new(Paced { device, rate, line: Mutex::new(()), clock: Stop::default() })
    }

    fn take(&self, bytes: usize) {
        let _line = self.line.lock();
        assert!(!self.clock.wait(Duration::from_secs_f64(bytes as f64 / self.rate)));
    }
}

impl Device for Paced {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self) -> Result<Vec<ZoneInfo>> {
        self.device.report()
    }

    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo> {
        self.device.report_zone(zone)
    }

    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<()> {
        self.take(into.len());
        self.device.read(zone, block, into)
    }

    fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks> {
        self.take(from.len());
        self.device.append(zone, from)
    }

    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        let bytes = batch.iter().map(|command| match command {
            Command::Read { into, .. } => into.len(),
            Command::Append { from, .. } => from.len(),
        });
        self.take(bytes.sum());
        self.device.run(batch)
    }

    fn finish(&self, zone: ZoneId) -> Result<()> {
        self.device.finish(zone)
    }

    fn reset(&self, zone: ZoneId) -> Result<()> {
        self.device.reset(zone)
    }

    fn flush(&self) -> Result<()> {
        // A millisecond.
        self.take(self.rate as usize / 1000);
        self.device.flush()
    }
}

/// The times of one thread that writes, and then reads, in commands of one mebibyte: of all commands, and of the
/// fastest one.
struct Times {
    write: [f64; 2],
    read: [f64; 2],
}

impl Times {
    fn of(device: &dyn Device) -> Times {
        let clock = SystemClock::new();
        let measure = |command: &mut dyn FnMut(u32)| {
            let mut times = Vec::new();
            for number in 0..COMMANDS {
                let begin = clock.monotonic_ns();
                command(number);
                times.push((clock.monotonic_ns() - begin) as f64);
            }
            [times.iter().sum(), times.iter().copied().fold(f64::INFINITY, f64::min)]
        };
        let mut bytes = vec![7; 1 << 20];
        let write = measure(&mut |number| {
            device.append(ZoneId(number / 8), &bytes).unwrap();
            if number + 1 == COMMANDS {
                device.flush().unwrap();
            }
        });
        device.end_recovery();
        let read = measure(&mut |number| {
            device.read(ZoneId(number / 8), number % 8 * 256, &mut bytes).unwrap();
        });
        Times { write, read }
    }
}

/// The fastest command is compared, because others may have waited for a processor.
#[test]
fn a_stripe_is_faster_than_one_device_and_a_mirror_not_slower() {
    let one = Times::of(&*Paced::with_rate(RATE));
    for (layout, width, least) in [(Layout::STRIPE, 3, 2.7), (Layout::Mirror, 2, 0.95)] {
        let members = (0..width).map(|_| Paced::with_rate(RATE)).collect();
        let times = Times::of(&Set::create(layout, members, VOLUME, 0).unwrap());
        let ratio = |one: [f64; 2], set: [f64; 2]| [one[0] / set[0], one[1] / set[1]];
        let (write, read) = (ratio(one.write, times.write), ratio(one.read, times.read));
        println!(
            "{layout:?} of {width}: write {:.2}, read {:.2}; fastest write {:.2}, read {:.2}",
            write[0], read[0], write[1], read[1],
        );
        assert!(write[1] >= least, "{layout:?}: {write:?}");
    }
}
