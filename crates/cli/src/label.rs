//! `polder label`: the label of a volume.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::control::Request;
use crate::info::Info;
use crate::output::line;
use crate::volume::Volume;

/// Change the label of a volume, mounted or not. Without LABEL, show it.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file, block device or URL, or the directory that it is mounted on.
    path: PathBuf,
    /// The new label, of at most 64 bytes. An empty one removes it.
    #[arg(value_parser = crate::mkfs::label)]
    label: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let path = &arguments.path;
    let Some(label) = &arguments.label else {
        return line!("{}", Info::about(path)?.label);
    };
    match Volume::find_to_change(path)? {
        Volume::Served(mut client) => {
            client.ask::<Value>(&Request::SetLabel { label: label.clone() }).map(drop)
        }
        Volume::Opened(opened) => {
            let changed = opened.fs.set_label(label).map_err(anyhow::Error::from);
            opened.close().and(changed)
        }
    }
    .with_context(|| path.display().to_string())
}
