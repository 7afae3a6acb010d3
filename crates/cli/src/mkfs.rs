//! `polder mkfs`: creates a volume.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Error, Result, anyhow};
use fs::{FormatOptions, Fs, Reserve};
use polder::device::{ClosedToOthers, Draft, Made, mount_options, new_fs_id, refused_label};
use zone::file::{FileContents, FileError};
use zone::medium::{MediumKind, VolumeOptions};
use zone::zoned::UnusedZones;
use zone::{Device, FsId, Geometry, Medium};

use crate::misuse::Misuse;
use crate::numbers::{self, whole};
use crate::output::line;
use crate::{bytes, info, inherited, progress, way};

/// Make a volume in a file, on a block device or on a zoned device.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The file, which is created if it does not exist, or the device.
    path: PathBuf,
    /// Size of the volume, like 1G or 512M. Default: the size of the file or device.
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
    way::refuse_silent(&arguments.path)?;
    let fs_id = arguments.uuid.unwrap_or_else(new_fs_id);
    refuse_old_id(arguments)?;
    let (volume_options, format_options) =
        (volume_options(arguments, fs_id), format_options(arguments, fs_id));
    // All checks precede the first write.
    match arguments.size.filter(|_| !std::fs::metadata(&arguments.path).is_ok_and(|found| !found.is_file())) {
        Some(size) => inherited::allow_file(&arguments.path, size)?,
        None => inherited::allow_volume(&arguments.path)?,
    }
    let draft = Draft::new(&arguments.path, &volume_options, format_options);
    let draft = draft.map_err(|error| arguments.refused(error))?;
    let unused_zones = draft.unused_zones();
    let bar = progress::moving(0);
    let made = draft.make(&mut |taken, all| {
        bar.set_length(all);
        bar.set_position(taken);
    });
    bar.finish_and_clear();
    let Made { device, kind, closed } = made.map_err(plain)?;
    let place = || arguments.path.display().to_string();
    line!("{}", describe(&arguments.path, fs_id, device.geometry()))?;
    if let Some(found) = describe_kind(kind) {
        line!("{found}")?;
    }
    let of_zoned = unused_zones.map(|unused_zones| describe_zoned(device.geometry(), unused_zones));
    of_zoned.iter().flatten().try_for_each(|of_it| line!("{of_it}"))?;
    describe_space(&device).with_context(place)?.iter().try_for_each(|of_it| line!("{of_it}"))?;
    closed.map_or(Ok(()), |closed| line!("{}", describe_access(&closed)))
}

/// The message about the access of other users to an existing file.
fn describe_access(closed: &ClosedToOthers) -> String {
    let before = closed.mode_before;
    match &closed.result {
        Ok(()) => {
            let mode = ClosedToOthers::OWNER_ALONE;
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
    /// Distinguishes invalid options from unusable devices.
    fn refused(&self, error: polder::Error) -> Error {
        match &error {
            polder::Error::Format { .. }
            | polder::Error::Open(FileError::Option { .. } | FileError::GivenByDevice { .. }) => {
                Misuse::error(error)
            }
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
fn refuse_old_id(arguments: &Arguments) -> Result<()> {
    let Some(asked) = arguments.uuid else { return Ok(()) };
    match Medium::probe(&arguments.path)? {
        FileContents::Volume { fs_id, .. } if fs_id == asked => Err(anyhow!(
            "{}: {asked} is the ID of the present volume; choose another, or omit --uuid",
            arguments.path.display()
        )),
        _ => Ok(()),
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

fn describe(path: &Path, fs_id: FsId, geometry: &Geometry) -> String {
    let zone_bytes = u64::from(geometry.zone_blocks) * u64::from(geometry.block_size);
    format!(
        "{}: volume {fs_id}, {} zones of {}, blocks of {}",
        path.display(),
        geometry.zones,
        bytes::show(zone_bytes),
        bytes::show(geometry.block_size.into())
    )
}

/// A description of the device, unless the path makes it obvious.
fn describe_kind(kind: MediumKind) -> Option<String> {
    match kind {
        MediumKind::File | MediumKind::ZonedDisk => None,
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
