//! `umount.polder` and `umount.fuse.polder`: the helpers that `umount` and systemd call.
//!
//! Without them, `umount` would return when the kernel has detached the mount, while the daemon still makes the last writes
//! durable and closes the volume. A user that removes the disk then, or switches it off, would lose these writes. So the
//! helpers wait for the daemon, like `polder umount`. Unlike `polder umount`, they do not fail and do not wait if the volume
//! is still mounted in other places, because `umount` detaches only one place.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{CommandFactory, Parser};

use crate::mount_helper::answer;
use crate::output::error_line;
use crate::{remount, umount};

/// Unmount a volume of Polder; called by umount(8).
#[derive(Parser)]
#[command(name = "umount.polder", version)]
struct Arguments {
    /// The mount point.
    directory: PathBuf,
    /// If the mount is in use, detach it now. It ends when no program uses it any more.
    #[arg(short)]
    lazy: bool,
    /// End the mount even if it is in use or its daemon does not answer. Unsynced data is lost.
    #[arg(short)]
    force: bool,
    /// If the mount is in use, make it read-only.
    #[arg(short)]
    read_only: bool,
    /// Accepted without effect.
    #[arg(short)]
    verbose: bool,
    /// Accepted without effect: /etc/mtab is never written.
    #[arg(short)]
    no_table: bool,
    /// The file system type, passed by umount(8).
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
    answer(Arguments::unmount)
}

impl Arguments {
    fn unmount(self) -> Result<()> {
        let named = self.directory.display();
        if let Some(namespace) = &self.namespace {
            let shown = namespace.display();
            bail!("{shown}: enter that namespace first (nsenter --mount={shown} umount …)");
        }
        let asked = umount::Arguments::of_system(self.directory.clone(), self.lazy, self.force);
        match umount::run(&asked) {
            Err(error) if self.read_only => {
                // If this fails too, the error of the unmount is reported.
                remount::ask(&self.directory, &["ro".to_owned()]).map_err(|_| error)?;
                error_line!("polder: {named} is in use; it is read-only now");
                Ok(())
            }
            done => done,
        }
    }
}
