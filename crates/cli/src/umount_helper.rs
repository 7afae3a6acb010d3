//! `umount.polder` and `umount.fuse.polder`: what `umount` and systemd call.
//!
//! Without them `umount` returns when the kernel has let go of the mount, and the daemon still has to make durable what
//! came last and close the volume: who pulls the disk out then, or cuts its power, loses that. So they wait for the
//! daemon, as `polder umount` does. Unlike that they leave what is mounted in other places too alone, without an error
//! and without waiting: `umount` takes away one place.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;

use crate::mount_helper::answer;
use crate::output::error_line;
use crate::{remount, umount};

/// Unmount a volume of Polder; called by umount(8).
#[derive(Parser)]
#[command(name = "umount.polder", version)]
struct Arguments {
    /// The directory that it is mounted on.
    directory: PathBuf,
    /// If it is in use, detach it now, and close the volume when no program uses it any more.
    #[arg(short)]
    lazy: bool,
    /// End it, whoever uses it, without waiting: what has not reached the volume is lost.
    #[arg(short)]
    force: bool,
    /// If it is in use, make it read-only.
    #[arg(short)]
    read_only: bool,
    /// Say more; there is nothing more to say.
    #[arg(short)]
    verbose: bool,
    /// Write nothing to /etc/mtab, as always.
    #[arg(short)]
    no_table: bool,
    /// The type of file system, as umount(8) has found it.
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,
    /// Another mount namespace, in which nothing can be unmounted from here.
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<PathBuf>,
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
                // Why it could not be unmounted is what counts, if this cannot be done either.
                remount::ask(&self.directory, &["ro".to_owned()]).map_err(|_| error)?;
                error_line!("polder: {named} is in use; it is read-only now");
                Ok(())
            }
            done => done,
        }
    }
}
