//! `polder cat`: the contents of files of an unmounted volume.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use fs::Kind;

use crate::output;
use crate::unmounted::UnmountedVolume;

const PIECE: usize = 1 << 20;

/// Write the contents of files of a volume that is not mounted to standard output.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file, block device or URL.
    volume: PathBuf,
    /// Paths inside it, from its root.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let inside = UnmountedVolume::open(&arguments.volume)?;
    for path in &arguments.paths {
        let found = inside.find(path, true)?;
        let shown = path.display();
        if found.kind != Kind::File {
            bail!("{shown} in the volume is not a regular file; `polder ls -l` shows its type");
        }
        let handle = inside.open_to_read(found.inode)?;
        let (mut buffer, mut offset) = (vec![0; PIECE], 0);
        loop {
            let count = inside.fs().read(&handle, offset, &mut buffer).with_context(|| shown.to_string())?;
            if !output::is_read(&buffer[..count])? {
                return Ok(());
            }
            if count < PIECE {
                break;
            }
            offset += count as u64;
        }
    }
    Ok(())
}
