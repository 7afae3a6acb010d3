//! `polder mkfs`: creates a volume.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Error, Result, anyhow};
use fs::{FormatOptions, Fs, Reserve};
use polder::device::{
    ClosedToOthers, Draft, Made, Medium, is_stored, mount_options, new_fs_id, refused_label,
};
use zone::file::{FileContents, FileError, StoreTrouble};
use zone::medium::{MediumKind, PlannedLayout, SetPlan, UnusedPart, VolumeOptions};
use zone::zoned::UnusedZones;
use zone::{Device, FsId, Geometry};

use crate::misuse::Misuse;
use crate::numbers::{self, whole};
use crate::output::note;
use crate::{bytes, info, inherited, progress, way};

/// Make a volume in a file, on a block device, on a zoned device or in an object store.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The file, which is created if it does not exist, or the device. Or the place in an object store:
    /// s3://bucket/place, or file:///directory.
    #[arg(required_unless_present = "layout")]
    path: Option<PathBuf>,
    #[command(flatten)]
    layouts: Layouts,
    /// Bytes of consecutive blocks on one member of a stripe, a multiple of the block size. Default: 8 blocks.
    #[arg(long, value_name = "SIZE", requires = "layout", value_parser = bytes::parse)]
    chunk: Option<u64>,
    /// Size of the volume, like 1G or 512M, or of each of its files and ordinary disks. Default: the size of the file or
    /// device.
    #[arg(long, value_parser = bytes::parse)]
    size: Option<u64>,
    /// Size of a block, a power of two from 512 to 64K. Default: 4096, or the device's physical block size if that is larger.
    #[arg(long, value_parser = bytes::parse_small)]
    block_size: Option<u32>,
    /// Size of a zone, any multiple of the block size. Default: derived from the size of the volume.
    #[arg(long, value_parser = bytes::parse)]
    zone_size: Option<u64>,
    /// Capacity of a zone, to emulate devices with gaps between zones. Default: the zone size.
    #[arg(long, value_parser = bytes::parse)]
    zone_capacity: Option<u64>,
    /// A name for the volume, up to 64 bytes.
    #[arg(long, short = 'L', default_value = "", value_parser = label)]
    label: String,
    /// The volume's ID. Default: a new one.
    #[arg(long, short = 'U', value_parser = fs_id)]
    uuid: Option<FsId>,
    /// The largest number of open zones, at least 6. Default: 14, or the limit of a zoned device.
    #[arg(long, allow_negative_numbers = true, value_parser = whole::<u32>)]
    max_open: Option<u32>,
    /// The largest number of partly written zones. Default: the largest number of open zones.
    #[arg(long, allow_negative_numbers = true, value_parser = whole::<u32>)]
    max_active: Option<u32>,
    /// Size of a metadata page, a power of two from 4K to 64K, at least a block.
    #[arg(long, value_parser = bytes::parse_small)]
    page_size: Option<u32>,
    /// The number of metadata shards.
    #[arg(long, allow_negative_numbers = true, value_parser = numbers::some)]
    groups: Option<u16>,
    /// Percent of the device that is reserved and never available to files, or `least` for the smallest possible reserve.
    #[arg(long, value_name = "PERCENT", default_value = "least", value_parser = reserve)]
    reserve: Reserve,
    /// Overwrite the present contents.
    #[arg(long, short)]
    force: bool,
    /// Allocate all blocks of the file now, so that the host file system cannot run out of space later.
    #[arg(long)]
    preallocate: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let plans = arguments.layouts.plans(arguments.chunk)?;
    let paths = arguments.paths(&plans)?;
    paths.iter().try_for_each(|path| way::refuse_silent(path))?;
    let fs_id = arguments.uuid.unwrap_or_else(new_fs_id);
    let (volume_options, format_options) =
        (volume_options(arguments, fs_id), format_options(arguments, fs_id));
    // All checks precede the first write.
    for path in &paths {
        refuse_old_id(path, arguments.uuid)?;
        if is_stored(path) {
            continue;
        }
        match arguments.size.filter(|_| !std::fs::metadata(path).is_ok_and(|found| !found.is_file())) {
            Some(size) => inherited::allow_file(path, size)?,
            None => inherited::allow_volume(path)?,
        }
    }
    let draft = match plans.as_slice() {
        [] => Draft::new(paths[0], &volume_options, format_options),
        plans => Draft::of_sets(plans, &volume_options, format_options),
    };
    let draft = draft.map_err(|error| arguments.refused(error))?;
    let (unused_zones, unused_parts) = (draft.unused_zones(), draft.unused_parts());
    let bar = progress::moving(0);
    let made = draft.make(&mut |taken, all| {
        bar.set_length(all);
        bar.set_position(taken);
    });
    bar.finish_and_clear();
    let Made { device, kind, closed } = made.map_err(plain)?;
    note!("{}", describe(&shown(&paths), fs_id, device.geometry()))?;
    if let Some(found) = describe_kind(kind) {
        note!("{found}")?;
    }
    plans.iter().enumerate().try_for_each(|plan| note!("{}", describe_set(plan)))?;
    unused_parts.iter().filter_map(describe_unused).try_for_each(|part| note!("{part}"))?;
    let of_zoned = unused_zones.map(|unused_zones| describe_zoned(device.geometry(), unused_zones));
    of_zoned.iter().flatten().try_for_each(|of_it| note!("{of_it}"))?;
    let space = describe_space(&device).with_context(|| shown(&paths))?;
    space.iter().try_for_each(|of_it| note!("{of_it}"))?;
    let is_one = paths.len() == 1;
    closed.iter().try_for_each(|(path, closed)| match is_one {
        true => note!("{}", describe_access(closed)),
        false => note!("{}: {}", path.display(), describe_access(closed)),
    })
}

fn shown(paths: &[&Path]) -> String {
    let all: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    all.join(", ")
}

/// The message about the access of other users to an existing file.
fn describe_access(closed: &ClosedToOthers) -> String {
    let before = closed.mode_before;
    match &closed.result {
        Ok(()) => {
            let mode = closed.mode;
            format!("mode {mode:04o} (was {before:04o}): other users could have read the volume")
        }
        // Some host file systems have no modes.
        Err(error) => {
            format!("other users may read the volume: its mode {before:04o} cannot be changed: {error}")
        }
    }
}

/// The space for files in the volume, and a warning if the host has less space than the volume may need.
fn describe_space(device: &Arc<dyn Device>) -> Result<Vec<String>> {
    const CACHE_BYTES: u64 = 4 << 20;
    let (fs, _) = Fs::mount(Arc::clone(device), mount_options(true, CACHE_BYTES, None))?;
    let mut lines = vec![format!("{} for files", bytes::show(fs.space().available))];
    if let Some(host) = device.host_space().filter(|host| host.available < host.unallocated) {
        lines.push(info::short_host(host.available, host.unallocated));
    }
    Ok(lines)
}

impl Arguments {
    /// The files and devices.
    fn paths<'a>(&'a self, plans: &'a [SetPlan]) -> Result<Vec<&'a Path>> {
        match (&self.path, plans) {
            (Some(path), []) => Ok(vec![path]),
            (Some(path), _) => Err(Misuse::error(format!(
                "{}: with --layout, name all members behind a layout, like --layout mirror A B",
                path.display()
            ))),
            (None, plans) => Ok(plans.iter().flat_map(|plan| &plan.members).map(PathBuf::as_path).collect()),
        }
    }

    /// Distinguishes invalid options from unusable devices.
    fn refused(&self, error: polder::Error) -> Error {
        match &error {
            polder::Error::Format { .. }
            | polder::Error::Open(
                FileError::Option { .. }
                | FileError::GivenByDevice { .. }
                | FileError::Unfit(_)
                | FileError::ObjectStore { trouble: StoreTrouble::Impossible, .. },
            ) => Misuse::error(error),
            polder::Error::Open(FileError::TooSmall { .. }) if self.size.or(self.zone_size).is_some() => {
                Misuse::error(error)
            }
            _ => plain(error),
        }
    }
}

/// The error of the file or device itself, for which holders are named.
fn plain(error: polder::Error) -> Error {
    match error {
        polder::Error::Open(error) => error.into(),
        error => error.into(),
    }
}

/// Fails if the new volume would get the ID of the old one: the ID distinguishes remains of the old volume from the new one.
fn refuse_old_id(path: &Path, asked: Option<FsId>) -> Result<()> {
    let Some(asked) = asked else { return Ok(()) };
    let present = match Medium::probe(path)? {
        FileContents::Volume { fs_id, .. } => Some(fs_id),
        FileContents::Member(label) => Some(label.fs_id()),
        _ => None,
    };
    match present == Some(asked) {
        true => Err(anyhow!(
            "{}: {asked} is the ID of the present volume; choose another, or omit --uuid",
            path.display()
        )),
        false => Ok(()),
    }
}

fn volume_options(arguments: &Arguments, fs_id: FsId) -> VolumeOptions {
    VolumeOptions {
        size: arguments.size,
        block_size: arguments.block_size,
        zone_bytes: arguments.zone_size,
        zone_capacity: arguments.zone_capacity,
        max_open: arguments.max_open,
        max_active: arguments.max_active,
        preallocate: arguments.preallocate,
        fs_id,
        force: arguments.force,
    }
}

fn format_options(arguments: &Arguments, fs_id: FsId) -> FormatOptions {
    FormatOptions {
        label: arguments.label.clone(),
        fs_id,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        page_size: arguments.page_size,
        groups: arguments.groups,
        reserve: arguments.reserve,
    }
}

/// The layout of a set and its number of members.
fn describe_set((number, plan): (usize, &SetPlan)) -> String {
    let members = plan.members.len();
    match plan.layout {
        PlannedLayout::Mirror => format!("set {number}: a mirror, each block is on all {members} members"),
        PlannedLayout::Stripe { .. } => {
            format!("set {number}: a stripe over {members} members, all of which are needed")
        }
    }
}

/// The parts of a member that are not used.
fn describe_unused(part: &UnusedPart) -> Option<String> {
    let parts = [
        (part.label_bytes, "for the label of the member".to_owned()),
        (part.zones_bytes, format!("in {} zones beyond those of the smallest member", part.zones)),
        (part.capacity_bytes, "beyond the smallest capacity of a zone".to_owned()),
        (part.conventional_bytes, format!("in {} conventional zones", part.conventional)),
        (part.small_bytes, "in zones of less than half a zone".to_owned()),
    ];
    let parts = parts.into_iter().filter(|(size, _)| *size > 0);
    let all: Vec<String> = parts.map(|(size, what)| format!("{} {what}", bytes::show(size))).collect();
    (!all.is_empty()).then(|| format!("{}: not used: {}", part.path.display(), all.join(", ")))
}

fn describe(shown: &str, fs_id: FsId, geometry: &Geometry) -> String {
    let zone_bytes = u64::from(geometry.zone_blocks) * u64::from(geometry.block_size);
    format!(
        "{shown}: volume {fs_id}, {} zones of {}, blocks of {}",
        geometry.zones,
        bytes::show(zone_bytes),
        bytes::show(geometry.block_size.into())
    )
}

/// A description of the device, unless the path makes it obvious.
fn describe_kind(kind: MediumKind) -> Option<String> {
    match kind {
        MediumKind::File | MediumKind::ZonedDisk | MediumKind::Sets => None,
        MediumKind::Objects { part_bytes } => {
            Some(format!("an object store: a zone has objects of {}", bytes::show(part_bytes)))
        }
        MediumKind::Disk { discards, streams } => {
            let discards = if discards { "reset zones are discarded" } else { "the disk cannot discard" };
            let streams = if streams > 0 { format!("; {streams} write streams") } else { String::new() };
            Some(format!("a disk without zones: Polder emulates them; {discards}{streams}"))
        }
        MediumKind::Namespace { append_bytes } => {
            let most = bytes::show(append_bytes as u64);
            Some(format!("an NVMe namespace: appends of up to {most} are in flight together"))
        }
    }
}

/// A description of a zoned device, and of its unused parts.
fn describe_zoned(geometry: &Geometry, unused_zones: UnusedZones) -> Vec<String> {
    let (open, active) = (geometry.max_open, geometry.max_active);
    let mut lines =
        vec![format!("the zones are the device's own; {open} may be open and {active} active at once")];
    if geometry.seek_bytes > Geometry::SEEK_BYTES {
        lines.push("it rotates: garbage collection reads and writes in longer pieces".to_owned());
    }
    if geometry.conventional > 0 {
        lines.push(format!(
            "{} of them are conventional, from {} on: they are used for data, and for metadata if there are no others",
            geometry.conventional,
            geometry.sequential()
        ));
    }
    if unused_zones.conventional > 0 {
        lines.push(format!(
            "not used: {} conventional zones of less than half a zone, {}",
            unused_zones.conventional,
            bytes::show(unused_zones.conventional_bytes)
        ));
    }
    if unused_zones.small_bytes > 0 {
        lines.push(format!(
            "not used: {} in a zone of less than half a zone",
            bytes::show(unused_zones.small_bytes)
        ));
    }
    lines
}

/// The layouts and members of the sets: each `--layout` begins one.
struct Layouts(Vec<Vec<PathBuf>>);

impl clap::Args for Layouts {
    fn augment_args(command: clap::Command) -> clap::Command {
        let layout = clap::Arg::new("layout")
            .long("layout")
            .value_names(["LAYOUT", "MEMBER"])
            .num_args(2..)
            .action(clap::ArgAction::Append)
            .value_parser(clap::value_parser!(PathBuf))
            .help(
                "Make the volume of several files and devices: stripe distributes the data over all members, mirror \
                 stores it on each of them. Each further --layout adds a set behind the ones before.",
            );
        command.arg(layout)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Layouts::augment_args(command)
    }
}

impl clap::FromArgMatches for Layouts {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Layouts, clap::Error> {
        let sets = matches.get_occurrences::<PathBuf>("layout").into_iter().flatten();
        Ok(Layouts(sets.map(|words| words.cloned().collect()).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Layouts::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Layouts {
    fn plans(&self, chunk_bytes: Option<u64>) -> Result<Vec<SetPlan>> {
        let plan = |words: &Vec<PathBuf>| {
            let (name, members) = words.split_first().context("--layout has a value")?;
            let layout = match name.to_str() {
                Some("stripe") => PlannedLayout::Stripe { chunk_bytes },
                Some("mirror") => PlannedLayout::Mirror,
                _ => {
                    let name = name.display();
                    return Err(Misuse::error(format!(
                        "--layout {name}: is no layout; write stripe or mirror, and the members behind it"
                    )));
                }
            };
            Ok(SetPlan { layout, members: members.to_vec() })
        };
        let plans = self.0.iter().map(plan).collect::<Result<Vec<SetPlan>>>()?;
        let has_stripe = plans.iter().any(|plan| matches!(plan.layout, PlannedLayout::Stripe { .. }));
        if chunk_bytes.is_some() && !has_stripe {
            return Err(Misuse::error("--chunk: only a stripe has chunks; leave it out".to_owned()));
        }
        Ok(plans)
    }
}

/// Parses a label.
pub(crate) fn label(text: &str) -> Result<String, String> {
    refused_label(text).map_or_else(|| Ok(text.to_owned()), Err)
}

/// Parses a percentage with at most two decimals.
fn reserve(text: &str) -> Result<Reserve, String> {
    if text == "least" {
        return Ok(Reserve::default());
    }
    let percent = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
    let reserve = percent.ok().and_then(polder::device::reserve);
    reserve.ok_or_else(|| "write a percentage, like 10 or 7.5, or `least`".to_owned())
}

/// Parses a UUID, with or without hyphens.
pub(crate) fn fs_id(text: &str) -> Result<FsId> {
    let wrong = || anyhow!("write a UUID: 32 hexadecimal digits, hyphens are optional");
    let digits: Vec<u32> = text
        .chars()
        .filter(|&c| c != '-')
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()
        .ok_or_else(wrong)?;
    if digits.len() != 32 {
        return Err(wrong());
    }
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::try_from(pair[0] << 4 | pair[1]).expect("two hexadecimal digits fit in a byte");
    }
    if id == [0; 16] {
        return Err(anyhow!("a UUID of zeros is not valid"));
    }
    Ok(FsId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displayed_ids_can_be_parsed() {
        let id = new_fs_id();
        assert_eq!(fs_id(&id.to_string()).unwrap(), id);
        assert_eq!(fs_id(&id.to_string().replace('-', "")).unwrap(), id);
        assert_ne!(new_fs_id(), id);
        for text in
            ["", "1234", "g2345678-1234-1234-1234-123456789abc", "00000000-0000-0000-0000-000000000000"]
        {
            assert!(fs_id(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_reserve_is_a_percentage() {
        assert_eq!(reserve("10"), Ok(Reserve(1000)));
        assert_eq!(reserve("7.25%"), Ok(Reserve(725)));
        assert_eq!(reserve("least"), Ok(Reserve::default()));
        assert_eq!(reserve("0"), Ok(Reserve(1)), "too small, not the default");
        for text in ["-1", "101", "ten", "10 zones", "nan"] {
            assert!(reserve(text).is_err(), "{text}");
        }
    }
}
