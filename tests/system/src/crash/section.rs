//! One application in one mode: its volume, its crashes, its canary.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rt::{Clock, SystemClock};
use tempfile::TempDir;

use super::git::Git;
use super::litter::{self, Litter};
use super::lmdb::Lmdb;
use super::mode::{Lost, Mode, Trigger};
use super::rocksdb::RocksDb;
use super::saves::Saves;
use crate::accept::programs::cycle::{self, Application};
use crate::accept::programs::postgres::Pgbench;
use crate::accept::programs::sqlite::{CAREFUL, CARELESS, Databases};
use crate::accept::volume::Volume;

/// Where an application works, and whether it syncs.
pub(super) struct Site<'a> {
    /// On the mount.
    pub(super) dir: &'a Path,
    /// Outside of it.
    pub(super) place: &'a Path,
    /// Whether it syncs nothing.
    pub(super) careless: bool,
    pub(super) random: fastrand::Rng,
}

/// An application that the tests can run.
pub(super) struct Entry {
    pub(super) name: &'static str,
    /// Its share of the crashes.
    pub(super) share: u64,
    /// Arguments of mkfs.
    volume: &'static [&'static str],
    make: fn(Site<'_>) -> Result<Box<dyn Application>>,
}

/// Volumes so small that GC runs and checkpoints are taken all the time, if the application fits.
pub(super) const APPLICATIONS: [Entry; 6] = [
    Entry { name: "sqlite", share: 6, volume: &["--size", "96M", "--zone-size", "1M"], make: sqlite },
    Entry {
        name: "lmdb",
        share: 6,
        volume: &["--size", "64M", "--zone-size", "1M"],
        make: |site| Ok(Box::new(Lmdb::make(site)?)),
    },
    Entry {
        name: "rocksdb",
        share: 4,
        volume: &["--size", "128M", "--zone-size", "2M"],
        make: |site| Ok(Box::new(RocksDb::make(site)?)),
    },
    Entry {
        name: "git",
        share: 4,
        volume: &["--size", "96M", "--zone-size", "1M"],
        make: |site| Ok(Box::new(Git::make(site)?)),
    },
    Entry {
        name: "saves",
        share: 12,
        volume: &["--size", "96M", "--zone-size", "1M"],
        make: |site| Ok(Box::new(Saves::make(site)?)),
    },
    Entry { name: "postgresql", share: 2, volume: &["--size", "512M"], make: postgresql },
];

fn sqlite(site: Site<'_>) -> Result<Box<dyn Application>> {
    let kinds: &[_] = if site.careless { &CARELESS } else { &CAREFUL };
    Ok(Box::new(Databases::make(kinds, site.dir, site.place, site.random)?))
}

fn postgresql(site: Site<'_>) -> Result<Box<dyn Application>> {
    let settings: &[&str] = if site.careless { &["fsync=off"] } else { &[] };
    Ok(Box::new(Pgbench::make(1, site.dir, site.place, settings)?))
}

/// The latest moment of a crash, after the first transactions.
const LATEST_MS: u64 = 1_500;
const QUICK_LATEST_MS: u64 = 300;
/// The daemon of a canary crashes so often. A canary may be lucky once.
const CANARY_CRASHES: u64 = 5;
/// One in this many crashes is followed by another right after the next mount, before anything is read.
const DOUBLED: u64 = 4;
/// Progress is printed after this many crashes.
const PROGRESS_EACH: u64 = 20;

pub(super) struct Section {
    pub(super) entry: &'static Entry,
    pub(super) mode: Mode,
    pub(super) crashes: u64,
    pub(super) seed: u64,
    pub(super) quick: bool,
    /// Whether its canary is tried as well.
    pub(super) canary: bool,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, mode {}, {} crashes", self.entry.name, self.mode.name(), self.crashes)
    }
}

/// What a section has counted.
pub(super) struct Counts {
    pub(super) name: &'static str,
    pub(super) mode: Mode,
    pub(super) crashes: u64,
    /// Crashes right after a mount, beside those.
    pub(super) doubled: u64,
    pub(super) acknowledged: u64,
    /// Transactions that were found, over all mounts.
    pub(super) verified: u64,
    /// Blocks that were not synced when the power was cut.
    pub(super) kept: u64,
    pub(super) lost: u64,
    /// Files read that were never synced.
    pub(super) litter: u64,
    pub(super) canaries: u64,
    pub(super) mount_ms_max: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { name, mode, crashes, doubled, acknowledged, verified, kept, lost, mount_ms_max, .. } =
            self;
        let mode = mode.name();
        write!(
            f,
            "{name:<11} {mode:<5} {crashes:>6} {doubled:>7} {acknowledged:>13} {verified:>10} {kept:>9} {lost:>9} \
             {mount_ms_max:>9}"
        )
    }
}

/// A volume with an application on it, and the trigger of its daemon's crashes. Dropped in this order.
struct Scene {
    application: Box<dyn Application>,
    volume: Volume,
    trigger: Trigger,
    /// The folder of the files that are never synced.
    litter: PathBuf,
    _place: TempDir,
}

impl Section {
    pub(super) fn run(&self, daemon: Option<&Path>) -> Result<Counts> {
        let clock = SystemClock::new();
        let mut counts = self.prove(daemon)?;
        if self.canary {
            self.show_canary(daemon)?;
            counts.canaries += 1;
        }
        println!("{self}: done in {} s", clock.monotonic_ns() / 1_000_000_000);
        Ok(counts)
    }

    /// Everything random of this section.
    fn random(&self) -> fastrand::Rng {
        let name = self.entry.name.bytes().chain(self.mode.name().bytes());
        let seed = name.fold(self.seed, |seed, byte| seed.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte));
        fastrand::Rng::with_seed(seed)
    }

    /// Creates volume and application. With those of a canary, something must be lost.
    fn scene(&self, daemon: Option<&Path>, is_canary: bool, random: fastrand::Rng) -> Result<Scene> {
        let place = tempfile::Builder::new().prefix("crash-").tempdir().context("cannot make a folder")?;
        // The user of a database server must reach its data.
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755))?;
        let dir = place.path().join("mnt");
        let mut volume = Volume::make_for(Some(&dir), self.entry.volume, &[])?;
        let trigger = Trigger::of(self.mode, place.path())?;
        if self.mode == Mode::Cut {
            let daemon = daemon.context("there is no daemon whose power can be cut")?;
            volume.serve_by(daemon, trigger.env(is_canary));
        }
        volume.mount()?;
        let careless = is_canary && self.mode == Mode::Kill;
        let application = (self.entry.make)(Site { dir: &dir, place: place.path(), careless, random })?;
        Ok(Scene { application, volume, trigger, litter: PathBuf::new(), _place: place })
    }

    fn prove(&self, daemon: Option<&Path>) -> Result<Counts> {
        let mut random = self.random();
        let mut scene = self.scene(daemon, false, random.fork())?;
        println!("geometry: {}", scene.volume.geometry()?);
        let mut counts = self.nothing_yet();
        for crash in 1..=self.crashes {
            let proved = self.round(&mut scene, &mut random, &mut counts);
            let name = format!("crash-{}-{}", self.entry.name, self.mode.name());
            scene.volume.keep_if_failed(&name, proved).with_context(|| format!("crash {crash}"))?;
            if crash % PROGRESS_EACH == 0 {
                println!("{crash} crashes, {} transactions acknowledged so far", counts.acknowledged);
            }
        }
        counts.mount_ms_max = scene.volume.mount_ns_max() / 1_000_000;
        drop(scene.application);
        scene.volume.unmount()?;
        scene.volume.check()?;
        Ok(counts)
    }

    fn round(&self, scene: &mut Scene, random: &mut fastrand::Rng, counts: &mut Counts) -> Result<()> {
        counts.acknowledged += self.crash(scene, random, counts)?;
        counts.crashes += 1;
        scene.volume.copy_struck()?;
        if random.u64(..DOUBLED) == 0 {
            scene.volume.check()?;
            scene.volume.mount()?;
            counts.add(scene.trigger.crash(&scene.volume, random.u64(..))?);
            cycle::retrieve(&scene.volume)?;
            scene.volume.copy_struck()?;
            counts.doubled += 1;
        }
        counts.verified += cycle::recover(&scene.volume, &mut *scene.application)?;
        counts.litter += litter::verify(&scene.litter)?;
        Ok(())
    }

    /// Lets the application work until a crash. Returns the number of acknowledged transactions.
    fn crash(&self, scene: &mut Scene, random: &mut fastrand::Rng, counts: &mut Counts) -> Result<u64> {
        let latest_ms = if self.quick { QUICK_LATEST_MS } else { LATEST_MS };
        let (at, seed) = (Duration::from_millis(random.u64(..latest_ms)), random.u64(..));
        let litter = Litter::start(&scene.volume.dir(), random.fork())?;
        let Scene { application, volume, trigger, .. } = scene;
        let mut lost = Lost::default();
        let acknowledged = cycle::work(volume, &mut **application, at, |volume| {
            litter.brace();
            lost = trigger.crash(volume, seed)?;
            Ok(())
        })
        .with_context(|| {
            format!("crashed {} ms after the first transactions, seed {seed}", at.as_millis())
        })?;
        scene.litter = litter.finish()?;
        ensure!(acknowledged > 0, "nothing was acknowledged before the crash");
        counts.add(lost);
        Ok(acknowledged)
    }

    /// Crashes until a loss is found. There must be one.
    fn show_canary(&self, daemon: Option<&Path>) -> Result<()> {
        let mut random = self.random();
        let mut scene = self.scene(daemon, true, random.fork())?;
        let mut counts = self.nothing_yet();
        for crash in 1..=CANARY_CRASHES {
            self.crash(&mut scene, &mut random, &mut counts).context("the canary")?;
            if let Err(error) = cycle::recover(&scene.volume, &mut *scene.application) {
                println!("the canary is found at crash {crash}: {}", format!("{error:#}").replace('\n', " "));
                return Ok(());
            }
        }
        let what = match self.mode {
            Mode::Kill => "an application that syncs nothing",
            Mode::Cut => "a device that lies about its syncs",
        };
        anyhow::bail!("{what} has survived {CANARY_CRASHES} crashes: this harness notices nothing")
    }

    fn nothing_yet(&self) -> Counts {
        Counts {
            name: self.entry.name,
            mode: self.mode,
            crashes: 0,
            doubled: 0,
            acknowledged: 0,
            verified: 0,
            kept: 0,
            lost: 0,
            litter: 0,
            canaries: 0,
            mount_ms_max: 0,
        }
    }
}

impl Counts {
    fn add(&mut self, lost: Lost) {
        self.kept += lost.kept;
        self.lost += lost.lost;
    }
}
