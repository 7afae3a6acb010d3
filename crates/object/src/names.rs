//! The names of objects. Numbers have leading zeros, so that a listing is in the order of the numbers.

use zone::{FsId, Life, ZoneId};

/// The name of the object that describes the volume.
pub(crate) const VOLUME: &str = "volume";

/// The names of the objects of one volume. Each has the id of the volume, so that an object of an earlier volume at
/// the same place never is taken for one of this.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    id: String,
}

impl Names {
    pub(crate) fn of(fs_id: FsId) -> Names {
        Names { id: fs_id.to_string() }
    }

    /// The beginning of the names of all bundles.
    pub(crate) fn bundles(&self) -> String {
        format!("{}/b/", self.id)
    }

    pub(crate) fn bundle(&self, sequence: u64) -> String {
        format!("{}{sequence:016x}", self.bundles())
    }

    /// The number of the bundle with this name.
    pub(crate) fn sequence(&self, name: &str) -> Option<u64> {
        let digits = name.strip_prefix(&self.bundles())?;
        (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?
    }

    /// The beginning of the names of all chunks of the table.
    pub(crate) fn chunks(&self) -> String {
        format!("{}/t/", self.id)
    }

    pub(crate) fn chunk(&self, chunk: u32, number: u64) -> String {
        format!("{}{chunk:04x}-{number:016x}", self.chunks())
    }

    /// The chunk and its number.
    pub(crate) fn chunk_of(&self, name: &str) -> Option<(u32, u64)> {
        let (chunk, number) = name.strip_prefix(&self.chunks())?.split_once('-')?;
        Some((u32::from_str_radix(chunk, 16).ok()?, u64::from_str_radix(number, 16).ok()?))
    }

    /// The beginning of the names of all parts of a zone.
    pub(crate) fn parts_of_zone(&self, zone: ZoneId) -> String {
        format!("{}/p/{:06x}/", self.id, zone.0)
    }

    pub(crate) fn part(&self, zone: ZoneId, life: Life, part: u32, owner: u32) -> String {
        format!("{}{:08x}/{part:04x}-{owner:08x}", self.parts_of_zone(zone), life.0)
    }

    /// The life of the part with this name.
    pub(crate) fn life(&self, zone: ZoneId, name: &str) -> Option<Life> {
        let (life, _) = name.strip_prefix(&self.parts_of_zone(zone))?.split_once('/')?;
        u32::from_str_radix(life, 16).ok().map(Life)
    }

    /// The beginning of the names of all objects of the volume but its description.
    pub(crate) fn all(&self) -> String {
        format!("{}/", self.id)
    }

    /// A name that nothing else has.
    pub(crate) fn probe(&self, nonce: [u8; 16]) -> String {
        format!("{}/probe/{}", self.id, FsId(nonce))
    }
}
