//! `polder hint`: the expected lifetime of data, for its placement.

use std::path::PathBuf;

use anyhow::{Context, Error, Result, anyhow, bail};
use fs::{FsError, LIFETIME_ATTRIBUTE, Lifetime};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::{output, volume};

/// Set the expected lifetime of the data of a file, or of all new files in a directory. Without CLASS, show it.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A file or directory of a mounted volume.
    path: PathBuf,
    /// The lifetime class.
    class: Option<Class>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Class {
    /// Seconds to minutes.
    Short,
    /// Hours.
    Medium,
    /// Days to months.
    Long,
    /// Forever.
    Extreme,
    /// Not known.
    None,
}

impl Class {
    fn lifetime(self) -> Lifetime {
        match self {
            Class::Short => Lifetime::Short,
            Class::Medium => Lifetime::Medium,
            Class::Long => Lifetime::Long,
            Class::Extreme => Lifetime::Extreme,
            Class::None => Lifetime::Unknown,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let path = &arguments.path;
    let (about, _) = volume::mount_around(path)?;
    if let Some(kind) = volume::special_type(&about) {
        bail!("{}: is {kind}, which has no data in zones; name a file or a directory", path.display());
    }
    match arguments.class {
        Some(class) => {
            let value = class.lifetime().name().as_bytes();
            let set = rustix::fs::setxattr(path, LIFETIME_ATTRIBUTE, value, XattrFlags::empty());
            set.map_err(refusal).with_context(|| path.display().to_string())
        }
        None => {
            let mut value = [0; 16];
            let shown = match rustix::fs::getxattr(path, LIFETIME_ATTRIBUTE, &mut value) {
                Ok(length) => String::from_utf8_lossy(&value[..length]).into_owned(),
                Err(Errno::NODATA) => Lifetime::Unknown.name().to_owned(),
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            };
            output::say(shown + "\n")
        }
    }
}

/// The error for a hint that was refused.
fn refusal(errno: Errno) -> Error {
    match errno {
        Errno::ROFS => FsError::ReadOnly.into(),
        Errno::ACCESS | Errno::PERM => {
            anyhow!("permission denied; only a user that may write to it can set its lifetime class")
        }
        errno => errno.into(),
    }
}
