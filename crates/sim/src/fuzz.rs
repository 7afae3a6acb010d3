//! Fuzzing: bytes that somebody has thought of with care, offered to every decoder and to a mount.
//!
//! A [`Target`] takes any bytes and returns, whatever they are. `fuzz/` gives all of them to libFuzzer, which finds
//! bytes that reach new code; what it finds worth keeping goes to `fuzz/corpus`. Here the same targets are given that,
//! what a small volume holds, and mutations of both that follow from a seed, so that a stable compiler and a minute are enough to see that nothing
//! has become worse. Decoders complete checksums themselves (`tree::hostile`), so that bytes get behind them.

mod file;
mod mutate;
mod seeds;
mod volume;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rt::random::Rng;
use rt::sync::Mutex;

use crate::caught::{Wrong, caught};
use crate::crew::{self, Member};
use crate::digest::mix;

pub use seeds::seeds;
pub use volume::mount;

/// The longest input; `fuzz/` keeps to it too.
pub const INPUT_MAX: usize = 64 << 10;

/// What bytes are offered to.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Takes any bytes; panics when Polder does.
    pub offer: fn(&[u8]),
    /// Its inputs cost so many times what those of a decoder do.
    pub cost: usize,
}

/// All of them.
pub fn all() -> Vec<Target> {
    let decoders = [
        &zone::hostile::DECODERS[..],
        &tree::hostile::DECODERS[..],
        &extent::hostile::DECODERS[..],
        &fs::hostile::DECODERS[..],
    ];
    let decoders = decoders.into_iter().flatten();
    let decoders = decoders.map(|&(name, offer)| Target { name, offer, cost: 1 });
    let mounts = [
        Target { name: "mount", offer: mount, cost: 20 },
        Target { name: "volume-file", offer: file::mount, cost: 20 },
    ];
    decoders.chain(mounts).collect()
}

/// What was offered, and what went wrong.
#[derive(Debug, Default)]
pub struct Offered {
    /// Inputs from the corpus and from a volume.
    pub seeds: usize,
    /// Mutations of them.
    pub mutations: usize,
    /// The input, and what it did.
    pub wrong: Vec<(String, Vec<u8>, Wrong)>,
}

/// Offers everything in the corpus, and so many mutations to each decoder (fewer to what costs more).
pub fn smoke(targets: Vec<Target>, corpus: &Path, mutations: usize, seed: u64) -> Offered {
    let (offered, next) = (Arc::new(Mutex::new(Offered::default())), Arc::new(AtomicUsize::new(0)));
    let (shared, corpus) = (Arc::clone(&offered), corpus.to_owned());
    crew::share(move |member| {
        while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = offer_to(member, target, &corpus, mutations / target.cost, seed);
            let mut sum = shared.lock();
            sum.seeds += found.seeds;
            sum.mutations += found.mutations;
            sum.wrong.extend(found.wrong);
        }
    });
    let mut offered = offered.lock();
    std::mem::take(&mut *offered)
}

fn offer_to(member: &Member, target: &Target, corpus: &Path, mutations: usize, seed: u64) -> Offered {
    let mut inputs = seeds(target.name);
    inputs.extend(stored(&corpus.join(target.name)));
    let name = target.name.bytes().fold(seed, |sum, byte| mix(&[sum, byte.into()]));
    let mut rng = Rng::with_seed(name);
    let mut offered = Offered { seeds: inputs.len(), ..Offered::default() };
    for number in 0..inputs.len() + mutations {
        let input = match inputs.get(number) {
            Some(input) => input.clone(),
            None => mutate::mutate(&inputs, &mut rng),
        };
        member.began(format!("polder-sim fuzz --target {} --seed {seed} (input {number})", target.name));
        if let Err(wrong) = try_one(target, &input) {
            offered.wrong.push((target.name.to_owned(), input, wrong));
            break;
        }
        offered.mutations = (number + 1).saturating_sub(inputs.len());
    }
    offered
}

/// Offers one input.
pub fn try_one(target: &Target, input: &[u8]) -> Result<(), Wrong> {
    caught(target.name, || {
        (target.offer)(input);
        Ok(())
    })
}

/// The inputs in a directory, in the order of their names.
fn stored(directory: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().filter_map(|path| std::fs::read(path).ok()).collect()
}

#[cfg(test)]
mod tests;
