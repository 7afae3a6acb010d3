//! Makes a volume on several devices.
//!
//! As for one device, everything is checked before the first write: each member is drafted, and so locked, and the shape
//! of the whole volume is known before the first member is emptied.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::members::{NewSet, SetMedium, Single};
use super::{Medium, MediumDraft, VolumeOptions};
use crate::file::FileError;
use crate::set::{Concatenation, LABEL_ZONES_OF_MEMBER, Layout, Part, Set, SetError};
use crate::{Blocks, FsId, Geometry};

/// One slot of each member is for its label, and a volume needs six.
const OPEN_ZONES_MIN: u32 = 7;

/// How a set that is to be made distributes blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlannedLayout {
    /// Each block is on one member.
    Stripe {
        /// Bytes of consecutive blocks on one member; 8 blocks if `None`.
        chunk_bytes: Option<u64>,
    },
    /// Each block is on every member.
    Mirror,
}

/// A set that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetPlan {
    /// How it distributes blocks.
    pub layout: PlannedLayout,
    /// The files and devices, by position.
    pub members: Vec<PathBuf>,
}

/// The part of a member that the volume does not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusedPart {
    /// The member.
    pub path: PathBuf,
    /// Bytes of the zones of its label.
    pub label_bytes: u64,
    /// Zones beyond those of the member with the fewest.
    pub zones: u32,
    /// Their bytes.
    pub zones_bytes: u64,
    /// Bytes beyond the smallest capacity of a zone, in all zones that are used.
    pub capacity_bytes: u64,
    /// Bytes of zones that are too small to be used.
    pub small_bytes: u64,
    /// Its conventional zones.
    pub conventional: u32,
    /// Their bytes.
    pub conventional_bytes: u64,
}

/// A volume on several devices that can be created. Nothing is written yet; existing files and devices are locked.
pub struct SetsDraft {
    fs_id: FsId,
    sets: Vec<SetDraft>,
    geometry: Geometry,
}

struct SetDraft {
    layout: Layout,
    geometry: Geometry,
    members: Vec<(PathBuf, MediumDraft)>,
}

impl SetsDraft {
    /// Prepares the volume. Options that zoned devices determine count for the other members.
    pub(super) fn new(plans: &[SetPlan], options: &VolumeOptions) -> Result<SetsDraft, FileError> {
        check_plans(plans, options)?;
        let drafts = DraftedMembers::new(plans, options)?;
        let drafts = drafts.in_agreement(plans, options)?;
        let mut sets = Vec::new();
        for (plan, members) in plans.iter().zip(drafts.0) {
            check_blocks(&members)?;
            let geometries: Vec<&Geometry> = members.iter().map(|(_, draft)| draft.geometry()).collect();
            let layout = plan.layout.with_blocks_of(geometries[0].block_size)?;
            let geometry = layout.geometry_of(&geometries).map_err(unfit)?;
            sets.push(SetDraft { layout, geometry, members });
        }
        let geometries: Vec<&Geometry> = sets.iter().map(|set| &set.geometry).collect();
        let geometry = Concatenation::geometry_of(&geometries).map_err(unfit)?;
        Ok(SetsDraft { fs_id: options.fs_id, sets, geometry })
    }

    /// The shape of the volume.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Creates the files that do not exist yet, before anything is erased, and returns their paths. If one cannot be
    /// created, none of them is left.
    pub fn create_files(&mut self) -> Result<Vec<PathBuf>, FileError> {
        let mut created = Vec::new();
        for (_, draft) in self.sets.iter_mut().flat_map(|set| &mut set.members) {
            match draft.create_files() {
                Ok(mut files) => created.append(&mut files),
                Err(error) => {
                    for path in created {
                        let _ = std::fs::remove_file(path);
                    }
                    return Err(error);
                }
            }
        }
        Ok(created)
    }

    /// The parts of the members that are not used.
    pub fn unused_parts(&self) -> Vec<UnusedPart> {
        self.sets.iter().flat_map(SetDraft::unused_parts).collect()
    }

    /// Empties all members, and makes sets of them. `done` receives the prepared bytes of one member and their total.
    pub(super) fn make(self, done: &mut dyn FnMut(u64, u64)) -> Result<SetMedium, FileError> {
        let mut sets = Vec::new();
        let count = self.sets.len() as u16;
        let path = self.sets[0].members[0].0.clone();
        for (number, SetDraft { layout, members, .. }) in (0..).zip(self.sets) {
            let mut opened: Vec<(PathBuf, Single)> = Vec::new();
            for (path, draft) in members {
                let single = Single::of(draft.make(done)?);
                opened.push((path, single));
            }
            let devices = opened.iter().map(|(_, single)| single.device()).collect();
            let set = Set::create_part(layout, devices, self.fs_id, Part { number, count });
            let set =
                set.map_err(|error| FileError::Member { path: opened[0].0.clone(), why: error.to_string() })?;
            sets.push(NewSet { set: Arc::new(set), members: opened });
        }
        SetMedium::of_new(&path, self.fs_id, sets)
    }
}

impl SetDraft {
    fn unused_parts(&self) -> Vec<UnusedPart> {
        let used: Blocks =
            self.members.iter().map(|(_, draft)| draft.geometry().zone_blocks).min().unwrap_or(0);
        let part = |(path, draft): &(PathBuf, MediumDraft)| {
            let geometry = draft.geometry();
            let bytes = |blocks: Blocks| u64::from(blocks) * u64::from(geometry.block_size);
            let zone = bytes(geometry.zone_blocks);
            let zones = geometry.sequential().saturating_sub(self.geometry.zones + LABEL_ZONES_OF_MEMBER);
            UnusedPart {
                path: path.clone(),
                label_bytes: zone * u64::from(LABEL_ZONES_OF_MEMBER),
                zones,
                zones_bytes: zone * u64::from(zones),
                capacity_bytes: bytes(geometry.zone_blocks - used) * u64::from(self.geometry.zones),
                small_bytes: draft.unused_zones().map_or(0, |unused| unused.small_bytes),
                conventional: geometry.conventional,
                conventional_bytes: zone * u64::from(geometry.conventional),
            }
        };
        self.members.iter().map(part).collect()
    }
}

impl PlannedLayout {
    /// A stripe with the usual chunks.
    pub const STRIPE: PlannedLayout = PlannedLayout::Stripe { chunk_bytes: None };

    fn with_blocks_of(self, block_size: u32) -> Result<Layout, FileError> {
        let bytes = match self {
            PlannedLayout::Mirror => return Ok(Layout::Mirror),
            PlannedLayout::Stripe { chunk_bytes: None } => return Ok(Layout::STRIPE),
            PlannedLayout::Stripe { chunk_bytes: Some(bytes) } => bytes,
        };
        let wrong = |why| Err(FileError::Option { option: "chunk", value: bytes, why });
        if bytes == 0 || !bytes.is_multiple_of(block_size.into()) {
            return wrong("it must be a multiple of the block size");
        }
        match Blocks::try_from(bytes / u64::from(block_size)) {
            Ok(chunk) if chunk <= crate::Address::BLOCKS_MAX => Ok(Layout::Stripe { chunk }),
            _ => wrong("it must be at most 2^28 blocks"),
        }
    }
}

/// The drafts of the members of each set.
struct DraftedMembers(Vec<Vec<(PathBuf, MediumDraft)>>);

impl DraftedMembers {
    fn new(plans: &[SetPlan], options: &VolumeOptions) -> Result<DraftedMembers, FileError> {
        let paths = || plans.iter().flat_map(|plan| &plan.members);
        // For members that are all zoned, options that they determine are refused.
        let is_mixture = paths().any(|path| !matches!(super::has_zones(path), Ok(true)));
        let one = |path: &PathBuf| {
            let draft = Medium::draft_member(path, options, is_mixture)?;
            Ok((path.clone(), draft))
        };
        let set = |plan: &SetPlan| plan.members.iter().map(one).collect::<Result<Vec<_>, FileError>>();
        plans.iter().map(set).collect::<Result<Vec<_>, _>>().map(DraftedMembers)
    }

    fn all(&self) -> impl Iterator<Item = &MediumDraft> {
        self.0.iter().flatten().map(|(_, draft)| draft)
    }

    /// The same members with blocks of the same size, and zones of files and disks that are as large as those of the
    /// zoned devices, or as those of the smallest member. So little of a member is lost.
    fn in_agreement(self, plans: &[SetPlan], options: &VolumeOptions) -> Result<DraftedMembers, FileError> {
        let is_zoned = |draft: &&MediumDraft| matches!(draft, MediumDraft::Zoned(_));
        let zone_bytes = |draft: &MediumDraft| {
            let geometry = draft.geometry();
            u64::from(geometry.zone_blocks) * u64::from(geometry.block_size)
        };
        let block_size = |draft: &MediumDraft| draft.geometry().block_size;
        let zoned = || self.all().filter(is_zoned);
        let others = || self.all().filter(|draft| !is_zoned(draft));
        let block = zoned().map(block_size).min().or_else(|| others().map(block_size).max());
        let zone = zoned().map(zone_bytes).min().or_else(|| others().map(zone_bytes).min());
        let wanted = VolumeOptions {
            block_size: options.block_size.or(block),
            zone_bytes: options.zone_bytes.or(zone),
            ..options.clone()
        };
        let agrees = |draft: &MediumDraft| {
            Some(block_size(draft)) == wanted.block_size
                && (options.zone_capacity.is_some() || Some(zone_bytes(draft)) == wanted.zone_bytes)
        };
        if others().all(agrees) {
            return Ok(self);
        }
        drop(self);
        DraftedMembers::new(plans, &wanted)
    }
}

/// Refuses plans that are wrong whatever the devices are.
fn check_plans(plans: &[SetPlan], options: &VolumeOptions) -> Result<(), FileError> {
    for plan in plans {
        let (name, least) = match plan.layout {
            PlannedLayout::Stripe { .. } if plans.len() > 1 => ("stripe", 1),
            PlannedLayout::Stripe { .. } => ("stripe", 2),
            PlannedLayout::Mirror => ("mirror", 2),
        };
        let count = plan.members.len();
        if count < least {
            let why = format!(
                "a {name} needs at least {least} members, and {count} is given; name more files or devices"
            );
            return Err(FileError::Unfit(why));
        }
        if count > crate::set::MEMBERS_MAX {
            let most = crate::set::MEMBERS_MAX;
            let why = format!(
                "a {name} has at most {most} members, and {count} are given; make several sets of them"
            );
            return Err(FileError::Unfit(why));
        }
    }
    if let Some(value) = options.max_open.filter(|&open| open < OPEN_ZONES_MIN) {
        let why = "a member of a set needs at least 7";
        return Err(FileError::Option { option: "open zones", value: value.into(), why });
    }
    let mut seen = BTreeSet::new();
    for path in plans.iter().flat_map(|plan| &plan.members) {
        if !seen.insert(identity(path)) {
            let shown = path.display();
            let why = format!("{shown} is given twice; each member needs a file or device of its own");
            return Err(FileError::Unfit(why));
        }
    }
    Ok(())
}

/// Equal for two paths of one file, also if it does not exist yet.
fn identity(path: &Path) -> (PathBuf, Option<(u64, u64)>) {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    if let Ok(known) = std::fs::metadata(path) {
        let is_device = known.file_type().is_block_device() || known.file_type().is_char_device();
        let identity = if is_device { (u64::MAX, known.rdev()) } else { (known.dev(), known.ino()) };
        return (PathBuf::new(), Some(identity));
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = std::fs::canonicalize(parent).unwrap_or_else(|_| parent.to_owned());
    (parent.join(path.file_name().unwrap_or_default()), None)
}

fn check_blocks(members: &[(PathBuf, MediumDraft)]) -> Result<(), FileError> {
    let size = |draft: &MediumDraft| draft.geometry().block_size;
    let (first, draft) = &members[0];
    match members.iter().find(|(_, other)| size(other) != size(draft)) {
        None => Ok(()),
        Some((other, found)) => Err(FileError::Unfit(format!(
            "{} has blocks of {} bytes, and {} of {}: members of a set need equal blocks; choose other members",
            first.display(),
            size(draft),
            other.display(),
            size(found)
        ))),
    }
}

fn unfit(error: SetError) -> FileError {
    FileError::Unfit(error.to_string())
}
