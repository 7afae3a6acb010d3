//! Watches the counters of a volume while it is written: how much reaches the device for each written byte.
//!
//! `cargo run --release -p polder --example stats -- [VOLUME [ROUNDS]]`. The volume must exist; without an argument, a
//! new one is made in a temporary directory. A file of the volume is overwritten in random order.

use std::path::PathBuf;

use polder::{Error, Stats, Volume};

const PIECE: usize = 64 << 10;
const PIECES: u64 = 1500;

fn main() -> Result<(), Error> {
    let place = tempfile::tempdir().expect("the system has a directory for temporary files");
    let mut arguments = std::env::args().skip(1);
    let volume = match arguments.next().map(PathBuf::from) {
        Some(path) => Volume::open(path)?,
        None => Volume::create(place.path().join("stats.polder")).size(160 << 20).open()?,
    };
    let rounds = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let file = volume.options().write(true).create(true).open("/overwritten")?;
    let (mut random, piece) = (1u64, vec![0xa5; PIECE]);
    println!("round  written MiB  device MiB  amplification  live MiB  dead MiB  zones reclaimed");
    for round in 1..=rounds {
        for _ in 0..PIECES {
            // The generator of Knuth's MMIX.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            file.write_all_at(&piece, (random >> 33) % PIECES * PIECE as u64)?;
        }
        file.sync_data()?;
        show(round, &volume.stats()?);
    }
    volume.close()
}

fn show(round: u32, stats: &Stats) {
    let (written, stored) = (&stats.written, &stats.stored);
    let reclaimed = stats.gc.as_ref().map_or(0, |gc| gc.zones_reclaimed);
    println!(
        "{round:>5}  {:>11}  {:>10}  {:>13.3}  {:>8}  {:>8}  {reclaimed:>15}",
        written.user_bytes >> 20,
        written.device_bytes >> 20,
        written.amplification.unwrap_or_default(),
        stored.live_bytes >> 20,
        stored.dead_bytes >> 20,
    );
}
