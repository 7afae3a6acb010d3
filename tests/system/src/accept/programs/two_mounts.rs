//! Two volumes with different geometry, mounted and used at the same time.
//!
//! On each volume, one thread copies trees, from outside and from its own volume to the other one. Another thread
//! creates, overwrites, renames and removes files and remembers their contents. Then both are unmounted, checked, and
//! mounted again in the other order, and everything on both is compared.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use rt::thread::JoinHandle;

use super::Counts;
use super::copies::rsync;
use super::odd_tree::{self, Snapshot, sum};
use crate::accept::Run;
use crate::accept::volume::Volume;

const SHAPES: [&[&str]; 2] = [
    &["--size", "1G"],
    &["--size", "1G", "--block-size", "512", "--zone-size", "12M", "--max-open", "6", "--max-active", "6"],
];
/// Limit for the files of one churning thread.
const FILES_MAX: u64 = 200;
const FILE_BYTES_MAX: usize = 200_000;

pub(super) fn run(run: &Run, place: &Path) -> Result<(String, Counts)> {
    let [one, other] = SHAPES.map(|shape| Volume::make(shape, &[]));
    let volumes = [one?, other?];
    let result = prove(&volumes, run, place);
    volumes.iter().fold(result, |result, volume| volume.tell_if_failed(result))
}

fn prove(volumes: &[Volume; 2], run: &Run, place: &Path) -> Result<(String, Counts)> {
    let (rounds, files, steps) = if run.quick { (1, 60, 400) } else { (4, 500, 10_000) };
    let mut random = fastrand::Rng::with_seed(run.seed);
    let mut trees = Vec::new();
    for (number, volume) in volumes.iter().enumerate() {
        let source = place.join(format!("source-{number}"));
        odd_tree::make(&source, files, &mut random)?;
        trees.push((Snapshot::of(&source)?, source));
        volume.mount()?;
    }
    let geometry = format!("{} and {}", volumes[0].geometry()?, volumes[1].geometry()?);
    let held = work(volumes, &trees, rounds, steps, &mut random)?;
    volumes.iter().try_for_each(|volume| volume.unmount().and_then(|()| volume.check()))?;
    volumes.iter().rev().try_for_each(|volume| volume.mount().map(drop))?;
    let mut compared = 0;
    for (volume, held) in volumes.iter().zip(&held) {
        compared += compare(&volume.dir(), &trees, rounds, held)?;
    }
    volumes.iter().try_for_each(|volume| volume.unmount().and_then(|()| volume.check()))?;
    let counts = vec![
        ("steps done on two mounts at once", volumes.len() as u64 * steps),
        ("trees copied onto and between two mounts", volumes.len() as u64 * rounds * 2),
        ("entries compared on both", compared),
    ];
    Ok((geometry, counts))
}

/// The files of a churning thread, with a checksum of each.
type Held = BTreeMap<String, u64>;

/// Both threads of both volumes, at once.
fn work(
    volumes: &[Volume; 2],
    trees: &[(Snapshot, PathBuf)],
    rounds: u64,
    steps: u64,
    random: &mut fastrand::Rng,
) -> Result<Vec<Held>> {
    let (mut copying, mut churning) = (Vec::new(), Vec::new());
    for number in 0..volumes.len() {
        let (own, other) = (volumes[number].dir(), volumes[1 - number].dir());
        let (source, to, random) = (trees[number].1.clone(), own.clone(), random.fork());
        copying.push(rt::thread::spawn("copy", move || copy(number, &source, &own, &other, rounds))?);
        churning.push(rt::thread::spawn("churn", move || churn(&to.join("churn"), steps, random))?);
    }
    copying.into_iter().try_for_each(joined)?;
    churning.into_iter().map(joined).collect()
}

fn joined<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a thread panicked"))?
}

fn copy(number: usize, source: &Path, own: &Path, other: &Path, rounds: u64) -> Result<()> {
    for round in 0..rounds {
        let here = own.join(copied(number, round));
        rsync(source, &here)?;
        rsync(&here, &other.join(copied(number, round)))?;
    }
    Ok(())
}

/// The name, on both volumes, of a copy of tree `number`.
fn copied(number: usize, round: u64) -> String {
    format!("copy-{number}-{round}")
}

fn churn(dir: &Path, steps: u64, mut random: fastrand::Rng) -> Result<Held> {
    fs::create_dir(dir)?;
    let mut held = Held::new();
    for step in 0..steps {
        let name = format!("file-{}", random.u64(..FILES_MAX));
        let path = dir.join(&name);
        match random.u8(..10) {
            0..6 => {
                let mut bytes = vec![0; random.usize(..FILE_BYTES_MAX)];
                random.fill(&mut bytes);
                fs::write(&path, &bytes).with_context(|| format!("step {step}"))?;
                held.insert(name, sum(&bytes));
            }
            6..8 if held.contains_key(&name) => {
                let to = format!("file-{}", random.u64(..FILES_MAX));
                fs::rename(&path, dir.join(&to)).with_context(|| format!("step {step}"))?;
                let contents = held.remove(&name).expect("it is there");
                held.insert(to, contents);
            }
            _ if held.remove(&name).is_some() => {
                fs::remove_file(&path).with_context(|| format!("step {step}"))?;
            }
            _ => ensure!(!path.exists(), "step {step}: {name} is there again"),
        }
    }
    Ok(held)
}

/// Compares everything on one volume. Returns the number of entries.
fn compare(root: &Path, trees: &[(Snapshot, PathBuf)], rounds: u64, held: &Held) -> Result<u64> {
    let mut compared = held.len() as u64;
    for (number, (wanted, _)) in trees.iter().enumerate() {
        for round in 0..rounds {
            let name = copied(number, round);
            let found = Snapshot::of(&root.join(&name))?;
            wanted.judge(&found).with_context(|| format!("{name} on {}", root.display()))?;
            compared += found.len();
        }
    }
    let mut found = Held::new();
    for entry in fs::read_dir(root.join("churn"))? {
        let entry = entry?;
        found.insert(entry.file_name().to_string_lossy().into_owned(), sum(&fs::read(entry.path())?));
    }
    ensure!(found == *held, "the changed files on {} differ from the writes", root.display());
    Ok(compared)
}
