//! The zones of a device, one after the other: the speed of the raw device.
//!
//! Bytes without a name are written from the start of the second zone on. The first zone has a header by which the
//! device is found again, also through another interface. Bytes are written once, in order.

use std::path::Path;
use std::sync::Arc;

use zone::file::OpenMode;
use zone::format::{Role, ZoneIdentity, encode_header};
use zone::medium::VolumeOptions;
use zone::{Blocks, Device, FsId, Life, Medium, ZoneId};

use super::{Bytes, Place, Result};

/// The identity in the header.
const FS_ID: FsId = FsId(*b"zones of a bench");

/// A zoned device. It has bytes and no names.
pub struct Zones {
    device: Arc<dyn Device>,
}

impl Zones {
    /// Resets all zones of a device. Its contents are lost.
    pub fn make(path: &Path) -> Result<Self> {
        let options = VolumeOptions { fs_id: FS_ID, force: true, ..VolumeOptions::default() };
        let made = Medium::draft(path, &options).and_then(|draft| draft.make(&mut |_, _| {}));
        Zones::begin(made.map_err(|error| error.to_string())?.into_device())
    }

    /// Starts on an empty device.
    pub(super) fn begin(device: Arc<dyn Device>) -> Result<Self> {
        let identity = ZoneIdentity { fs_id: FS_ID, zone: ZoneId(0), life: Life(0), role: Role::Data };
        let header = encode_header(&identity, device.geometry());
        device.append(ZoneId(0), &header).map_err(|error| error.to_string())?;
        Ok(Zones { device })
    }

    /// Opens a device that was prepared before, for reading.
    pub fn open(path: &Path) -> Result<Self> {
        let opened = Medium::open(path, OpenMode::ReadOnly).map_err(|error| error.to_string())?;
        if opened.fs_id() != FS_ID {
            return Err(format!("{}: it holds a volume", path.display()));
        }
        Ok(Zones { device: opened.into_device() })
    }
}

impl Place for Zones {
    /// All bytes of the device, for any path.
    fn open(&self, _path: &str) -> Result<Box<dyn Bytes>> {
        Ok(Box::new(Opened { device: Arc::clone(&self.device) }))
    }

    fn has_names(&self) -> bool {
        false
    }

    fn sync(&self) -> Result<()> {
        self.device.flush().map_err(|error| error.to_string())
    }
}

struct Opened {
    device: Arc<dyn Device>,
}

impl Opened {
    /// The address of a byte, and the number of bytes that follow it in its zone.
    fn place(&self, offset: u64) -> (ZoneId, Blocks, usize) {
        let geometry = self.device.geometry();
        let block_size = u64::from(geometry.block_size);
        let zone_bytes = u64::from(geometry.zone_blocks) * block_size;
        let (zone, within) = (1 + offset / zone_bytes, offset % zone_bytes);
        (ZoneId(zone as u32), (within / block_size) as Blocks, (zone_bytes - within) as usize)
    }
}

impl Bytes for Opened {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let (zone, block, left) = self.place(offset);
        let (first, rest) = into.split_at_mut(left.min(into.len()));
        self.device.read(zone, block, first).map_err(|error| error.to_string())?;
        if rest.is_empty() { Ok(()) } else { self.read(offset + first.len() as u64, rest) }
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        let (zone, block, left) = self.place(offset);
        let geometry = self.device.geometry();
        let append_max = geometry.max_append as usize * geometry.block_size as usize;
        let (first, rest) = from.split_at(left.min(append_max).min(from.len()));
        let landed = self.device.append(zone, first).map_err(|error| error.to_string())?;
        if landed != block {
            return Err(format!("zone {} is written at block {landed}, not at {block}", zone.0));
        }
        if rest.is_empty() { Ok(()) } else { self.write(offset + first.len() as u64, rest) }
    }

    fn sync(&self) -> Result<()> {
        self.device.flush().map_err(|error| error.to_string())
    }
}
