//! The costs of a great number of zones.
//!
//! The volume is on a disk with shingled tracks that is larger than any test machine's. Its data are zeros. The
//! device ([`emulated::metadata_only`]) stores only blocks that are not zeros, so it stores only the metadata. Files
//! fill a share of the zones. Pieces of them are overwritten, so that zones contain dead blocks. The volume is
//! unmounted, and mounted again after a simulated kill of the process. Then many files are deleted at once.
//!
//! Device time is that of a model and does not depend on the machine. A report of zones takes no device time. Memory
//! is the peak of the resident memory of the process, without the device's own. Processor time depends on the
//! machine. Compare it only with measurements on the same machine.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use emulated::metadata_only::MetadataOnly;
use emulated::timed::{CommandClass, Model, Timed};
use fs::{BackgroundTask, Caller, FormatOptions, Fs, Handle, InodeNo, MountOptions, OpenFlags, Reserve};
use rt::random::Rng;
use rt::{Clock, ManualClock, Timestamp};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use tree::Step;
use zone::{Device, FsId, Geometry};

use crate::trace::BLOCK;
use crate::volume::Shape;

/// Memory for the metadata cache.
const CACHE_BYTES: u64 = 64 << 20;
/// Memory that a volume may need in addition, in total and for each zone.
const BESIDE_CACHE_BYTES: u64 = 64 << 20;
const BYTES_A_ZONE: u64 = 64;
const PIECE_BYTES: u64 = 1 << 20;
const FILE_ZONES: u64 = 4;
/// One of this many written pieces is overwritten.
const WRITTEN_OVER: u64 = 20;
/// Limit for the background steps after an operation.
const PIECES_MAX: u32 = 64;
/// The zones among which GC chooses: as many as `extent` ranks.
const RANKED: usize = 1024;
/// How often a short operation is repeated to measure it.
const REPEATED: u32 = 200;
/// Files that were created and not synced when the process was killed.
const UNSYNCED: u64 = 2000;
const WRITING: OpenFlags = OpenFlags { read: true, write: true, append: false, truncate: false, sync: false };

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Many {
    /// The device.
    pub shape: Shape,
    /// Zones to fill.
    pub used: u32,
    /// Determines what is overwritten.
    pub seed: u64,
}

/// The costs of a mount.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Mounted {
    /// Device time, without the report of zones.
    pub device_ms: f64,
    /// Reads. The model seeks for each of them.
    pub reads: u64,
    /// Processor time.
    pub cpu_ms: f64,
    /// Records replayed.
    pub records: u64,
}

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Seen {
    /// Zones of the device.
    pub zones: u32,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// Zones with data after all writes.
    pub data_zones: u64,
    /// The seed.
    pub seed: u64,
    /// Bytes written to files.
    pub written_bytes: u64,
    /// Bytes that the device stored: metadata.
    pub kept_bytes: u64,
    /// A mount after an unmount.
    pub clean: Mounted,
    /// A mount after the process was killed.
    pub killed: Mounted,
    /// The peak of resident memory, without the device.
    pub resident_bytes_max: u64,
    /// The limit for it.
    pub resident_bytes_allowed: u64,
    /// Zones among which GC chooses a victim.
    pub victims_looked_at: u64,
    /// Processor time to find them, the minimum, in nanoseconds.
    pub victims_ns: u64,
    /// Processor time of a GC step with nothing to do, the minimum.
    pub idle_step_ns: u64,
    /// Processor time to look at all zones (`statfs`), the minimum.
    pub look_at_all_ns: u64,
    /// Victims whose live blocks were moved.
    pub evacuated_zones: u64,
    /// Zones that were freed when half of the files were deleted.
    pub freed_zones: u64,
    /// Processor time of that deletion for each freed zone, in nanoseconds.
    pub freed_ns: u64,
}

struct Volume {
    fs: Arc<Fs>,
    clock: Arc<ManualClock>,
}

impl Volume {
    fn mount(device: &Arc<Timed>) -> Result<(Volume, Mounted)> {
        let clock = Arc::clone(device.clock());
        let options = MountOptions {
            cache_bytes: CACHE_BYTES,
            read_only: false,
            commit_interval_ns: 5_000_000_000,
            clock: Arc::clone(&clock) as _,
        };
        let reads = || device.times().of(CommandClass::Read).commands;
        let (began, reads_before, cpu) = (clock.monotonic_ns(), reads(), cpu_ns());
        let (fs, recovery) = Fs::mount(Arc::clone(device) as _, options)?;
        let mounted = Mounted {
            device_ms: (clock.monotonic_ns() - began) as f64 / 1e6,
            reads: reads() - reads_before,
            cpu_ms: (cpu_ns() - cpu) as f64 / 1e6,
            records: recovery.records,
        };
        Ok((Volume { fs, clock }, mounted))
    }

    fn create(&self, name: &str) -> Result<(InodeNo, Handle)> {
        let (made, handle) =
            self.fs.create(&caller(), InodeNo::ROOT, name.as_bytes(), 0o644, WRITING, true)?;
        Ok((made.inode, handle))
    }

    fn write(&self, handle: &Handle, at: u64, zeros: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < zeros.len() {
            done += self.fs.write(handle, at + done as u64, &zeros[done..])?;
        }
        self.work_in_background()
    }

    /// Performs pending background work between two operations. Its duration is not measured here.
    fn work_in_background(&self) -> Result<()> {
        for _ in 0..PIECES_MAX {
            if self.fs.step()? == Step::Idle {
                break;
            }
        }
        Ok(())
    }

    /// Zones that contain data.
    fn data_zones(&self) -> u64 {
        let holds = |moment: tree::Moment<'_>| {
            moment.zones().filter(|zone| zone.entry.role.holds_data() && zone.entry.live > 0).count() as u64
        };
        self.fs.store().pool().at_one_moment(holds)
    }
}

impl Many {
    /// Runs the measurement.
    pub fn run(&self) -> Result<Seen> {
        ensure!(
            self.used >= 8 && self.used < self.shape.zones * 4 / 5,
            "from 8 zones to four fifths are used"
        );
        rt::random::repeat_from(self.seed);
        let file = tempfile::tempfile().context("there is no space for the metadata")?;
        let device_below = Arc::new(MetadataOnly::new(self.geometry()?, file));
        let clock = Arc::new(ManualClock::at(Timestamp(1_600_000_000_000_000_000)));
        let device =
            Arc::new(Timed::new(Arc::clone(&device_below) as _, Arc::clone(&clock), Model::shingled()));
        format(&device)?;
        let (volume, _) = Volume::mount(&device)?;
        let files = self.used as u64 / FILE_ZONES;
        let written_bytes = self.fill(&volume, files)?;
        let data_zones = volume.data_zones();
        ensure!(data_zones >= u64::from(self.used), "{data_zones} zones hold data, not {}", self.used);
        volume.fs.unmount()?;
        drop(volume);

        let (volume, clean) = Volume::mount(&device)?;
        ensure!(clean.records == 0, "{} records were replayed after an unmount", clean.records);
        for number in 0..UNSYNCED {
            volume.create(&format!("unsynced-{number}"))?;
            volume.work_in_background()?;
        }
        volume.fs.sync()?;
        drop(volume);
        let (volume, killed) = Volume::mount(&device)?;
        ensure!(killed.records > 0, "nothing was replayed after the kill");
        self.look(&volume, Measures { data_zones, written_bytes, clean, killed, files }, &device_below)
    }

    fn geometry(&self) -> Result<Geometry> {
        Ok(Geometry {
            block_size: BLOCK as u32,
            zones: self.shape.zones,
            zone_blocks: u32::try_from(self.shape.zone_bytes / BLOCK)
                .context("a zone has too many blocks")?,
            max_open: 128,
            max_active: 128,
            max_append: ((1 << 20) / BLOCK) as u32,
            conventional: 0,
            seek_bytes: Geometry::SEEK_BYTES_OF_DISK,
        })
    }

    /// Fills files, and overwrites some pieces.
    fn fill(&self, volume: &Volume, files: u64) -> Result<u64> {
        let zeros = vec![0; PIECE_BYTES as usize];
        let pieces = FILE_ZONES * self.shape.zone_bytes / PIECE_BYTES;
        for file in 0..files {
            let (_, handle) = volume.create(&name_of(file))?;
            (0..pieces).try_for_each(|piece| volume.write(&handle, piece * PIECE_BYTES, &zeros))?;
        }
        let mut rng = Rng::with_seed(self.seed);
        let over = files * pieces / WRITTEN_OVER;
        for _ in 0..over {
            let known = volume.fs.lookup(&caller(), InodeNo::ROOT, name_of(rng.u64(0..files)).as_bytes())?;
            let handle = volume.fs.open(&caller(), known.inode, WRITING)?;
            volume.write(&handle, rng.u64(0..pieces) * PIECE_BYTES, &zeros)?;
        }
        Ok((files * pieces + over) * PIECE_BYTES)
    }

    /// Measures repeated operations, and deletes half of the files.
    fn look(&self, volume: &Volume, before: Measures, device_below: &MetadataOnly) -> Result<Seen> {
        let pool = volume.fs.store().pool();
        let victims_looked_at = pool.victims(RANKED).len() as u64;
        let victims_ns = least_ns(|| {
            ensure!(
                pool.victims(RANKED).len() as u64 == victims_looked_at,
                "zones changed during the measurement"
            );
            Ok(())
        })?;
        while volume.fs.step()? == Step::Worked {}
        let idle_step_ns =
            least_ns(|| volume.fs.step_task(BackgroundTask::Space).map(|_| ()).map_err(Into::into))?;
        let look_at_all_ns = least_ns(|| volume.fs.statfs().map(|_| ()).map_err(Into::into))?;
        while volume.fs.extents().collector().stats().zones_reclaimed == 0 {
            ensure!(volume.fs.collect_garbage()?, "there was nothing to be collected");
        }
        let evacuated_zones = volume.fs.extents().collector().stats().zones_reclaimed;
        let (free, cpu) = (pool.free(), cpu_ns());
        for file in 0..before.files / 2 {
            volume.fs.unlink(&caller(), InodeNo::ROOT, name_of(file).as_bytes())?;
        }
        volume.fs.sync()?;
        while volume.fs.step()? == Step::Worked {}
        // The last zones can only be reset once the log says that the moves are durable.
        volume.fs.store().reclaim(true)?;
        let freed_zones = u64::from(pool.free() - free);
        let freed_ns = (cpu_ns() - cpu) / freed_zones.max(1);
        ensure!(pool.dead_count() == 0, "{} dead zones were left", pool.dead_count());
        let resident_bytes_allowed =
            CACHE_BYTES + BESIDE_CACHE_BYTES + BYTES_A_ZONE * u64::from(self.shape.zones);
        volume.clock.advance(1);
        Ok(Seen {
            zones: self.shape.zones,
            zone_bytes: self.shape.zone_bytes,
            data_zones: before.data_zones,
            seed: self.seed,
            written_bytes: before.written_bytes,
            kept_bytes: device_below.stored_bytes(),
            clean: before.clean,
            killed: before.killed,
            resident_bytes_max: resident_bytes_max()?.saturating_sub(device_below.memory_bytes()),
            resident_bytes_allowed,
            victims_looked_at,
            victims_ns,
            idle_step_ns,
            look_at_all_ns,
            evacuated_zones,
            freed_zones,
            freed_ns,
        })
    }
}

/// The measurements up to the second mount.
struct Measures {
    data_zones: u64,
    written_bytes: u64,
    clean: Mounted,
    killed: Mounted,
    files: u64,
}

fn format(device: &Arc<Timed>) -> Result<()> {
    let options = FormatOptions {
        label: "many".to_owned(),
        fs_id: FsId([7; 16]),
        uid: 0,
        gid: 0,
        page_size: None,
        groups: None,
        reserve: Reserve::default(),
    };
    let shared: Arc<dyn Device> = Arc::clone(device) as _;
    Ok(Fs::format(&shared, &options, device.clock().as_ref())?)
}

fn name_of(file: u64) -> String {
    format!("file-{file}")
}

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, groups: Vec::new(), umask: 0, checked: true }
}

/// Processor time of this process.
fn cpu_ns() -> u64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64
}

/// The minimum of the processor time of `work`.
fn least_ns(mut work: impl FnMut() -> Result<()>) -> Result<u64> {
    let mut least = u64::MAX;
    for _ in 0..REPEATED {
        let before = cpu_ns();
        work()?;
        least = least.min(cpu_ns() - before);
    }
    Ok(least)
}

/// The peak of the resident memory of this process.
fn resident_bytes_max() -> Result<u64> {
    let status =
        std::fs::read_to_string("/proc/self/status").context("the system tells nothing of memory")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no peak of memory")?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().context("a peak is no number")?;
    Ok(kibibytes << 10)
}

#[cfg(test)]
mod tests;
