//! `polder fragments`: the fragmentation of files.

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use crate::files::{FileLayout, Files};
use crate::name::AnyPath;
use crate::unmounted::UnmountedVolume;
use crate::{bytes, output, progress};

/// Show the fragmentation of files.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Files and directories of a mounted volume; or a volume that is not mounted, and paths inside it.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Write the result as JSON.
    #[arg(long)]
    json: bool,
}

/// A file and its layout.
#[derive(Serialize)]
struct Shown {
    path: AnyPath,
    #[serde(flatten)]
    layout: FileLayout,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut files = Files::find(&arguments.paths, UnmountedVolume::open)?;
    let mut shown = Vec::new();
    let bar = progress::parts(files.files.len() as u64, "files");
    for file in files.files.clone() {
        bar.inc(1);
        let layout = files.layout(&file)?;
        shown.extend(layout.map(|layout| Shown { path: AnyPath(file.path), layout }));
    }
    bar.finish_and_clear();
    shown.sort_by(|one, other| one.path.cmp(&other.path));
    if arguments.json {
        return output::say(serde_json::to_string_pretty(&shown)? + "\n");
    }
    output::say(shown.iter().map(Shown::line).collect::<String>())
}

impl Shown {
    fn line(&self) -> String {
        format!("{}: {}\n", self.path, describe(&self.layout))
    }
}

/// The number of fragments, and their average size.
pub(crate) fn describe(layout: &FileLayout) -> String {
    let FileLayout { fragments, zones, .. } = layout;
    match fragments {
        0 => "no blocks in zones".to_owned(),
        1 => format!("1 fragment of {}", bytes::show(layout.bytes())),
        _ => {
            let average = bytes::show(layout.bytes() / fragments);
            let zones = if *zones == 1 { "1 zone".to_owned() } else { format!("{zones} zones") };
            format!("{fragments} fragments of {average} on average, in {zones}")
        }
    }
}
