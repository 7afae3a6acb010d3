//! The right to write to one open zone.
//!
//! A [`Lease`] exists for every zone that is being written and counts against the device's limits until it is dropped
//! (I-ZONE-3). Four leases are never available for data: two for the log (one, and a second while it switches), one
//! for metadata, one for garbage collection.
//!
//! A lease admits blocks before they are appended. So the writer of a zone can reserve space at its end, for example
//! for a footer, independently of the appends in flight. A lease does not choose zones, knows nothing about live
//! blocks, and never resets a zone.

use std::sync::Arc;

use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use crate::format::{self, FsId, Role, ZoneIdentity};
use crate::{Blocks, Cause, Device, DeviceError, Life, Result, Traffic, ZoneId};

/// Leases that are not available for data: log 2, metadata 1, garbage collection 1.
pub const LEASES_RESERVED: u32 = 4;

/// All leases of one volume.
pub struct Leases {
    device: Arc<dyn Device>,
    fs_id: FsId,
    traffic: Arc<Traffic>,
    /// Number of leases in use, by role.
    in_use: Mutex<[u32; 5]>,
}

/// The right to write to one open zone.
pub struct Lease {
    leases: Arc<Leases>,
    identity: ZoneIdentity,
    capacity: Blocks,
    /// Blocks written or admitted, header included; never more than `capacity`.
    admitted: AtomicU32,
    /// Set when an append has failed: the zone takes no more writes in this life.
    failed: AtomicBool,
    /// The lifetime class that was last passed to the device.
    class: AtomicU8,
}

impl Leases {
    /// No leases yet. Zones that are still active on the device count once they are resumed.
    pub fn new(device: Arc<dyn Device>, fs_id: FsId, traffic: Arc<Traffic>) -> Arc<Self> {
        Arc::new(Leases { device, fs_id, traffic, in_use: Mutex::new([0; 5]) })
    }

    /// The device below.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The counters that every append updates.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// How many zones may be leased at once, for all roles together.
    pub fn limit(&self) -> u32 {
        let geometry = self.device.geometry();
        geometry.max_open.min(geometry.max_active)
    }

    /// How many zones for user writes may be leased at once.
    pub fn limit_for_data(&self) -> u32 {
        self.limit().saturating_sub(LEASES_RESERVED).max(1)
    }

    /// How many zones are leased for `role`.
    pub fn in_use(&self, role: Role) -> u32 {
        self.in_use.lock()[role as usize]
    }

    /// Leases an empty zone and writes its header. When this returns, the zone can be appended to.
    pub fn begin(self: &Arc<Self>, zone: ZoneId, life: Life, role: Role) -> Result<Lease> {
        let info = self.device.report_zone(zone)?;
        if info.state != crate::ZoneState::Empty {
            return Err(DeviceError::Invalid {
                zone,
                why: "a zone is leased for a new life only when empty",
            });
        }
        let identity = ZoneIdentity { fs_id: self.fs_id, zone, life, role };
        let lease = self.take(identity, info.capacity, 1)?;
        let header = format::encode_header_of(&identity, self.device.geometry(), info.capacity);
        let block = self.device.append(zone, &header).inspect_err(|_| self.finish_failed_zone(zone))?;
        assert_eq!(block, 0, "the header of an empty zone is its first block");
        self.traffic.add(Cause::Header, header.len());
        Ok(lease)
    }

    /// Frees the open slot of a zone whose header could not be written. No lease exists that would free it, so the
    /// device would have fewer open slots than `Leases` assumes. If the zone cannot be finished either, the device
    /// reports that later.
    fn finish_failed_zone(&self, zone: ZoneId) {
        if self.device.report_zone(zone).is_ok_and(|info| info.state.is_active()) {
            let _ = self.device.finish(zone);
        }
    }

    /// Leases a partly written zone. Appends continue at its pointer.
    pub fn resume(self: &Arc<Self>, zone: ZoneId, life: Life, role: Role) -> Result<Lease> {
        let info = self.device.report_zone(zone)?;
        if !info.state.is_active() {
            return Err(DeviceError::Invalid { zone, why: "only a partly written zone can be continued" });
        }
        let identity = ZoneIdentity { fs_id: self.fs_id, zone, life, role };
        self.take(identity, info.capacity, info.pointer)
    }

    fn take(self: &Arc<Self>, identity: ZoneIdentity, capacity: Blocks, admitted: Blocks) -> Result<Lease> {
        let mut in_use = self.in_use.lock();
        let (zone, role) = (identity.zone, identity.role);
        let (now, limit) = match role {
            Role::Data => (in_use[role as usize], self.limit_for_data()),
            _ => (in_use.iter().sum(), self.limit()),
        };
        if now >= limit {
            return Err(DeviceError::TooManyOpen { zone, limit });
        }
        if rt::is_planted("break-lease-count") {
            drop(in_use);
            in_use = self.in_use.lock();
        }
        in_use[role as usize] += 1;
        self.device.set_placement(zone, role, 0);
        Ok(Lease {
            leases: Arc::clone(self),
            identity,
            capacity,
            admitted: AtomicU32::new(admitted),
            failed: AtomicBool::new(false),
            class: AtomicU8::new(0),
        })
    }
}

impl Lease {
    /// The zone.
    pub fn zone(&self) -> ZoneId {
        self.identity.zone
    }

    /// The life of the zone, which does not change while it is leased.
    pub fn life(&self) -> Life {
        self.identity.life
    }

    /// The role of the zone.
    pub fn role(&self) -> Role {
        self.identity.role
    }

    /// Sets the lifetime class of the data that is appended from now on ([`Device::set_placement`]).
    pub fn set_lifetime_class(&self, class: u8) {
        // If two threads set a class at the same time, the device may keep either. That affects only placement.
        if self.class.load(Ordering::Relaxed) != class {
            self.class.store(class, Ordering::Relaxed);
            self.leases.device.set_placement(self.zone(), self.role(), class);
        }
    }

    /// Blocks in the zone, header included.
    pub fn capacity(&self) -> Blocks {
        self.capacity
    }

    /// Blocks written or admitted, header included.
    pub fn admitted(&self) -> Blocks {
        self.admitted.load(Ordering::Acquire)
    }

    /// Blocks that are not yet admitted.
    pub fn free_blocks(&self) -> Blocks {
        self.capacity - self.admitted()
    }

    /// Whether an append failed, so that the zone takes no more writes.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Admits `blocks` if at least `reserve` more remain free after that.
    pub fn admit(&self, blocks: Blocks, reserve: Blocks) -> bool {
        let fits = |admitted: Blocks| {
            let wanted = u64::from(admitted) + u64::from(blocks);
            (wanted + u64::from(reserve) <= u64::from(self.capacity)).then_some(wanted as Blocks)
        };
        !self.has_failed() && self.admitted.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }

    /// Appends blocks that were admitted before, and returns the block at which they begin. After an error the zone
    /// takes no more writes in this life, and the caller writes the data elsewhere.
    pub fn append(&self, cause: Cause, from: &[u8]) -> Result<Blocks> {
        let appended = self.leases.device.append(self.zone(), from);
        self.account(cause, from.len(), &appended);
        appended
    }

    /// The same for any number of blocks: more than the device takes at once are appended in consecutive pieces. The caller
    /// is the only writer of the zone meanwhile.
    pub fn append_in_pieces(&self, cause: Cause, from: &[u8]) -> Result<Blocks> {
        let block_size = self.leases.device.geometry().block_size as usize;
        let mut first = None;
        for piece in from.chunks(self.append_blocks_max() as usize * block_size) {
            let at = self.append(cause, piece)?;
            first.get_or_insert(at);
        }
        Ok(first.expect("an append has a block at least"))
    }

    /// Blocks that one append has at most.
    pub fn append_blocks_max(&self) -> Blocks {
        self.leases.device.geometry().max_append
    }

    /// Records the result of an append that was part of a batch of [`Device::run`].
    pub fn account(&self, cause: Cause, bytes: usize, appended: &Result<Blocks>) {
        match appended {
            Ok(_) => self.leases.traffic.add(cause, bytes),
            Err(_) => self.failed.store(true, Ordering::Release),
        }
    }

    /// Finishes the zone, which may still have free blocks, and returns the lease.
    pub fn finish(self) -> Result<()> {
        self.leases.device.finish(self.zone())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut in_use = self.leases.in_use.lock();
        let count = &mut in_use[self.identity.role as usize];
        assert!(*count > 0, "a lease is returned once");
        *count -= 1;
    }
}
