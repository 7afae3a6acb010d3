//! The directory of the sockets by which processes find the owner of a volume.
//!
//! Only its user can create names in it: another user could answer in the owner's place.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The environment variable that overrides the directory.
pub const VARIABLE: &str = "POLDER_RUN_DIR";

/// The directory of the user that this process runs as. It may not exist.
pub fn directory() -> PathBuf {
    let chosen = chosen();
    std::path::absolute(&chosen).unwrap_or(chosen)
}

fn chosen() -> PathBuf {
    if let Some(directory) = std::env::var_os(VARIABLE) {
        return directory.into();
    }
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return "/run/polder".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(runtime) => Path::new(&runtime).join("polder"),
        None => std::env::temp_dir().join(format!("polder-{}", uid.as_raw())),
    }
}

/// Creates the directory. If it exists, verifies that it belongs to this user: in a shared place, another user may have
/// created it.
///
/// # Errors
/// The text names the directory.
pub fn make(directory: &Path) -> io::Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| named(directory, &error))?;
    check(directory)
}

/// Fails if another user can create names in the directory. Does not follow a symbolic link, because the user that
/// created the link chose its target.
///
/// # Errors
/// The text names the directory.
pub fn check(directory: &Path) -> io::Result<()> {
    const OTHERS_WRITE: u32 = 0o022;
    let shown = directory.display();
    let about = std::fs::symlink_metadata(directory).map_err(|error| named(directory, &error))?;
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if about.uid() != rustix::process::geteuid().as_raw() {
        return refuse(format!("{shown} belongs to another user; set {VARIABLE} to a directory of your own"));
    }
    if about.is_dir() && about.mode() & OTHERS_WRITE != 0 {
        return refuse(format!(
            "{shown}: other users may write there; remove that permission (`chmod go-w {shown}`)"
        ));
    }
    Ok(())
}

fn named(directory: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
}
