//! The states of zones and the limits on them, for devices that keep zone states in software.
//!
//! It does no I/O and has no lock. It refuses a command for the reasons for which a zoned device may refuse it, and
//! changes nothing when it refuses. In a `Full` zone, `pointer` is the number of blocks that had been written when
//! the zone became full. Devices do not report it.
//!
//! ```text
//!            append, open            last block, finish
//!   Empty ------------------> Open ----------------------> Full
//!     ^                       |  ^                           |
//!     |                 close |  | append, open              |
//!     |                       v  |                           |
//!     +------- reset ------- Closed          <--- reset -----+       any ---> ReadOnly, Offline
//! ```

use crate::{Blocks, DeviceError, Geometry, Result, ZoneId, ZoneInfo, ZoneState};

/// All zones of one device.
#[derive(Clone, Debug)]
pub struct Machine {
    geometry: Geometry,
    zones: Vec<ZoneInfo>,
    /// Zones in state `Open`; at most `geometry.max_open`.
    open: u32,
    /// Zones in state `Open` or `Closed`; at most `geometry.max_active`.
    active: u32,
}

impl Machine {
    /// A device with zones in these states: one for each zone of the geometry.
    pub fn new(geometry: Geometry, zones: Vec<ZoneInfo>) -> Self {
        assert_eq!(zones.len(), geometry.zones as usize, "a state for every zone");
        let open = zones.iter().filter(|zone| zone.state == ZoneState::Open).count() as u32;
        let active = zones.iter().filter(|zone| zone.state.is_active()).count() as u32;
        Machine { geometry, zones, open, active }
    }

    /// The shape of the device.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Every zone, in order.
    pub fn zones(&self) -> &[ZoneInfo] {
        &self.zones
    }

    /// Zones that are open or closed.
    pub fn active(&self) -> u32 {
        self.active
    }

    /// One zone, if the device has it.
    pub fn zone(&self, zone: ZoneId) -> Result<ZoneInfo> {
        let known = self.zones.get(zone.0 as usize).copied();
        known.ok_or(DeviceError::Invalid { zone, why: "the device has no such zone" })
    }

    /// The number of blocks of a command of `bytes` bytes.
    pub fn blocks(&self, zone: ZoneId, bytes: usize) -> Result<Blocks> {
        let block = self.geometry.block_size as usize;
        if bytes == 0 || !bytes.is_multiple_of(block) {
            return Err(DeviceError::Invalid {
                zone,
                why: "the length is not a positive number of whole blocks",
            });
        }
        Blocks::try_from(bytes / block)
            .map_err(|_| DeviceError::Invalid { zone, why: "the command is too large" })
    }

    /// Checks whether `blocks` blocks from `block` on can be read.
    pub fn check_read(&self, zone: ZoneId, block: Blocks, blocks: Blocks) -> Result<()> {
        let info = self.zone(zone)?;
        let end = u64::from(block) + u64::from(blocks);
        if info.state == ZoneState::Offline {
            Err(DeviceError::Offline(zone))
        } else if end > u64::from(info.capacity) {
            Err(DeviceError::Invalid { zone, why: "the read goes beyond the capacity of the zone" })
        } else if info.state.has_pointer() && end > u64::from(info.pointer) {
            Err(DeviceError::Unwritten { zone, block: block.max(info.pointer) })
        } else {
            Ok(())
        }
    }

    /// Checks that an append of `blocks` is no larger than the device supports.
    pub fn check_append(&self, zone: ZoneId, blocks: Blocks) -> Result<()> {
        if blocks > self.geometry.max_append {
            return Err(DeviceError::Invalid { zone, why: "the append is larger than the device takes" });
        }
        Ok(())
    }

    /// Advances the zone's pointer by `blocks` for a write and returns the block at which the write begins. `at` is
    /// the block that the writer expects, if the command is not an append.
    pub fn advance(&mut self, zone: ZoneId, blocks: Blocks, at: Option<Blocks>) -> Result<Blocks> {
        let info = self.check_write(zone, blocks, at)?;
        self.open(zone)?;
        let pointer = info.pointer + blocks;
        let state = if pointer == info.capacity { ZoneState::Full } else { ZoneState::Open };
        self.force(zone, ZoneInfo { state, pointer, ..info });
        Ok(info.pointer)
    }

    /// Checks whether the zone accepts a write of `blocks` blocks. The limits of open and active zones are not
    /// checked.
    pub fn check_write(&self, zone: ZoneId, blocks: Blocks, at: Option<Blocks>) -> Result<ZoneInfo> {
        let info = self.writable(zone)?;
        let full = DeviceError::ZoneFull { zone, blocks };
        if info.state == ZoneState::Full {
            return Err(full);
        }
        let pointer = info.pointer;
        if let Some(block) = at.filter(|&at| at != pointer) {
            return Err(DeviceError::NotAtPointer { zone, block, pointer });
        }
        if u64::from(pointer) + u64::from(blocks) > u64::from(info.capacity) {
            return Err(full);
        }
        Ok(info)
    }

    /// Opens an empty or closed zone.
    pub fn open(&mut self, zone: ZoneId) -> Result<()> {
        let info = self.writable(zone)?;
        let (needs_active, needs_open) = match info.state {
            ZoneState::Empty => (true, true),
            ZoneState::Closed => (false, true),
            ZoneState::Open => (false, false),
            _ => return Err(DeviceError::Invalid { zone, why: "a full zone cannot be opened" }),
        };
        if needs_active && self.active >= self.geometry.max_active {
            return Err(DeviceError::TooManyOpen { zone, limit: self.geometry.max_active });
        }
        if needs_open && self.open >= self.geometry.max_open {
            return Err(DeviceError::TooManyOpen { zone, limit: self.geometry.max_open });
        }
        self.force(zone, ZoneInfo { state: ZoneState::Open, ..info });
        Ok(())
    }

    /// Closes the zone; it stays active if it is partly written.
    pub fn close(&mut self, zone: ZoneId) -> Result<()> {
        let info = self.writable(zone)?;
        let state = match (info.state, info.pointer) {
            (ZoneState::Open, 0) => ZoneState::Empty,
            (ZoneState::Open | ZoneState::Closed, _) => ZoneState::Closed,
            _ => return Err(DeviceError::Invalid { zone, why: "only an open zone can be closed" }),
        };
        self.force(zone, ZoneInfo { state, ..info });
        Ok(())
    }

    /// Makes the zone `Full`.
    pub fn finish(&mut self, zone: ZoneId) -> Result<()> {
        let info = self.writable(zone)?;
        self.force(zone, ZoneInfo { state: ZoneState::Full, ..info });
        Ok(())
    }

    /// Empties the zone, and changes its capacity if `capacity` is given.
    pub fn reset(&mut self, zone: ZoneId, capacity: Option<Blocks>) -> Result<()> {
        let info = self.writable(zone)?;
        let capacity = capacity.unwrap_or(info.capacity);
        self.force(zone, ZoneInfo { state: ZoneState::Empty, capacity, pointer: 0 });
        Ok(())
    }

    /// Sets the state of a zone unconditionally.
    pub fn force(&mut self, zone: ZoneId, info: ZoneInfo) {
        assert!(info.pointer <= info.capacity, "{zone:?}: pointer {} within {}", info.pointer, info.capacity);
        let slot = &mut self.zones[zone.0 as usize];
        self.open -= u32::from(slot.state == ZoneState::Open);
        self.active -= u32::from(slot.state.is_active());
        *slot = info;
        self.open += u32::from(info.state == ZoneState::Open);
        self.active += u32::from(info.state.is_active());
    }

    fn writable(&self, zone: ZoneId) -> Result<ZoneInfo> {
        let info = self.zone(zone)?;
        match info.state {
            ZoneState::ReadOnly => Err(DeviceError::ReadOnly(zone)),
            ZoneState::Offline => Err(DeviceError::Offline(zone)),
            _ => Ok(info),
        }
    }
}
