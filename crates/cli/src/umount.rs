//! `polder umount`: detaches a volume and waits until it is free.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use fuse::MountEntry;
use fuse::mount::{unmount, unmount_lazily};
use rustix::event::Timespec;
use rustix::fs::FlockOperation;

use crate::control::{Client, Request};
use crate::ending::Daemon;
use crate::info::Info;
use crate::output::error_line;
use crate::progress;
use crate::sync::written;
use crate::volume::{self, Volume};

/// How long a person waits without asking why.
const PATIENCE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// Detach a volume and wait until its daemon has let go of it.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The directory that it is mounted on.
    directory: PathBuf,
    /// If it is in use, take it out of sight at once and let it end when nobody uses it any more.
    #[arg(long)]
    lazy: bool,
    /// Where else it is mounted is no concern of whoever asks.
    #[arg(skip)]
    leaves_others: bool,
}

impl Arguments {
    /// As umount(8) wants it.
    pub(crate) fn of_system(directory: PathBuf, lazy: bool) -> Arguments {
        Arguments { directory, lazy, leaves_others: true }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let named = arguments.directory.display();
    let directory = volume::resolve_directory(&arguments.directory).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            anyhow!("{named}: no such directory; `findmnt -t fuse.polder` lists what is mounted where")
        }
        _ => anyhow::Error::new(error).context(named.to_string()),
    })?;
    let Some(entry) = volume::attached_at(&directory)? else {
        bail!("{named}: no volume of Polder is mounted there");
    };
    let user = rustix::process::geteuid();
    if let Some(owner) = entry.owner.filter(|owner| !user.is_root() && *owner != user.as_raw()) {
        bail!(
            "{named}: permission denied: user {owner} has mounted it, and only that user or root unmounts it"
        );
    }
    // Whoever still uses a dead mount gets nothing but errors from it.
    if fuse::mount::is_dead(&directory) {
        unmount_lazily(&directory).with_context(|| named.to_string())?;
        return wait_until_free(&entry.source, volume::patience());
    }
    if entry.is_view() {
        return detach_view(arguments, &directory, &entry);
    }
    let daemon = daemon_at(&directory);
    let bar = progress::writing("unmounting", written(&directory));
    match unmount(&directory) {
        Ok(()) => match daemon {
            Some((daemon, mut client)) => {
                if (arguments.lazy || arguments.leaves_others) && is_attached(&mut client) {
                    return Ok(());
                }
                wait_for_end(&daemon, client, &entry)?;
                wait_until_free(&entry.source, volume::patience())
            }
            None => {
                let mut pause = volume::patience();
                let is_left = || arguments.leaves_others && is_connected(&entry.device);
                wait_until_free(&entry.source, || pause() || !is_mounted_again(&entry.source) && !is_left())
            }
        },
        Err(error) => {
            drop(bar);
            detach_in_use(arguments, &directory, error)
        }
    }
}

/// A view of zones has no daemon that could be asked. What it has is a lock for reading, which it gives back when it
/// ends; other readers may have one too, so that is not waited for without end.
fn detach_view(arguments: &Arguments, directory: &Path, entry: &MountEntry) -> Result<()> {
    match unmount(directory) {
        Ok(()) => wait_for_lock(&entry.source, FlockOperation::NonBlockingLockExclusive, volume::patience()),
        Err(error) => detach_in_use(arguments, directory, error),
    }
}

/// What could not be unmounted: said why or, when it is in use and that was wished, taken out of sight.
fn detach_in_use(arguments: &Arguments, directory: &Path, error: io::Error) -> Result<()> {
    let named = arguments.directory.display();
    if !is_busy(&error) {
        return Err(error).with_context(|| named.to_string());
    }
    if !arguments.lazy {
        bail!("{named} is in use; end what uses it (see `fuser -vm {named}`), or use --lazy")
    }
    unmount_lazily(directory).with_context(|| named.to_string())?;
    error_line!("{named}: detached; it ends when nobody uses it any more");
    Ok(())
}

/// The daemon of this mount, if it can be asked. Who only reads shares its lock with others, so that the lock does
/// not tell when he has ended.
fn daemon_at(directory: &Path) -> Option<(Daemon, Client)> {
    let Ok(Volume::Served(mut client)) = Volume::find(directory) else { return None };
    let (info, daemon) = client.introduce().ok()??;
    if info.mounted_on.as_deref() != Some(directory) {
        return None;
    }
    Some((daemon?, client))
}

/// Waits until the daemon of a mount that was detached has ended. Until every other place of the mount is gone it
/// does not, which is refused where somebody here has made that place, and said where it must be elsewhere.
fn wait_for_end(daemon: &Daemon, mut client: Client, entry: &MountEntry) -> Result<()> {
    let others = places(&entry.device);
    if !others.is_empty() && is_attached(&mut client) {
        bail!(
            "{}: detached there, but still mounted on {}; unmount that too",
            entry.directory.display(),
            others.join(", ")
        );
    }
    if !daemon.wait_for(&PATIENCE)? && is_attached(&mut client) {
        error_line!(
            "polder: {}: detached here, but processes with mounts of their own still have it mounted; waiting for \
             them (`grep -l ' {} ' /proc/[0-9]*/mountinfo` names them)",
            entry.directory.display(),
            entry.device
        );
    }
    daemon.wait()
}

/// Whether the daemon lives, and its mount somewhere.
fn is_attached(client: &mut Client) -> bool {
    client.ask::<Info>(&Request::Info).is_ok_and(|info| !info.closing)
}

/// Where a mount is attached, as far as this process sees.
fn places(device: &str) -> Vec<String> {
    let table = fuse::mount::table().unwrap_or_default().into_iter();
    table.filter(|entry| entry.device == device).map(|entry| entry.directory.display().to_string()).collect()
}

/// Waits for the daemon's lock, which it holds until its last write is done, for as long as `wait` says: when the
/// daemon has ended, and only what it had handed to the kernel can still hold the lock, not for ever, because
/// by then it may be the lock of somebody else.
fn wait_until_free(volume: &Path, wait: impl FnMut() -> bool) -> Result<()> {
    wait_for_lock(volume, FlockOperation::NonBlockingLockShared, wait)
}

fn wait_for_lock(volume: &Path, lock: FlockOperation, mut wait: impl FnMut() -> bool) -> Result<()> {
    let file = match File::open(volume) {
        // Somebody has moved the file away: then this is not the place to wait.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.with_context(|| volume.display().to_string())?,
    };
    loop {
        match rustix::fs::flock(&file, lock) {
            Err(rustix::io::Errno::WOULDBLOCK) if wait() => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            locked => return locked.with_context(|| volume.display().to_string()),
        }
    }
}

/// Whether a volume that was just unmounted is mounted again.
fn is_mounted_again(volume: &Path) -> bool {
    let table = fuse::mount::table().unwrap_or_default();
    table
        .iter()
        .any(|entry| entry.is_ours() && entry.source == volume && !fuse::mount::is_dead(&entry.directory))
}

/// Whether the kernel still has this mount somewhere, as far as it shows its connections.
fn is_connected(device: &str) -> bool {
    let minor = device.rsplit(':').next().unwrap_or(device);
    Path::new("/sys/fs/fuse/connections").join(minor).exists()
}

fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}
