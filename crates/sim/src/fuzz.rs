//! Fuzzing: offers hostile bytes to every decoder and to a mount.
//!
//! A [`Target`] accepts any bytes and returns. `fuzz/` runs all of them under libFuzzer, which finds bytes that reach
//! new code. Useful inputs go to `fuzz/corpus`. Here the same targets get that corpus, the contents of a small
//! volume, and mutations of both that follow from a seed. So a stable compiler and a minute are enough to see that
//! nothing has become worse. Decoders correct checksums themselves (`tree::hostile`), so that bytes get past them.

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

/// The longest input; `fuzz/` uses the same limit.
pub const INPUT_MAX: usize = 64 << 10;

/// A target of fuzzing.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Accepts any bytes. Panics if Polder does.
    pub offer: fn(&[u8]),
    /// The cost of an input, as a multiple of a decoder's.
    pub cost: usize,
}

/// All targets.
pub fn all() -> Vec<Target> {
    let decoders = [
        &zone::hostile::DECODERS[..],
        &object::hostile::DECODERS[..],
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

/// The counts, and the failures.
#[derive(Debug, Default)]
pub struct Offered {
    /// Inputs from the corpus and from a volume.
    pub seeds: usize,
    /// Mutations of them.
    pub mutations: usize,
    /// The target, the input, and the failure.
    pub wrong: Vec<(String, Vec<u8>, Wrong)>,
}

/// Offers the whole corpus, and this many mutations to each decoder (fewer to expensive targets).
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
