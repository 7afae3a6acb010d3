//! The label of a member: the first block of one of its first three zones.
//!
//! Magic, checksum, version, features and reader stand for the same things as in other headers.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::format::{FORMAT_VERSION, HeaderError, READER, Reader, checksum};
use crate::{FsId, ZoneId};

use super::layout::{Layout, MEMBERS_MAX, Used};

/// The magic number of a label.
pub(crate) const LABEL_MAGIC: [u8; 8] = *b"POLDERM1";

/// The bytes of a label; the rest of its block is zeros.
pub(crate) const LABEL_BYTES: usize = 512;

/// The upper bound of generations. A set that reaches it excludes no more members.
pub(super) const GENERATIONS_MAX: u64 = 1 << 62;

/// The incompatible feature of a label that lists a member that is being rebuilt, or one that has not joined the set.
pub(super) const FEATURE_REBUILDING: u64 = 1;

/// The stored label.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct StoredLabel {
    /// [`LABEL_MAGIC`].
    magic: [u8; 8],
    /// CRC-32C of these bytes with this field zero.
    pub(crate) checksum: U32,
    /// [`FORMAT_VERSION`].
    version: U32,
    /// The volume.
    fs_id: [u8; 16],
    /// Counts the labels of the set.
    generation: U64,
    /// Features that must be known to use the set: [`FEATURE_REBUILDING`].
    features_incompatible: U64,
    /// The oldest release that reads this version.
    reader: Reader,
    /// The number of the set in its volume.
    set: U16,
    /// How many sets the volume has; 0 if that is not known.
    sets: U16,
    /// The blocks of a chunk of a stripe; 0 for a mirror.
    chunk: U32,
    /// 1 stripe, 2 mirror.
    layout: u8,
    /// How many members the set has.
    width: u8,
    /// Which of them this is.
    position: u8,
    /// The member that lacks contents of a zone: its position and 1 more, or 0 if there is none.
    repaired_member: u8,
    /// The zone of the set that it lacks.
    repaired_zone: U32,
    /// The state of each member: 0 there is none, 1 it counts, 2 it has failed, 3 it is being rebuilt, 4 it has not
    /// joined.
    states: [u8; MEMBERS_MAX],
    /// The id of each member.
    ids: [[u8; 16]; MEMBERS_MAX],
    /// Bytes of a block.
    block_size: U32,
    /// How many zones the set has.
    zones: U32,
    /// How many blocks of a zone of each member are used at most.
    member_blocks: U32,
    /// The limit of open zones of the set.
    max_open: U32,
    /// The limit of active zones of the set.
    max_active: U32,
    /// The largest append to one member, in blocks.
    max_append: U32,
}

const _: () = assert!(size_of::<StoredLabel>() == LABEL_BYTES);

/// The identity of one membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberId(pub(crate) [u8; 16]);

/// What a label says about a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Its id.
    pub(crate) id: MemberId,
    /// Whether its contents count, or will.
    pub(crate) state: StandingState,
}

/// Whether the contents of a member count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandingState {
    /// They do.
    Counts,
    /// They do not: it has failed, or was missing.
    Failed,
    /// They will, when everything was copied to it.
    Rebuilding,
    /// Only the label of the member itself says this, and it decides nothing: the labels of the others do not list it.
    Joining,
}

impl Standing {
    /// Whether its contents count.
    pub(crate) fn counts(&self) -> bool {
        self.state == StandingState::Counts
    }
}

impl StandingState {
    const ALL: [StandingState; 4] =
        [StandingState::Counts, StandingState::Failed, StandingState::Rebuilding, StandingState::Joining];

    fn stored(self) -> u8 {
        1 + StandingState::ALL.iter().position(|state| *state == self).expect("it is one of all") as u8
    }

    fn of_stored(stored: u8) -> Option<StandingState> {
        StandingState::ALL.get(usize::from(stored).checked_sub(1)?).copied()
    }

    fn needs_feature(self) -> bool {
        matches!(self, StandingState::Rebuilding | StandingState::Joining)
    }
}

/// The place of a set in its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number, from 0: the order of the zones of the volume.
    pub number: u16,
    /// How many sets the volume has; 0 if that is not known.
    pub count: u16,
}

impl Part {
    /// The only set of a volume.
    pub const WHOLE: Part = Part { number: 0, count: 1 };

    /// Whether a volume can have such a set.
    pub(super) fn is_possible(self) -> bool {
        self.count == 0 || self.number < self.count
    }
}

/// A zone of one member that is being copied from other members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repair {
    /// The position of the member.
    pub(crate) member: usize,
    /// The zone of the set.
    pub(crate) zone: ZoneId,
}

/// What a label says about the set. It is the same on all members but for the position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    /// The volume.
    pub(crate) fs_id: FsId,
    /// The place of the set in its volume.
    pub(crate) part: Part,
    /// How blocks are distributed.
    pub(crate) layout: Layout,
    /// Counts the labels of the set.
    pub(crate) generation: u64,
    /// What the set uses of each member.
    pub(crate) used: Used,
    /// The contents of this zone of this member do not count.
    pub(crate) repair: Option<Repair>,
    /// All members.
    pub(crate) members: Vec<Standing>,
}

/// Why a block has no label that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoLabel {
    /// There is no label, or it is damaged.
    Damaged,
    /// There is a label that this release does not understand: the reason.
    Unknown(String),
}

/// The first bytes of the block with the label of the member at `position`.
pub(crate) fn encode_label(label: &Label, position: usize) -> [u8; LABEL_BYTES] {
    let (layout, chunk) = match label.layout {
        Layout::Stripe { chunk } => (1, chunk),
        Layout::Mirror => (2, 0),
    };
    let (mut states, mut ids) = ([0; MEMBERS_MAX], [[0; 16]; MEMBERS_MAX]);
    for (index, member) in label.members.iter().enumerate() {
        states[index] = member.state.stored();
        ids[index] = member.id.0;
    }
    let is_rebuilding = label.members.iter().any(|member| member.state.needs_feature());
    let features = if is_rebuilding { FEATURE_REBUILDING } else { 0 };
    let mut stored = StoredLabel {
        magic: LABEL_MAGIC,
        checksum: U32::ZERO,
        version: U32::new(FORMAT_VERSION),
        fs_id: label.fs_id.0,
        generation: U64::new(label.generation),
        features_incompatible: U64::new(features),
        reader: READER,
        set: U16::new(label.part.number),
        sets: U16::new(label.part.count),
        chunk: U32::new(chunk),
        layout,
        width: label.members.len() as u8,
        position: position as u8,
        repaired_member: label.repair.map_or(0, |repair| repair.member as u8 + 1),
        repaired_zone: U32::new(label.repair.map_or(0, |repair| repair.zone.0)),
        states,
        ids,
        block_size: U32::new(label.used.block_size),
        zones: U32::new(label.used.zones),
        member_blocks: U32::new(label.used.member_blocks),
        max_open: U32::new(label.used.max_open),
        max_active: U32::new(label.used.max_active),
        max_append: U32::new(label.used.max_append),
    };
    stored.checksum = U32::new(checksum(&[stored.as_bytes()]));
    zerocopy::transmute!(stored)
}

/// The label in a block, and the position of its member. A label that is whole and that this release does not
/// understand is an error of its own: an older label must not be used instead of it.
pub(crate) fn decode_label(block: &[u8]) -> Result<(Label, usize), NoLabel> {
    let (stored, _) = StoredLabel::read_from_prefix(block).map_err(|_| NoLabel::Damaged)?;
    let bytes = &block[..LABEL_BYTES];
    let is_whole = checksum(&[&bytes[..8], &[0; 4], &bytes[12..]]) == stored.checksum.get();
    if stored.magic != LABEL_MAGIC || !is_whole {
        return Err(NoLabel::Damaged);
    }
    let (version, features) = (stored.version.get(), stored.features_incompatible.get());
    if version != FORMAT_VERSION || features & !FEATURE_REBUILDING != 0 {
        let newer = HeaderError::Newer { version, features, reader: stored.reader };
        return Err(NoLabel::Unknown(newer.to_string()));
    }
    contents(&stored).ok_or_else(|| NoLabel::Unknown("its label has values that are not possible".to_owned()))
}

/// What a label of this version says; `None` if that is not possible.
fn contents(stored: &StoredLabel) -> Option<(Label, usize)> {
    let layout = match (stored.layout, stored.chunk.get()) {
        (1, chunk) if chunk > 0 => Layout::Stripe { chunk },
        (2, 0) => Layout::Mirror,
        _ => return None,
    };
    let (width, position) = (usize::from(stored.width), usize::from(stored.position));
    let used = Used {
        block_size: stored.block_size.get(),
        zones: stored.zones.get(),
        member_blocks: stored.member_blocks.get(),
        max_open: stored.max_open.get(),
        max_active: stored.max_active.get(),
        max_append: stored.max_append.get(),
    };
    let generation = stored.generation.get();
    let part = Part { number: stored.set.get(), count: stored.sets.get() };
    let zone = ZoneId(stored.repaired_zone.get());
    let repair = usize::from(stored.repaired_member).checked_sub(1).map(|member| Repair { member, zone });
    let is_repair_possible = match repair {
        Some(repair) => layout == Layout::Mirror && repair.member < width && zone.0 < used.zones,
        None => zone.0 == 0,
    };
    let is_possible = position < width
        && width <= MEMBERS_MAX
        && generation < GENERATIONS_MAX
        && part.is_possible()
        && is_repair_possible
        && used.is_possible(layout, width);
    if !is_possible {
        return None;
    }
    let standing = |index: usize| {
        let state = StandingState::of_stored(stored.states[index])?;
        Some(Standing { id: MemberId(stored.ids[index]), state })
    };
    let members = (0..width).map(standing).collect::<Option<Vec<Standing>>>()?;
    let rebuilt: Vec<(usize, &Standing)> =
        members.iter().enumerate().filter(|(_, member)| member.state.needs_feature()).collect();
    let is_rebuilt_possible = match rebuilt[..] {
        [] => stored.features_incompatible.get() == 0,
        [(index, member)] => {
            let is_own = index == position;
            layout == Layout::Mirror
                && stored.features_incompatible.get() == FEATURE_REBUILDING
                && (is_own || member.state == StandingState::Rebuilding)
        }
        _ => false,
    };
    if !is_rebuilt_possible {
        return None;
    }
    Some((Label { fs_id: FsId(stored.fs_id), part, layout, generation, used, repair, members }, position))
}

#[cfg(test)]
mod tests;
