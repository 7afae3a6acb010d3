//! `polder umount`: detaches a volume and waits until it is free.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use fuse::MountEntry;
use fuse::mount::{abort, unmount_by_force, unmount_lazily};
use polder::device::{is_stored, patience};
use rustix::fs::FlockOperation;

use crate::client::{Client, Reached, Silent};
use crate::control::Introduction;
use crate::daemon_process::Holder;
use crate::detaching::{self, Detached, Way, detach};
use crate::output::error_line;
use crate::registry::Registry;
use crate::sync::written;
use crate::{process, progress, tags, volume, way};

/// The time after which the command explains why it waits.
const PATIENCE: Duration = Duration::from_secs(2);

/// Unmount a volume and wait until its daemon has closed it.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The mount point, or the volume's file, block device or URL.
    directory: PathBuf,
    /// If the mount is in use, detach it now. It ends when no program uses it any more.
    #[arg(long)]
    lazy: bool,
    /// End the mount even if it is in use or its daemon does not answer. Unsynced data is lost.
    #[arg(long, conflicts_with = "lazy")]
    force: bool,
    /// Only call the kernel, for another process of this command.
    #[arg(long, hide = true, value_name = "WAY", requires = "mount_number")]
    ask_kernel: Option<Way>,
    /// The number of the mount in the mount table.
    #[arg(long, hide = true, value_name = "NUMBER")]
    mount_number: Option<u64>,
    /// Whether to ignore other places where the volume is mounted.
    #[arg(skip)]
    leaves_others: bool,
}

impl Arguments {
    /// The arguments for a call by umount(8).
    pub(crate) fn of_system(directory: PathBuf, lazy: bool, force: bool) -> Arguments {
        Arguments { directory, lazy, force, ask_kernel: None, mount_number: None, leaves_others: true }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let (Some(way), Some(mount)) = (arguments.ask_kernel, arguments.mount_number) {
        return detaching::ask_kernel(&arguments.directory, way, mount);
    }
    let named = arguments.directory.display();
    let entry = mount_named(&arguments.directory)?;
    let user = rustix::process::geteuid();
    if let Some(owner) = entry.owner.filter(|owner| !user.is_root() && *owner != user.as_raw()) {
        bail!("{named}: permission denied: user {owner} has mounted it; unmount it as that user or as root");
    }
    if entry.is_view() && !arguments.force {
        return detach_view(arguments, &entry);
    }
    // A daemon of another release cannot report its identity. Its mount can be unmounted nevertheless.
    let reached = volume::reach(&entry).unwrap_or(Reached::Unknown);
    if arguments.force {
        return end_by_force(arguments, &entry, reached);
    }
    match reached {
        Reached::Answers(client, found) => detach_served(arguments, &entry, client, &found),
        Reached::Silent(silent) if arguments.lazy => detach_silent(arguments, &entry, silent),
        Reached::Silent(silent) => Err(silent.of_mount(&arguments.directory)),
        Reached::Ended => detach_dead(arguments, &entry),
        Reached::Unknown => detach_unknown(arguments, &entry),
    }
}

/// The mount at a directory, without asking its daemon, or the mount of a volume.
fn mount_named(named: &Path) -> Result<MountEntry> {
    let shown = named.display();
    if tags::is_tag(named) || is_stored(named) {
        return mount_of_volume(named);
    }
    if let Err(error) = way::to(named)? {
        use io::ErrorKind::{NotADirectory, NotFound};
        if matches!(error.kind(), NotFound | NotADirectory) {
            bail!("{shown}: no such directory; `polder list` shows the mounts");
        }
        return Err(Error::new(error).context(shown.to_string()));
    }
    if let Some(entry) = volume::attached_at(named)? {
        return Ok(entry);
    }
    if std::fs::metadata(named).is_ok_and(|about| !about.is_dir()) {
        return mount_of_volume(named);
    }
    bail!("{shown}: no Polder volume is mounted there; `polder list` shows the mounts")
}

/// The mount of a volume that is named by its file or device.
fn mount_of_volume(named: &Path) -> Result<MountEntry> {
    let shown = named.display();
    let path = volume::resolve(named)?;
    let (mut own, unsure) = volume::mounts_of(&path)?;
    let device = own.first().map(|entry| entry.device.clone());
    let is_one = own.iter().all(|entry| Some(&entry.device) == device.as_ref());
    if unsure.is_empty() && is_one && !own.is_empty() {
        return Ok(own.swap_remove(0));
    }
    let all: Vec<String> =
        own.iter().chain(&unsure).map(|entry| entry.directory.display().to_string()).collect();
    // A store need not be asked for that.
    let is_volume = || is_stored(&path) || matches!(volume::is_volume(&path), Ok(true));
    match all.as_slice() {
        [] if is_volume() => bail!("{shown}: this volume is not mounted"),
        [] => {
            bail!(
                "{shown}: is not a Polder volume; name a mount point, or the file, device or URL of a volume"
            )
        }
        _ => bail!(
            "{shown}: has several mounts, or one whose daemon does not answer; name one of the directories: {}",
            all.join(" or ")
        ),
    }
}

/// Unmounts a mount whose daemon answers.
fn detach_served(
    arguments: &Arguments,
    entry: &MountEntry,
    mut client: Client,
    found: &Introduction,
) -> Result<()> {
    let has_report = client.request_close_report();
    if arguments.lazy {
        return detach_served_lazily(arguments, entry, client, has_report);
    }
    let named = || arguments.directory.display().to_string();
    // Opened through the daemon, because the file may have been moved since it was mounted.
    let file = client.daemon().and_then(|daemon| daemon.reopen(&found.volume));
    let bar = progress::writing("unmounting", written(&entry.directory));
    if detach(entry, Way::Unused, Some(&mut client)).with_context(named)? == Detached::InUse {
        drop(bar);
        return detach_in_use(arguments, entry);
    }
    if arguments.leaves_others && client.is_attached().with_context(named)? {
        return Ok(());
    }
    wait_for_end(&mut client, entry).with_context(named)?;
    match file {
        Some(file) => {
            wait_for_lock_of(&file, FlockOperation::NonBlockingLockShared, patience()).with_context(named)
        }
        None => wait_until_free(&entry.source, patience()),
    }?;
    close_result(&mut client, has_report).with_context(named)
}

/// Fails if the daemon, which has ended, did not close the volume properly. `has_report` says whether the daemon was asked.
fn close_result(client: &mut Client, has_report: bool) -> Result<()> {
    if !has_report {
        return Ok(());
    }
    client.close_result().map_err(|why| {
        anyhow!(
            "unmounted, but {why:#}; what was synced is stored, the last changes may be missing, and the next mount recovers \
             the volume"
        )
    })
}

/// The same without waiting for the device, which may hang. The daemon closes the volume later.
fn detach_served_lazily(
    arguments: &Arguments,
    entry: &MountEntry,
    mut client: Client,
    has_report: bool,
) -> Result<()> {
    let named = arguments.directory.display();
    if detach(entry, Way::Unused, None).with_context(|| named.to_string())? == Detached::InUse {
        return detach_in_use(arguments, entry);
    }
    if !places(entry).is_empty() {
        return Ok(());
    }
    if client.ends_within(PATIENCE)? {
        return close_result(&mut client, has_report).with_context(|| named.to_string());
    }
    let process = client.daemon().map_or(String::new(), |daemon| format!(" (process {})", daemon.pid()));
    error_line!(
        "polder: {named}: detached; its daemon{process} closes the volume when all data is written and no program uses the \
         mount"
    );
    Ok(())
}

/// Unmounts a mount whose daemon has ended. Programs that still use it get only errors.
fn detach_dead(arguments: &Arguments, entry: &MountEntry) -> Result<()> {
    detach(entry, Way::Lazily, None).with_context(|| arguments.directory.display().to_string())?;
    Registry::of_user().forget_mount(&entry.device);
    wait_until_free(&entry.source, patience())
}

/// Unmounts a mount whose daemon does not answer, without waiting for the daemon.
fn detach_silent(arguments: &Arguments, entry: &MountEntry, silent: Silent) -> Result<()> {
    let named = arguments.directory.display();
    detach(entry, Way::Lazily, None).with_context(|| named.to_string())?;
    error_line!("polder: {}", still_held(arguments, silent));
    Ok(())
}

fn still_held(arguments: &Arguments, silent: Silent) -> String {
    let named = arguments.directory.display();
    format!("{named}: detached, but {silent}; the volume stays in use until the daemon has ended")
}

/// Unmounts a mount whose daemon this user cannot ask. The daemon has ended when its lock on the volume is free. The
/// activity of the process that holds the lock shows whether the daemon is alive.
fn detach_unknown(arguments: &Arguments, entry: &MountEntry) -> Result<()> {
    let named = || arguments.directory.display().to_string();
    if detach(entry, Way::Unused, None).with_context(named)? == Detached::InUse {
        return detach_in_use(arguments, entry);
    }
    way::refuse_silent(&entry.source).with_context(named)?;
    let is_left = || arguments.leaves_others && is_connected(&entry.device);
    let (mut pause, mut holder, mut silent) = (patience(), Holder::of(&entry.source), None);
    wait_until_free(&entry.source, || {
        if pause() {
            return true;
        }
        if is_mounted_again(&entry.source) || is_left() {
            return false;
        }
        silent = holder.silent();
        silent.is_none()
    })?;
    match silent {
        Some(silent) if arguments.lazy => error_line!("polder: {}", still_held(arguments, silent)),
        Some(silent) => bail!("{}", still_held(arguments, silent)),
        None => {}
    }
    Ok(())
}

/// Unmounts a view of zones. Its process cannot be asked, but it holds a shared lock until it ends. Other readers may hold
/// the lock too, so the wait for it is limited.
fn detach_view(arguments: &Arguments, entry: &MountEntry) -> Result<()> {
    let named = || arguments.directory.display().to_string();
    match detach(entry, Way::Unused, None).with_context(named)? {
        Detached::Done => wait_for_lock(&entry.source, FlockOperation::NonBlockingLockExclusive, patience()),
        Detached::InUse => detach_in_use(arguments, entry),
    }
}

/// Handles a mount that is in use: an error, or with `--lazy` a lazy unmount.
fn detach_in_use(arguments: &Arguments, entry: &MountEntry) -> Result<()> {
    let named = arguments.directory.display();
    if !arguments.lazy {
        bail!("{named} is in use; end the programs that use it (see `fuser -vm {named}`), or use --lazy")
    }
    detach(entry, Way::Lazily, None).with_context(|| named.to_string())?;
    error_line!("polder: {named}: lazily unmounted; the mount ends when no program uses it");
    Ok(())
}

/// Aborts the kernel's connection to the daemon, so that no process waits for it any more, and detaches the mount.
fn end_by_force(arguments: &Arguments, entry: &MountEntry, mut reached: Reached) -> Result<()> {
    let named = arguments.directory.display();
    let process = match &reached {
        Reached::Answers(_, found) => Some(found.pid),
        Reached::Silent(Silent(pid)) => pid.map(|pid| pid.as_raw_pid().cast_unsigned()),
        Reached::Ended | Reached::Unknown => None,
    };
    let has_report = match &mut reached {
        Reached::Answers(client, _) => client.request_close_report(),
        _ => false,
    };
    // Checked before the connection is aborted, because the abort cannot be undone.
    let places = entry.places().context("the mount table cannot be read")?;
    places.iter().try_for_each(refuse_covered).with_context(|| named.to_string())?;
    if !matches!(reached, Reached::Ended)
        && abort(entry).or_else(|_| unmount_by_force(&entry.directory)).is_err()
    {
        let end =
            process.map_or("end its daemon".to_owned(), |pid| format!("end its daemon (`kill -9 {pid}`)"));
        bail!("{named}: only root may do that here; {end} instead, then unmount it");
    }
    for place in &places {
        let taken = refuse_covered(place).and_then(|()| Ok(unmount_lazily(&place.directory)?));
        // The daemon notices the abort too, and may have detached the mount already.
        if taken.is_err() && detaching::is_in_table(place)? {
            return taken.with_context(|| place.directory.display().to_string());
        }
    }
    error_line!("polder: {named}: ended by force; unsynced data is lost");
    let has_ended = match reached {
        // The daemon makes the data durable that it has received. If the device hangs, the daemon waits for it.
        Reached::Answers(mut client, _) => {
            let has_ended = client.ends_within(PATIENCE).unwrap_or(false);
            if has_ended && let Err(why) = close_result(&mut client, has_report) {
                error_line!("polder: {named}: {why:#}");
            }
            has_ended
        }
        Reached::Silent(_) | Reached::Unknown => false,
        Reached::Ended => true,
    };
    match process {
        Some(pid) if !has_ended => {
            error_line!(
                "polder: {named}: process {pid} still holds the volume; mount it again after that process has ended"
            )
        }
        _ => Registry::of_user().forget_mount(&entry.device),
    }
    Ok(())
}

/// Fails if another mount covers this one. The directory may lie in another FUSE mount, so the wait is limited.
fn refuse_covered(place: &MountEntry) -> Result<()> {
    let (directory, mount) = (place.directory.clone(), place.id);
    process::within(PATIENCE, move || detaching::refuse_covered(&directory, mount)).unwrap_or_else(|| {
        bail!(
            "{}: the path leads through a mount that does not answer; end that mount first",
            place.directory.display()
        )
    })
}

/// Waits until the daemon of a detached mount has ended. The daemon does not end while the volume is still mounted in
/// another place. If such a place is in this mount namespace, this is an error. If it must be in another namespace, a
/// message says so.
fn wait_for_end(client: &mut Client, entry: &MountEntry) -> Result<()> {
    let others = places(entry);
    if !others.is_empty() && client.is_attached()? {
        bail!("detached here, but still mounted on {}; unmount that too", others.join(", "));
    }
    let has_ended = client.ends_within(PATIENCE)?;
    if !has_ended && client.is_attached()? {
        error_line!(
            "polder: {}: detached here, but still mounted in other mount namespaces; waiting for their processes (`grep -l ' {} ' \
             /proc/[0-9]*/mountinfo` lists them)",
            entry.directory.display(),
            entry.device
        );
    }
    client.wait_for_end()
}

/// The directories on which a mount is attached in this mount namespace.
fn places(entry: &MountEntry) -> Vec<String> {
    let places = entry.places().unwrap_or_default();
    places.iter().map(|place| place.directory.display().to_string()).collect()
}

/// Waits for the daemon's lock as long as `wait` returns true. The daemon holds the lock until its last write is done.
/// After the daemon has ended, only requests that it had submitted to the kernel can still hold the lock. The wait must be
/// limited then, because another process may have taken the lock meanwhile.
fn wait_until_free(volume: &Path, wait: impl FnMut() -> bool) -> Result<()> {
    wait_for_lock(volume, FlockOperation::NonBlockingLockShared, wait)
}

fn wait_for_lock(volume: &Path, lock: FlockOperation, wait: impl FnMut() -> bool) -> Result<()> {
    if is_stored(volume) {
        // Nothing holds it but its process.
        return Ok(());
    }
    way::refuse_silent(volume)?;
    let file = match File::open(volume) {
        // The file was moved, so this path is not the right one to wait for.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.with_context(|| volume.display().to_string())?,
    };
    wait_for_lock_of(&file, lock, wait).with_context(|| volume.display().to_string())
}

fn wait_for_lock_of(file: &File, lock: FlockOperation, mut wait: impl FnMut() -> bool) -> Result<()> {
    loop {
        match rustix::fs::flock(file, lock) {
            Err(rustix::io::Errno::WOULDBLOCK) if wait() => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            locked => return Ok(locked?),
        }
    }
}

/// Whether a volume that was just unmounted is mounted again by a daemon that has not ended.
fn is_mounted_again(volume: &Path) -> bool {
    let table = fuse::mount::table().unwrap_or_default();
    let has_ended = |directory: PathBuf| {
        process::within(PATIENCE, move || fuse::mount::is_dead(&directory)).unwrap_or(false)
    };
    let mut again = table.into_iter().filter(|entry| entry.is_ours() && entry.source == volume);
    again.any(|entry| !has_ended(entry.directory))
}

/// Whether the kernel still lists the connection of this mount.
fn is_connected(device: &str) -> bool {
    let minor = device.rsplit(':').next().unwrap_or(device);
    Path::new("/sys/fs/fuse/connections").join(minor).exists()
}
