//! Changes the options of a mounted volume: `-o remount,…`.
//!
//! The daemon performs the change on a request over its socket. To make a volume read-only, the kernel's mount becomes
//! read-only first, which fails while files are open for writing. Then the volume is closed as by an unmount. To make it
//! writable, the volume accepts changes before the kernel permits any.

use std::io;
use std::path::Path;

use anyhow::{Error, Result, anyhow, bail};
use serde_json::Value;

use crate::control::Request;
use crate::options::Words;
use crate::volume;

/// Asks the daemon of the mount at a directory.
pub(crate) fn ask(named: &Path, options: &[String]) -> Result<()> {
    // Invalid options are refused here, with the messages of this command.
    Words::parse(&["remount".to_owned()])?.changed_by(options)?;
    let Some(entry) = volume::mount_at(named)? else {
        let shown = named.display();
        bail!("{shown}: no Polder volume is mounted there; name a mount point");
    };
    let mut client = volume::daemon_of(&entry)?;
    client.ask::<Value>(&Request::Remount { options: options.join(",") }).map(drop)
}

/// The message for the kernel's error.
pub(crate) fn explain(error: io::Error, directory: &Path) -> Error {
    let shown = directory.display();
    match error.kind() {
        io::ErrorKind::ResourceBusy => {
            anyhow!(
                "{shown} is in use for writing; end the programs that write to it (see `fuser -vm {shown}`)"
            )
        }
        io::ErrorKind::PermissionDenied => {
            anyhow!("{shown}: only root may remount; unmount it and mount it again")
        }
        _ => Error::new(error).context(shown.to_string()),
    }
}

/// The facts that the daemon checks before it changes anything.
pub(crate) struct Mount<'a> {
    pub(crate) directory: &'a Path,
    /// Whether the first mount was read-only.
    pub(crate) opened_read_only: bool,
    /// Whether programs can attach to the volume.
    pub(crate) shared: bool,
}

impl Mount<'_> {
    /// The options after the remount. Fails if an option cannot be changed.
    pub(crate) fn words_after(&self, now: &Words, options: &str) -> Result<Words> {
        let after = now.changed_by(&[options.to_owned(), "remount".to_owned()])?;
        if after.cache_bytes != now.cache_bytes {
            bail!("cache= cannot be changed by a remount; unmount the volume and mount it again");
        }
        if (after.status, after.is_status_remote) != (now.status, now.is_status_remote) {
            bail!("status= cannot be changed by a remount; unmount the volume and mount it again");
        }
        if after.no_xattrs != now.no_xattrs {
            bail!("noxattr cannot be changed by a remount; unmount the volume and mount it again");
        }
        if after.allow_other != now.allow_other && !rustix::process::geteuid().is_root() {
            bail!("allow_other cannot be changed by a remount; unmount the volume and mount it again");
        }
        if self.opened_read_only && !after.read_only {
            bail!(
                "{}: it was mounted read-only; unmount it and mount it again to write to it",
                self.directory.display()
            );
        }
        // The kernel stops the writers of the mount, but not the attached programs.
        if self.shared && after.read_only {
            bail!(
                "{}: it was mounted with --shared, and attached programs could still change it; unmount it and mount \
                 it again without --shared to make it read-only",
                self.directory.display()
            );
        }
        // The members and the owner stay the same.
        let (degraded, devices) = (now.degraded, now.devices.clone());
        Ok(Words { remount: false, degraded, devices, takes_over: false, ..after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(opened_read_only: bool, now: &str, options: &str) -> Result<Words> {
        let directory = Path::new("/mnt");
        let mount = Mount { directory, opened_read_only, shared: false };
        mount.words_after(&Words::parse(&[now.to_owned()])?, options)
    }

    #[test]
    fn a_remount_changes_options() {
        let words = after(false, "rw,cache=16M", "ro,commit=9,cache=16M").unwrap();
        assert!(words.read_only && words.commit_interval_ns == Some(9_000_000_000) && !words.remount);
        assert!(!after(false, "ro", "rw").unwrap().read_only);
        assert!(after(true, "ro", "nosuid").unwrap().no_set_id);
    }

    #[test]
    fn a_shared_mount_stays_writable() {
        let mount = Mount { directory: Path::new("/mnt"), opened_read_only: false, shared: true };
        let words = Words::parse(&[]).unwrap();
        let error = mount.words_after(&words, "ro").unwrap_err().to_string();
        assert!(error.contains("mounted with --shared"), "{error}");
        assert!(mount.words_after(&words, "nosuid").unwrap().no_set_id);
    }

    #[test]
    fn impossible_changes_are_refused() {
        for (opened_read_only, now, options, expected) in [
            (true, "ro", "rw", "was mounted read-only"),
            (false, "rw", "cache=32M", "cache= cannot be changed"),
            (false, "rw", "noxattr", "noxattr cannot be changed"),
            (false, "rw,noxattr", "xattr", "noxattr cannot be changed"),
            (false, "rw", "data=journal", "unknown mount option 'data=journal'"),
        ] {
            let error = after(opened_read_only, now, options).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
