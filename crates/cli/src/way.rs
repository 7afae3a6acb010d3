//! Resolves a path without waiting for a daemon that does not answer.
//!
//! A process that looks up a name in a mount waits in the kernel for the daemon of that mount, and no signal ends the
//! process. So a path is resolved one component at a time, and so are symbolic links. Before each lookup in a mount, its
//! daemon must have answered a request. Reaching the root of a mount needs no answer of its daemon.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};
use fuse::mount::{Location, locate_unfollowed};
use polder::device::{directory_of_url, is_stored};
use rustix::io::Errno;

use crate::client::Reached;
use crate::volume::reach;

/// The largest number of symbolic links on one path, as in the kernel.
const LINKS_MAX: usize = 40;

/// Follows a path and returns it absolute and without symbolic links. It may end at the root of a mount whose daemon is
/// silent. The outer error is a silent daemon on the way, the inner one the kernel's error for the path.
pub(crate) fn to(named: &Path) -> Result<io::Result<PathBuf>> {
    sorted(Walk::along(named).map(|walk| walk.at))
}

/// The same for a caller that uses the file at the path: the daemon of its mount must not be silent either.
pub(crate) fn into(named: &Path) -> Result<io::Result<PathBuf>> {
    sorted(Walk::along(named).and_then(|mut walk| {
        walk.refuse_silent()?;
        Ok(walk.at)
    }))
}

/// Fails if the path cannot be used without waiting for a silent daemon. Other errors are reported when the path is used.
/// Of a URL, only a directory that is used as a store can be on such a path.
pub(crate) fn refuse_silent(named: &Path) -> Result<()> {
    match (is_stored(named), directory_of_url(named)) {
        (false, _) => into(named).map(drop),
        (true, Some(directory)) => into(&directory).map(drop),
        (true, None) => Ok(()),
    }
}

/// The same for the log file of a daemon.
pub(crate) fn refuse_silent_log(named: Option<&Path>) -> Result<()> {
    named.map_or(Ok(()), refuse_silent)
}

fn sorted(walked: Result<PathBuf>) -> Result<io::Result<PathBuf>> {
    match walked {
        Ok(path) => Ok(Ok(path)),
        Err(error) => error.downcast().map(Err),
    }
}

struct Walk {
    /// Absolute and free of symbolic links.
    at: PathBuf,
    /// The mount that contains this path.
    mount: u64,
    /// Mounts whose daemons need not be asked, or not again.
    passable: BTreeSet<u64>,
}

impl Walk {
    fn along(named: &Path) -> Result<Walk> {
        let mut left = parts(&std::path::absolute(named)?);
        let root = PathBuf::from("/");
        let mut walk = Walk { mount: locate_unfollowed(&root)?.mount, at: root, passable: BTreeSet::new() };
        let mut links = 0;
        while let Some(part) = left.pop() {
            if let Some(link) = walk.step(&part)? {
                links += 1;
                if links > LINKS_MAX {
                    return Err(io::Error::from(Errno::LOOP).into());
                }
                left.extend(parts(&link));
            }
        }
        Ok(walk)
    }

    /// Moves to a part of the path. A symbolic link is not followed, but its target is returned.
    fn step(&mut self, part: &OsString) -> Result<Option<PathBuf>> {
        self.refuse_silent()?;
        let mut next = self.at.join(part);
        let Location { mount, is_link, .. } = locate_unfollowed(&next)?;
        if is_link {
            return Ok(Some(std::fs::read_link(&next)?));
        }
        if part == ".." {
            next = self.at.parent().unwrap_or(&self.at).to_owned();
        }
        (self.at, self.mount) = (next, mount);
        Ok(None)
    }

    /// Fails if the daemon of the current mount is silent.
    fn refuse_silent(&mut self) -> Result<()> {
        if !self.passable.insert(self.mount) {
            return Ok(());
        }
        let table = fuse::mount::table().context("the mount table cannot be read")?;
        let entry = table.iter().find(|entry| entry.id == self.mount);
        let Some(entry) = entry.filter(|entry| entry.is_ours() || entry.is_view()) else { return Ok(()) };
        match reach(entry) {
            Ok(Reached::Silent(silent)) => Err(silent.of_mount(&entry.directory)),
            _ => Ok(()),
        }
    }
}

/// The parts of a path in reverse order. The first part of an absolute path is the root.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    parts.rev().map(|part| part.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_is_resolved_like_by_the_system() {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        fs::create_dir_all(root.join("one/two")).unwrap();
        fs::write(root.join("one/file"), "").unwrap();
        for (link, to) in [
            ("relative", "one/./two"),
            ("one/two/up", "../../one/file"),
            ("chain", "relative/up"),
            ("dangling", "one/missing"),
            ("circle", "circle"),
        ] {
            symlink(to, root.join(link)).unwrap();
        }
        symlink(root.join("one"), root.join("absolute")).unwrap();
        for name in [
            ".",
            "one/two/..",
            "relative/..",
            "chain",
            "absolute/two/up",
            "relative/../file",
            "dangling",
            "circle",
            "one/file/..",
            "one/file/more",
            "missing/..",
        ] {
            let path = root.join(name);
            let errno = |error: io::Error| error.raw_os_error();
            let (ours, systems) = (to(&path).unwrap().map_err(errno), fs::canonicalize(&path).map_err(errno));
            assert_eq!(ours, systems, "{name}");
        }
    }
}
