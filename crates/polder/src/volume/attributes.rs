//! Attributes: permissions, owners, times, extended attributes, lifetimes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use fs::{Changes, Lifetime};

use super::{Volume, raw};
use crate::call::Call;
use crate::error::Result;
use crate::metadata::{Metadata, Times};

/// # Attributes
///
/// Symbolic links at the end of paths are followed, unless the name of the method says otherwise.
impl Volume {
    /// The attributes of a file or directory.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.metadata_of(path.as_ref(), true)
    }

    /// The same, but a symbolic link at the end of the path is not followed.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.metadata_of(path.as_ref(), false)
    }

    /// Sets the permission bits, for example 0o644.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: u16) -> Result<()> {
        let changes = Changes { permissions: Some(permissions), ..Changes::default() };
        self.change(path.as_ref(), true, changes)
    }

    /// Sets the owner and the group. `None` keeps the present one.
    pub fn set_owner(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.change(path.as_ref(), true, Changes { uid, gid, ..Changes::default() })
    }

    /// The same, but a symbolic link at the end of the path is not followed.
    pub fn set_symlink_owner(
        &self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.change(path.as_ref(), false, Changes { uid, gid, ..Changes::default() })
    }

    /// Sets the times of the last access and the last change of the contents.
    pub fn set_times(&self, path: impl AsRef<Path>, times: Times) -> Result<()> {
        self.change(path.as_ref(), true, times.changes())
    }

    /// The same, but a symbolic link at the end of the path is not followed.
    pub fn set_symlink_times(&self, path: impl AsRef<Path>, times: Times) -> Result<()> {
        self.change(path.as_ref(), false, times.changes())
    }

    fn metadata_of(&self, path: &Path, follow: bool) -> Result<Metadata> {
        self.access.call(Call::Metadata { path, follow })?.attributes().map(Metadata)
    }

    fn change(&self, path: &Path, follow: bool, changes: Changes) -> Result<()> {
        self.access.call(Call::Change { path, follow, changes }).map(drop)
    }
}

/// # Extended attributes
///
/// A name has at most 255 bytes and begins with `user.`, `trusted.` or `security.`, or is that of an access control
/// list (`system.posix_acl_access`, `system.posix_acl_default`). A value has at most 64 KiB.
impl Volume {
    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`FsError::NoAttribute`](crate::FsError::NoAttribute) (`ENODATA`) if there is none with this name.
    ///
    /// ```
    /// # let place = tempfile::tempdir().unwrap();
    /// # let volume = polder::Volume::create(place.path().join("data.polder")).size(64 << 20).open()?;
    /// volume.write("/photo", b"...")?;
    /// volume.set_xattr("/photo", "user.camera", b"X100")?;
    /// assert_eq!(volume.get_xattr("/photo", "user.camera")?, b"X100");
    /// # Ok::<(), polder::Error>(())
    /// ```
    pub fn get_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        let (path, name) = (path.as_ref(), raw(name.as_ref()));
        self.access.call(Call::GetXattr { path, name })?.bytes()
    }

    /// Sets an extended attribute, whether it exists or not.
    pub fn set_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>, value: &[u8]) -> Result<()> {
        let (path, name) = (path.as_ref(), raw(name.as_ref()));
        self.access.call(Call::SetXattr { path, name, value }).map(drop)
    }

    /// The names of all extended attributes that the caller may see. Those of `trusted.` are listed for user 0 only.
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let names = self.access.call(Call::ListXattrs { path: path.as_ref() })?.names()?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`FsError::NoAttribute`](crate::FsError::NoAttribute) (`ENODATA`) if there is none with this name.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let (path, name) = (path.as_ref(), raw(name.as_ref()));
        self.access.call(Call::RemoveXattr { path, name }).map(drop)
    }
}

/// # Lifetimes
impl Volume {
    /// Sets how long the data of a file is expected to live. Data of one lifetime is stored together, which makes
    /// garbage collection cheaper. New files in a directory inherit its lifetime. It is a hint: data of a wrong
    /// lifetime is as safe as any other.
    pub fn set_lifetime(&self, path: impl AsRef<Path>, lifetime: Lifetime) -> Result<()> {
        self.access.call(Call::SetLifetime { path: path.as_ref(), lifetime }).map(drop)
    }

    /// The expected lifetime of the data of a file.
    pub fn lifetime(&self, path: impl AsRef<Path>) -> Result<Lifetime> {
        self.access.call(Call::Lifetime { path: path.as_ref() })?.lifetime()
    }
}
