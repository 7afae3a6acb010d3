//! Changing how a volume is mounted while it is: `-o remount,…`.
//!
//! The daemon does it, asked over its socket. What becomes read-only does so in the kernel first, which
//! refuses while somebody writes; then the volume is closed as by unmounting it. The other way round, the
//! volume takes changes before the kernel lets any through.

use std::io;
use std::path::Path;

use anyhow::{Error, Result, anyhow, bail};
use serde_json::Value;

use crate::control::Request;
use crate::options::Words;
use crate::volume;

/// Asks the daemon of the mount at a directory.
pub(crate) fn ask(named: &Path, options: &[String]) -> Result<()> {
    // What cannot be understood is refused here, with the words of this command.
    Words::parse(&["remount".to_owned()])?.changed_by(options)?;
    let Some(entry) = volume::mount_at(named)? else {
        let shown = named.display();
        bail!("{shown}: no volume of Polder is mounted there, so there is nothing to remount");
    };
    let mut client = volume::daemon_of(&entry)?;
    client.ask::<Value>(&Request::Remount { options: options.join(",") }).map(drop)
}

/// The kernel's refusal, in words.
pub(crate) fn explain(error: io::Error, directory: &Path) -> Error {
    let shown = directory.display();
    match error.kind() {
        io::ErrorKind::ResourceBusy => {
            anyhow!("{shown} is in use for writing; end what writes to it (see `fuser -vm {shown}`)")
        }
        io::ErrorKind::PermissionDenied => {
            anyhow!("{shown}: only root may remount; unmount it and mount it again")
        }
        _ => Error::new(error).context(shown.to_string()),
    }
}

/// What the daemon compares before it changes anything.
pub(crate) struct Mount<'a> {
    pub(crate) directory: &'a Path,
    /// How it was mounted at first.
    pub(crate) opened_read_only: bool,
}

impl Mount<'_> {
    /// The words that hold afterwards, if they can.
    pub(crate) fn words_after(&self, now: &Words, options: &str) -> Result<Words> {
        let after = now.changed_by(&[options.to_owned(), "remount".to_owned()])?;
        if after.cache_bytes != now.cache_bytes {
            bail!("cache= cannot be changed by a remount; unmount the volume and mount it again");
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
        Ok(Words { remount: false, ..after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(opened_read_only: bool, now: &str, options: &str) -> Result<Words> {
        let directory = Path::new("/mnt");
        let mount = Mount { directory, opened_read_only };
        mount.words_after(&Words::parse(&[now.to_owned()])?, options)
    }

    #[test]
    fn what_can_be_changed_is() {
        let words = after(false, "rw,cache=16M", "ro,commit=9,cache=16M").unwrap();
        assert!(words.read_only && words.commit_interval_ns == Some(9_000_000_000) && !words.remount);
        assert!(!after(false, "ro", "rw").unwrap().read_only);
        assert!(after(true, "ro", "nosuid").unwrap().no_set_id);
    }

    #[test]
    fn what_cannot_is_refused() {
        for (opened_read_only, now, options, complaint) in [
            (true, "ro", "rw", "was mounted read-only"),
            (false, "rw", "cache=32M", "cache= cannot be changed"),
            (false, "rw", "data=journal", "unknown mount option 'data=journal'"),
        ] {
            let error = after(opened_read_only, now, options).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
