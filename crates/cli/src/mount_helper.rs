//! `mount.polder` and `mount.fuse.polder`: the helpers that `mount`, and so `/etc/fstab` and systemd, call.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{CommandFactory, Parser};

use crate::misuse::exit_status;
use crate::options::{Words, without_unknown};
use crate::{complain, explain, mount};

/// The statuses of `mount` and `umount` for a failed operation and for an invalid command line.
const FAILED: u8 = 32;
const MISUSED: u8 = 1;

/// Mount a volume of Polder; called by mount(8).
#[derive(Parser)]
#[command(name = "mount.polder", version)]
struct Arguments {
    /// The volume's file, block device or URL.
    path: PathBuf,
    /// The mount point.
    directory: PathBuf,
    /// Mount options, as for `polder mount`.
    #[arg(short)]
    options: Vec<String>,
    /// Ignore unknown options.
    #[arg(short)]
    sloppy: bool,
    /// Do everything except mounting.
    #[arg(short)]
    fake: bool,
    /// Read-only, as `-o ro`.
    #[arg(short)]
    read_only: bool,
    /// Read-write, as `-o rw`.
    #[arg(short = 'w')]
    writable: bool,
    /// Accepted without effect.
    #[arg(short)]
    verbose: bool,
    /// Accepted without effect: /etc/mtab is never written.
    #[arg(short)]
    no_table: bool,
    /// The file system type, passed by mount(8).
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,
    /// Another mount namespace. It is refused: enter the namespace first.
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<PathBuf>,
}

/// The command line, for its manual page.
pub(crate) fn command() -> clap::Command {
    Arguments::command()
}

pub(crate) fn main() -> ExitCode {
    answer(Arguments::mount)
}

/// Performs the request of mount(8) or umount(8), and returns the exit status that these programs expect.
pub(crate) fn answer<A: Parser>(run: impl FnOnce(A) -> Result<()>) -> ExitCode {
    let arguments = match A::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            explain::<A>(&error);
            return ExitCode::from(MISUSED);
        }
    };
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            exit_status(&error, MISUSED, FAILED)
        }
    }
}

impl Arguments {
    fn mount(self) -> Result<()> {
        if let Some(namespace) = &self.namespace {
            let shown = namespace.display();
            bail!("{shown}: enter that namespace first (nsenter --mount={shown} mount …)");
        }
        let mut options = if self.sloppy { without_unknown(&self.options) } else { self.options };
        options.extend(self.read_only.then(|| "ro".to_owned()));
        options.extend(self.writable.then(|| "rw".to_owned()));
        if self.fake {
            return Words::parse(&options).map(drop);
        }
        mount::run(&mount::Arguments::plain(self.path, self.directory, options))
    }
}
