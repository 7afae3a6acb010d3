//! `polder install`: creates the names under which the system finds Polder.
//!
//! `mount -t polder` runs `mount.polder`, `umount` runs `umount.polder`, and so on. All of them are links to one copy of this
//! program, which selects its function by the name under which it is called. It is a copy and not a link to a build
//! directory, because root runs it, and another user may be able to change a build directory.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::output::note;

/// The program, and the names that are links to it.
const PROGRAM: &str = "polder";
pub(crate) const NAMES: [&str; 6] = [
    "mkfs.polder",
    "fsck.polder",
    "mount.polder",
    "mount.fuse.polder",
    "umount.polder",
    "umount.fuse.polder",
];

/// Install `polder`, and links like `mkfs.polder`, `fsck.polder`, `mount.polder` and `umount.polder`, where mount,
/// umount, fsck and systemd look for them.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The target directory.
    #[arg(long, value_name = "DIR", default_value = "/sbin")]
    prefix: PathBuf,
    /// Remove them.
    #[arg(long)]
    remove: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let directory = &arguments.prefix;
    if !directory.is_dir() {
        bail!("{}: no such directory; create it first (mkdir)", directory.display());
    }
    if arguments.remove {
        return remove(directory);
    }
    let running = std::env::current_exe().context("the path of this program cannot be found")?;
    let program = directory.join(PROGRAM);
    // Nothing is changed before all names are known to be free or links of Polder.
    for name in NAMES.map(|name| directory.join(name)) {
        refuse_foreign(&name, is_link_of_ours(&name))?;
    }
    refuse_foreign(&program, is_program_of_ours(directory, &running))?;
    // The links come first: they identify the program as Polder's if the installation is interrupted.
    for name in NAMES {
        link(&directory.join(name))?;
    }
    copy_program(&running, &program)?;
    note!("{}, with {}", program.display(), NAMES.join(", "))
}

/// Replaces the program in one step, so that a mount at this moment finds the old one or the new one.
fn copy_program(running: &Path, program: &Path) -> Result<()> {
    if is_same(running, program) {
        return Ok(());
    }
    let fresh = program.with_file_name(format!(".{PROGRAM}.{}", std::process::id()));
    let copied = fs::copy(running, &fresh)
        .and_then(|_| fs::set_permissions(&fresh, Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&fresh, program));
    if copied.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    copied.with_context(|| format!("{}: cannot be installed", program.display()))
}

fn link(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => symlink(PROGRAM, path),
    }
    .with_context(|| format!("{}: cannot be installed", path.display()))
}

fn remove(directory: &Path) -> Result<()> {
    let running = std::env::current_exe().context("the path of this program cannot be found")?;
    let program = directory.join(PROGRAM);
    // The program is removed first: as long as a link exists, the program is identified as Polder's.
    if is_program_of_ours(directory, &running) {
        remove_file(&program)?;
    }
    for name in NAMES.map(|name| directory.join(name)).iter().filter(|name| is_link_of_ours(name)) {
        remove_file(name)?;
    }
    Ok(())
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

fn refuse_foreign(path: &Path, is_ours: bool) -> Result<()> {
    if fs::symlink_metadata(path).is_ok() && !is_ours {
        bail!("{}: another file is there; move it away first", path.display());
    }
    Ok(())
}

/// Whether the file is a link that `install` creates.
fn is_link_of_ours(path: &Path) -> bool {
    fs::read_link(path).is_ok_and(|target| target.file_name() == Some(OsStr::new(PROGRAM)))
}

/// Whether the file with the program's name is this program, or one that `install` has created. In the latter case there are
/// links to it.
fn is_program_of_ours(directory: &Path, running: &Path) -> bool {
    let leads_there = |name| {
        let target = fs::read_link(directory.join(name)).map(|target| directory.join(target));
        target.is_ok_and(|target| target == directory.join(PROGRAM))
    };
    is_same(running, &directory.join(PROGRAM)) || NAMES.into_iter().any(leads_there)
}

fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_installed_twice_and_removed() {
        let place = tempfile::tempdir().unwrap();
        let mut arguments = Arguments { prefix: place.path().to_owned(), remove: false };
        for _ in 0..2 {
            run(&arguments).unwrap();
            for name in NAMES {
                assert_eq!(fs::read_link(place.path().join(name)).unwrap(), Path::new(PROGRAM));
            }
        }
        assert_eq!(fs::metadata(place.path().join(PROGRAM)).unwrap().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1 + NAMES.len());
        arguments.remove = true;
        run(&arguments).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn foreign_files_are_not_replaced() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("fsck.polder"), "a script").unwrap();
        let arguments = Arguments { prefix: place.path().to_owned(), remove: false };
        assert!(run(&arguments).unwrap_err().to_string().contains("another file is there"));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        run(&Arguments { remove: true, ..arguments }).unwrap();
        assert_eq!(fs::read(place.path().join("fsck.polder")).unwrap(), b"a script");
    }

    /// A wrapper script or another program with this name was overwritten, and `--remove` deleted it.
    #[test]
    fn a_foreign_program_is_not_replaced() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(PROGRAM);
        fs::write(&path, "a script").unwrap();
        let arguments = Arguments { prefix: place.path().to_owned(), remove: false };
        assert!(run(&arguments).unwrap_err().to_string().contains("another file is there"));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        // Links to a program in another directory do not identify it.
        symlink("/elsewhere/polder", place.path().join(NAMES[0])).unwrap();
        assert!(run(&arguments).is_err());
        run(&Arguments { remove: true, prefix: place.path().to_owned() }).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"a script");
        // An installed earlier release is replaced.
        symlink(PROGRAM, place.path().join(NAMES[1])).unwrap();
        run(&arguments).unwrap();
        assert!(fs::metadata(&path).unwrap().len() > 1000);
        run(&Arguments { remove: true, ..arguments }).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
