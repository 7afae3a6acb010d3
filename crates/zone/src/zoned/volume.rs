//! Opens, probes and prepares zoned devices.
//!
//! A volume on a zoned device has no header of its own: each of its zones begins with a zone header, and the first
//! zones always contain the log. Their headers identify the volume.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::block::{self, BlockPort};
use super::nvme::{self, NvmePort};
use super::port::{Action, Port, ReportedZone, report_all};
use super::shape::Shape;
use super::{UnusedZones, ZonedDevice, conventional, sysfs};
use crate::engine::AlignedBuffer;
use crate::file::{self, FileContents, FileError, OpenMode};
use crate::format::{HeaderError, decode_header};
use crate::set::{LABEL_ZONES_OF_MEMBER, MemberLabel};
use crate::{FsId, Geometry, ZoneId, ZoneInfo, ZoneState};

/// The number of the first sequential zones that can contain the log.
const LOG_ZONES: usize = 4;
/// The number of the first zones whose headers are read to find the volume.
const PROBE_ZONES: usize = 1024;
const DAMAGED: &str = "a Polder volume whose zones' headers are damaged";
const UNLABELLED: &str = "a member of a set of Polder whose labels are damaged";
/// Bytes of the beginning that are read, if it is a conventional zone.
const PROBE_BYTES: u64 = 64 << 10;

/// Whether the device at a path with this metadata has zones.
pub(crate) fn is_zoned(path: &Path, known: &Metadata) -> Result<bool, FileError> {
    if nvme::is_generic(known) {
        return Ok(true);
    }
    if !known.file_type().is_block_device() {
        return Ok(false);
    }
    let device = File::open(path).map_err(|error| file::refusal(path, error))?;
    let zone = block::zone_bytes(&device).map_err(|error| FileError::io(path, "list its zones", error))?;
    Ok(zone.is_some())
}

/// A device and its zones as they were reported.
pub(super) struct ProbedDevice {
    pub(super) port: Box<dyn Port>,
    pub(super) shape: Shape,
    pub(super) reported: Vec<ReportedZone>,
}

impl ZonedDevice {
    /// Opens a volume, and locks it until the device is dropped.
    pub fn open(path: &Path, mode: OpenMode) -> Result<ZonedDevice, FileError> {
        let found = probe_device(path, Some(mode))?;
        let (fs_id, zones) = match found.contents(path)? {
            Contents::Volume { fs_id, zones } => (fs_id, zones),
            Contents::Newer(error) => return Err(error),
            Contents::Damaged => return Err(FileError::DamagedZones(path.to_owned())),
            Contents::Blank => return Err(foreign(path, "nothing")),
            Contents::Member(_) => return Err(foreign(path, "a part of one, a member of a set")),
            Contents::Other(what) => return Err(foreign(path, &what)),
        };
        let found = found.of_volume(path, zones)?;
        if mode == OpenMode::ReadWrite {
            found.close_active_zones(path)?;
        }
        found.into_device(path, fs_id, mode)
    }

    /// Opens a member of a set, and locks it until the device is dropped.
    pub(crate) fn open_member(path: &Path, mode: OpenMode) -> Result<ZonedDevice, FileError> {
        let found = probe_device(path, Some(mode))?;
        let Some(label) = found.member_label() else { return Err(foreign(path, "no label of a member")) };
        if mode == OpenMode::ReadWrite {
            found.close_active_zones(path)?;
        }
        found.into_device(path, label.fs_id(), mode)
    }

    /// The label of a member of a set at a path; `None` if it is something else, or cannot be read. Changes nothing and
    /// needs no lock.
    pub(crate) fn member_label(path: &Path) -> Option<MemberLabel> {
        probe_device(path, None).ok()?.member_label()
    }

    /// The contents of a zoned device. Changes nothing and needs no lock.
    pub fn probe(path: &Path) -> Result<FileContents, FileError> {
        let found = probe_device(path, None)?;
        Ok(match found.contents(path)? {
            Contents::Volume { fs_id, zones } => {
                let geometry = found.of_volume(path, zones)?.shape.geometry;
                FileContents::Volume { fs_id, geometry }
            }
            Contents::Member(label) => FileContents::Member(label),
            Contents::Newer(_) => FileContents::Other("a volume of a later release of Polder".to_owned()),
            Contents::Damaged => FileContents::Damaged { what: None },
            Contents::Blank => FileContents::Blank,
            Contents::Other(what) => FileContents::Other(what),
        })
    }

    /// Prepares a volume on a device. Refuses a device with contents unless `force` is set.
    pub fn draft(path: &Path, fs_id: FsId, force: bool) -> Result<ZonedDraft, FileError> {
        let found = probe_device(path, Some(OpenMode::ReadWrite))?;
        if !force {
            let what = match found.contents(path)? {
                Contents::Blank => None,
                Contents::Volume { fs_id, .. } => Some(format!("the Polder volume {fs_id}")),
                Contents::Member(label) => Some(format!("a member of the Polder volume {}", label.fs_id())),
                Contents::Newer(_) => Some("a volume of a later release of Polder".to_owned()),
                Contents::Damaged => Some(DAMAGED.to_owned()),
                Contents::Other(what) => Some(what),
            };
            if let Some(what) = what {
                return Err(FileError::HoldsData { path: path.to_owned(), what });
            }
        }
        Ok(ZonedDraft { path: path.to_owned(), found, fs_id })
    }
}

/// A volume that can be created as far as its device is concerned. Nothing is written yet; the device is locked.
pub struct ZonedDraft {
    path: PathBuf,
    found: ProbedDevice,
    fs_id: FsId,
}

impl ZonedDraft {
    /// The shape of the device.
    pub fn geometry(&self) -> &Geometry {
        &self.found.shape.geometry
    }

    /// The parts of the device that are not used.
    pub fn unused_zones(&self) -> UnusedZones {
        self.found.shape.unused_zones
    }

    /// Empties the device; old contents are lost. `emptied` receives the bytes done and the total.
    pub fn make(self, emptied: &mut dyn FnMut(u64, u64)) -> Result<ZonedDevice, FileError> {
        self.found.empty(&self.path, emptied)?;
        self.found.into_device(&self.path, self.fs_id, OpenMode::ReadWrite)
    }
}

/// The contents of a device.
#[derive(Debug)]
pub(super) enum Contents {
    Blank,
    Volume {
        fs_id: FsId,
        /// The number of zones with which it was created.
        zones: u32,
    },
    /// A member of a set.
    Member(Box<MemberLabel>),
    Newer(FileError),
    /// A volume whose headers are all damaged.
    Damaged,
    Other(String),
}

impl ProbedDevice {
    /// The used zones, by number.
    fn used(&self) -> Vec<ReportedZone> {
        used(&self.shape, &self.reported).collect()
    }

    /// The same device with the zones of a volume with `zones` zones.
    pub(super) fn of_volume(mut self, path: &Path, zones: u32) -> Result<ProbedDevice, FileError> {
        let shape = self.shape.of_volume(self.port.limits(), zones);
        self.shape = shape.map_err(|why| FileError::Unsuitable { path: path.to_owned(), why })?;
        Ok(self)
    }

    /// Empties all zones, so that no program finds old contents, and no unused zone occupies an open slot.
    ///
    /// The zones of the log are emptied first, durably. Otherwise a power loss could leave the log of an old volume
    /// without the data that it refers to. The log zone that is not full is the newest. It is emptied after the other
    /// log zones are, so that none of them is taken for the newest. If all log zones are full, the newest is not
    /// known here. Then the old volume may be found, until the next flush, in the state of the time when its log
    /// switched zones.
    pub(super) fn empty(&self, path: &Path, emptied: &mut dyn FnMut(u64, u64)) -> Result<(), FileError> {
        let io = |error| FileError::io(path, "reset its zones", error);
        let all = self.reported.iter().map(|zone| zone.length).sum();
        let in_order = self.used().into_iter().filter(|zone| !zone.is_conventional);
        let log: Vec<u64> = in_order.take(LOG_ZONES).map(|zone| zone.start).collect();
        let order = |zone: &ReportedZone| match zone.state {
            _ if !log.contains(&zone.start) => 2,
            Some(state) if state.is_active() => 1,
            _ => 0,
        };
        let mut done = 0;
        for next in 0..=2 {
            for zone in self.reported.iter().filter(|zone| order(zone) == next) {
                self.empty_one(zone).map_err(io)?;
                done += zone.length;
                emptied(done, all);
            }
            self.port.flush().map_err(io)?;
        }
        Ok(())
    }

    fn empty_one(&self, zone: &ReportedZone) -> io::Result<()> {
        let is_dead = matches!(zone.state, Some(ZoneState::ReadOnly | ZoneState::Offline));
        // Empty zones are reset too: the kernel's state may be outdated if they were emptied through another device
        // node.
        match (is_dead, zone.is_conventional) {
            (true, _) => Ok(()),
            (_, true) => conventional::wipe(&*self.port, zone, self.end()),
            _ => self.port.act(zone.start, zone.length, Action::Reset),
        }
    }

    pub(super) fn contents(&self, path: &Path) -> Result<Contents, FileError> {
        // Data in conventional zones is no volume without a log in sequential zones.
        let in_order = self.used().into_iter().filter(|reported| !reported.is_conventional);
        let infos: Vec<ZoneInfo> = in_order.map(|reported| self.shape.info(&reported)).collect();
        if let Some(label) = self.member_label() {
            return Ok(Contents::Member(Box::new(label)));
        }
        let mut damaged = false;
        for (number, (place, info)) in (0..).zip(self.shape.ranges.iter().zip(&infos)).take(PROBE_ZONES) {
            if matches!(info.state, ZoneState::Empty | ZoneState::Offline) || info.pointer == 0 {
                continue;
            }
            let mut block = AlignedBuffer::new(self.shape.geometry.block_size as usize);
            if self.port.read(place.start, block.bytes_mut()).is_err() {
                damaged = true;
                continue;
            }
            match decode_header(block.bytes()) {
                Ok((identity, _)) if identity.zone.0 + LABEL_ZONES_OF_MEMBER == number => {
                    return Ok(Contents::Other(UNLABELLED.to_owned()));
                }
                Ok((identity, header)) => {
                    return Ok(Contents::Volume { fs_id: identity.fs_id, zones: header.zones.get() });
                }
                Err(HeaderError::Newer { version, features, reader }) => {
                    let path = path.to_owned();
                    return Ok(Contents::Newer(FileError::Newer { path, version, features, reader }));
                }
                Err(HeaderError::Damaged) => damaged = true,
                Err(HeaderError::Foreign) => {}
            }
        }
        if damaged {
            return Ok(Contents::Damaged);
        }
        let of_start = self.contents_of_start();
        if let Some(what) = of_start.map_err(|error| FileError::io(path, "read it", error))? {
            return Ok(Contents::Other(what));
        }
        let in_order = infos.iter().filter(|info| info.state != ZoneState::Empty).count();
        let written = in_order + self.conventional_with_data();
        Ok(match written {
            0 => Contents::Blank,
            1 => Contents::Other("data in a zone".to_owned()),
            _ => Contents::Other(format!("data in {written} of its zones")),
        })
    }

    /// The newest label, if the device is a member of a set.
    fn member_label(&self) -> Option<MemberLabel> {
        let block_size = self.shape.geometry.block_size as usize;
        let used: Vec<ReportedZone> = self.used().into_iter().take(LABEL_ZONES_OF_MEMBER as usize).collect();
        MemberLabel::find(None, |zone, block| {
            let reported = used.get(zone as usize).filter(|reported| !reported.is_conventional)?;
            let info = self.shape.info(reported);
            let is_written = match info.state {
                ZoneState::Empty | ZoneState::Offline => false,
                state => !state.has_pointer() || block < info.pointer,
            };
            let mut bytes = AlignedBuffer::new(block_size);
            let at = reported.start + u64::from(block) * block_size as u64;
            let is_read = is_written && self.port.read(at, bytes.bytes_mut()).is_ok();
            is_read.then(|| bytes.bytes().to_vec())
        })
    }

    /// The contents of the beginning, if it is a conventional zone.
    fn contents_of_start(&self) -> io::Result<Option<String>> {
        let is_readable =
            |zone: &&ReportedZone| zone.is_conventional && zone.state != Some(ZoneState::Offline);
        let Some(first) = self.reported.first().filter(is_readable) else { return Ok(None) };
        let mut start = AlignedBuffer::new(PROBE_BYTES.min(first.length) as usize);
        self.port.read(first.start, start.bytes_mut())?;
        Ok(file::describe_start(start.bytes()))
    }

    /// The number of conventional zones with data that a new volume would overwrite.
    fn conventional_with_data(&self) -> usize {
        let takes_writes = |zone: &&ReportedZone| zone.is_conventional && zone.state.is_none();
        let zones: Vec<ReportedZone> = self.reported.iter().filter(takes_writes).copied().collect();
        conventional::count_with_data(&*self.port, &zones, self.end())
    }

    /// The end of the device.
    fn end(&self) -> u64 {
        self.reported.last().map_or(0, |zone| zone.start + zone.length)
    }

    /// Closes zones that an earlier process left open, and finishes zones that cannot be continued.
    pub(super) fn close_active_zones(&self, path: &Path) -> Result<(), FileError> {
        for reported in self.used() {
            let is_whole = self.shape.info(&reported).state.has_pointer();
            let action = match reported.state {
                Some(ZoneState::Open | ZoneState::Closed) if !is_whole => Action::Finish,
                Some(ZoneState::Open | ZoneState::Closed) if reported.pointer == 0 => Action::Reset,
                Some(ZoneState::Open) => Action::Close,
                _ => continue,
            };
            let acted = self.port.act(reported.start, reported.length, action);
            acted.map_err(|error| FileError::io(path, "close its zones", error))?;
        }
        Ok(())
    }

    pub(super) fn into_device(
        self,
        path: &Path,
        fs_id: FsId,
        mode: OpenMode,
    ) -> Result<ZonedDevice, FileError> {
        let zones = infos(&*self.port, &self.shape);
        let mut zones = zones.map_err(|error| FileError::io(path, "list its zones", error))?;
        conventional::classify(&*self.port, &self.shape, &mut zones);
        Ok(ZonedDevice::new(self.port, self.shape, zones, fs_id, mode))
    }
}

/// The states of all used zones, as the device reports them now; zones without a pointer are reported as empty.
pub(super) fn infos(port: &dyn Port, shape: &Shape) -> io::Result<Vec<ZoneInfo>> {
    let reported = report_all(port)?;
    let infos: Vec<ZoneInfo> = used(shape, &reported).map(|reported| shape.info(&reported)).collect();
    if infos.len() == shape.ranges.len() {
        Ok(infos)
    } else {
        Err(io::Error::other("the device has other zones than before"))
    }
}

/// The used zones among all reported zones, which are in the order of their offsets; by number.
fn used<'a>(shape: &'a Shape, reported: &'a [ReportedZone]) -> impl Iterator<Item = ReportedZone> {
    let at = |start: u64| reported.binary_search_by_key(&start, |reported| reported.start).ok();
    let is_same = |number: usize, reported: &ReportedZone| {
        reported.is_conventional == shape.geometry.is_conventional(ZoneId(number as u32))
    };
    let places = shape.ranges.iter().enumerate();
    places.filter_map(move |(number, place)| {
        at(place.start).map(|at| reported[at]).filter(|reported| is_same(number, reported))
    })
}

/// Opens a device and reports its zones; locks the device if `mode` is given.
fn probe_device(path: &Path, mode: Option<OpenMode>) -> Result<ProbedDevice, FileError> {
    let io = |error| FileError::io(path, "list its zones", error);
    let port = open_port(path, mode)?;
    let reported = report_all(&*port).map_err(io)?;
    let shape = Shape::of(port.limits(), &reported);
    let shape = shape.map_err(|why| FileError::Unsuitable { path: path.to_owned(), why })?;
    Ok(ProbedDevice { port, shape, reported })
}

/// Opens a device for writing and locks it until the port is dropped. `None` if it has no zones.
pub fn exclusive_port(path: &Path) -> Result<Option<Box<dyn Port>>, FileError> {
    let known = std::fs::metadata(path).map_err(|error| file::refusal(path, error))?;
    match is_zoned(path, &known)? {
        true => open_port(path, Some(OpenMode::ReadWrite)).map(Some),
        false => Ok(None),
    }
}

/// Opens the port of a device; locks the device if `mode` is given.
fn open_port(path: &Path, mode: Option<OpenMode>) -> Result<Box<dyn Port>, FileError> {
    let io = |error| FileError::io(path, "list its zones", error);
    let known = std::fs::metadata(path).map_err(|error| file::refusal(path, error))?;
    let writable = mode == Some(OpenMode::ReadWrite);
    let flags = match (known.file_type().is_block_device(), writable) {
        // `EXCL` prevents mounts.
        (true, true) => OFlags::DIRECT | OFlags::EXCL,
        (true, false) => OFlags::DIRECT,
        (false, _) => OFlags::empty(),
    };
    let opened = OpenOptions::new().read(true).write(writable).custom_flags(flags.bits() as i32).open(path);
    let device = opened.map_err(|error| file::refusal(path, error))?;
    if let Some(mode) = mode {
        file::lock(&device, path, mode)?;
    }
    if nvme::is_generic(&known) {
        return Ok(Box::new(NvmePort::new(device, path, mode)?));
    }
    let (major, minor) = (rustix::fs::major(known.rdev()), rustix::fs::minor(known.rdev()));
    let limits = sysfs::limits(Path::new(&format!("/sys/dev/block/{major}:{minor}"))).map_err(io)?;
    Ok(Box::new(BlockPort::new(device, limits)))
}

fn foreign(path: &Path, what: &str) -> FileError {
    FileError::Foreign { path: path.to_owned(), what: what.to_owned() }
}
