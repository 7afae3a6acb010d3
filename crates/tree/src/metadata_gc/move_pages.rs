//! Moving the live pages of a victim.

use pool::Lsn;
use rt::sync::atomic::Ordering;
use zone::{Address, Blocks, Cause, Device, DeviceError, Life, ZoneId};

use super::MetadataGc;
use crate::delta::{self, Packed};
use crate::format::{self, PageHeader, PageKind};
use crate::mat::{Place, Replaced};
use crate::nodes::PinnedChunks;
use crate::saving::Saving;
use crate::types::{Bytes, NodeId, Result};

/// Bytes of a metadata zone that GC reads at once.
const GC_READ_BYTES: usize = 1 << 20;

/// A page of a victim.
pub(super) struct ReadPage {
    pub(super) at: Address,
    /// None if the page cannot be read.
    pub(super) bytes: Option<Vec<u8>>,
    /// None if the page has no valid header.
    pub(super) header: Option<PageHeader>,
}

/// Reads a page. Returns false if its contents cannot be read, and an error if the device does not answer.
fn read_if_readable(device: &dyn Device, at: Address, into: &mut [u8]) -> Result<bool> {
    match device.read(at.zone(), at.block(), into) {
        Ok(()) => Ok(true),
        Err(error) if error.ends_zone() || matches!(error, DeviceError::Unwritten { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl MetadataGc {
    pub(super) fn move_live_pages(&self, saving: &mut Saving, zone: ZoneId) -> Result<()> {
        let mut unreadable = 0;
        let mut deltas = Packed::new(self.volume.page_size());
        self.read_zone(zone, |pages| {
            unreadable += pages.iter().filter(|page| page.bytes.is_none()).count();
            self.move_pages(saving, pages, &mut deltas)?;
            self.move_deltas(saving, deltas.take_full())
        })?;
        self.move_deltas(saving, deltas.take())?;
        if unreadable > 0 {
            tracing::warn!(zone = zone.0, "{unreadable} unreadable pages were not moved");
        }
        Ok(())
    }

    /// Passes all that was written to a metadata zone to `each`, in order.
    pub(super) fn read_zone(
        &self,
        zone: ZoneId,
        mut each: impl FnMut(Vec<ReadPage>) -> Result<()>,
    ) -> Result<()> {
        let page_blocks = self.volume.pool.page_blocks();
        let life = self.volume.pool.entry(zone).life;
        let end = self.written_end(zone)?;
        let step = (GC_READ_BYTES / self.volume.page_size()).max(1) as Blocks * page_blocks;
        let mut block = 1;
        while block + page_blocks <= end {
            let blocks = step.min((end - block) / page_blocks * page_blocks);
            each(self.read_pages(Address::new(zone, block, life), blocks)?)?;
            block += blocks;
        }
        Ok(())
    }

    /// Reads the pages of some blocks, each by itself if they cannot be read at once. A page that is not valid is read
    /// twice, and then from other copies. Otherwise one transient failure would keep the zone until the next mount.
    fn read_pages(&self, at: Address, blocks: Blocks) -> Result<Vec<ReadPage>> {
        let mut bytes = vec![0; blocks as usize * self.volume.device.geometry().block_size as usize];
        let at_once = read_if_readable(&*self.volume.device, at, &mut bytes)?;
        let pages = bytes.chunks_mut(self.volume.page_size()).enumerate().map(|(index, page)| {
            let at = at.offset(index as Blocks * self.volume.pool.page_blocks());
            // Another life of the zone may have had a page of the same node there.
            let decode = |page: &[u8]| {
                format::decode_page(page, self.volume.info.fs_id).filter(|header| {
                    at.is_of(Life(header.life.get())) && header.lsn.get() <= self.log.last().0
                })
            };
            let (mut is_read, mut asked) = (at_once, 0);
            let mut header = if is_read { decode(page) } else { None };
            while header.is_none() && asked < 2 {
                is_read = read_if_readable(&*self.volume.device, at, page)?;
                header = if is_read { decode(page) } else { None };
                asked += 1;
            }
            let copies = self.volume.device.copies(at.zone(), at.block());
            for copy in (0..copies).filter(|_| copies > 1) {
                if header.is_none() {
                    let read = self.volume.device.read_copy(at.zone(), at.block(), copy, page);
                    header = if read.is_ok() { decode(page) } else { None };
                    is_read |= read.is_ok();
                }
            }
            Ok(ReadPage { at, bytes: is_read.then(|| page.to_vec()), header })
        });
        pages.collect()
    }

    fn written_end(&self, zone: ZoneId) -> Result<Blocks> {
        let info = self.volume.device.report_zone(zone)?;
        Ok(if info.state.has_pointer() { info.pointer } else { info.capacity })
    }

    /// Moves the live contents of these pages. Delta records that the tables still point to are packed for
    /// [`MetadataGc::move_deltas`].
    fn move_pages(
        &self,
        saving: &mut Saving,
        pages: Vec<ReadPage>,
        deltas: &mut Packed<(NodeId, Address)>,
    ) -> Result<()> {
        let (mut whole, mut moves) = (Vec::new(), Vec::new());
        let nodes = pages
            .iter()
            .filter_map(|page| page.header.as_ref())
            .filter(|header| header.kind == PageKind::Node as u8);
        let mut held =
            self.nodes.pin_chunks(&nodes.map(|header| NodeId(header.id.get())).collect::<Vec<_>>());
        for ReadPage { at, bytes, header } in pages {
            let (Some(page), Some(header)) = (bytes, header) else {
                saving.tables.save_from_memory(at);
                continue;
            };
            let id = NodeId(header.id.get());
            if header.kind == PageKind::Deltas as u8 {
                self.pack_deltas(at, &page, deltas)?;
            } else if header.kind != PageKind::Node as u8 {
                saving.tables.move_at_next_checkpoint(at, &header);
            } else if let from = self.nodes.find_with_chunks(&mut held, id)?
                && (from.whole_page() == at || rt::is_planted("break-clean-stale") && !from.is_nowhere())
            {
                whole.push(page);
                moves.push((id, from));
            }
        }
        let places = saving.zone.append(&mut whole, self.log.epoch(), Cause::MetadataGc)?;
        assert_eq!(places.len(), moves.len(), "each page that was moved holds a node");
        self.nodes_moved.fetch_add(places.len() as u64, Ordering::Relaxed);
        for ((id, from), to) in moves.into_iter().zip(places) {
            let to = if from.is_delta() { Place { base: to, ..from } } else { Place::whole(to) };
            self.note_moved(id, from, to);
        }
        Ok(())
    }

    /// Packs the delta records of a page that the tables still point to.
    pub(super) fn pack_deltas(
        &self,
        at: Address,
        page: &[u8],
        into: &mut Packed<(NodeId, Address)>,
    ) -> Result<()> {
        let all = delta::all(page).unwrap_or_default();
        let mut held = self.nodes.pin_chunks(&all.iter().map(|delta| delta.node()).collect::<Vec<_>>());
        for delta in all {
            if self.delta_at(&mut held, delta.node(), at)?.is_some() {
                into.add(delta.bytes, Lsn(delta.header.lsn.get()), (delta.node(), at));
            }
        }
        Ok(())
    }

    /// Where a node lies, if its delta record is at `at`.
    fn delta_at(&self, held: &mut PinnedChunks, id: NodeId, at: Address) -> Result<Option<Place>> {
        let place = self.nodes.find_with_chunks(held, id)?;
        Ok((place.is_delta() && place.at == at).then_some(place))
    }

    /// Writes packed delta records. Their base pages may have been moved since they were packed.
    fn move_deltas(
        &self,
        saving: &mut Saving,
        (mut pages, moves): (Vec<Bytes>, Vec<Vec<(NodeId, Address)>>),
    ) -> Result<()> {
        let places = saving.zone.append(&mut pages, self.log.epoch(), Cause::MetadataGc)?;
        self.deltas_moved.fetch_add(moves.iter().map(Vec::len).sum::<usize>() as u64, Ordering::Relaxed);
        assert_eq!(places.len(), moves.len(), "each page of delta records has an address");
        for (moves, to) in moves.into_iter().zip(places) {
            let mut held = self.nodes.pin_chunks(&moves.iter().map(|(id, _)| *id).collect::<Vec<_>>());
            for (id, at) in moves {
                if let Some(from) = self.delta_at(&mut held, id, at)? {
                    self.note_moved(id, from, Place { at: to, ..from });
                }
            }
        }
        Ok(())
    }

    /// Records the new address of a copied node, if the node has not changed meanwhile.
    fn note_moved(&self, id: NodeId, from: Place, to: Place) {
        // The copy is counted first: once the table names the new address, a thread that frees the node subtracts it.
        self.volume.pool.add_copy(to.copy());
        match self.nodes.mat.replace(id, from, to) {
            Replaced::Not => self.volume.pool.remove_copy(to.copy()),
            Replaced::InOverlay => self.volume.pool.remove_copy(from.copy()),
            Replaced::InChunk => {}
        }
    }
}
