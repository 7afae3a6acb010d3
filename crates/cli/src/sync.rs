//! `polder sync`: makes all data durable that were written to a mounted volume.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use polder::Stats;
use serde_json::Value;

use crate::control::Request;
use crate::progress;
use crate::volume::Volume;

/// Make all data durable that programs have written to a mounted volume, including the kernel's dirty pages.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The mount point, or the volume's file, block device or URL.
    directory: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    match Volume::find(&arguments.directory)? {
        Volume::Served(mut client) => {
            let _bar = progress::writing("syncing", written(&arguments.directory));
            client.ask::<Value>(&Request::Sync).map(drop)
        }
        Volume::Opened(_) => {
            bail!("{}: is not mounted, so there is nothing to sync", arguments.directory.display())
        }
    }
}

/// A counter of the bytes that programs have written and that have reached the daemon. It returns nothing if no daemon
/// answers, or if standard error is not a terminal.
pub(crate) fn written(named: &Path) -> impl FnMut() -> Option<u64> + Send + 'static {
    let mut client = match std::io::stderr().is_terminal().then(|| Volume::find(named)) {
        Some(Ok(Volume::Served(client))) => Some(client),
        _ => None,
    };
    move || Some(client.as_mut()?.ask::<Stats>(&Request::Stats).ok()?.written.user_bytes)
}
