//! `polder mount`: attaches a volume and starts a daemon that serves it.
//!
//! The daemon is this program again, with `--foreground` and `--detach`, in its own session (`starter`). This process returns
//! when the mount is usable, or with an error if the daemon could not mount.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use fuse::mount::unmount_lazily;
use polder::device::is_stored;
use zone::file::FileError;

use crate::client::Reached;
use crate::daemon::{self, Daemon};
use crate::misuse::Misuse;
use crate::options::{Words, cache_bytes, status_address};
use crate::starter::{PROGRAM, start_daemon};
use crate::status::StatusPage;
use crate::{inherited, remount, volume, way};

/// The default of `--cache`.
const CACHE_BYTES: u64 = 128 << 20;
/// The environment variable that limits the number of heaps of the C library.
const HEAPS_MAX: &str = "MALLOC_ARENA_MAX";
/// The limit for a daemon.
const HEAPS: &str = "2";

/// Mount a volume on a directory.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file, block device or URL.
    path: PathBuf,
    /// The mount point, an existing directory. Other members of a volume on several devices may stand before it.
    #[arg(required_unless_present = "options", value_name = "DIRECTORY")]
    rest: Vec<PathBuf>,
    /// Mount options, separated by commas: ro, rw, remount, commit=SECONDS, cache=SIZE, status=ADDRESS:PORT, strictatime,
    /// noxattr, nolearn, allow_other, default_permissions, nosuid, nodev, noexec and their opposites. For a volume on
    /// several devices: degraded, device=PATH. For a volume in an object store: takeover.
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Memory for metadata and queued writes. Queued writes get a quarter of it, at most 32M.
    #[arg(long, default_value = "128M", value_parser = cache_bytes)]
    cache: u64,
    /// Let programs of this user attach to the volume by the library. The kernel keeps no data and no names of such a
    /// mount, so it is slower.
    #[arg(long)]
    shared: bool,
    /// Serve the mount from this process, until the volume is unmounted or a signal ends it.
    #[arg(long)]
    foreground: bool,
    /// Write log lines to this file. By default, a daemon writes to the system's log.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Serve a status page and metrics over HTTP at this address, for example 127.0.0.1:9180.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = status_address)]
    status: Option<SocketAddr>,
    /// Permit a status page that other machines may be able to read.
    #[arg(long)]
    status_remote: bool,
    /// Become a daemon, and report that on standard output.
    #[arg(long, hide = true, requires = "foreground")]
    detach: bool,
}

impl Arguments {
    /// The arguments for a call by mount(8).
    pub(crate) fn plain(path: PathBuf, directory: PathBuf, options: Vec<String>) -> Arguments {
        Arguments {
            path,
            rest: vec![directory],
            options,
            cache: CACHE_BYTES,
            shared: false,
            foreground: false,
            log: None,
            status: None,
            status_remote: false,
            detach: false,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut words = Words::parse(&arguments.options)?;
    if words.remount {
        // A single name is the directory, as in `mount`.
        return remount::ask(arguments.rest.last().unwrap_or(&arguments.path), &arguments.options);
    }
    if arguments.foreground {
        inherited::leave_caller(arguments.detach)?;
        limit_heaps();
    }
    let Some((directory, devices)) = arguments.rest.split_last() else {
        return Err(Misuse::error(format!("{}: add the directory to mount it on", arguments.path.display())));
    };
    words.status = words.status.or(arguments.status);
    words.is_status_remote |= arguments.status_remote;
    if let Some(address) = words.status {
        StatusPage::check(address, words.is_status_remote).map_err(Misuse::error)?;
    }
    way::refuse_silent_log(arguments.log.as_deref())?;
    if arguments.shared && words.read_only {
        let why =
            "--shared: a volume that is mounted read-only can be opened by other programs, too; leave it out";
        return Err(Misuse::error(why.to_owned()));
    }
    refuse_options(&arguments.path, &words, devices)?;
    let has_members = words.degraded || !words.devices.is_empty() || !devices.is_empty();
    let path = if has_members { member(&arguments.path)? } else { volume::resolve(&arguments.path)? };
    words.devices =
        words.devices.iter().chain(devices).map(|device| member(device)).collect::<Result<_>>()?;
    let directory = free_mount_point(directory)?;
    // Signals still end this process during the wait.
    volume::wait_until_closed(&path)?;
    if !arguments.foreground {
        return start_daemon(daemon_arguments(arguments, &path, &words.devices, &directory)?);
    }
    let cache_bytes = words.cache_bytes.unwrap_or(arguments.cache);
    let log = arguments.log.clone();
    daemon::run(Daemon {
        path,
        directory,
        words,
        cache_bytes,
        log,
        detach: arguments.detach,
        shared: arguments.shared,
    })
}

/// The absolute path of a member. If it does not exist, the volume still does: no error advises to make one.
fn member(named: &Path) -> Result<PathBuf> {
    volume::resolve(named).map_err(|error| match error.downcast_ref() {
        Some(FileError::NotFound(path)) => {
            let shown = path.display();
            anyhow::anyhow!("{shown}: no such file; correct the path, or name another member of the volume")
        }
        _ => error,
    })
}

/// Refuses options that have no meaning for this kind of volume.
fn refuse_options(named: &Path, words: &Words, devices: &[PathBuf]) -> Result<()> {
    if let Some(url) = words.devices.iter().chain(devices).find(|device| is_stored(device)) {
        let why = format!("{}: is in an object store, and cannot be a member; leave it out", url.display());
        return Err(Misuse::error(why));
    }
    let why = match is_stored(named) {
        true if words.degraded => "degraded: a volume in an object store has no members; leave it out",
        true if !words.devices.is_empty() || !devices.is_empty() => {
            "device=: a volume in an object store has no members; leave it out"
        }
        true if words.takes_over && words.read_only => {
            "takeover: a read-only mount takes nothing over; leave it out, or mount for writing"
        }
        false if words.takes_over => {
            "takeover: only a volume in an object store can be taken over; leave it out"
        }
        _ => return Ok(()),
    };
    Err(Misuse::error(why.to_owned()))
}

/// Limits the number of heaps of the C library. Each thread would have its own heap for buffers that it needs only
/// occasionally. All heaps together would take twice the memory that is used at once. The C library reads the limit when a
/// process begins, so this process executes the program again, unless the user has set the variable.
fn limit_heaps() {
    let (Ok(program), None) = (std::env::current_exe(), std::env::var_os(HEAPS_MAX)) else { return };
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| PROGRAM.into());
    let failed = Command::new(program).arg0(name).args(arguments).env(HEAPS_MAX, HEAPS).exec();
    tracing::debug!("the number of heaps is not limited: {failed}");
}

/// The absolute path of the mount point. Detaches a mount there whose daemon has ended.
pub(crate) fn free_mount_point(named: &Path) -> Result<PathBuf> {
    let shown = named.display();
    let directory = way::to(named)?.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            anyhow::anyhow!("{shown}: no such directory; create it first (mkdir)")
        }
        _ => anyhow::Error::new(error).context(shown.to_string()),
    })?;
    if let Some(entry) = volume::attached_at(&directory)? {
        match volume::reach(&entry) {
            Ok(Reached::Ended) => {}
            Ok(Reached::Silent(silent)) => return Err(silent.of_mount(named)),
            _ => bail!("{shown}: {} is already mounted there; unmount it first", entry.source.display()),
        }
        unmount_lazily(&directory)
            .with_context(|| format!("{shown}: the dead mount there cannot be detached"))?;
    }
    if !directory.is_dir() {
        bail!("{shown} is not a directory; a volume is mounted on a directory");
    }
    Ok(directory)
}

fn daemon_arguments(
    arguments: &Arguments,
    path: &Path,
    devices: &[PathBuf],
    directory: &Path,
) -> Result<Vec<OsString>> {
    let mut list: Vec<OsString> = vec!["mount".into(), "--foreground".into(), "--detach".into()];
    list.push(format!("--cache={}", arguments.cache).into());
    if arguments.shared {
        list.push("--shared".into());
    }
    for options in &arguments.options {
        list.extend(["-o".into(), options.into()]);
    }
    if let Some(log) = &arguments.log {
        let log = std::path::absolute(log).with_context(|| log.display().to_string())?;
        list.extend(["--log".into(), log.into()]);
    }
    if let Some(status) = arguments.status {
        list.push(format!("--status={status}").into());
    }
    if arguments.status_remote {
        list.push("--status-remote".into());
    }
    list.extend(["--".into(), path.into()]);
    list.extend(devices.iter().map(OsString::from));
    list.push(directory.into());
    Ok(list)
}
