//! The file system of `polder zones --mount`: each zone of a volume's device is a file, as in zonefs of Linux.
//!
//! ```text
//! DIR/seq/0  DIR/seq/1  …      as long as the written part of the zone
//! ```
//!
//! There are no other directories. zonefs has `cnv` for conventional zones. Here they are in `seq` too, because Polder uses
//! them like other zones. The zone numbers are the same as in the output of `polder zones`.
//!
//! **A file has the contents of the device**, from the zone's first block on. The volume itself is not opened, and neither
//! the log nor any table is read. So volumes that cannot be opened any more can be viewed too. Only the attributes
//! `user.polder.role` and `user.polder.life` come from the zone's header.
//!
//! **The length is fixed at the time of the mount.** The device is locked while the view is mounted, so it does not change.
//! If the write pointer is not valid (full, read-only), the length is the capacity: all blocks can be read, and the written
//! part is not known. An offline zone is an empty file that cannot be opened (EIO).

use std::sync::Arc;

use fs::{Attributes, DirEntry, FsError, InodeNo, Kind, StatFs};
use fuse::View;
use polder::stats::role_name;
use rt::Timestamp;
use zone::format::{ZoneIdentity, decode_header};
use zone::{Device, DeviceError, ZoneId, ZoneInfo, ZoneState};

use super::state_name;

const DIRECTORY: &[u8] = b"seq";
const DIRECTORY_INODE: InodeNo = InodeNo(2);
/// The inode of zone 0.
const FIRST_FILE: u64 = 3;
/// The first two entries of each directory.
const DOTS: [&[u8]; 2] = [b".", b".."];

/// The unit of the block count of `stat`.
const SECTOR: u64 = 512;

const STATE: &[u8] = fs::ATTRIBUTES_OF_VIEWS[0];
const ROLE: &[u8] = fs::ATTRIBUTES_OF_VIEWS[1];
const LIFE: &[u8] = fs::ATTRIBUTES_OF_VIEWS[2];

/// The zones of a device that is not written.
pub(super) struct ZoneView {
    device: Arc<dyn Device>,
    zones: Vec<ZoneInfo>,
    /// User and group of the user that mounted the view.
    owner: (u32, u32),
    made: Timestamp,
}

impl ZoneView {
    pub(super) fn new(device: Arc<dyn Device>, owner: (u32, u32), made: Timestamp) -> zone::Result<ZoneView> {
        let zones = device.report()?;
        Ok(ZoneView { device, zones, owner, made })
    }

    fn block_size(&self) -> u64 {
        u64::from(self.device.geometry().block_size)
    }

    fn zone(&self, inode: InodeNo) -> fs::Result<(ZoneId, ZoneInfo)> {
        let number = inode.0.checked_sub(FIRST_FILE).ok_or(FsError::IsDirectory)?;
        let info = usize::try_from(number).ok().and_then(|number| self.zones.get(number));
        Ok((ZoneId(number as u32), *info.ok_or(FsError::Stale)?))
    }

    /// The number of readable bytes of a zone.
    fn length(&self, info: &ZoneInfo) -> u64 {
        let blocks = match info.state {
            ZoneState::Offline => 0,
            state if state.has_pointer() => info.pointer,
            _ => info.capacity,
        };
        u64::from(blocks) * self.block_size()
    }

    /// The identity in the zone's header, which is its first block.
    fn header(&self, inode: InodeNo) -> fs::Result<ZoneIdentity> {
        let (zone, info) = self.zone(inode)?;
        if self.length(&info) == 0 {
            return Err(FsError::NoAttribute);
        }
        let mut block = vec![0; self.block_size() as usize];
        self.device.read(zone, 0, &mut block).map_err(failed)?;
        decode_header(&block).map(|(identity, _)| identity).map_err(|_| FsError::NoAttribute)
    }

    /// Reads a range that begins or ends within a block.
    fn read_within(&self, zone: ZoneId, offset: u64, into: &mut [u8]) -> zone::Result<()> {
        let block_size = self.block_size();
        let (first, before) = (offset / block_size, (offset % block_size) as usize);
        let blocks = (before + into.len()).div_ceil(block_size as usize);
        let mut whole = vec![0; blocks * block_size as usize];
        self.device.read(zone, first as u32, &mut whole)?;
        into.copy_from_slice(&whole[before..before + into.len()]);
        Ok(())
    }

    /// The number of entries of a directory without `.` and `..`.
    fn entry_count(&self, directory: InodeNo) -> fs::Result<u64> {
        match directory {
            InodeNo::ROOT => Ok(1),
            DIRECTORY_INODE => Ok(self.zones.len() as u64),
            _ => Err(FsError::NotDirectory),
        }
    }

    /// The entry with this index in a directory.
    fn entry(&self, directory: InodeNo, at: u64) -> DirEntry {
        let dots = DOTS.len() as u64;
        let (inode, name) = match at.checked_sub(dots) {
            None => (directory, DOTS[at as usize].to_vec()),
            Some(_) if directory == InodeNo::ROOT => (DIRECTORY_INODE, DIRECTORY.to_vec()),
            Some(zone) => (InodeNo(FIRST_FILE + zone), zone.to_string().into_bytes()),
        };
        DirEntry { inode, cookie: at + 1, kind: kind_of(inode), name }
    }

    fn plain(&self, inode: InodeNo) -> Attributes {
        Attributes {
            inode,
            kind: kind_of(inode),
            permissions: 0,
            links: 1,
            uid: self.owner.0,
            gid: self.owner.1,
            device: 0,
            size: 0,
            blocks: 0,
            accessed: self.made,
            modified: self.made,
            changed: self.made,
            born: self.made,
            generation: 0,
        }
    }
}

impl View for ZoneView {
    fn attributes(&self, inode: InodeNo) -> fs::Result<Attributes> {
        let plain = self.plain(inode);
        if plain.kind == Kind::Directory {
            let size = self.entry_count(inode)?;
            let links = if inode == InodeNo::ROOT { 3 } else { 2 };
            return Ok(Attributes { permissions: 0o500, links, size, ..plain });
        }
        let size = self.length(&self.zone(inode)?.1);
        Ok(Attributes { permissions: 0o400, size, blocks: size.div_ceil(SECTOR), ..plain })
    }

    fn lookup(&self, directory: InodeNo, name: &[u8]) -> fs::Result<InodeNo> {
        let count = self.entry_count(directory)?;
        if directory == InodeNo::ROOT {
            return if name == DIRECTORY { Ok(DIRECTORY_INODE) } else { Err(FsError::NotFound) };
        }
        let number: Option<u64> = str::from_utf8(name).ok().and_then(|name| name.parse().ok());
        // Each number has only one name: `01` is not found.
        let number = number.filter(|number| *number < count && number.to_string().as_bytes() == name);
        number.map(|number| InodeNo(FIRST_FILE + number)).ok_or(FsError::NotFound)
    }

    fn entries(
        &self,
        directory: InodeNo,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry) -> bool,
    ) -> fs::Result<()> {
        let count = self.entry_count(directory)? + DOTS.len() as u64;
        let mut left = (cookie..count).map(|at| self.entry(directory, at));
        // Stops when the buffer is full.
        let _ = left.all(each);
        Ok(())
    }

    fn open(&self, inode: InodeNo) -> fs::Result<()> {
        if self.entry_count(inode).is_ok() {
            return Ok(());
        }
        let (zone, info) = self.zone(inode)?;
        match info.state {
            ZoneState::Offline => Err(failed(DeviceError::Offline(zone))),
            _ => Ok(()),
        }
    }

    fn read(&self, inode: InodeNo, offset: u64, into: &mut [u8]) -> fs::Result<usize> {
        let (zone, info) = self.zone(inode)?;
        let left = self.length(&info).saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        if count == 0 {
            return Ok(0);
        }
        let (into, block_size) = (&mut into[..count], self.block_size());
        let is_whole = offset.is_multiple_of(block_size) && (count as u64).is_multiple_of(block_size);
        match is_whole {
            true => self.device.read(zone, (offset / block_size) as u32, into),
            false => self.read_within(zone, offset, into),
        }
        .map_err(failed)?;
        Ok(count)
    }

    fn xattr_names(&self, inode: InodeNo) -> fs::Result<Vec<&'static [u8]>> {
        if self.entry_count(inode).is_ok() {
            return Ok(Vec::new());
        }
        let names: &[&[u8]] = if self.header(inode).is_ok() { &[STATE, ROLE, LIFE] } else { &[STATE] };
        Ok(names.to_vec())
    }

    fn xattr(&self, inode: InodeNo, name: &[u8]) -> fs::Result<Vec<u8>> {
        if self.entry_count(inode).is_ok() {
            return Err(FsError::NoAttribute);
        }
        let value = match name {
            STATE => state_name(self.zone(inode)?.1.state).to_owned(),
            ROLE => role_name(self.header(inode)?.role).to_owned(),
            LIFE => self.header(inode)?.life.0.to_string(),
            _ => return Err(FsError::NoAttribute),
        };
        Ok(value.into_bytes())
    }

    fn sizes(&self) -> StatFs {
        let blocks = self.zones.iter().map(|info| u64::from(info.capacity)).sum();
        let block_size = self.device.geometry().block_size;
        StatFs { block_size, blocks, name_max: u8::MAX.into(), ..StatFs::default() }
    }
}

fn kind_of(inode: InodeNo) -> Kind {
    if inode.0 < FIRST_FILE { Kind::Directory } else { Kind::File }
}

fn failed(error: DeviceError) -> FsError {
    FsError::Io(error.to_string())
}

#[cfg(test)]
mod tests;
