//! The open metadata zone, to which checkpoints and GC append pages.

use std::sync::Arc;

use zone::{Address, Cause, Lease, Role, ZoneId};

use crate::epoch::RunningEpoch;
use crate::format;
use crate::types::{Epoch, Result, StoreError};
use crate::volume::Volume;
use crate::zones::Zones;

/// The open metadata zone. Only the holder of the checkpoint lock has it.
pub(crate) struct MetadataZone {
    volume: Arc<Volume>,
    zones: Arc<Zones>,
    running: Arc<RunningEpoch>,
    lease: Option<Lease>,
}

impl MetadataZone {
    /// No zone is open.
    pub(crate) fn new(volume: Arc<Volume>, zones: Arc<Zones>, running: Arc<RunningEpoch>) -> Self {
        MetadataZone { volume, zones, running, lease: None }
    }

    /// Completes the headers of pages, appends the pages to metadata zones, and returns their addresses.
    pub(crate) fn append(
        &mut self,
        pages: &mut [impl AsMut<[u8]>],
        epoch: Epoch,
        cause: Cause,
    ) -> Result<Vec<Address>> {
        let mut places = Vec::with_capacity(pages.len());
        while places.len() < pages.len() {
            let rest = &mut pages[places.len()..];
            self.open()?;
            let lease = self.lease();
            let appended = self.append_some(lease, rest, epoch, cause);
            self.volume.pool.set_open_headroom(if lease.has_failed() { 0 } else { lease.free_blocks() });
            match appended {
                Ok(some) => {
                    self.running.appended(some.len());
                    places.extend(some);
                }
                Err(StoreError::Device(error)) if error.ends_zone() => {
                    tracing::warn!(%error, "a metadata zone accepts no more pages");
                }
                Err(error) => return Err(error),
            }
        }
        assert_eq!(places.len(), pages.len(), "each page has an address");
        self.running.note_pages(pages.len());
        Ok(places)
    }

    /// Appends as many pages at once as the zone and the device accept.
    fn append_some(
        &self,
        lease: &Lease,
        pages: &mut [impl AsMut<[u8]>],
        epoch: Epoch,
        cause: Cause,
    ) -> Result<Vec<Address>> {
        let page_blocks = self.volume.pool.page_blocks();
        let at_once = (self.volume.device.geometry().max_append / page_blocks).max(1);
        let count = (pages.len() as u32).min(lease.free_blocks() / page_blocks).min(at_once);
        assert!(count > 0, "a lease on a metadata zone has space for a page");
        assert!(
            lease.admit(count * page_blocks, 0),
            "only the holder of the checkpoint lock writes metadata"
        );
        let mut together = Vec::with_capacity(count as usize * self.volume.page_size());
        for page in &mut pages[..count as usize] {
            let page = page.as_mut();
            assert_eq!(page.len(), self.volume.page_size(), "metadata is written in whole pages");
            let own = u64::from_le_bytes(page[40..48].try_into().expect("eight bytes are eight bytes"));
            let epoch = if cause == Cause::MetadataGc { own } else { epoch.0 };
            format::seal_page(page, self.volume.info.fs_id, lease.life(), epoch);
            together.extend_from_slice(page);
        }
        // The device may take less than a page at once.
        let first = lease.append_in_pieces(cause, &together)?;
        let place = |index: u32| Address::new(lease.zone(), first + index * page_blocks, lease.life());
        Ok((0..count).map(place).collect())
    }

    /// Makes sure that the open zone has space for a page: opens a new one if it is full.
    pub(crate) fn open(&mut self) -> Result<()> {
        let page_blocks = self.volume.pool.page_blocks();
        let usable = |lease: &Lease| !lease.has_failed() && lease.free_blocks() >= page_blocks;
        if let Some(full) = self.lease.take_if(|lease| !usable(lease)) {
            self.close(full)?;
        }
        if self.lease.is_none() {
            let lease = self.begin()?;
            assert!(lease.free_blocks() >= page_blocks, "a new zone has space for a page");
            self.volume.pool.set_open_headroom(lease.free_blocks());
            self.lease = Some(lease);
        }
        Ok(())
    }

    fn lease(&self) -> &Lease {
        self.lease.as_ref().expect("a zone was opened if there was none")
    }

    /// Continues in a zone after a mount.
    pub(crate) fn resume(&mut self, lease: Lease) {
        assert!(self.lease.is_none(), "one metadata zone is open");
        self.volume.pool.set_open_headroom(lease.free_blocks());
        self.volume.pool.resume(lease.zone());
        self.lease = Some(lease);
        self.new_pages_begin();
    }

    /// The open zone.
    pub(crate) fn id(&self) -> Option<ZoneId> {
        self.lease.as_ref().map(Lease::zone)
    }

    /// Blocks that can be written to the open zone.
    pub(crate) fn free_blocks(&self) -> u64 {
        u64::from(self.lease.as_ref().map_or(0, Lease::free_blocks))
    }

    fn close(&self, lease: Lease) -> Result<()> {
        let (zone, failed, room) = (lease.zone(), lease.has_failed(), lease.free_blocks());
        drop(lease);
        // The rest of the zone is less than a page or cannot be written. Its slot among the open zones is worth more.
        if (room > 0 || failed)
            && let Err(error) = self.volume.device.finish(zone)
        {
            tracing::warn!(zone = zone.0, %error, "a metadata zone cannot be finished");
        }
        self.volume.pool.close(zone);
        Ok(())
    }

    fn begin(&self) -> Result<Lease> {
        while let Some((zone, empty)) = self.take_zone()? {
            match self.zones.begin(zone, empty, Role::Metadata) {
                Ok(lease) => {
                    self.volume.pool.open_for_store(zone, lease.life(), Role::Metadata, lease.capacity());
                    return Ok(lease);
                }
                Err(error) if error.ends_zone() => {
                    tracing::warn!(zone = zone.0, %error, "a zone cannot be opened");
                    self.volume.pool.retire(zone);
                }
                Err(error) => {
                    self.volume.pool.give_back(zone, false);
                    return Err(error.into());
                }
            }
        }
        Err(StoreError::ShutDown("there is no free zone for metadata".into()))
    }

    /// A free zone. If there is none, a dead zone is reset.
    fn take_zone(&self) -> Result<Option<(ZoneId, bool)>> {
        loop {
            let over = self.volume.pool.resets_over();
            let taken = self.volume.pool.take(Role::Metadata);
            if taken.is_some() || !(self.zones.reclaim(1)?.0 > 0 || self.volume.pool.wait_for_reset(over)) {
                return Ok(taken);
            }
        }
    }

    /// Pages that are written from now on belong to the running epoch.
    pub(crate) fn new_pages_begin(&self) {
        self.volume.pool.new_pages_begin(self.lease.as_ref().map(|lease| (lease.zone(), lease.admitted())));
    }
}
