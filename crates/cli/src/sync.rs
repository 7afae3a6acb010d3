//! `polder sync`: makes everything durable that was written to a mounted volume.

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::control::Request;
use crate::volume::Volume;

/// Make everything durable that programs have written to a mounted volume, the kernel's cache included.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The directory that it is mounted on, or the volume's file or block device.
    directory: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    match Volume::find(&arguments.directory)? {
        Volume::Served(mut client) => client.ask::<Value>(&Request::Sync).map(drop),
        Volume::Opened(_) => {
            bail!("{}: is not mounted, so there is nothing to sync", arguments.directory.display())
        }
    }
}
