//! Copies a directory of the host into a new volume, with permissions, times, links and owners.
//!
//! `cargo run -p polder --example copy_tree -- DIRECTORY VOLUME`. Without arguments, the sources of this crate are
//! copied to a volume in a temporary directory.

use std::error::Error;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use polder::{Times, Volume};

/// What was copied.
#[derive(Default)]
struct Copied {
    files: u64,
    bytes: u64,
    skipped: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let from = arguments.next().unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let to = arguments.next().unwrap_or_else(|| place.path().join("tree.polder"));

    let volume = Volume::create(&to).size(8 << 30).open()?;
    let mut copied = Copied::default();
    copy_directory(&volume, &from, Path::new("/"), &mut copied)?;
    volume.close()?;
    let Copied { files, bytes, skipped } = copied;
    println!("{files} files with {bytes} bytes; {skipped} devices, pipes and sockets were skipped");
    Ok(())
}

fn copy_directory(
    volume: &Volume,
    from: &Path,
    to: &Path,
    copied: &mut Copied,
) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let about = entry.metadata()?;
        if about.is_dir() {
            volume.create_dir(&target)?;
            copy_directory(volume, &source, &target, copied)?;
        } else if about.is_symlink() {
            volume.symlink(fs::read_link(&source)?, &target)?;
        } else if about.is_file() {
            let mut file = volume.options().write(true).create_new(true).open(&target)?;
            copied.bytes += io::copy(&mut fs::File::open(&source)?, &mut file)?;
            copied.files += 1;
        } else {
            copied.skipped += 1;
            continue;
        }
        copy_attributes(volume, &about, &target)?;
    }
    Ok(())
}

/// The attributes come last: writing would change the times.
fn copy_attributes(volume: &Volume, about: &fs::Metadata, target: &Path) -> polder::Result<()> {
    volume.set_symlink_owner(target, Some(about.uid()), Some(about.gid()))?;
    if !about.is_symlink() {
        volume.set_permissions(target, (about.mode() & 0o7777) as u16)?;
    }
    volume
        .set_symlink_times(target, Times { accessed: about.accessed().ok(), modified: about.modified().ok() })
}
