//! Volumes of drawn shapes: their zones, blocks, limits and write patterns follow from a seed.
//!
//! Each volume is filled with exactly the available space, overwritten while it is full, compared and emptied, twice
//! ([`super::fill`]). A write that never returns is detected by the number of device commands meanwhile, because no
//! operation has to change the device as often as it has blocks. The seed chooses among all parameters that `mkfs`
//! accepts. A shape that `mkfs` would refuse is given more zones until `mkfs` accepts it.

use std::collections::BTreeMap;
use std::fmt;

use emulated::Spec;
use fs::{Fs, Reserve};
use rt::random::Rng;

use super::{Filled, Library, Order, Place, Setup, Way, fill};
use crate::caught::{Wrong, caught};

/// Limit for the bytes of a device, unless the fewest zones have more.
const DEVICE_BYTES: u64 = 64 << 20;
/// The same for a device with the smallest possible zones.
const DEVICE_BYTES_TIGHT: u64 = 256 << 20;
/// One of this many shapes has the smallest possible zones.
const TIGHT: u32 = 12;
/// Limit for the number of zones, unless more are needed.
const ZONES: u64 = 1024;
/// The least bytes and blocks of a zone that `mkfs` accepts.
const ZONE_BYTES: u32 = 256 << 10;
const ZONE_BLOCKS: u32 = 16;
/// The least number of pages of a zone, if the page size is drawn.
const PAGES: u64 = 16;
/// The least available space. A smaller volume would hardly test data.
const OFFERED: u64 = 128 << 10;
/// The approximate number of overwrites. If they are small, they overwrite only a part.
const WRITES: u64 = 20_000;
/// The approximate number of small files on the volume, and of bytes of metadata for each. They take up to a quarter
/// of the space.
const NAMES: u64 = 4000;
const BYTES_OF_NAME: u64 = 2000;
/// An operation may change the device as often as the device has blocks, plus this. The most that was observed is a
/// fifth of that.
const CHANGES: u64 = 4096;

/// A drawn shape.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// The device, and the options of its volume.
    pub setup: Setup,
    /// How the volume is filled and overwritten.
    pub way: Way,
}

/// The results of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Results of filling.
    pub filled: Filled,
    /// Bytes of the device.
    pub device_bytes: u64,
    /// Bytes written to the device.
    pub device_written: u64,
    /// Zones that were reset.
    pub resets: u64,
    /// The most changes of the device within one operation, in thousandths of the limit.
    pub longest_permille: u64,
}

impl Drawn {
    /// The shape that follows from a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut setup = draw_setup(&mut rng, seed);
        let is_tight = one_of(&mut rng, TIGHT);
        if is_tight {
            tighten(&mut setup);
        }
        fit(&mut setup, &mut rng);
        while offers(&setup).is_ok_and(|bytes| bytes < OFFERED.max(u64::from(setup.spec.block_size) * 4)) {
            setup.spec.capacities.insert(0, setup.spec.geometry().zone_blocks);
        }
        let blocks: u64 = setup.spec.capacities.iter().map(|&blocks| u64::from(blocks)).sum();
        setup.changes_max = Some(blocks + CHANGES);
        let mut way = draw_way(&mut rng, &setup.spec, blocks);
        if is_tight {
            let over_bytes = 32 << 10 << rng.u32(0..=1);
            let fsync_every = 8 << rng.u32(0..=1);
            way = Way { over: Order::Shuffled, over_bytes, fsync_every, files: 1, is_replaced: false, ..way };
        }
        if let (true, Ok(offered)) = (one_of(&mut rng, 2), offers(&setup)) {
            way.names = log_uniform(&mut rng, 1, (offered / BYTES_OF_NAME / 4).min(NAMES)) as u32;
        }
        Drawn { setup, way }
    }

    /// Creates the volume, fills it, and checks it.
    pub fn run(&self) -> Result<Seen, Wrong> {
        caught(self, || self.live())
    }

    fn live(&self) -> Result<Seen, Wrong> {
        let mut library = Library::new(self.setup.clone())?;
        let filled = fill(&mut library, &self.way, self.setup.seed)?;
        library.remount()?;
        let after = library.regain(filled.offered).map_err(|error| error.wrong("after a mount"))?;
        if after < filled.offered {
            return Err(Wrong(format!(
                "{after} bytes are available after a mount, {} when empty",
                filled.offered
            )));
        }
        let counters = library.device().counters();
        let most = self.setup.changes_max.unwrap_or(u64::MAX);
        Ok(Seen {
            filled,
            device_bytes: library.device_bytes(),
            device_written: counters.bytes_written,
            resets: counters.of(emulated::CommandKind::Reset),
            longest_permille: library.longest() * 1000 / most,
        })
    }
}

impl fmt::Display for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup { spec, page_size, reserve, cache_bytes, steps_max, is_remounted, .. } = &self.setup;
        let mut alike: BTreeMap<u32, usize> = BTreeMap::new();
        spec.capacities.iter().for_each(|&blocks| *alike.entry(blocks).or_default() += 1);
        let zones: Vec<String> =
            alike.iter().rev().map(|(blocks, zones)| format!("{zones} zones of {blocks}")).collect();
        write!(f, "{} blocks of {} bytes", zones.join(", "), spec.block_size)?;
        write!(
            f,
            ", {} conventional, {} open and {} active",
            spec.conventional, spec.max_open, spec.max_active
        )?;
        write!(f, ", appends of {} blocks; pages of ", spec.max_append)?;
        match page_size {
            Some(bytes) => write!(f, "{bytes}")?,
            None => f.write_str("the usual size")?,
        }
        match *reserve {
            Reserve(0) => {}
            other => write!(f, ", reserve {other}")?,
        }
        write!(f, ", {} MiB of cache, up to {steps_max} steps; {}", cache_bytes >> 20, self.way)?;
        f.write_str(if *is_remounted { ", mounted anew while full" } else { "" })
    }
}

/// A number between these two, whose logarithm is uniform.
fn log_uniform(rng: &mut Rng, least: u64, most: u64) -> u64 {
    let most = most.max(least);
    let drawn = (least as f64).ln() + rng.f64() * ((most as f64).ln() - (least as f64).ln());
    (drawn.exp().round() as u64).clamp(least, most)
}

/// True for one of this many calls, at random.
fn one_of(rng: &mut Rng, many: u32) -> bool {
    rng.u32(0..many) == 0
}

/// As many of the smallest zones as possible, with the default reserve. There GC of metadata is hardest.
fn tighten(setup: &mut Setup) {
    let block_size = setup.spec.block_size;
    let blocks = (ZONE_BYTES / block_size).max(ZONE_BLOCKS);
    let zones = (DEVICE_BYTES_TIGHT / (u64::from(blocks) * u64::from(block_size))).min(ZONES);
    setup.spec.capacities = vec![blocks; zones as usize];
    (setup.reserve, setup.page_size, setup.steps_max) = (Reserve::default(), None, 0);
}

/// Draws a setup with the wanted number of zones, which may be too few.
fn draw_setup(rng: &mut Rng, seed: u64) -> Setup {
    let block_size = 512 << rng.u32(0..=7);
    let least = (ZONE_BYTES / block_size).max(ZONE_BLOCKS);
    let blocks =
        if one_of(rng, 3) { least } else { log_uniform(rng, least.into(), (least * 16).into()) as u32 };
    let zone_bytes = u64::from(blocks) * u64::from(block_size);
    let zones = match rng.u32(0..4) {
        0 => 8,
        _ => log_uniform(rng, 8, (DEVICE_BYTES / zone_bytes).min(ZONES)) as u32,
    };
    let active = match rng.u32(0..4) {
        0 => 6,
        1 => rng.u32(6..=14),
        2 => 14,
        _ => rng.u32(15..=128),
    };
    let open = if one_of(rng, 2) { active } else { rng.u32(6..=active) };
    let mut spec = Spec::new(block_size, zones, blocks).limits(open, active).seed(seed);
    if one_of(rng, 3) {
        spec.max_append = ((64 << 10 << rng.u32(0..=4)) / block_size).max(1);
    }
    if one_of(rng, 4) {
        spec = spec.disk();
    }
    let most = (zone_bytes / PAGES).min(65536).max(u64::from(block_size));
    let page = 1 << rng.u32(block_size.max(4096).ilog2()..=most.max(4096).ilog2());
    let reserve = match rng.u32(0..6) {
        0..5 => Reserve::default(),
        _ => Reserve(rng.u32(100..6000)),
    };
    Setup {
        page_size: one_of(rng, 4).then_some(page),
        steps_max: [0, 0, 2, 8][rng.usize(0..4)],
        is_remounted: one_of(rng, 3),
        ..Setup::usual(spec, reserve, if one_of(rng, 4) { 8 << 20 } else { 64 << 20 }, seed)
    }
}

/// Adds zones until `mkfs` accepts the setup, some of them smaller, some conventional.
fn fit(setup: &mut Setup, rng: &mut Rng) {
    let zone_blocks = setup.spec.capacities[0];
    let conventional = if one_of(rng, 4) { rng.u32(1..=100) } else { 0 };
    // Half, like on real devices, but not much less than what `mkfs` accepts if all zones are alike.
    let least = (ZONE_BYTES / setup.spec.block_size).max(ZONE_BLOCKS).min(zone_blocks / 4 * 3);
    let smaller = one_of(rng, 3).then(|| (rng.u32(2..8), rng.u32(least.max(zone_blocks / 2)..=zone_blocks)));
    let runt = one_of(rng, 4).then(|| rng.u32(1..=zone_blocks));
    setup.spec.conventional = setup.spec.capacities.len() as u32 * conventional / 200;
    let reserve = std::mem::take(&mut setup.reserve);
    while !is_possible(setup) {
        setup.spec.capacities.push(zone_blocks);
        setup.spec.conventional = setup.spec.capacities.len() as u32 * conventional / 200;
    }
    let more = if one_of(rng, 4) { 0 } else { rng.usize(0..8) };
    setup.spec.capacities.extend(vec![zone_blocks; more]);
    setup.reserve = reserve;
    if !is_possible(setup) {
        setup.reserve = Reserve::default();
    }
    if let Some((every, blocks)) = smaller {
        setup
            .spec
            .capacities
            .iter_mut()
            .skip(1)
            .step_by(every as usize)
            .for_each(|capacity| *capacity = blocks);
    }
    if let Some(blocks) = runt {
        setup.spec = setup.spec.clone().last_zone(blocks);
    }
}

fn is_possible(setup: &Setup) -> bool {
    Fs::check_format(&setup.spec.geometry(), &setup.format_options()).is_ok()
}

/// The space available on the empty volume.
fn offers(setup: &Setup) -> Result<u64, Wrong> {
    caught("drawing a shape", || {
        let mut library = Library::new(setup.clone())?;
        library.available().map_err(|error| error.wrong("querying the available space"))
    })
}

/// Draws writes that are large enough, so that there are not too many of them.
fn draw_way(rng: &mut Rng, spec: &Spec, blocks: u64) -> Way {
    let block_size = u64::from(spec.block_size);
    let bytes = blocks * block_size;
    let length = |rng: &mut Rng, least: u64| {
        let least = least.max(bytes / WRITES).next_power_of_two();
        let drawn = log_uniform(rng, least, 1 << 20);
        if one_of(rng, 2) { drawn.next_power_of_two() } else { drawn / least * least }
    };
    let granule = block_size.min(4096);
    let files = if one_of(rng, 2) { 1 } else { rng.u32(2..=8) };
    Way {
        files: if bytes < 16 << 20 { 1 } else { files },
        filling: if one_of(rng, 3) { Order::Shuffled } else { Order::Sequential },
        filling_bytes: if one_of(rng, 2) { 1 << 20 } else { length(rng, block_size) },
        over: [Order::Sequential, Order::Shuffled, Order::Shuffled, Order::Anywhere][rng.usize(0..4)],
        over_bytes: length(rng, granule),
        fsync_every: [0, 0, 1, 4, 16, 64][rng.usize(0..6)],
        is_replaced: one_of(rng, 3),
        is_exact: false,
        ..Way::usual(block_size, 1)
    }
}
