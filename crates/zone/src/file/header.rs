//! The copies of a volume's header: which one is valid, and where the copy near the end is placed.
//!
//! There are two copies at the start and one near the end, the *end copy*. They are equal. So the first readable one
//! is the valid one, and the others can be repaired from it. They differ only while an end copy is being added, in
//! the field with the place of that copy. Nothing else in them ever changes.
//!
//! If an end copy is the only one left, it is valid only if it names the place where it was found. Bytes that were
//! copied from another device do not. `volume.rs` decides whether the start may be repaired from it: another program
//! may use the device now.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::format::{
    FILE_MAGIC, HEADER_BYTES, Layout, NoHeader, bytes_with_end_copy, decode_header, encode_header,
    end_copy_place,
};
use crate::FsId;
use crate::device_metadata::{CopyState, MetadataPart};

/// The offsets of the two copies at the start.
pub(super) const START_COPIES: [u64; 2] = [0, HEADER_BYTES as u64];

const ADDED_LATER: &str = "the next mount for writing adds it";
const NO_SPACE: &str = "there is no space for it after the last zone";
const NOT_FREE: &str = "its place after the last zone has other data";
const LENGTH_LIMITED: &str = "the file may not be extended (ulimit -f)";

/// The header of a volume, and the state of each copy.
pub(super) struct Headers {
    pub(super) fs_id: FsId,
    pub(super) layout: Layout,
    /// Whether this release may write the volume.
    pub(super) is_writable: bool,
    /// The valid copy, as it is stored.
    pub(super) bytes: Vec<u8>,
    /// Which copy that is; `None` if the header was derived from the headers of the zones.
    pub(super) counts: Option<MetadataPart>,
    /// The states of the three copies, compared with the valid one.
    pub(super) first: CopyState,
    pub(super) second: CopyState,
    pub(super) end: CopyState,
}

impl Headers {
    /// Reads the copies on a device of `device_bytes` bytes. A copy that cannot be read is damaged.
    pub(super) fn read(file: &File, device_bytes: u64) -> Result<Headers, NoHeader> {
        let starts = START_COPIES.map(|offset| read_copy(file, offset, device_bytes));
        let mut whys = Vec::new();
        for (record, copy) in [MetadataPart::FirstHeader, MetadataPart::SecondHeader].into_iter().zip(&starts)
        {
            match copy.as_deref().map(decode_header) {
                Ok(Ok(_)) => return Ok(Headers::with(file, device_bytes, record, copy_of(copy), &starts)),
                Ok(Err(newer @ NoHeader::Newer { .. })) => return Err(newer),
                Ok(Err(why)) => whys.push(why),
                Err(_) => whys.push(NoHeader::Damaged),
            }
        }
        let end = end_copy_place(device_bytes).map(|place| (place, read_copy(file, place, device_bytes)));
        if let Some((place, Ok(copy))) = end {
            match decode_header(&copy) {
                Ok((_, layout, _)) if layout.end_copy == Some(place) => {
                    return Ok(Headers::with(file, device_bytes, MetadataPart::EndHeader, copy, &starts));
                }
                Err(newer @ NoHeader::Newer { .. }) => return Err(newer),
                _ => {}
            }
        }
        let is_damaged = whys.contains(&NoHeader::Damaged);
        Err(if is_damaged { NoHeader::Damaged } else { NoHeader::Foreign })
    }

    /// A header that is not stored yet.
    pub(super) fn derived(fs_id: FsId, layout: Layout) -> Headers {
        let lost = || CopyState::Damaged("is lost".to_owned());
        Headers {
            fs_id,
            is_writable: true,
            bytes: encode_header(fs_id, &layout),
            counts: None,
            first: lost(),
            second: lost(),
            end: CopyState::Absent(ADDED_LATER),
            layout,
        }
    }

    /// The header in a copy at an unusual place.
    pub(super) fn from_copy(file: &File, device_bytes: u64, bytes: Vec<u8>) -> Headers {
        let starts = START_COPIES.map(|offset| read_copy(file, offset, device_bytes));
        Headers::with(file, device_bytes, MetadataPart::EndHeader, bytes, &starts)
    }

    fn with(
        file: &File,
        device_bytes: u64,
        counts: MetadataPart,
        bytes: Vec<u8>,
        starts: &[io::Result<Vec<u8>>; 2],
    ) -> Headers {
        let (fs_id, layout, is_writable) = decode_header(&bytes).expect("it was decoded");
        let end = match layout.end_copy {
            Some(place) => compare(&bytes, &read_copy(file, place, device_bytes)),
            None => CopyState::Absent(ADDED_LATER),
        };
        let [first, second] = starts.each_ref().map(|copy| compare(&bytes, copy));
        Headers { fs_id, layout, is_writable, bytes, counts: Some(counts), first, second, end }
    }

    /// Whether any copy at the start is damaged.
    pub(super) fn start_is_damaged(&self) -> bool {
        self.first != CopyState::Whole || self.second != CopyState::Whole
    }

    /// Where the end copy is or will be placed. If there is no place for it, its state becomes absent.
    pub(super) fn place_end_copy(&mut self, file: &File, device_bytes: u64, is_file: bool) -> EndPlace {
        let place = self.end_place(file, device_bytes, is_file);
        if let EndPlace::Nowhere(why) = place {
            self.end = CopyState::Absent(why);
        }
        place
    }

    fn end_place(&self, file: &File, device_bytes: u64, is_file: bool) -> EndPlace {
        let unit = self.layout.page_bytes() as u64;
        let fits = |place: u64| place + unit <= device_bytes;
        if let Some(place) = self.layout.end_copy.filter(|&place| fits(place)) {
            return EndPlace::At(place);
        }
        let zones_end = self.layout.file_bytes();
        let at_end = end_copy_place(device_bytes).filter(|&place| place >= zones_end && fits(place));
        match at_end {
            Some(place) if is_free(file, place, unit) => return EndPlace::At(place),
            Some(_) if !is_file => return EndPlace::Nowhere(NOT_FREE),
            None if !is_file => return EndPlace::Nowhere(NO_SPACE),
            // Behind all existing bytes, whatever they are.
            Some(_) | None => {}
        }
        let bytes = bytes_with_end_copy(if at_end.is_some() { device_bytes } else { zones_end });
        match end_copy_place(bytes) {
            Some(place) if is_length_allowed(bytes) => EndPlace::Longer { place, bytes },
            _ => EndPlace::Nowhere(LENGTH_LIMITED),
        }
    }
}

/// The place of the end copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndPlace {
    At(u64),
    /// There, after the file was extended to `bytes`.
    Longer {
        place: u64,
        bytes: u64,
    },
    /// There is no place, with the reason.
    Nowhere(&'static str),
}

/// The state of a copy, compared with the valid one.
pub(super) fn compare(counts: &[u8], copy: &io::Result<Vec<u8>>) -> CopyState {
    let copy = match copy {
        Ok(copy) if copy == counts => return CopyState::Whole,
        Ok(copy) => copy,
        Err(error) => return CopyState::Damaged(format!("cannot be read ({error})")),
    };
    CopyState::Damaged(
        match decode_header(copy) {
            Err(NoHeader::Damaged) => "is damaged (checksum)",
            Err(NoHeader::Newer { .. }) => "is of a later release",
            Err(NoHeader::Foreign) if copy.is_empty() => "is missing: the device is too short",
            Err(NoHeader::Foreign) if copy.iter().all(|&byte| byte == 0) => "is lost: its place has zeros",
            Err(NoHeader::Foreign) => "is lost: its place has other data",
            Ok(_) => "differs from the valid copy",
        }
        .to_owned(),
    )
}

/// The stored bytes of a copy; fewer if the device ends before.
fn read_copy(file: &File, offset: u64, device_bytes: u64) -> io::Result<Vec<u8>> {
    let there = device_bytes.saturating_sub(offset).min(HEADER_BYTES as u64);
    let mut copy = vec![0; there as usize];
    file.read_exact_at(&mut copy, offset)?;
    Ok(copy)
}

fn copy_of(copy: &io::Result<Vec<u8>>) -> Vec<u8> {
    copy.as_ref().ok().cloned().unwrap_or_default()
}

/// Whether the place has only zeros or a header of Polder.
fn is_free(file: &File, place: u64, bytes: u64) -> bool {
    let mut found = vec![0; bytes as usize];
    let is_read = file.read_exact_at(&mut found, place).is_ok();
    is_read && (found.starts_with(&FILE_MAGIC) || found.iter().all(|&byte| byte == 0))
}

/// Whether this process may create a file of this length. Checked before, because the system kills a process that
/// exceeds the limit.
fn is_length_allowed(bytes: u64) -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    limit.is_none_or(|limit| bytes <= limit)
}
