//! What a volume must contain, and a program that changes it.

use std::sync::Arc;

use fastrand::Rng;
use polder_object::{Holder, Limits, Mode, ObjectDevice, ObjectError, OpenOptions, VolumeShape};
use rt::ManualClock;
use zone::{Device, FsId, ZoneId, ZoneState};

use crate::simulated::{Plan, Process, World};

pub(crate) const BLOCK: usize = 512;
pub(crate) const ZONES: u32 = 12;
const ZONE_BLOCKS: u64 = 11;
const PART_BLOCKS: u64 = 4;

/// The contents of one zone: a number for each block, and whether it takes no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Zone {
    pub(crate) blocks: Vec<u64>,
    pub(crate) is_full: bool,
}

/// The contents of all zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contents(pub(crate) Vec<Zone>);

impl Contents {
    pub(crate) fn new() -> Contents {
        Contents(vec![Zone::default(); ZONES as usize])
    }
}

/// The bytes of a block with this number.
pub(crate) fn block(number: u64) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    let mut rng = Rng::with_seed(number);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    rng.fill(&mut bytes[8..]);
    bytes
}

/// Creates a volume. Few zones, short parts and small limits, so that short programs reach everything.
pub(crate) fn make(world: &World) {
    #[cfg(feature = "planted")]
    crate::planted::plant();
    ObjectDevice::create(&world.process(Plan::default()), &shape(7), false).unwrap();
}

pub(crate) fn shape(id: u8) -> VolumeShape {
    VolumeShape {
        fs_id: FsId([id; 16]),
        block_size: BLOCK as u32,
        zone_bytes: ZONE_BLOCKS * BLOCK as u64,
        zones: ZONES,
        part_bytes: Some(PART_BLOCKS * BLOCK as u64),
        chunk_zones: Some(5),
    }
}

pub(crate) const GRACE_NS: u64 = 1000;

pub(crate) fn options(clock: &Arc<ManualClock>, process: u32, takes_over: bool) -> OpenOptions {
    OpenOptions {
        mode: Mode::ReadWrite,
        takes_over,
        holder: Holder::elsewhere(process),
        clock: Arc::<ManualClock>::clone(clock),
        limits: Limits {
            parts_in_flight: 2,
            table_bundles: 4,
            table_bytes: 8 << 10,
            tail_pieces: 5,
            chunk_changes: 2,
            grace_ns: GRACE_NS,
        },
    }
}

/// A process that has the volume open for writing.
pub(crate) struct Owner {
    pub(crate) device: ObjectDevice,
    pub(crate) process: Process,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) contents: Contents,
    /// What is durable, and what may be instead because a flush was begun and did not succeed.
    pub(crate) durable: Contents,
    pub(crate) maybe: Option<Contents>,
    rng: Rng,
    next: u64,
}

impl Owner {
    /// Opens the volume as `number`.
    pub(crate) fn open(
        process: &Process,
        clock: &Arc<ManualClock>,
        number: u32,
        seed: u64,
    ) -> Result<Owner, ObjectError> {
        let device = ObjectDevice::open(Arc::new(process.clone()), &options(clock, number, true))?;
        // A process that ended, or was replaced meanwhile, cannot read.
        let contents = try_found(&device).map_err(|error| ObjectError::Replaced(error.to_string()))?;
        Ok(Owner {
            device,
            process: process.clone(),
            clock: Arc::clone(clock),
            durable: contents.clone(),
            contents,
            maybe: None,
            rng: Rng::with_seed(seed),
            next: u64::from(number) << 40,
        })
    }

    /// Does something. Returns false if it failed.
    pub(crate) fn step(&mut self) -> bool {
        let zone = ZoneId(self.rng.u32(0..ZONES));
        match self.rng.u8(0..20) {
            0..12 => self.append(zone),
            12 => self.finish(zone),
            13..15 => self.reset(zone),
            15..18 => self.flush(),
            _ => {
                self.clock.advance(GRACE_NS / 2);
                (0..4).for_each(|_| {
                    self.device.discard_one_zone();
                });
                true
            }
        }
    }

    pub(crate) fn append(&mut self, zone: ZoneId) -> bool {
        let info = self.device.report_zone(zone).unwrap();
        let room = info.capacity.saturating_sub(self.contents.0[zone.0 as usize].blocks.len() as u32);
        if info.state == ZoneState::Full || room == 0 {
            return true;
        }
        let count = self.rng.u32(1..=room.min(4));
        let numbers: Vec<u64> = (self.next..).take(count as usize).collect();
        self.next += u64::from(count);
        let bytes: Vec<u8> = numbers.iter().flat_map(|&number| block(number)).collect();
        match self.device.append(zone, &bytes) {
            Ok(at) => {
                let known = &mut self.contents.0[zone.0 as usize];
                assert_eq!(at as usize, known.blocks.len(), "appends follow each other");
                known.blocks.extend(numbers);
                known.is_full = known.blocks.len() == info.capacity as usize;
                true
            }
            Err(zone::DeviceError::TooManyOpen { .. }) => true,
            Err(error) => self.failed(&error),
        }
    }

    /// The reason of a failure that the test does not expect is in its output.
    fn failed(&self, error: &zone::DeviceError) -> bool {
        if !self.process.is_ended() {
            println!("{error}");
        }
        false
    }

    fn finish(&mut self, zone: ZoneId) -> bool {
        if let Err(error) = self.device.finish(zone) {
            return self.failed(&error);
        }
        self.contents.0[zone.0 as usize].is_full = true;
        true
    }

    pub(crate) fn reset(&mut self, zone: ZoneId) -> bool {
        if let Err(error) = self.device.reset(zone) {
            return self.failed(&error);
        }
        self.contents.0[zone.0 as usize] = Zone::default();
        true
    }

    pub(crate) fn flush(&mut self) -> bool {
        self.maybe = Some(self.contents.clone());
        if let Err(error) = self.device.flush() {
            return self.failed(&error);
        }
        self.durable = self.maybe.take().expect("it was noted");
        true
    }

    /// Compares everything that can be read with what was written.
    pub(crate) fn verify(&self) {
        assert_eq!(found(&self.device), self.contents);
    }

    /// Ends the process here: nothing that it does later reaches the store.
    pub(crate) fn kill(self) -> (Contents, Option<Contents>) {
        self.process.end();
        (self.durable.clone(), self.maybe.clone())
    }
}

/// Everything that can be read.
pub(crate) fn found(device: &ObjectDevice) -> Contents {
    try_found(device).unwrap()
}

fn try_found(device: &ObjectDevice) -> zone::Result<Contents> {
    let zone = |(info, zone): (zone::ZoneInfo, u32)| {
        let is_full = info.state == ZoneState::Full;
        let mut bytes = vec![0; info.pointer as usize * BLOCK];
        if !bytes.is_empty() {
            device.read(ZoneId(zone), 0, &mut bytes)?;
        }
        let blocks = bytes
            .chunks_exact(BLOCK)
            .map(|bytes| {
                let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                assert_eq!(bytes, block(number), "zone {zone} has other bytes than were written");
                number
            })
            .collect();
        Ok(Zone { blocks, is_full })
    };
    device.report()?.into_iter().zip(0..).map(zone).collect::<zone::Result<_>>().map(Contents)
}
