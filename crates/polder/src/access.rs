//! A volume as one caller sees it: what all types with operations on paths have in common.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use fs::{Attributes, Caller, Fs, FsError, Handle, OpenFlags};

use crate::error::{Error, Result};
use crate::shared::{Operation, Shared};
use crate::walk::{Place, Walk, unless_stale};

/// A reference to an open volume, and the caller.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) shared: Arc<Shared>,
    pub(crate) caller: Arc<Caller>,
}

impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.path().fmt(formatter)
    }
}

impl Access {
    /// Runs an operation on the whole volume.
    pub(crate) fn run<T>(&self, operation: impl FnOnce(&Fs) -> fs::Result<T>) -> Result<T> {
        Ok(operation(&*self.shared.operation()?)?)
    }

    /// Runs an operation on a path.
    pub(crate) fn run_at<T>(
        &self,
        path: &Path,
        operation: impl FnOnce(&Fs, &Caller) -> fs::Result<T>,
    ) -> Result<T> {
        let fs = self.shared.operation()?;
        let done = operation(&fs, &self.caller);
        self.shared.release_unlinked(&fs);
        done.map_err(|cause| Error::at(path, cause))
    }

    /// Runs an operation on the inode at a path. With `follow`, a symbolic link at the end is followed.
    pub(crate) fn run_on<T>(
        &self,
        path: &Path,
        follow: bool,
        mut operation: impl FnMut(&Fs, &Caller, &Attributes) -> fs::Result<T>,
    ) -> Result<T> {
        self.run_at(path, |fs, caller| {
            unless_stale(|| {
                let found = Walk::new(fs, caller).find(bytes(path), follow)?;
                operation(fs, caller, &found)
            })
        })
    }

    /// Runs an operation on a name that exists or not. `reserved` is the error for the root, `.` and `..`.
    pub(crate) fn run_in<T>(
        &self,
        path: &Path,
        reserved: FsError,
        operation: impl FnOnce(&Fs, &Caller, &Place) -> fs::Result<T>,
    ) -> Result<T> {
        self.run_at(path, |fs, caller| {
            let place = unless_stale(|| Walk::new(fs, caller).place(bytes(path), reserved.clone()))?;
            operation(fs, caller, &place)
        })
    }
}

/// An open file or directory. It keeps the volume open.
pub(crate) struct Opened {
    access: Access,
    /// Nothing only while this is dropped.
    handle: Option<Handle>,
}

impl Opened {
    pub(crate) fn new(access: &Access, handle: Handle) -> Opened {
        Opened { access: access.clone(), handle: Some(handle) }
    }

    /// Opens a directory for reading its entries.
    pub(crate) fn directory(access: &Access, path: &Path) -> Result<Opened> {
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        let handle = access.run_on(path, true, |fs, caller, found| match found.kind {
            fs::Kind::Directory => fs.open(caller, found.inode, flags),
            _ => Err(FsError::NotDirectory),
        })?;
        Ok(Opened::new(access, handle))
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.handle.as_ref().expect("it is taken by the drop only")
    }

    /// Begins an operation on the volume.
    pub(crate) fn operation(&self) -> Result<Operation<'_>> {
        self.access.shared.operation()
    }

    /// Runs an operation on the handle.
    pub(crate) fn run<T>(&self, operation: impl FnOnce(&Fs, &Handle) -> fs::Result<T>) -> Result<T> {
        Ok(operation(&*self.operation()?, self.handle())?)
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "inode {} of {:?}", self.handle().inode().0, self.access)
    }
}

impl Drop for Opened {
    /// Dropping a handle can delete its file, and must not do so while the volume is being closed.
    fn drop(&mut self) {
        let operation = self.access.shared.operation();
        drop(self.handle.take());
        drop(operation);
        self.access.shared.note_release();
    }
}

/// The bytes of a path.
pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
