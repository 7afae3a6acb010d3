//! Every page in the metadata zones whose checksum is right, by what it states about itself.
//!
//! Nothing is trusted but checksums and the volume's id in headers and pages (I-TREE-2). Only zones are read whose header
//! has the role metadata, and zones without a header that contain mostly pages. Other zones contain users' bytes, which
//! could look like pages. Memory: about 50 bytes for each page.

use std::collections::{BTreeMap, HashMap};

use tree::decode::{PageHeader, PageKind, delta_headers, page_header};
use tree::{Result, StoreError};
use zone::format::{ZoneIdentity, decode_header};
use zone::{Address, Blocks, Device, FsId, Role, ZoneId, ZoneInfo, ZoneState};

/// Sizes that a page can have.
const PAGE_SIZES: [usize; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// Bytes read at once.
const READ_AT_ONCE: usize = 1 << 20;

/// A page, or the delta records of a leaf in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageCopy {
    pub(crate) at: Address,
    pub(crate) epoch: u64,
    pub(crate) lsn: u64,
    pub(crate) group: u16,
    pub(crate) level: u8,
    /// Of delta records: the LSN of the base page.
    pub(crate) base: u64,
}

impl PageCopy {
    /// Of two copies of the same page, the one with the greater age is newer.
    pub(crate) fn age(&self) -> (u64, u64) {
        (self.epoch, self.lsn)
    }
}

/// A zone as the device reports it, and its header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundZone {
    pub(crate) info: ZoneInfo,
    pub(crate) identity: Option<ZoneIdentity>,
}

impl FoundZone {
    /// The end of the written blocks, as far as that is known.
    pub(crate) fn end(&self) -> Blocks {
        match self.info.state {
            ZoneState::Empty | ZoneState::Offline => 0,
            state if state.has_pointer() => self.info.pointer,
            _ => self.info.capacity,
        }
    }
}

/// The pages of a volume.
#[derive(Default)]
pub(crate) struct Scan {
    pub(crate) zones: Vec<FoundZone>,
    pub(crate) fs_id: FsId,
    pub(crate) page_size: usize,
    pub(crate) nodes: HashMap<u64, Vec<PageCopy>>,
    pub(crate) deltas: HashMap<u64, Vec<PageCopy>>,
    /// Chunks and directories, by kind and number.
    pub(crate) tables: BTreeMap<(u8, u64), Vec<PageCopy>>,
    /// Positions of damaged pages, and of pages that were never written completely.
    pub(crate) damaged: Vec<(ZoneId, Blocks)>,
    pub(crate) pages: u64,
    /// Blocks of a page.
    pub(crate) page_blocks: Blocks,
}

/// Reads all headers.
pub(crate) fn zones(device: &dyn Device) -> Result<Vec<FoundZone>> {
    let mut block = vec![0; device.geometry().block_size as usize];
    let infos = device.report()?.into_iter().enumerate();
    let found = infos.map(|(index, info)| {
        let zone = ZoneId(index as u32);
        let is_there = !matches!(info.state, ZoneState::Empty | ZoneState::Offline);
        let read = is_there && read(device, zone, 0, &mut block)?;
        let identity_in = |block: &[u8]| {
            decode_header(block).ok().map(|(identity, _)| identity).filter(|identity| identity.zone == zone)
        };
        let identity = match read.then(|| identity_in(&block)).flatten() {
            None if is_there => other_copy(device, zone, 0, &mut block, identity_in),
            identity => identity,
        };
        Ok(FoundZone { info, identity })
    });
    found.collect()
}

/// The volume of which there are log and metadata zones, if there is exactly one; else the one with most headers.
///
/// A disk may have more zones of an older volume than of the one that was made over it. mkfs writes headers to all zones
/// that can become log zones, so the older volume has no log any more.
pub(crate) fn volume(zones: &[FoundZone]) -> Option<FsId> {
    let identities = || zones.iter().filter_map(|zone| zone.identity);
    let has = |role: Role, fs_id: FsId| identities().any(|id| id.role == role && id.fs_id == fs_id);
    let mut votes: BTreeMap<FsId, u32> = BTreeMap::new();
    identities().for_each(|id| *votes.entry(id.fs_id).or_default() += 1);
    let mut whole =
        votes.keys().copied().filter(|&fs_id| has(Role::Log, fs_id) && has(Role::Metadata, fs_id));
    match (whole.next(), whole.next()) {
        (Some(fs_id), None) => Some(fs_id),
        _ => votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(fs_id, _)| fs_id),
    }
}

/// Reads blocks. False if these cannot be read; an error if the device as a whole has failed.
pub(crate) fn read(device: &dyn Device, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<bool> {
    match device.read(zone, block, into) {
        Ok(()) => Ok(true),
        Err(error) if !error.is_of_whole_device() => Ok(false),
        Err(error) => Err(StoreError::Device(error)),
    }
}

/// Reads other copies of blocks that were read and are wrong, until `check` accepts one. Devices with several copies of each
/// block have them.
pub(crate) fn other_copy<T>(
    device: &dyn Device,
    zone: ZoneId,
    block: Blocks,
    into: &mut [u8],
    check: impl Fn(&[u8]) -> Option<T>,
) -> Option<T> {
    let copies = device.copies(zone, block);
    let copies = if copies > 1 { 0..copies } else { 0..0 };
    copies.into_iter().find_map(|copy| {
        device.read_copy(zone, block, copy, into).ok()?;
        check(into)
    })
}

impl Scan {
    /// Reads all metadata zones. `progress` is called with the number of those that were read, and that of all.
    pub(crate) fn new(device: &dyn Device, progress: &mut dyn FnMut(u64, u64)) -> Result<Scan> {
        let zones = zones(device)?;
        let Some(fs_id) = volume(&zones) else {
            return Err(StoreError::NoVolume(
                "no zone has a Polder header: this is not a volume, or all of its zones are lost".into(),
            ));
        };
        let mut scan = Scan { zones, fs_id, ..Scan::default() };
        let candidates = scan.candidates();
        scan.page_size = scan.find_page_size(device, &candidates)?;
        scan.page_blocks = (scan.page_size / device.geometry().block_size as usize) as Blocks;
        for (done, &zone) in candidates.iter().enumerate() {
            progress(done as u64, candidates.len() as u64);
            if scan.zones[zone.0 as usize].identity.is_some() || scan.is_metadata(device, zone)? {
                scan.zone(device, zone)?;
            }
        }
        Ok(scan)
    }

    /// Whether a zone without a header is a metadata zone: most of its blocks belong to pages.
    fn is_metadata(&self, device: &dyn Device, zone: ZoneId) -> Result<bool> {
        let (mut page, mut block) = (vec![0; self.page_size], 1);
        let (mut whole, mut other) = (0u64, 0u64);
        while block + self.page_blocks <= self.zones[zone.0 as usize].end() {
            let is_read = read(device, zone, block, &mut page)?;
            match is_read && page_header(&page, self.fs_id).is_some() {
                true => whole += 1,
                false => other += u64::from(!is_read || page.iter().any(|byte| *byte != 0)),
            }
            block += self.page_blocks;
        }
        Ok(whole > other)
    }

    /// Metadata zones, and zones without a header.
    fn candidates(&self) -> Vec<ZoneId> {
        let is_one = |zone: &FoundZone| match zone.identity {
            Some(identity) => identity.fs_id == self.fs_id && identity.role == Role::Metadata,
            None => zone.end() > 1,
        };
        let numbered = self.zones.iter().enumerate().filter(|(_, zone)| is_one(zone));
        numbered.map(|(index, _)| ZoneId(index as u32)).collect()
    }

    /// The page size for which some page has the right checksum.
    fn find_page_size(&self, device: &dyn Device, candidates: &[ZoneId]) -> Result<usize> {
        let block_size = device.geometry().block_size as usize;
        for &zone in candidates {
            let end = self.zones[zone.0 as usize].end();
            for size in PAGE_SIZES.into_iter().filter(|&size| size >= block_size) {
                let (mut page, step) = (vec![0; size], (size / block_size) as Blocks);
                let mut block = 1;
                while block + step <= end {
                    if read(device, zone, block, &mut page)? && page_header(&page, self.fs_id).is_some() {
                        return Ok(size);
                    }
                    block += step;
                }
            }
        }
        Err(StoreError::NoVolume("no metadata page can be read, so no names can be saved".into()))
    }

    /// Adds every page of a zone.
    fn zone(&mut self, device: &dyn Device, zone: ZoneId) -> Result<()> {
        let (found, step) = (self.zones[zone.0 as usize], self.page_blocks);
        let mut life = found.identity.map(|identity| identity.life);
        let mut unknown: Vec<(Blocks, bool)> = Vec::new();
        let (mut block, mut whole) = (1, 0);
        let mut buffer = vec![0; (READ_AT_ONCE / self.page_size).max(1) * self.page_size];
        while block + step <= found.end() {
            let pages = ((found.end() - block) / step).min((buffer.len() / self.page_size) as Blocks);
            let bytes = &mut buffer[..pages as usize * self.page_size];
            let at_once = read(device, zone, block, bytes)?;
            for page in bytes.chunks_mut(self.page_size) {
                let is_read = at_once || read(device, zone, block, page)?;
                let header_in = |page: &[u8]| page_header(page, self.fs_id);
                let header = is_read.then(|| header_in(page)).flatten();
                let is_blank = is_read && page.iter().all(|byte| *byte == 0);
                let header = header.or_else(|| other_copy(device, zone, block, page, header_in));
                // The first page of a zone without a header tells the zone's life.
                let header = header.filter(|header| *life.get_or_insert(header.life) == header.life);
                match header {
                    Some(header) => {
                        whole += 1;
                        self.page(Address::new(zone, block, header.life), &header, page);
                    }
                    None => unknown.push((block, is_blank)),
                }
                block += step;
            }
        }
        // In a zone without a write pointer, the blanks at the end were never written.
        if !found.info.state.has_pointer() {
            while unknown.last().is_some_and(|(at, is_blank)| *is_blank && at + step >= block) {
                block -= step;
                unknown.pop();
            }
        }
        self.damaged.extend(unknown.into_iter().map(|(block, _)| (zone, block)));
        self.pages += whole;
        Ok(())
    }

    fn page(&mut self, at: Address, header: &PageHeader, page: &[u8]) {
        let &PageHeader { kind, id, epoch, lsn, group, level, .. } = header;
        let copy = PageCopy { at, epoch, lsn: lsn.0, group: group.0, level, base: 0 };
        if kind == PageKind::Node as u8 {
            self.nodes.entry(id).or_default().push(copy);
        } else if kind == PageKind::Deltas as u8 {
            for delta in delta_headers(page) {
                let (epoch, lsn, group) = (delta.epoch, delta.lsn.0, delta.group.0);
                let copy = PageCopy { epoch, lsn, group, base: delta.base.0, ..copy };
                self.deltas.entry(delta.node.0).or_default().push(copy);
            }
        } else {
            self.tables.entry((kind, id)).or_default().push(copy);
        }
    }

    /// The copies of a chunk or directory page.
    pub(crate) fn table(&self, kind: PageKind, number: u64) -> &[PageCopy] {
        self.tables.get(&(kind as u8, number)).map_or(&[], Vec::as_slice)
    }

    /// All copies of a kind.
    pub(crate) fn all(&self, kind: PageKind) -> impl Iterator<Item = (u64, &PageCopy)> {
        let of_kind = self.tables.range((kind as u8, 0)..=(kind as u8, u64::MAX));
        of_kind.flat_map(|((_, number), copies)| copies.iter().map(move |copy| (*number, copy)))
    }

    /// Whether a page that was written after this one may be among the damaged ones.
    ///
    /// One metadata zone is written at a time. So while the zone of this page is not full, only pages behind this one are
    /// later. Once it is full, a damaged page in another zone is earlier only if an earlier page follows it there.
    pub(crate) fn may_hide_later(&self, page: &PageCopy) -> bool {
        let own = &self.zones[page.at.zone().0 as usize];
        let has_room =
            own.info.state.has_pointer() && own.info.pointer + self.page_blocks <= own.info.capacity;
        self.damaged.iter().any(|&(zone, block)| match zone == page.at.zone() {
            true => block > page.at.block(),
            false => !has_room && !self.ends_earlier(zone, block, page),
        })
    }

    /// Whether a chunk or directory that is not later than `page` follows a position in a zone.
    fn ends_earlier(&self, zone: ZoneId, block: Blocks, page: &PageCopy) -> bool {
        let behind = |copy: &PageCopy| copy.at.zone() == zone && copy.at.block() > block;
        self.tables.values().flatten().any(|copy| behind(copy) && copy.age() <= page.age())
    }
}
