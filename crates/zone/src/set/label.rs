//! The label of a member, for code that looks for the members of a volume.
//!
//! What is said here of members that count is only as new as the label that was read. When a set is opened, the newest
//! label of all members decides (`roster.rs`).

use crate::{Device, FsId};

use super::format::{Label, MemberId, StandingState, decode_label};
use super::layout::{LABEL_ZONES, Layout};
use super::member::{FoundLabel, Unlabelled};

/// The blocks of a label zone in which labels are looked for without the state of the zone.
const LABELS_MAX: u32 = 8;

/// The first zones of a member, which hold its label. Zone *z* of the set is zone *z* plus this of each member.
pub(crate) const LABEL_ZONES_OF_MEMBER: u32 = LABEL_ZONES;

/// The label of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberLabel {
    label: Label,
    position: usize,
}

impl MemberLabel {
    /// The newest label of a member of the volume, without a lock and without the states of its zones: `read` returns a
    /// block of one of its first zones, if there is one.
    pub(crate) fn find(
        fs_id: Option<FsId>,
        read: impl Fn(u32, u32) -> Option<Vec<u8>>,
    ) -> Option<MemberLabel> {
        let in_zone = |zone: u32| {
            let blocks = (0..LABELS_MAX).map_while(|block| read(zone, block));
            let labels = blocks.map_while(|block| decode_label(&block).ok());
            labels.map(|(label, position)| MemberLabel { label, position }).collect::<Vec<_>>()
        };
        let all = (0..LABEL_ZONES).flat_map(in_zone);
        let own = all.filter(|found| fs_id.is_none_or(|fs_id| found.label.fs_id == fs_id));
        own.max_by_key(|found| found.label.generation)
    }

    /// The newest label of a member that is open.
    ///
    /// # Errors
    /// The reason why it has none that can be used, and whether that is because the device fails.
    pub fn read(device: &dyn Device) -> Result<MemberLabel, (String, bool)> {
        let found = FoundLabel::read(device).map_err(|why| match why {
            Unlabelled::Absent => ("it has no label of a member".to_owned(), false),
            Unlabelled::Unknown(why) => (format!("its label cannot be used: {why}"), false),
            Unlabelled::Lost => ("its newest label is lost".to_owned(), false),
            Unlabelled::Failed(error) => (format!("its label cannot be read: {error}"), true),
        })?;
        let FoundLabel { label, position, .. } = found;
        Ok(MemberLabel { label, position })
    }

    /// The volume.
    pub fn fs_id(&self) -> FsId {
        self.label.fs_id
    }

    /// The number of the set in its volume.
    pub fn set(&self) -> u32 {
        u32::from(self.label.part.number)
    }

    /// How the set distributes blocks.
    pub fn layout(&self) -> Layout {
        self.label.layout
    }

    /// Counts the labels of the set: the label with the largest generation decides.
    pub fn generation(&self) -> u64 {
        self.label.generation
    }

    /// The position of this member in the set.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The number of members of the set.
    pub fn width(&self) -> usize {
        self.label.members.len()
    }

    /// The id of this member.
    pub fn id(&self) -> MemberId {
        self.id_at(self.position)
    }

    /// The id of the member at a position.
    pub fn id_at(&self, position: usize) -> MemberId {
        self.label.members[position].id
    }

    /// Whether the contents of the member at a position count.
    pub fn counts(&self, position: usize) -> bool {
        self.label.members[position].counts()
    }

    /// Whether the member at a position does not count, and will not.
    pub fn is_failed(&self, position: usize) -> bool {
        self.label.members[position].state == StandingState::Failed
    }

    /// Whether everything is being copied to the member at a position, which then counts.
    pub fn is_rebuilt(&self, position: usize) -> bool {
        self.label.members[position].state == StandingState::Rebuilding
    }

    /// Whether the device was about to become a member. Then its label says nothing about the others.
    pub fn is_joining(&self) -> bool {
        self.label.members[self.position].state == StandingState::Joining
    }

    /// The zones of the set.
    pub fn zones(&self) -> u32 {
        self.label.used.zones
    }

    /// The zones of a member that are used: those of the set, and those of its label.
    pub fn member_zones(&self) -> u32 {
        self.label.used.zones.saturating_add(LABEL_ZONES)
    }
}

impl Layout {
    /// How many of `width` members may be missing.
    pub fn redundancy(self, width: usize) -> usize {
        self.tolerated(width)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Stripe { .. } => "stripe",
            Layout::Mirror => "mirror",
        }
    }

    /// The shape of a set of devices of these shapes, before it is made.
    ///
    /// # Errors
    /// The devices do not make a set.
    pub fn geometry_of(self, members: &[&crate::Geometry]) -> Result<crate::Geometry, super::SetError> {
        Ok(self.used(members)?.geometry(self, members.len(), members))
    }
}

impl std::fmt::Display for MemberId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        FsId(self.0).fmt(f)
    }
}
