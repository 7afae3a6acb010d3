//! The first steps with a volume: make it, use it, close it, open it again.
//!
//! `cargo run -p polder --example first_steps -- [VOLUME]`. Without an argument, the volume is in a temporary
//! directory.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;

use polder::{RenameFlags, Volume};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = tempfile::tempdir()?;
    let path = std::env::args_os().nth(1).map_or_else(|| place.path().join("data.polder"), PathBuf::from);

    // A new volume in a sparse file, which takes only the space that is written.
    let volume = Volume::create(&path).size(256 << 20).label("first steps").open()?;
    let space = volume.statvfs()?;
    let available_mib = (space.available * u64::from(space.block_size)) >> 20;
    println!("{}: {available_mib} MiB for files", path.display());

    // Whole files, as with `std::fs`.
    volume.create_dir_all("/notes/2026")?;
    volume.write("/notes/2026/monday", "buy milk\nrepair the dike\n")?;
    volume.symlink("2026/monday", "/notes/today")?;

    // Open files have the traits of `std::io`.
    let mut today = volume.options().append(true).open("/notes/today")?;
    writeln!(today, "call Anna")?;
    // From here on the note survives a loss of power.
    today.sync_data()?;
    for line in BufReader::new(volume.options().read(true).open("/notes/today")?).lines() {
        println!("note: {}", line?);
    }

    // A file is replaced in one step: first written under another name, then renamed.
    volume.write("/settings.new", "colour = blue\n")?;
    volume.rename("/settings.new", "/settings")?;
    let keep = RenameFlags { no_replace: true, ..RenameFlags::default() };
    if let Err(error) = volume.rename_with("/notes/today", "/settings", keep) {
        println!("refused: {error}");
    }

    // A copy shares the blocks of the original.
    volume.write("/big", vec![7; 32 << 20])?;
    volume.copy("/big", "/copy")?;
    println!("{} MiB of live data", volume.stats()?.stored.live_bytes >> 20);

    volume.close()?;

    let volume = Volume::open(&path)?;
    for entry in volume.read_dir("/")? {
        let entry = entry?;
        println!("{:>10} {}", entry.metadata()?.len(), entry.path().display());
    }
    Ok(())
}
