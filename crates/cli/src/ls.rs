//! `polder ls`: lists a directory of an unmounted volume.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use fs::{Attributes, Kind};

use crate::name::in_line;
use crate::unmounted::{UnmountedVolume, last_name};
use crate::{bytes, output};

/// List a directory of a volume that is not mounted.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// The volume's file, block device or URL.
    volume: PathBuf,
    /// The path inside it, from its root.
    #[arg(default_value = "/")]
    path: PathBuf,
    /// Print for each entry: permissions, links, owner, group, size, modification time, name.
    #[arg(short)]
    long: bool,
    /// With -l, print sizes like 1.5 GiB.
    #[arg(short)]
    human_readable: bool,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let inside = UnmountedVolume::open(&arguments.volume)?;
    let found = inside.find(&arguments.path, !arguments.long)?;
    let mut listed = Vec::new();
    if found.kind != Kind::Directory {
        let name = last_name(&arguments.path).unwrap_or(Path::new("/").as_os_str());
        arguments.write(&inside, name.as_encoded_bytes(), &found, &mut listed)?;
        return output::say(listed);
    }
    for entry in inside.entries(found.inode)? {
        arguments.write(&inside, &entry.name, &inside.fs().attributes(entry.inode)?, &mut listed)?;
    }
    output::say(listed)
}

impl Arguments {
    fn write(
        &self,
        inside: &UnmountedVolume,
        name: &[u8],
        found: &Attributes,
        output: &mut Vec<u8>,
    ) -> Result<()> {
        if self.long {
            let size = match self.human_readable {
                true => bytes::show(found.size),
                false => found.size.to_string(),
            };
            write!(
                output,
                "{} {:>3} {:>5} {:>5} {:>12} {:>19} ",
                mode(found),
                found.links,
                found.uid,
                found.gid,
                size,
                format!("{}.{:09}", found.modified.0.div_euclid(SECOND), found.modified.0.rem_euclid(SECOND)),
            )?;
        }
        output.write_all(&shown(name))?;
        if self.long && found.kind == Kind::Symlink {
            output.write_all(b" -> ")?;
            output.write_all(&shown(&inside.fs().read_link(found.inode)?))?;
        }
        Ok(output.write_all(b"\n")?)
    }
}

/// A name for the output: unchanged for a program, without control characters for a terminal.
fn shown(name: &[u8]) -> Cow<'_, [u8]> {
    if std::io::stdout().is_terminal() { in_line(name).into_bytes().into() } else { name.into() }
}

const SECOND: i64 = 1_000_000_000;

/// The mode in the format of `ls -l`.
fn mode(found: &Attributes) -> String {
    let kind = match found.kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
    };
    let mut text = String::from(kind);
    for (shift, special, letters) in [(6, 0o4000, "sS"), (3, 0o2000, "sS"), (0, 0o1000, "tT")] {
        let bits = found.permissions >> shift;
        let (runs, marked) = (bits & 1 != 0, found.permissions & special != 0);
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push_str(match (marked, runs) {
            (true, true) => &letters[..1],
            (true, false) => &letters[1..],
            (false, true) => "x",
            (false, false) => "-",
        });
    }
    text
}
