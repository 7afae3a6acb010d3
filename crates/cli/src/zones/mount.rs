//! `polder zones --mount`: the process that serves the zones of a volume as files.
//!
//! Like the daemon of a mount, it blocks the signals that end it, takes a shared lock on the volume, attaches the view,
//! reports `ready`, and answers until the view is detached and unused. Nothing is recovered, written or closed. There is no
//! control socket, because there are no requests.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use fuse::mount::{abort, unmount, unmount_lazily};
use fuse::{MountEntry, MountedView};
use nix::sys::signal::{SigSet, Signal};
use polder::device::is_stored;
use rt::{Clock, SystemClock};
use rustix::process::{getegid, geteuid};
use zone::file::OpenMode;

use super::Arguments;
use super::view::ZoneView;
use crate::logging::{self, Reader};
use crate::starter::start_daemon;
use crate::{daemon, inherited, mount, volume, way};

/// Mounts a view of the zones. Returns when the view is usable or, with `--foreground`, when it has ended.
pub(super) fn run(arguments: &Arguments, directory: &Path) -> Result<()> {
    if arguments.foreground {
        inherited::leave_caller(arguments.detach)?;
    }
    way::refuse_silent_log(arguments.log.as_deref())?;
    let path = volume::resolve(&arguments.path)?;
    if is_stored(&path) {
        bail!(
            "{}: zones in an object store cannot be mounted, because nothing locks them; `polder zones` without --mount \
             lists them",
            path.display()
        );
    }
    if path.is_dir() {
        bail!("{}: is a directory; unmount the volume, and name its file or block device", path.display());
    }
    let directory = mount::free_mount_point(directory)?;
    volume::wait_until_closed(&path)?;
    match arguments.foreground {
        true => serve(arguments, &path, &directory),
        false => start_daemon(daemon_arguments(arguments, &path, &directory)?),
    }
}

fn daemon_arguments(arguments: &Arguments, path: &Path, directory: &Path) -> Result<Vec<OsString>> {
    let mut list: Vec<OsString> = vec!["zones".into(), "--foreground".into(), "--detach".into()];
    if let Some(log) = &arguments.log {
        let log = std::path::absolute(log).with_context(|| log.display().to_string())?;
        list.extend(["--log".into(), log.into()]);
    }
    list.extend(["--mount".into(), directory.into(), "--".into(), path.into()]);
    Ok(list)
}

fn serve(arguments: &Arguments, path: &Path, directory: &Path) -> Result<()> {
    let signals = inherited::block_signals()?;
    daemon::end_on_panic();
    let log = logging::start(&match &arguments.log {
        Some(path) => Reader::File(path),
        None if arguments.detach => Reader::System,
        None => Reader::Starter,
    })?;
    inherited::warn_of_limits();
    inherited::leave_directory()?;
    let device = volume::open_for_command(path, OpenMode::ReadOnly)?;
    let fs_id = device.fs_id();
    let owner = (geteuid().as_raw(), getegid().as_raw());
    let view = ZoneView::new(device.into_device(), owner, SystemClock::new().now());
    let view = view.with_context(|| format!("{}: the zones cannot be listed", path.display()))?;
    let shown = MountedView::new(Arc::new(view), directory, path)?;
    let place = Place { directory: directory.to_owned(), entry: shown.entry().cloned() };
    tracing::info!(volume = %fs_id, "view of the zones mounted");
    if let Err(error) = announce(&place, signals, arguments.detach, log.as_deref()) {
        place.detach();
        return Err(error);
    }
    let ended = shown.serve();
    tracing::info!(volume = %fs_id, "view of the zones unmounted");
    ended.context("the connection to the kernel failed")
}

/// Starts the thread that handles signals, and reports the view to the starter.
fn announce(place: &Place, signals: SigSet, detach: bool, log: Option<&std::fs::File>) -> Result<()> {
    end_on_signal(signals, place.clone())?;
    if detach {
        daemon::leave_starter(log)?;
    }
    Ok(())
}

/// Where the view is attached.
#[derive(Clone)]
struct Place {
    directory: PathBuf,
    entry: Option<MountEntry>,
}

impl Place {
    /// Detaches the view in all places. A view in use is lazily unmounted.
    fn detach(&self) {
        let places = match &self.entry {
            Some(entry) => entry.places().unwrap_or_default(),
            None => Vec::new(),
        };
        let reachable = places.into_iter().filter(MountEntry::is_reachable).map(|place| place.directory);
        let first = self.entry.is_none().then(|| self.directory.clone());
        for directory in reachable.chain(first) {
            let detached = match unmount(&directory) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => unmount_lazily(&directory),
                done => done,
            };
            if let Err(error) = detached {
                tracing::error!("{}: cannot be detached: {error}", directory.display());
            }
        }
    }

    /// Ends the view even if it is in use. There are no writes to wait for.
    fn end_in_use(&self) {
        tracing::warn!("the view ends although it is in use");
        if self.entry.as_ref().is_none_or(|entry| abort(entry).is_err()) {
            std::process::exit(0);
        }
    }
}

/// Starts the thread that waits for signals. The first signal detaches the view. A later signal does not wait for its
/// users.
fn end_on_signal(signals: SigSet, place: Place) -> Result<()> {
    rt::thread::spawn("polder-signals", move || {
        let mut is_first = true;
        while let Ok(signal) = signals.wait() {
            tracing::info!("{signal}: unmounting");
            match (is_first, signal) {
                (true, _) => place.detach(),
                // The kernel sends it once a second, and it does not call for an immediate end.
                (false, Signal::SIGXCPU) => {}
                (false, _) => place.end_in_use(),
            }
            is_first = false;
        }
    })?;
    Ok(())
}
