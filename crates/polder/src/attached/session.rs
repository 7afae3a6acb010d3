//! What the owner knows of one client: its open files.
//!
//! A client may send any bytes. It can reach its own open files only, and their number is bounded.

use std::collections::HashMap;
use std::sync::Arc;

use attach::{Disconnected, Exchange, MESSAGE_MAX};
use fs::{Caller, FsError, Handle};
use rt::sync::Mutex;

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
}

#[derive(Default)]
struct Files {
    open: HashMap<u64, Arc<Handle>>,
    /// The number of the next file. Numbers are not used again.
    next: u64,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>) -> Session {
        Session { shared, files: Mutex::default() }
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
        if let Request::OnFile { file, call } = request {
            return self.perform_on_file(local, file, call, exchange);
        }
        exchange.set_data_length(0);
        match request {
            Request::OnFile { .. } => unreachable!("it was performed"),
            Request::Call { call } => local.perform(call),
            Request::Open { open } => self.add(local.open(open)?),
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

    fn add(&self, handle: Handle) -> Result<Reply> {
        let mut files = self.files.lock();
        if files.open.len() >= FILES_MAX {
            drop(files);
            self.shared.release(handle);
            return Err(Error::TooManyOpen);
        }
        let number = files.next;
        files.next += 1;
        files.open.insert(number, Arc::new(handle));
        Ok(Reply::Number { number })
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
        let synced = local.perform(Call::Sync);
        self.close_all();
        synced
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
