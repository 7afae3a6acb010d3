//! Costs are proportional to the number of items: each operation is done to N and to 4 N items, and the costs are
//! compared, in processor time of this thread and in commands to the device.
//!
//! Four times as many items may cost at most [`RATIO_MAX`] times as much. Quadratic costs are sixteen times as high.
//! Time is the least of several rounds. A case fails only when it has been repeated for [`PATIENCE`], because other
//! programs on the machine slow down all rounds of a short time. The acceptance point `scale` measures the costs of a
//! mount and of the commands.

mod damage;
mod data;
mod locks;
mod names;
mod zones;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use emulated::{Emulated, Spec};
use fs::{Fs, MountOptions};
use rt::{Clock, ManualClock, SystemClock};
use rustix::time::{ClockId, clock_gettime};

use crate::support::Volume;

/// Proportional costs are 4 times as high, and a little more if trees have become higher.
const RATIO_MAX: f64 = 8.0;
/// A case is repeated for this long before it fails.
const PATIENCE: Duration = Duration::from_secs(10);
/// Times below this for 4 N are too short to compare.
const TIME_NS_MIN: u64 = 1_000_000;
/// The same for each of the 4 N items. An operation that looks at thousands of other items takes longer. A shorter one
/// depends on which caches of the processor have the items.
const TIME_NS_MIN_PER_ITEM: u64 = 500;
/// One command per this number of items may be accidental, like that of a checkpoint.
const THINGS_PER_COMMAND: u64 = 4;

/// The costs of an operation.
#[derive(Clone, Copy, Debug)]
struct Cost {
    time_ns: u64,
    commands: u64,
}

/// The measurements of one case, in order.
pub(crate) struct Meter {
    device: Arc<Emulated>,
    costs: Vec<(&'static str, Cost)>,
}

impl Meter {
    pub(crate) fn new(device: &Arc<Emulated>) -> Self {
        Meter { device: Arc::clone(device), costs: Vec::new() }
    }

    /// Runs an operation on all items.
    pub(crate) fn measure<T>(&mut self, what: &'static str, work: impl FnOnce() -> T) -> T {
        let (began_ns, before) = (time_ns(), self.device.counters().total());
        let done = work();
        let cost = Cost { time_ns: time_ns() - began_ns, commands: self.device.counters().total() - before };
        self.costs.push((what, cost));
        done
    }
}

impl Meter {
    /// Notes a count.
    pub(crate) fn count(&mut self, what: &'static str, count: u64) {
        self.costs.push((what, Cost { time_ns: 0, commands: count }));
    }
}

/// Of this thread alone, so that other programs may use the machine.
fn time_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The least costs of each operation with N and with 4 N.
#[derive(Default)]
struct Table(BTreeMap<(usize, &'static str), [Option<Cost>; 2]>);

impl Table {
    fn add(&mut self, size: usize, meter: Meter) {
        for (place, (what, cost)) in meter.costs.into_iter().enumerate() {
            let least = &mut self.0.entry((place, what)).or_default()[size];
            let time_ns = least.map_or(cost.time_ns, |least| least.time_ns.min(cost.time_ns));
            *least = Some(Cost { time_ns, ..cost });
        }
    }

    fn rows(&self) -> impl Iterator<Item = (&'static str, Cost, Cost)> {
        let both = |(&(_, what), costs): (&(usize, &'static str), &[Option<Cost>; 2])| {
            let [small, large] = costs.map(|cost| cost.expect("the same is done to N and to 4 N"));
            (what, small, large)
        };
        self.0.iter().map(both)
    }

    fn too_much(&self, number: u64) -> Vec<&'static str> {
        let is_too_much = |(what, small, large): (&'static str, Cost, Cost)| {
            let is_comparable = large.time_ns >= TIME_NS_MIN.max(4 * number * TIME_NS_MIN_PER_ITEM);
            let time = is_comparable && ratio(small.time_ns, large.time_ns) > RATIO_MAX;
            let commands = small.commands.max(number / THINGS_PER_COMMAND);
            let commands = ratio(commands, large.commands) > RATIO_MAX;
            (time || commands).then_some(what)
        };
        self.rows().filter_map(is_too_much).collect()
    }

    fn show(&self, of: &str, number: u64) {
        for (what, small, large) in self.rows() {
            println!(
                "{:<44} {number:>6} {:>10} {:>10} us {:>5.1}   {:>7} {:>7} commands {:>5.1}",
                format!("{of}: {what}"),
                small.time_ns / 1000,
                large.time_ns / 1000,
                ratio(small.time_ns, large.time_ns),
                small.commands,
                large.commands,
                ratio(small.commands, large.commands),
            );
        }
    }
}

fn ratio(small: u64, large: u64) -> f64 {
    large as f64 / small.max(1) as f64
}

/// Compares N with 4 N.
#[track_caller]
pub(crate) fn compare(of: &str, number: u64, case: impl Fn(u64) -> Meter) {
    let mut table = Table::default();
    let clock = SystemClock::new();
    loop {
        table.add(0, case(number));
        table.add(1, case(4 * number));
        if table.too_much(number).is_empty() || Duration::from_nanos(clock.monotonic_ns()) > PATIENCE {
            break;
        }
    }
    table.show(of, number);
    assert!(table.rows().count() > 0, "{of}: something is measured");
    assert_eq!(
        table.too_much(number),
        [""; 0],
        "{of}: 4 times as much costs more than {RATIO_MAX} times as much"
    );
}

/// A volume with space for everything here; zones of 4 MiB.
pub(crate) fn volume() -> Volume {
    remount(Volume::on(Spec::new(4096, 64, 1024)))
}

/// Mounts with memory for all metadata: reads for lack of memory are not proportional and not the subject here.
pub(crate) fn mount(device: &Arc<Emulated>, clock: &Arc<ManualClock>) -> Arc<Fs> {
    let clock: Arc<ManualClock> = Arc::clone(clock);
    let options =
        MountOptions { cache_bytes: 128 << 20, read_only: false, commit_interval_ns: 5_000_000_000, clock };
    Fs::mount(device.clone(), options).expect("the volume can be mounted").0
}

/// Mounts again without an unmount.
pub(crate) fn kill(volume: Volume) -> Volume {
    let Volume { device, clock, fs } = volume;
    drop(fs);
    device.reopen();
    let fs = mount(&device, &clock);
    Volume { device, clock, fs }
}

pub(crate) fn remount(volume: Volume) -> Volume {
    volume.fs.unmount().expect("a sound volume unmounts");
    kill(volume)
}

/// The number of an item, with the same number of digits for all.
pub(crate) fn name(number: u64) -> String {
    format!("name-{number:06}")
}

/// The harness must be able to fail.
#[test]
fn quadratic_growth_is_detected() {
    let device = volume().device;
    let quadratic = |number: u64| {
        let mut meter = Meter::new(&device);
        let all: Vec<u64> = (0..number).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        meter.measure("search", || {
            let found = all.iter().filter(|one| all.iter().any(|other| other ^ 1 == **one)).count();
            std::hint::black_box(found);
        });
        meter
    };
    let caught =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| compare("canary", 3000, quadratic)));
    assert!(caught.is_err(), "a search through all for each is quadratic");
}
