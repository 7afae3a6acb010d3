//! `polder cat`: the contents of files of a volume that nobody has mounted.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use fs::Kind;

use crate::inside::Inside;

const PIECE: usize = 1 << 20;

/// Write the contents of files of a volume that is not mounted to the standard output.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file or block device.
    volume: PathBuf,
    /// Paths inside it, from its root.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let inside = Inside::open(&arguments.volume)?;
    let mut output = std::io::stdout().lock();
    for path in &arguments.paths {
        let found = inside.find(path, true)?;
        let shown = path.display();
        if found.kind != Kind::File {
            bail!("{shown} in the volume is no file; see what it is with `polder ls -l`");
        }
        let handle = inside.open_to_read(found.inode)?;
        let (mut buffer, mut offset) = (vec![0; PIECE], 0);
        loop {
            let count = inside.fs().read(&handle, offset, &mut buffer).with_context(|| shown.to_string())?;
            match output.write_all(&buffer[..count]) {
                // Who reads has read enough.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
            if count < PIECE {
                break;
            }
            offset += count as u64;
        }
    }
    Ok(output.flush()?)
}
