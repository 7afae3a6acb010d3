//! The volumes found on a device without a header, and which of them is the newest.
//!
//! **A volume is newer than another if something of it is at a place that the creation of the other has written.**
//! Creating a volume writes both copies of the header at the start, both tables of zone states, and a header to each
//! zone that may contain the log. From then on only these are at these places. So no header and no zone state of an
//! older volume is there.
//!
//! If that does not decide, the volume with a log is the present one, unless a header of the other volume is within
//! the zones of that log. These zones contain no files, so this header may be older or newer.
//!
//! The lives of zones do not help: each volume counts its own.

use std::path::Path;

use super::super::FileError;
use super::super::format::{HEADER_BYTES, Layout, zones_offset};
use super::super::header::Headers;
use super::{AGREEING_MIN, LOG_ZONES};
use crate::format::ZoneIdentity;
use crate::{Blocks, FsId, ZoneId};

/// A volume that was found.
pub(crate) struct FoundVolume {
    pub(crate) headers: Headers,
    /// The number of zone headers that agree.
    pub(crate) agreeing: u32,
    /// Whether one of them is of a log zone.
    pub(super) has_log: bool,
    /// Other volumes that may be newer, and the number of zones found of each.
    pub(super) rivals: Vec<(FsId, u32)>,
}

impl FoundVolume {
    /// Refuses to write a header that may belong to another volume or may be useless. For reading, one zone header is
    /// enough if there are no others: a small volume may have no more when its first zone is lost.
    pub(crate) fn refuse_uncertain(&self, path: &Path) -> Result<(), FileError> {
        let uncertain = |why| Err(FileError::Uncertain { path: path.to_owned(), why });
        if let Some(volumes) = self.volumes() {
            return uncertain(format!(
                "the zones belong to several Polder volumes, of which the newest cannot be determined: {volumes}"
            ));
        }
        if (self.agreeing as usize) < AGREEING_MIN {
            return uncertain("only one zone has a valid header".to_owned());
        }
        if !self.has_log {
            return uncertain(format!(
                "the headers of the log zones of the volume {} are lost as well",
                self.headers.fs_id
            ));
        }
        Ok(())
    }

    /// A list of this volume and the others that may be newer, if there are any.
    pub(crate) fn volumes(&self) -> Option<String> {
        let mut volumes = vec![format!("{} ({} zones)", self.headers.fs_id, self.agreeing)];
        volumes.extend(self.rivals.iter().map(|(fs_id, zones)| format!("{fs_id} ({zones} zones)")));
        (!self.rivals.is_empty()).then(|| volumes.join(", "))
    }
}

/// The remains of one volume.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) fs_id: FsId,
    block_size: u32,
    zones: u32,
    /// The whole shape, unless only the first zone was found.
    pub(super) layout: Option<Layout>,
    /// The offsets of its zone headers.
    pub(super) headers: Vec<u64>,
    /// The offsets of its zone states.
    states: Vec<u64>,
    /// The number of headers of log zones.
    pub(super) of_log: u32,
    /// The capacity of the last zone according to its header.
    pub(super) last_capacity: Option<Blocks>,
}

impl Candidate {
    /// A volume of this shape without headers.
    pub(super) fn of_layout(fs_id: FsId, layout: &Layout, states: Vec<u64>) -> Candidate {
        let (block_size, zones) = (layout.geometry.block_size, layout.geometry.zones);
        Candidate {
            fs_id,
            block_size,
            zones,
            layout: Some(layout.clone()),
            headers: Vec::new(),
            states,
            of_log: 0,
            last_capacity: None,
        }
    }

    /// A volume of which only the first zone is known.
    pub(super) fn of_first(identity: ZoneIdentity, block_size: u32, zones: u32) -> Candidate {
        Candidate {
            fs_id: identity.fs_id,
            block_size,
            zones,
            layout: None,
            headers: vec![zones_offset(block_size, zones)],
            states: Vec::new(),
            of_log: 0,
            last_capacity: None,
        }
    }

    pub(super) fn is_same(&self, other: &Candidate) -> bool {
        let zone_size = |candidate: &Candidate| candidate.layout.as_ref().map(|layout| layout.zone_size);
        self.is_same_but_for_zone_size(other) && zone_size(self) == zone_size(other)
    }

    fn is_same_but_for_zone_size(&self, other: &Candidate) -> bool {
        (self.fs_id, self.block_size, self.zones) == (other.fs_id, other.block_size, other.zones)
    }

    /// Whether enough headers were found to confirm the volume.
    pub(super) fn is_volume(&self) -> bool {
        self.layout.is_some() && self.headers.len() >= AGREEING_MIN
    }

    fn has_first(&self) -> bool {
        self.headers.contains(&zones_offset(self.block_size, self.zones))
    }

    /// Whether the creation of the volume has written at this offset.
    fn was_written_at(&self, offset: u64) -> bool {
        let zones = zones_offset(self.block_size, self.zones);
        let headers = 2 * HEADER_BYTES as u64;
        let tables = self.layout.as_ref().map_or(headers, |layout| layout.table_offset(0));
        let is_log_zone = |layout: &Layout| {
            (0..LOG_ZONES.min(self.zones)).any(|zone| layout.offset(ZoneId(zone), 0) == offset)
        };
        offset < headers
            || (tables..=zones).contains(&offset)
            || self.layout.as_ref().is_some_and(is_log_zone)
    }

    fn is_newer_than(&self, other: &Candidate) -> bool {
        self.headers.iter().chain(&self.states).any(|&offset| other.was_written_at(offset))
    }

    /// Whether a header of the other volume is within the zones that may contain the log, or before them.
    fn has_within_log(&self, other: &Candidate) -> bool {
        let Some(layout) = &self.layout else { return false };
        let end = layout.offset(ZoneId(LOG_ZONES), 0);
        other.headers.iter().any(|&offset| offset < end)
    }

    /// Whether comparing the two shows that this is the present volume.
    fn displaces(&self, other: &Candidate) -> bool {
        match (self.is_newer_than(other), other.is_newer_than(self)) {
            (true, is_older) => !is_older,
            (false, true) => false,
            (false, false) => self.of_log > 0 && other.of_log == 0 && !self.has_within_log(other),
        }
    }

    /// Whether it may be the present volume instead of `other`. A single header counts only if it is at a place where
    /// no file data can be.
    fn is_rival_of(&self, other: &Candidate) -> bool {
        let is_of_another = self.fs_id != other.fs_id;
        self.is_volume() || is_of_another && (self.is_same_shape(other) || other.has_within_log(self))
    }

    fn is_same_shape(&self, other: &Candidate) -> bool {
        let zone_size = |candidate: &Candidate| candidate.layout.as_ref().map(|layout| layout.zone_size);
        let shape = |candidate: &Candidate| (candidate.block_size, candidate.zones, zone_size(candidate));
        shape(self) == shape(other)
    }
}

/// The volume that is most likely the present one, and those that may be it instead. If one is wanted, the others are
/// ignored.
pub(super) fn choose(all: &[Candidate], wanted: Option<FsId>) -> Option<(&Candidate, Vec<(FsId, u32)>)> {
    let all = all.iter().filter(|candidate| wanted.is_none_or(|wanted| candidate.fs_id == wanted));
    let all: Vec<&Candidate> = all.collect();
    let is_included_in_others = |one: &Candidate| {
        one.layout.is_none()
            && all.iter().any(|other| other.layout.is_some() && other.is_same_but_for_zone_size(one))
    };
    let all: Vec<&Candidate> =
        all.iter().copied().filter(|candidate| !is_included_in_others(candidate)).collect();
    let others = |one: &Candidate| {
        let one = std::ptr::from_ref(one);
        all.iter().copied().filter(move |other| !std::ptr::eq(one, *other))
    };
    let rank = |one: &Candidate| {
        let is_older = others(one).any(|other| other.is_newer_than(one));
        (one.is_volume(), !is_older, one.has_first(), one.of_log > 0, one.headers.len())
    };
    // The first one of equals.
    let shapes = all.iter().copied().filter(|candidate| candidate.layout.is_some());
    let chosen = shapes.rev().max_by_key(|candidate| rank(candidate))?;
    let rivals = others(chosen).filter(|other| other.is_rival_of(chosen) && !chosen.displaces(other));
    Some((chosen, rivals.map(|other| (other.fs_id, other.headers.len() as u32)).collect()))
}
