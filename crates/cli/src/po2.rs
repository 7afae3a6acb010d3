//! `polder po2`: serves a device whose zone size is not a power of two as a block device whose zone size is.
//!
//! The block device exists as long as the process that serves it: a daemon like that of a mount, or this process with
//! `--foreground`. A signal or `polder po2 --end` removes the block device. The first signal fails if the device is in use.
//! The second does not.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{SigSet, Signal};
use po2::ublk::{ServedDevice, UblkDevice, UblkError};
use po2::{Po2Shape, Po2View};
use polder::device::is_stored;
use rt::thread::Stop;
use rt::{Clock, SystemClock};
use rustix::process::Pid;

use crate::client::Silent;
use crate::daemon_process::{Daemon, is_stopped};
use crate::logging::{self, Reader};
use crate::registry::PATIENCE;
use crate::starter::start_daemon;
use crate::{bytes, daemon, inherited, output, process, volume, way};

/// The longest time to wait for a process that has the block device open for a moment, and the pause between two attempts
/// to remove the device.
const BRIEF_USE_NS: u64 = 2_000_000_000;
const PAUSE: Duration = Duration::from_millis(10);

/// Serve a device whose zone size is not a power of two as a block device whose zone size is.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The device. An NVMe namespace is named by its generic device (/dev/ngXnY). With --end, the block device
    /// (/dev/ublkbN).
    device: PathBuf,
    /// Remove the block device unless it is in use, and wait until its daemon has closed the device.
    #[arg(long, conflicts_with_all = ["foreground", "log"])]
    end: bool,
    /// Serve from this process, until the block device is removed or a signal ends it.
    #[arg(long)]
    foreground: bool,
    /// Write log lines to this file. By default, a daemon writes to the system's log.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Become a daemon, and report that on standard output.
    #[arg(long, hide = true, requires = "foreground")]
    detach: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.end {
        return end(&arguments.device);
    }
    if arguments.foreground {
        inherited::leave_caller(arguments.detach)?;
    }
    way::refuse_silent_log(arguments.log.as_deref())?;
    let path = volume::resolve(&arguments.device)?;
    if is_stored(&path) {
        bail!("{}: an object store is no zoned device; name a device", path.display());
    }
    match arguments.foreground {
        true => serve(arguments, &path),
        false => start_daemon(daemon_arguments(arguments, &path)?),
    }
}

/// Removes the block device. Waits for a process that has it open for a moment, like `udev`, which probes each new device.
/// Fails if the device is in use for longer.
fn end(path: &Path) -> Result<()> {
    let clock = SystemClock::new();
    loop {
        match end_unused(path) {
            Err(error) if is_in_use(&error) && clock.monotonic_ns() < BRIEF_USE_NS => {}
            ended => return ended,
        }
        Stop::default().wait(PAUSE);
    }
}

fn is_in_use(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(UblkError::InUse(_)))
}

fn end_unused(path: &Path) -> Result<()> {
    let served = ServedDevice::find(path)?;
    let server =
        || Ok::<_, anyhow::Error>(served.server()?.and_then(|pid| Pid::from_raw(pid.try_into().ok()?)));
    // Opened before the daemon ends, because another process may get its number after that. The second query verifies that
    // the number was not reused in between.
    let pid = server()?;
    let daemon = pid.and_then(Daemon::with_number);
    let daemon = if server()? == pid { daemon } else { None };
    served.end()?;
    let Some(daemon) = daemon else { return Ok(()) };
    while !daemon.wait_for(PATIENCE)? {
        if is_stopped(daemon.pid()) {
            bail!("{}: {}", path.display(), Silent(Some(daemon.pid())));
        }
    }
    Ok(())
}

fn daemon_arguments(arguments: &Arguments, path: &Path) -> Result<Vec<OsString>> {
    let mut list: Vec<OsString> = vec!["po2".into(), "--foreground".into(), "--detach".into()];
    if let Some(log) = &arguments.log {
        let log = std::path::absolute(log).with_context(|| log.display().to_string())?;
        list.extend(["--log".into(), log.into()]);
    }
    list.extend(["--".into(), path.into()]);
    Ok(list)
}

fn serve(arguments: &Arguments, path: &Path) -> Result<()> {
    let signals = inherited::block_signals()?;
    daemon::end_on_panic();
    let log = logging::start(&match &arguments.log {
        Some(path) => Reader::File(path),
        None if arguments.detach => Reader::System,
        None => Reader::Starter,
    })?;
    inherited::warn_of_limits();
    inherited::leave_directory()?;
    // The kernel writes dirty pages through this process.
    process::stand_by_writeback();
    let view = Po2View::open(path)?;
    let shape = view.shape();
    let device = UblkDevice::start(view).with_context(|| path.display().to_string())?;
    let device = Arc::new(device);
    let shown = device.path();
    tracing::info!(device = %path.display(), view = %shown.display(), "served");
    if let Err(error) = announce(arguments, &device, signals, &found(path, &shown, &shape), log.as_deref()) {
        if let Err(also) = device.stop(true).and_then(|_| device.wait()) {
            tracing::warn!("the block device cannot be removed: {also}");
        }
        return Err(error);
    }
    let ended = device.wait();
    match &ended {
        Ok(()) => tracing::info!(device = %path.display(), view = %shown.display(), "no longer served"),
        Err(error) => {
            tracing::error!(device = %path.display(), view = %shown.display(), %error, "no longer served")
        }
    }
    Ok(ended?)
}

fn announce(
    arguments: &Arguments,
    device: &Arc<UblkDevice>,
    signals: SigSet,
    found: &str,
    log: Option<&std::fs::File>,
) -> Result<()> {
    end_on_signal(signals, Arc::clone(device))?;
    output::say(found)?;
    if arguments.detach {
        daemon::leave_starter(log)?;
    }
    Ok(())
}

/// The message about the device and the block device.
fn found(path: &Path, shown: &Path, shape: &Po2Shape) -> String {
    let limit = |most: Option<u32>| most.map_or("any number".to_owned(), |most| most.to_string());
    format!(
        "{path}: {zones} zones of {device_zone}, blocks of {block}\n\
         {shown}: the same with zones of {zone}, each with a capacity of {capacity}; {open} may be open and {active} active at once\n",
        path = path.display(),
        zones = shape.zones,
        device_zone = bytes::show(shape.device_zone_bytes),
        block = bytes::show(shape.block_size.into()),
        shown = shown.display(),
        zone = bytes::show(shape.zone_bytes),
        capacity = bytes::show(shape.capacity),
        open = limit(shape.max_open),
        active = limit(shape.max_active),
    )
}

/// Starts the thread that waits for signals. The first signal removes the block device unless it is in use. A later signal
/// removes it in any case.
fn end_on_signal(signals: SigSet, device: Arc<UblkDevice>) -> Result<()> {
    rt::thread::spawn("polder-signals", move || {
        let mut is_first = true;
        while let Ok(signal) = signals.wait() {
            tracing::info!("{signal}: ending");
            // The kernel sends SIGXCPU once a second, and it does not call for an immediate end.
            let is_hurried = !is_first && signal != Signal::SIGXCPU;
            if let Err(error) = device.stop(is_hurried) {
                tracing::warn!("{error}; a second signal does not wait for that");
            }
            is_first = false;
        }
    })?;
    Ok(())
}
