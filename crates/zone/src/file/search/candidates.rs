//! What is left of each volume on a device without a header, and which of them is the newest.
//!
//! **A volume is newer than another if something of it stands where making the other has written.** Making a volume
//! writes both copies of the header at the start, both tables of zone states, and a header to each zone that may hold the
//! log. From then on nothing but these stands there. So no header and no zone state of an older volume does.
//!
//! Where that tells nothing, the volume with a log is the present one, unless a header of the other stands within the
//! zones of that log: they hold no files, so it may be left over, or it may have been written later.
//!
//! Numbers of lives do not tell: each volume counts its own.

use std::path::Path;

use super::super::FileError;
use super::super::format::{HEADER_BYTES, Layout, zones_offset};
use super::super::header::Headers;
use super::{AGREEING_MIN, LOG_ZONES};
use crate::format::ZoneIdentity;
use crate::{Blocks, FsId, ZoneId};

/// What was found out about a volume.
pub(crate) struct FoundVolume {
    pub(crate) headers: Headers,
    /// How many zones it was found out from.
    pub(crate) agreeing: u32,
    /// Whether a zone of the log is among them.
    pub(super) has_log: bool,
    /// Other volumes that may be newer, and how many of their zones were found.
    pub(super) rivals: Vec<(FsId, u32)>,
}

impl FoundVolume {
    /// Refuses to write a header that may be another volume's, or of no use. To read, one zone's header is enough where no
    /// others are found: of a small volume there may be no more when the first is lost.
    pub(crate) fn refuse_uncertain(&self, path: &Path) -> Result<(), FileError> {
        let uncertain = |why| Err(FileError::Uncertain { path: path.to_owned(), why });
        if let Some(volumes) = self.volumes() {
            return uncertain(format!(
                "there are zones of several Polder volumes, and which one is the newest cannot be told: {volumes}"
            ));
        }
        if (self.agreeing as usize) < AGREEING_MIN {
            return uncertain("the header of one zone alone is left, and none agrees with it".to_owned());
        }
        if !self.has_log {
            return uncertain(format!(
                "the headers of the log's zones of the volume {} are lost as well",
                self.headers.fs_id
            ));
        }
        Ok(())
    }

    /// This volume and the others that may be newer, in words, if any may.
    pub(crate) fn volumes(&self) -> Option<String> {
        let mut volumes = vec![format!("{} ({} zones)", self.headers.fs_id, self.agreeing)];
        volumes.extend(self.rivals.iter().map(|(fs_id, zones)| format!("{fs_id} ({zones} zones)")));
        (!self.rivals.is_empty()).then(|| volumes.join(", "))
    }
}

/// What is left of one volume.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) fs_id: FsId,
    block_size: u32,
    zones: u32,
    /// The whole shape, unless the first zone is all that was found.
    pub(super) layout: Option<Layout>,
    /// Where headers of its zones stand.
    pub(super) headers: Vec<u64>,
    /// Where states of its zones stand.
    states: Vec<u64>,
    /// How many of the headers are of the log.
    pub(super) of_log: u32,
    /// What the last zone takes, as its own header says.
    pub(super) last_capacity: Option<Blocks>,
}

impl Candidate {
    /// Of a volume of this shape; no headers yet.
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

    /// Of a volume of which the first zone is all that is known.
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

    /// Whether enough of it was found to say that it was here.
    pub(super) fn is_volume(&self) -> bool {
        self.layout.is_some() && self.headers.len() >= AGREEING_MIN
    }

    fn has_first(&self) -> bool {
        self.headers.contains(&zones_offset(self.block_size, self.zones))
    }

    /// Whether making the volume has written there.
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

    /// Whether a header of another stands within the zones that may hold the log, or before them.
    fn has_within_log(&self, other: &Candidate) -> bool {
        let Some(layout) = &self.layout else { return false };
        let end = layout.offset(ZoneId(LOG_ZONES), 0);
        other.headers.iter().any(|&offset| offset < end)
    }

    /// Whether this is the present volume and the other one is not, as far as the two tell.
    fn displaces(&self, other: &Candidate) -> bool {
        match (self.is_newer_than(other), other.is_newer_than(self)) {
            (true, is_older) => !is_older,
            (false, true) => false,
            (false, false) => self.of_log > 0 && other.of_log == 0 && !self.has_within_log(other),
        }
    }

    /// Whether it counts beside another: one header alone, which may be anything, does so only where no file can be.
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

/// The volume that is most likely the present one, and those that may be it instead. Beside one that is wanted there are
/// none.
pub(super) fn choose(all: &[Candidate], wanted: Option<FsId>) -> Option<(&Candidate, Vec<(FsId, u32)>)> {
    let all = all.iter().filter(|candidate| wanted.is_none_or(|wanted| candidate.fs_id == wanted));
    let all: Vec<&Candidate> = all.collect();
    let is_told_by_others = |one: &Candidate| {
        one.layout.is_none()
            && all.iter().any(|other| other.layout.is_some() && other.is_same_but_for_zone_size(one))
    };
    let all: Vec<&Candidate> =
        all.iter().copied().filter(|candidate| !is_told_by_others(candidate)).collect();
    let others = |one: &Candidate| {
        let one = std::ptr::from_ref(one);
        all.iter().copied().filter(move |other| !std::ptr::eq(one, *other))
    };
    let rank = |one: &Candidate| {
        let is_older = others(one).any(|other| other.is_newer_than(one));
        (one.is_volume(), !is_older, one.has_first(), one.of_log > 0, one.headers.len())
    };
    // The first of those that are alike.
    let shapes = all.iter().copied().filter(|candidate| candidate.layout.is_some());
    let chosen = shapes.rev().max_by_key(|candidate| rank(candidate))?;
    let rivals = others(chosen).filter(|other| other.is_rival_of(chosen) && !chosen.displaces(other));
    Some((chosen, rivals.map(|other| (other.fs_id, other.headers.len() as u32)).collect()))
}
