//! An ideal greedy garbage collector. It models only zones and blocks of files.
//!
//! It has no metadata and no reverse map, takes no time, and always knows the live blocks. All data goes to one zone
//! after the other, in the order of writing. When the last free zone is reached, the zone with the fewest live blocks
//! becomes the victim. Its live blocks are the first to go into the last zone, and the victim becomes free instead.
//! So exactly one zone is in reserve. Data is not separated at all. The comparison with this collector shows the
//! effect of separation.
//!
//! For blocks that are overwritten uniformly at random, its write amplification is known ([`uniform_optimum`]). The
//! tests use this.

use std::collections::{HashMap, VecDeque};

use crate::trace::Op;

/// No place.
const NOWHERE: u32 = u32::MAX;
/// The owner of a dead block.
const NO_OWNER: (u32, u32) = (u32::MAX, u32::MAX);

/// Blocks written, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// By the trace.
    pub user: u64,
    /// By GC.
    pub moved: u64,
}

impl Written {
    /// All blocks written, for each block that the trace wrote.
    pub fn amplification(self) -> f64 {
        (self.user + self.moved) as f64 / self.user as f64
    }

    /// The blocks written since `before`.
    pub fn since(self, before: Written) -> Written {
        Written { user: self.user - before.user, moved: self.moved - before.moved }
    }
}

struct Zone {
    /// The owner of each block.
    owners: Vec<(u32, u32)>,
    live: u32,
}

/// Zones, and the owners of their blocks.
pub struct Collector {
    zones: Vec<Zone>,
    zone_blocks: usize,
    free: VecDeque<usize>,
    /// The zone that is being written.
    open: usize,
    /// Where the blocks of each file are.
    files: HashMap<u32, Vec<u32>>,
    written: Written,
}

/// Error: live blocks leave no zone that GC could free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Collector {
    /// Starts with empty zones, at least three.
    pub fn new(zones: usize, zone_blocks: usize) -> Collector {
        assert!(zones >= 3 && zone_blocks > 0 && zones * zone_blocks < NOWHERE as usize);
        let empty = || Zone { owners: Vec::with_capacity(zone_blocks), live: 0 };
        Collector {
            zones: (0..zones).map(|_| empty()).collect(),
            zone_blocks,
            free: (1..zones).collect(),
            open: 0,
            files: HashMap::new(),
            written: Written::default(),
        }
    }

    /// Performs an operation of the trace.
    pub fn apply(&mut self, op: &Op) -> Result<(), Full> {
        match *op {
            Op::Create { file, .. } => drop(self.files.insert(file, Vec::new())),
            Op::Write { file, start, blocks } => {
                for block in start..start + blocks {
                    self.write(file, block as usize)?;
                }
            }
            Op::Sync { .. } | Op::Close { .. } | Op::Rename { .. } => {}
            Op::Delete { file } => {
                let places = self.files.remove(&file).expect("a trace deletes only its own files");
                places.into_iter().for_each(|place| self.kill(place));
            }
        }
        Ok(())
    }

    /// Blocks written so far.
    pub fn written(&self) -> Written {
        self.written
    }

    /// Live blocks.
    pub fn live(&self) -> u64 {
        self.zones.iter().map(|zone| u64::from(zone.live)).sum()
    }

    fn write(&mut self, file: u32, block: usize) -> Result<(), Full> {
        let places = self.files.get_mut(&file).expect("a trace writes only to its own files");
        if places.len() <= block {
            places.resize(block + 1, NOWHERE);
        }
        let before = std::mem::replace(&mut places[block], NOWHERE);
        self.kill(before);
        self.ensure_space()?;
        self.put((file, block as u32));
        self.written.user += 1;
        Ok(())
    }

    fn kill(&mut self, place: u32) {
        if place != NOWHERE {
            let zone = &mut self.zones[place as usize / self.zone_blocks];
            zone.owners[place as usize % self.zone_blocks] = NO_OWNER;
            zone.live -= 1;
        }
    }

    /// Puts a block at the end of the open zone, which is not full.
    fn put(&mut self, owner: (u32, u32)) {
        let zone = &mut self.zones[self.open];
        assert!(zone.owners.len() < self.zone_blocks, "the open zone is not full");
        let place = self.open * self.zone_blocks + zone.owners.len();
        zone.owners.push(owner);
        zone.live += 1;
        let places = self.files.get_mut(&owner.0).expect("the owner of a block exists");
        places[owner.1 as usize] = place as u32;
    }

    /// Opens another zone if the open one is full. If it is the last free zone, GC moves a victim's live blocks into
    /// it.
    fn ensure_space(&mut self) -> Result<(), Full> {
        while self.zones[self.open].owners.len() == self.zone_blocks {
            let next = self.free.pop_front().expect("one zone is in reserve");
            let last = self.free.is_empty();
            self.open = next;
            if last {
                self.collect()?;
            }
        }
        Ok(())
    }

    fn collect(&mut self) -> Result<(), Full> {
        let others = (0..self.zones.len()).filter(|&zone| zone != self.open);
        let victim = others.min_by_key(|&zone| self.zones[zone].live).expect("there are other zones");
        if self.zones[victim].live as usize == self.zone_blocks {
            return Err(Full);
        }
        let owners = std::mem::take(&mut self.zones[victim].owners);
        self.zones[victim].live = 0;
        for &owner in owners.iter().filter(|&&owner| owner != NO_OWNER) {
            self.put(owner);
            self.written.moved += 1;
        }
        let mut owners = owners;
        owners.clear();
        self.zones[victim].owners = owners;
        self.free.push_back(victim);
        Ok(())
    }
}

/// The write amplification of a greedy garbage collector with large zones, if blocks are overwritten uniformly at
/// random: `live` of `capacity` blocks are live.
///
/// With α = capacity / live, the live fraction *u* of a victim solves *u* = exp(−α (1 − *u*)), and the amplification
/// is 1 / (1 − *u*); in closed form *u* = −W(−α e^−α) / α. This is the result for victims in the order of writing (L.
/// Xiang and B. Kurkoski, "An improved analytic expression for write amplification in NAND flash", ICNC 2012; P.
/// Desnoyers, "Analytic modeling of SSD write performance", SYSTOR 2012). Greedy GC approaches it if zones have many
/// blocks (W. Bux and I. Iliadis, "Performance of greedy garbage collection in flash-based solid-state drives",
/// Performance Evaluation 67, 2010). All blocks are alike, so separating them gains nothing, and the result is the
/// optimum.
pub fn uniform_optimum(capacity: f64, live: f64) -> f64 {
    assert!(0.0 < live && live < capacity, "{live} of {capacity} blocks live");
    let alpha = capacity / live;
    // The smaller root. The function is steep only at the other root, which is 1.
    let mut alive = 0.0f64;
    for _ in 0..100_000 {
        let next = (-alpha * (1.0 - alive)).exp();
        if (next - alive).abs() < 1e-12 {
            break;
        }
        alive = next;
    }
    1.0 / (1.0 - alive)
}

#[cfg(test)]
mod tests;
