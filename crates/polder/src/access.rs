//! A volume as one caller sees it, whether this process owns it or is attached to the owner: what all types with
//! operations have in common.

use std::fmt;
use std::sync::Arc;

use ::attach::DATA_MAX;
use fs::{Caller, Handle};

use crate::attached::Attached;
use crate::call::{Call, FileCall, Open, PairCall, Reply};
use crate::error::{Error, Result};
use crate::local::{Local, perform_on_file, perform_on_pair};
use crate::owned::Owned;

/// A reference to an open volume, and the caller.
#[derive(Clone)]
pub(crate) struct Access {
    backend: Backend,
    caller: Arc<Caller>,
}

/// Who performs the operations.
#[derive(Clone)]
enum Backend {
    /// This process.
    Owned(Arc<Owned>),
    /// The process that owns the volume.
    Attached(Arc<Attached>),
}

impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.backend {
            Backend::Owned(owned) => owned.path().fmt(formatter),
            Backend::Attached(attached) => attached.path().fmt(formatter),
        }
    }
}

impl Access {
    pub(crate) fn of_owned(owned: Owned, caller: Caller) -> Access {
        Access { backend: Backend::Owned(Arc::new(owned)), caller: Arc::new(caller) }
    }

    pub(crate) fn of_attached(attached: Attached, caller: Caller) -> Access {
        Access { backend: Backend::Attached(Arc::new(attached)), caller: Arc::new(caller) }
    }

    pub(crate) fn as_caller(&self, caller: Caller) -> Access {
        Access { backend: self.backend.clone(), caller: Arc::new(caller) }
    }

    /// Nothing if another process owns the volume.
    pub(crate) fn owned(&self) -> Option<&Arc<Owned>> {
        match &self.backend {
            Backend::Owned(owned) => Some(owned),
            Backend::Attached(_) => None,
        }
    }

    pub(crate) fn close(&self) -> Result<()> {
        match &self.backend {
            Backend::Owned(owned) => owned.close(),
            Backend::Attached(attached) => attached.close(),
        }
    }

    /// Performs an operation on the volume or on a path.
    #[inline(always)]
    pub(crate) fn call(&self, call: Call<'_>) -> Result<Reply> {
        match &self.backend {
            Backend::Owned(owned) => Local { shared: owned, caller: &self.caller }.perform(call),
            Backend::Attached(attached) => attached.call(&self.caller, call),
        }
    }

    /// Opens a file or directory.
    pub(crate) fn open(&self, open: Open<'_>) -> Result<Opened> {
        let file = match &self.backend {
            Backend::Owned(owned) => {
                let handle = Local { shared: owned, caller: &self.caller }.open(open)?;
                OpenFile::Own { volume: Arc::clone(owned), handle: Some(handle) }
            }
            Backend::Attached(attached) => {
                let number = attached.open(&self.caller, open)?;
                OpenFile::OfOwner { volume: Arc::clone(attached), number }
            }
        };
        Ok(Opened { access: self.clone(), file, appends: open.appends() })
    }

    /// Calls `request` until it gets a lock or fails otherwise. Calls it again after each release of any lock of the
    /// volume.
    pub(crate) fn wait_for_lock(&self, mut request: impl FnMut() -> Result<()>) -> Result<()> {
        loop {
            let seen = match &self.backend {
                Backend::Owned(owned) => owned.releases(),
                Backend::Attached(attached) => attached.releases(),
            };
            match request() {
                Err(Error::Operation(fs::FsError::WouldBlock)) => {}
                done => return done,
            }
            match &self.backend {
                Backend::Owned(owned) => owned.wait_for_release(seen),
                Backend::Attached(attached) => attached.wait_for_release(seen),
            }
        }
    }
}

/// An open file or directory. It keeps the volume open.
pub(crate) struct Opened {
    access: Access,
    file: OpenFile,
    appends: bool,
}

enum OpenFile {
    /// The handle is missing only while this is dropped.
    Own { volume: Arc<Owned>, handle: Option<Handle> },
    /// The owner knows the file by this number.
    OfOwner { volume: Arc<Attached>, number: u64 },
}

impl Opened {
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Whether every write goes to the end.
    pub(crate) fn appends(&self) -> bool {
        self.appends
    }

    /// The most bytes that one operation appends.
    pub(crate) fn append_max(&self) -> usize {
        match &self.file {
            OpenFile::Own { .. } => usize::MAX,
            OpenFile::OfOwner { .. } => DATA_MAX,
        }
    }

    /// Performs an operation without data.
    #[inline(always)]
    pub(crate) fn call(&self, call: FileCall) -> Result<Reply> {
        self.call_with(call, &[], &mut [])
    }

    /// Performs an operation that takes `data`, or fills `into`.
    #[inline(always)]
    pub(crate) fn call_with(&self, call: FileCall, data: &[u8], into: &mut [u8]) -> Result<Reply> {
        let caller = &self.access.caller;
        match &self.file {
            OpenFile::Own { volume, handle } => {
                perform_on_file(Local { shared: volume, caller }, present(handle), call, data, into)
            }
            OpenFile::OfOwner { volume, number } => volume.call_on_file(caller, *number, call, data, into),
        }
    }

    /// [`FileCall::Read`] without a reply, which would take as long as the read of a small file.
    pub(crate) fn read(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        match &self.file {
            OpenFile::Own { volume, handle } => {
                Ok(volume.operation()?.read(present(handle), offset, into)?)
            }
            OpenFile::OfOwner { .. } => {
                let wanted = into.len();
                let read = self.call_with(FileCall::Read { offset }, &[], into)?.number()? as usize;
                Ok(read.min(wanted))
            }
        }
    }

    /// [`FileCall::Write`] without a reply.
    pub(crate) fn write(&self, data: &[u8], offset: u64) -> Result<usize> {
        match &self.file {
            OpenFile::Own { volume, handle } => {
                Ok(volume.operation()?.write(present(handle), offset, data)?)
            }
            OpenFile::OfOwner { .. } => {
                Ok(self.call_with(FileCall::Write { offset }, data, &mut [])?.number()? as usize)
            }
        }
    }

    /// Performs an operation on this file and another one.
    pub(crate) fn call_with_other(&self, other: &Opened, call: PairCall) -> Result<Reply> {
        let caller = &self.access.caller;
        match (&self.file, &other.file) {
            (OpenFile::Own { volume, handle: from }, OpenFile::Own { volume: of_other, handle: to })
                if Arc::ptr_eq(volume, of_other) =>
            {
                perform_on_pair(Local { shared: volume, caller }, present(from), present(to), call)
            }
            (
                OpenFile::OfOwner { volume, number: from },
                OpenFile::OfOwner { volume: of_other, number: to },
            ) if Arc::ptr_eq(volume, of_other) => volume.call_on_pair(caller, *from, *to, call),
            _ => Err(Error::OtherVolume),
        }
    }
}

fn present(handle: &Option<Handle>) -> &Handle {
    handle.as_ref().expect("it is taken by the drop only")
}

impl fmt::Debug for Opened {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            OpenFile::Own { handle, .. } => {
                write!(formatter, "inode {} of {:?}", present(handle).inode().0, self.access)
            }
            OpenFile::OfOwner { number, .. } => {
                write!(formatter, "open file {number} of {:?}", self.access)
            }
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        match &mut self.file {
            OpenFile::Own { volume, handle } => {
                handle.take().into_iter().for_each(|handle| volume.release(handle));
            }
            OpenFile::OfOwner { volume, number } => volume.release(*number),
        }
    }
}
