//! Hostile images: a small volume with one flipped bit, for every bit there is.
//!
//! For each bit, the mount must be refused, or each name, attribute and block must be as it was written or give an
//! error, and then the checker reports it too. There is one exception that no file system without a second copy can
//! avoid. The newest batch of the log cannot be distinguished from a batch that a loss of power has torn, because no
//! later record says that it was durable. A volume that comes back as it was before that batch is counted separately.

use std::fmt;
use std::sync::Arc;

use emulated::{CrashPlan, Emulated};
use rt::random::Rng;
use zone::{Blocks, Device, DeviceError, Role, ZoneId, ZoneState};

use crate::allowed::FilesState;
use crate::caught::{Wrong, caught};
use crate::files::{Driver, Volume, afterwards, compare, findings, view};
use crate::history::History;
use crate::model::{File, Model, Operation};
use crate::shapes::Shape;
use crate::states::space;

/// The number of names. They give a tree several leaves.
const NAMES: u32 = 16;

/// Limit for the blocks of log and metadata, where a page is one block and all zones are alike. Each block has at
/// least 32,768 bits to try.
pub const METADATA_MAX: usize = 40;

/// A small volume as a crash leaves it, or unmounted.
pub struct Target {
    shape: Shape,
    image: Emulated,
    /// The written state, and the state before the newest batch of the log.
    states: [Arc<FilesState>; 2],
    blocks: Vec<Place>,
}

/// A written block.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its zone.
    pub zone: ZoneId,
    /// Its number there.
    pub block: Blocks,
    /// The role of the zone. `None` if its header does not say.
    pub role: Option<Role>,
}

/// The result for a flipped bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Everything is as it was, and the flip was not noticed.
    Harmless,
    /// Everything is as it was, and the checker reports the damage.
    Noticed,
    /// Something gives an error, and the checker reports it.
    Lost,
    /// The mount is refused.
    Refused,
    /// Everything is as it was before the newest batch of the log.
    Older,
}

impl Fate {
    /// All results, with their names.
    pub const ALL: [(Fate, &'static str); 5] = [
        (Fate::Harmless, "harmless"),
        (Fate::Noticed, "harmless and noticed by the checker"),
        (Fate::Lost, "an error where it is read"),
        (Fate::Refused, "mount refused"),
        (Fate::Older, "newest batch taken for torn"),
    ];
}

/// A bit.
#[derive(Clone, Copy, Debug)]
pub struct Flip {
    /// The block.
    pub place: Place,
    /// The bit in it.
    pub bit: u32,
}

impl fmt::Display for Flip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.place.zone.0, self.place.block, self.bit)
    }
}

fn volume(shape: &Shape) -> Volume {
    Volume { page_size: shape.page_size, groups: 2, cache_bytes: 8 << 20 }
}

impl Target {
    /// Creates the volume, either unmounted or as it is when the power fails.
    pub fn new(shape: Shape, unmounted: bool) -> Result<Target, Wrong> {
        rt::random::repeat_from(1);
        let device = Arc::new(Emulated::new(shape.spec.clone().seed(1)));
        let block = shape.spec.block_size as usize;
        volume(&shape).format(&device)?;
        let mut driver = mount(&shape, &device, History::from(FilesState::new(Model::new(block))))?;
        driver.run(&before(block as u64))?;
        driver.restart()?;
        driver.run(&after(block as u64, unmounted))?;
        let older = Arc::new(FilesState::new(driver.model().clone()));
        driver.run(&[Operation::Unlink { path: "a".to_owned() }, Operation::Sync])?;
        let newest = Arc::new(FilesState::new(driver.model().clone()));
        if unmounted {
            driver.fs.unmount().map_err(|error| Wrong::at("unmount", error))?;
        }
        drop(driver);
        let image = device.image(&CrashPlan::KeepAll);
        image.record();
        let blocks = written(&image);
        Ok(Target { shape, image, states: [older, newest], blocks })
    }

    /// The volume.
    pub(crate) fn image(&self) -> &Emulated {
        &self.image
    }

    /// How many bits there are.
    pub fn bits(&self) -> u64 {
        self.blocks.len() as u64 * self.bits_of_block()
    }

    /// All blocks.
    pub fn blocks(&self) -> &[Place] {
        &self.blocks
    }

    /// Blocks of log and metadata.
    pub fn metadata_blocks(&self) -> usize {
        self.blocks.iter().filter(|place| place.role.is_none_or(|role| !role.holds_data())).count()
    }

    /// Whether it is as small as it should be, so that every bit of every block of metadata can be tried.
    pub fn is_small(&self) -> bool {
        let Shape { spec, page_size, .. } = &self.shape;
        let is_judged = *page_size == spec.block_size && spec.conventional == 0;
        self.metadata_blocks() <= METADATA_MAX || !is_judged
    }

    fn bits_of_block(&self) -> u64 {
        u64::from(self.shape.spec.block_size) * 8
    }

    /// A bit by its number.
    pub fn flip(&self, number: u64) -> Flip {
        let (block, bit) = (number / self.bits_of_block(), number % self.bits_of_block());
        Flip { place: self.blocks[block as usize], bit: bit as u32 }
    }

    /// The bit that a text such as `3:17:4242` names: zone, block, bit.
    pub fn parse(&self, text: &str) -> Option<Flip> {
        let numbers: Vec<u32> = text.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
        let [zone, block, bit] = numbers.try_into().ok()?;
        let place = self.blocks.iter().find(|place| (place.zone, place.block) == (ZoneId(zone), block))?;
        (u64::from(bit) < self.bits_of_block()).then_some(Flip { place: *place, bit })
    }

    /// Flips the bit, mounts, reads everything, and uses what can be read.
    pub fn try_flip(&self, flip: &Flip) -> Result<Fate, Wrong> {
        caught(flip, || self.look(flip))
    }

    fn look(&self, flip: &Flip) -> Result<Fate, Wrong> {
        rt::random::repeat_from(1);
        let device = Arc::new(self.image.image_at(0, &CrashPlan::KeepAll));
        let Place { zone, block, role } = flip.place;
        device.corrupt(zone, block, flip.bit / 8, 1 << (flip.bit % 8));
        device.record();
        // The first block of a zone is its header.
        let is_of_data = block > 0 && role.is_some_and(Role::holds_data);
        let mut driver = match mount(&self.shape, &device, History::recovering(&self.states)) {
            Ok(driver) => driver,
            Err(wrong) if is_of_data => return Err(Wrong(format!("for one block of data: {wrong}"))),
            Err(_) => return Ok(Fate::Refused),
        };
        let mounted = device.commands();
        let seen = view(&driver.fs)?;
        if is_of_data && !seen.misses_one_block_at_most() {
            return Err(Wrong(format!("one block of data costs {:?}: {:?}", seen.lost, seen.unreadable)));
        }
        let reported = findings(&driver.fs);
        let noticed = reported.as_ref().map_or(true, |reported| !reported.is_empty());
        let lost = compare(&seen, std::slice::from_ref(&self.states[1]));
        let fate = match lost {
            Ok(lost) if !lost.is_empty() && noticed => Fate::Lost,
            Ok(lost) if !lost.is_empty() => {
                return Err(Wrong(format!("{lost:?} cannot be read, and the checker finds nothing")));
            }
            Ok(_) if noticed => Fate::Noticed,
            Ok(_) => Fate::Harmless,
            Err(wrong) => match compare(&seen, std::slice::from_ref(&self.states[0])) {
                Ok(lost) if lost.is_empty() && role == Some(Role::Log) => Fate::Older,
                _ => return Err(wrong),
            },
        };
        let block_size = self.shape.spec.block_size as usize;
        if matches!(fate, Fate::Harmless | Fate::Older) {
            driver.settle(mounted, FilesState::found(seen.snapshot, block_size));
            driver.run(&afterwards(1, 1, block_size))?;
        } else {
            driver.settle(mounted, FilesState::new(self.states[1].model.clone()));
            use_damaged(&mut driver, &afterwards(1, 1, block_size))?;
        }
        Ok(fate)
    }
}

/// Uses a damaged volume like a user who does not know of the damage. An operation that meets the damage fails with
/// an error of the device, and later operations still give the right results.
fn use_damaged(driver: &mut Driver, operations: &[Operation]) -> Result<(), Wrong> {
    let mut failed = None;
    for operation in operations {
        let done = driver.attempt(operation).map_err(|wrong| Wrong(format!("{operation}: {wrong}")))?;
        // Background work that meets the damage may fail as well.
        let _ = driver.pause();
        if done.is_some() {
            failed = done;
            break;
        }
    }
    let after = failed.map(|failed| failed.after);
    let models = [driver.model().clone()].into_iter().chain(after);
    let states: Vec<_> = models.map(|model| Arc::new(FilesState::new(model))).collect();
    compare(&view(&driver.fs)?, &states).map(drop)
}

fn mount(shape: &Shape, device: &Arc<Emulated>, history: History<FilesState>) -> Result<Driver, Wrong> {
    let clock = Volume::clock();
    let fs = volume(shape).mount(device, Arc::clone(&clock) as _)?;
    Ok(Driver::new(fs, Arc::clone(device), clock, history, Rng::with_seed(1), 0))
}

/// The role of a zone, from its header. `None` if the header does not say.
pub(crate) fn role(device: &Emulated, zone: ZoneId) -> Result<Option<Role>, DeviceError> {
    let mut header = vec![0; device.geometry().block_size as usize];
    device.read(zone, 0, &mut header)?;
    Ok(zone::format::decode_header(&header).ok().map(|(identity, _)| identity.role))
}

/// Every block below the write pointer of every zone. In a full zone, all written blocks.
fn written(device: &Emulated) -> Vec<Place> {
    let mut places = Vec::new();
    for (zone, info) in (0..).map(ZoneId).zip(device.report().unwrap_or_default()) {
        if info.state != ZoneState::Empty
            && let Ok(role) = role(device, zone)
        {
            let end = if info.state.has_pointer() { info.pointer } else { info.capacity };
            let blocks = (0..end).filter(|&block| device.is_written(zone, block));
            places.extend(blocks.map(|block| Place { zone, block, role }));
        }
    }
    places
}

/// Trees of several leaves, written by a checkpoint.
fn before(block: u64) -> Vec<Operation> {
    let mut operations = space::prepare(block);
    for number in 0..NAMES {
        operations.push(Operation::Create { path: format!("d/a-rather-long-name-{number:03}") });
    }
    operations.push(Operation::Symlink { target: "a".to_owned(), path: "s".to_owned() });
    operations.push(Operation::Link { from: "d/b".to_owned(), to: "hard".to_owned() });
    operations.push(Operation::Checkpoint);
    operations
}

/// Changes that are only in the journal, each operation in a batch of its own. If an unmount follows, its checkpoint
/// would turn all batches into more blocks, so they are one batch.
fn after(block: u64, unmounted: bool) -> Vec<Operation> {
    let file = |path: &str| File::Path(path.to_owned());
    let operations = vec![
        Operation::Create { path: "new".to_owned() },
        Operation::Write { file: file("new"), offset: 0, length: 2 * block as usize, tag: 11 },
        Operation::Append { file: file("a"), length: 40, tag: 12 },
        Operation::Unlink { path: "d/a-rather-long-name-007".to_owned() },
        Operation::Rename { from: "new".to_owned(), to: "hard".to_owned() },
        Operation::Truncate { file: file("a"), size: block + 9 },
        Operation::MakeDirectory { path: "d/e/f".to_owned() },
    ];
    let sync = (!unmounted).then_some(Operation::Sync);
    operations.into_iter().flat_map(|operation| [Some(operation), sync.clone()]).flatten().collect()
}

#[cfg(test)]
mod tests;
