//! What the owner knows of one client: its open files.
//!
//! A client may send any bytes. It can reach its own open files only, and their number is bounded.

use std::collections::HashMap;
use std::sync::Arc;

use attach::{Disconnected, Exchange, MESSAGE_MAX};
use fs::{Caller, FsError, Handle};
use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, Ordering};

use super::FILES_MAX;
use super::wire::{Request, Wire, decode};
use crate::call::{Call, FileCall, Reply};
use crate::error::{Error, Result};
use crate::local::{Local, perform_on_file, perform_on_pair};
use crate::shared::Shared;

/// A client's session. Dropping it closes the files.
pub(super) struct Session {
    shared: Arc<Shared>,
    files: Mutex<Files>,
    /// The client has requested a change.
    has_changed: AtomicBool,
}

#[derive(Default)]
struct Files {
    open: HashMap<u64, Arc<Handle>>,
    /// Files that are being opened.
    opening: usize,
    /// The client has ended: it can open no files.
    is_ended: bool,
    /// The number of the next file. Numbers are not used again.
    next: u64,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>) -> Session {
        Session { shared, files: Mutex::default(), has_changed: AtomicBool::new(false) }
    }

    /// Performs the operation of a message, and puts the answer in its place.
    ///
    /// # Errors
    /// The message is none. The client is broken.
    pub(super) fn answer(&self, exchange: &mut Exchange) -> std::result::Result<(), Disconnected> {
        let message = std::mem::take(&mut exchange.message);
        let (caller, request) = decode::<(Caller, Request<'_>)>(&message).ok_or_else(|| {
            tracing::warn!("an attached process has sent something that is no message, and is disconnected");
            Disconnected
        })?;
        let performed = self.perform(&caller, request, exchange);
        exchange.message = message;
        exchange.message.clear();
        performed.put(&mut exchange.message);
        if exchange.message.len() > MESSAGE_MAX {
            // The error repeats a path that is as long as a message.
            exchange.message.clear();
            Result::<Reply>::Err(FsError::NameTooLong.into()).put(&mut exchange.message);
        }
        Ok(())
    }

    fn perform(&self, caller: &Caller, request: Request<'_>, exchange: &mut Exchange) -> Result<Reply> {
        let local = Local { shared: &self.shared, caller };
        if request.can_change() {
            self.has_changed.store(true, Ordering::SeqCst);
        }
        if let Request::OnFile { file, call } = request {
            return self.perform_on_file(local, file, call, exchange);
        }
        exchange.set_data_length(0);
        match request {
            Request::OnFile { .. } => unreachable!("it was performed"),
            Request::Call { call } => local.perform(call),
            Request::Open { open } => {
                // Opening can create a file or empty it. So an open that is refused must not begin.
                let space = self.reserve()?;
                space.fill(local.open(open)?)
            }
            Request::OnPair { from, to, call } => {
                let (from, to) = (self.file(from)?, self.file(to)?);
                perform_on_pair(local, from.handle(), to.handle(), call)
            }
            Request::Release { file } => self.close(file),
            Request::Leave => self.leave(local),
        }
    }

    fn perform_on_file(
        &self,
        local: Local<'_>,
        file: u64,
        call: FileCall,
        exchange: &mut Exchange,
    ) -> Result<Reply> {
        let file = self.file(file).inspect_err(|_| exchange.set_data_length(0))?;
        if let FileCall::Read { .. } = call {
            let wanted = exchange.wanted();
            let read = perform_on_file(local, file.handle(), call, &[], exchange.answer_data(wanted));
            let length = match &read {
                Ok(Reply::Number { number }) => *number as usize,
                _ => 0,
            };
            exchange.set_data_length(length);
            return read;
        }
        let performed = perform_on_file(local, file.handle(), call, exchange.data(), &mut []);
        exchange.set_data_length(0);
        performed
    }

    /// Reserves the space of an open file.
    fn reserve(&self) -> Result<Space<'_>> {
        let mut files = self.files.lock();
        if files.is_ended {
            return Err(Error::Disconnected);
        }
        if files.open.len() + files.opening >= FILES_MAX {
            return Err(Error::TooManyOpen);
        }
        files.opening += 1;
        Ok(Space(self))
    }

    fn file(&self, number: u64) -> Result<Held<'_>> {
        let handle = self.files.lock().open.get(&number).cloned();
        let handle = handle.ok_or(Error::Operation(FsError::BadHandle))?;
        Ok(Held { session: self, handle: Some(handle) })
    }

    fn close(&self, number: u64) -> Result<Reply> {
        let closed = self.files.lock().open.remove(&number);
        closed.into_iter().for_each(|handle| self.release(handle));
        Ok(Reply::Done)
    }

    fn leave(&self, local: Local<'_>) -> Result<Reply> {
        // A client that has only read must not cost the others a sync.
        let synced = match self.has_changed.load(Ordering::SeqCst) {
            true => local.perform(Call::Sync),
            false => Ok(Reply::Done),
        };
        self.close_all();
        synced
    }

    /// The client has ended: closes its files, although an operation may still be in progress.
    pub(super) fn end(&self) {
        self.files.lock().is_ended = true;
        self.close_all();
    }

    fn close_all(&self) {
        let open = std::mem::take(&mut self.files.lock().open);
        open.into_values().for_each(|handle| self.release(handle));
    }

    /// The last reference closes the file.
    fn release(&self, handle: Arc<Handle>) {
        Arc::into_inner(handle).into_iter().for_each(|handle| self.shared.release(handle));
    }
}

/// The space of a file that is being opened.
struct Space<'a>(&'a Session);

impl Space<'_> {
    /// Adds the open file. Returns its number.
    fn fill(self, handle: Handle) -> Result<Reply> {
        let mut files = self.0.files.lock();
        if files.is_ended {
            drop(files);
            self.0.shared.release(handle);
            return Err(Error::Disconnected);
        }
        let number = files.next;
        files.next += 1;
        files.open.insert(number, Arc::new(handle));
        Ok(Reply::Number { number })
    }
}

impl Drop for Space<'_> {
    fn drop(&mut self) {
        self.0.files.lock().opening -= 1;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close_all();
    }
}

/// A file during an operation. Another thread of the client may close it meanwhile.
struct Held<'a> {
    session: &'a Session,
    /// Nothing only while this is dropped.
    handle: Option<Arc<Handle>>,
}

impl Held<'_> {
    fn handle(&self) -> &Handle {
        self.handle.as_ref().expect("it is taken by the drop only")
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.handle.take().into_iter().for_each(|handle| self.session.release(handle));
    }
}

#[cfg(test)]
mod tests {
    use fs::{LockMode, OpenFlags};

    use super::*;
    use crate::Volume;
    use crate::call::{Creation, Open, OpenHow};

    fn open(session: &Session, path: &str) -> Result<u64> {
        let how = OpenHow {
            flags: OpenFlags { read: true, write: true, ..OpenFlags::default() },
            creation: Creation::IfMissing,
            no_follow: false,
            permissions: 0o644,
        };
        let open = Open::File { path: path.as_ref(), how };
        session.perform(&Caller::root(), Request::Open { open }, &mut Exchange::default())?.number()
    }

    fn lock(session: &Session, file: u64) -> Result<Reply> {
        let call = FileCall::Lock { mode: LockMode::Exclusive, waits: false };
        session.perform(&Caller::root(), Request::OnFile { file, call }, &mut Exchange::default())
    }

    /// An operation of a client that was killed can take long. The client's locks must not last as long.
    #[test]
    fn the_end_of_a_client_closes_its_files_at_once() {
        let place = tempfile::tempdir().unwrap();
        let volume = Volume::create(place.path().join("volume")).size(64 << 20).open().unwrap();
        let shared = volume.access.owned().unwrap().shared();
        let (ended, other) = (Session::new(Arc::clone(&shared)), Session::new(shared));
        let (busy, locked) = (open(&ended, "/busy").unwrap(), open(&ended, "/locked").unwrap());
        lock(&ended, locked).unwrap();
        let operation = ended.file(busy).unwrap();
        let wanted = open(&other, "/locked").unwrap();
        assert!(lock(&other, wanted).is_err());
        // A file that is being opened meanwhile is closed too.
        let space = ended.reserve().unwrap();
        let local = Local { shared: &ended.shared, caller: &Caller::root() };
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        let how = OpenHow { flags, creation: Creation::Never, no_follow: false, permissions: 0 };
        let late = local.open(Open::File { path: "/locked".as_ref(), how }).unwrap();
        ended.end();
        lock(&other, wanted).unwrap();
        assert!(matches!(space.fill(late), Err(Error::Disconnected)));
        assert!(matches!(open(&ended, "/new"), Err(Error::Disconnected)));
        assert!(!volume.exists("/new").unwrap());
        drop(operation);
        let files = ended.files.lock();
        assert_eq!((files.open.len(), files.opening), (0, 0));
    }
}
