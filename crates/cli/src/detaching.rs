//! Detaches a mount without waiting for a daemon that does not answer.
//!
//! When the last place of a mount is detached, the kernel sends its dirty pages to the daemon. The process that calls
//! umount(2) waits for this in the kernel, and no signal ends it. A stopped daemon would block it, and the shell that
//! started it. So a child process calls umount(2), and this process need not wait for the child.
//!
//! A mount is identified by its number, but umount(2) takes a path and detaches the last mount there. So the path is compared
//! with the number immediately before each call.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use fuse::MountEntry;
use fuse::mount::{unmount, unmount_lazily};
use rt::thread::Stop;
use rt::{Clock, SystemClock};

use crate::client::Client;
use crate::registry::PATIENCE;
use crate::starter::PROGRAM;

const NO_TABLE: &str = "the mount table cannot be read";
const LOST: &str = "it is detached, but the last writes may not be durable";
const PAUSE: Duration = Duration::from_millis(5);
/// The exit status of the child if the mount is in use, and if the call failed for another reason.
const BUSY: i32 = 75;
const REFUSED: i32 = 1;

/// How to detach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// Unless it is in use.
    Unused,
    /// In use or not.
    Lazily,
}

/// The result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Detached {
    Done,
    InUse,
}

/// Runs in the child process: detaches the mount with this number. Prints the error of a failed call on standard output.
pub(crate) fn ask_kernel(directory: &Path, way: Way, mount: u64) -> Result<()> {
    let done = refuse_covered(directory, mount).and_then(|()| match way {
        Way::Unused => Ok(unmount(directory)?),
        Way::Lazily => Ok(unmount_lazily(directory)?),
    });
    let Err(error) = done else { return Ok(()) };
    let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::ResourceBusy;
    let status = if error.downcast_ref().is_some_and(is_busy) { BUSY } else { REFUSED };
    crate::output::say(error.to_string())?;
    std::process::exit(status);
}

/// Fails if the directory does not lead to the mount with this number, because umount(2) would detach another mount.
pub(crate) fn refuse_covered(directory: &Path, mount: u64) -> Result<()> {
    let found = match fuse::mount::locate(directory) {
        Ok(found) if found.mount == mount => return Ok(()),
        Ok(found) => Some(found.mount),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
        Err(error) => return Err(error.into()),
    };
    let table = fuse::mount::table().context(NO_TABLE)?;
    if !table.iter().any(|entry| entry.id == mount && entry.directory == directory) {
        bail!("it is not mounted there any more");
    }
    let shown = directory.display();
    match table.iter().find(|entry| Some(entry.id) == found) {
        Some(over) => {
            let (kind, over) = (&over.kind, over.directory.display());
            bail!(
                "it is mounted on {shown}, and another mount covers it ({kind} on {over}); unmount that first (`umount {over}`)"
            )
        }
        None => bail!("it is mounted on {shown}, and another mount covers it; unmount that first"),
    }
}

/// Detaches a mount. With a `client`, waits as long as the daemon is alive. Without, waits until the mount is not in the table
/// any more.
pub(crate) fn detach(entry: &MountEntry, way: Way, mut client: Option<&mut Client>) -> Result<Detached> {
    let mut process = start(entry, way)?;
    let clock = SystemClock::new();
    let mut asked_ns = 0;
    loop {
        if let Some(ended) = outcome(&mut process, entry)? {
            return Ok(ended);
        }
        // The kernel finishes a lazy unmount by itself.
        if way == Way::Lazily && !is_in_table(entry)? {
            return Ok(Detached::Done);
        }
        let now_ns = clock.monotonic_ns();
        if now_ns - asked_ns > PATIENCE.as_nanos() as u64 {
            asked_ns = now_ns;
            match (&mut client, is_in_table(entry)?) {
                (Some(client), true) => drop(client.introduce().context("it is not detached")?),
                (Some(client), false) => drop(client.introduce().context(LOST)?),
                (None, true) => bail!("the kernel does not detach it; use --lazy"),
                // No daemon can be asked. The caller waits for the volume's lock.
                (None, false) => return Ok(Detached::Done),
            }
        }
        Stop::default().wait(PAUSE);
    }
}

fn start(entry: &MountEntry, way: Way) -> Result<Child> {
    use std::os::unix::process::CommandExt;
    let program = std::env::current_exe().context("the path of this program cannot be found")?;
    let way = match way {
        Way::Unused => "unused",
        Way::Lazily => "lazily",
    };
    // Under another name the program would be another command.
    let mut process = Command::new(program);
    process.arg0(PROGRAM).args([
        "umount",
        "--ask-kernel",
        way,
        "--mount-number",
        &entry.id.to_string(),
        "--",
    ]);
    process.arg(&entry.directory);
    process.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("umount cannot be started")
}

/// The result of the child, if it has ended. The status is lost if this process ignores SIGCHLD. Then the table of mounts
/// shows the result.
fn outcome(process: &mut Child, entry: &MountEntry) -> Result<Option<Detached>> {
    let status = match process.try_wait() {
        Ok(None) => return Ok(None),
        Ok(Some(status)) => status.code(),
        Err(_) if is_in_table(entry)? => None,
        Err(_) => Some(0),
    };
    match status {
        Some(0) => Ok(Some(Detached::Done)),
        Some(BUSY) => Ok(Some(Detached::InUse)),
        _ => {
            let said = process.stdout.take().map(io::read_to_string).and_then(Result::ok);
            Err(anyhow!(
                said.filter(|said| !said.is_empty()).unwrap_or_else(|| "cannot be detached".to_owned())
            ))
        }
    }
}

/// Whether the mount is still attached there.
pub(crate) fn is_in_table(entry: &MountEntry) -> Result<bool> {
    let table = fuse::mount::table().context(NO_TABLE)?;
    Ok(table.iter().any(|other| other.id == entry.id && other.device == entry.device))
}
