//! A volume that another process owns, as a client uses it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use attach::{Client, DATA_MAX, MESSAGE_MAX, Refused};
use fs::{Caller, FsError};
use rt::sync::RwLock;

use super::name::of_volume;
use super::wire::{Request, VERSION, Wire, decode};
use crate::call::{Call, FileCall, Open, PairCall, Reply};
use crate::error::{Error, Result};

/// How long an owner may take to open the volume before it accepts clients.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection to the owner. Dropping it makes everything durable and closes the files of this process.
pub(crate) struct Attached {
    path: PathBuf,
    /// This process makes no changes.
    read_only: bool,
    /// Nothing once this process has closed the volume.
    client: RwLock<Option<Arc<Client>>>,
}

/// The result of an attempt to attach.
pub(crate) enum Attempt {
    Attached(Attached),
    /// No process listens.
    NoOwner,
    /// The owner has just closed the volume.
    OwnerEnded,
    Refused(Error),
}

/// Connects to the process that owns a volume.
pub(crate) fn attach(path: &Path, read_only: bool) -> Attempt {
    let refused = |why: String| Attempt::Refused(Error::NotAttached { path: path.to_owned(), why });
    // A user who can create files in this directory could pretend to be the owner.
    if crate::runtime::check(&crate::runtime::directory()).is_err() {
        return Attempt::NoOwner;
    }
    let Ok(socket) = of_volume(path) else { return Attempt::NoOwner };
    match Client::connect(&socket, PATIENCE) {
        Ok(client) if client.greeting() != VERSION.to_le_bytes() => refused(Refused::Version.to_string()),
        Ok(client) => {
            let client = RwLock::new(Some(Arc::new(client)));
            Attempt::Attached(Attached { path: path.to_owned(), read_only, client })
        }
        Err(Refused::Absent) => Attempt::NoOwner,
        Err(Refused::Ended) => Attempt::OwnerEnded,
        Err(error) => refused(error.to_string()),
    }
}

impl Attached {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn call(&self, caller: &Caller, call: Call<'_>) -> Result<Reply> {
        if let Some(path) = call.changes() {
            self.refuse_change(true).map_err(|error| error.of(path))?;
        }
        match call {
            Call::IsReadOnly if self.read_only => Ok(Reply::Flag { flag: true }),
            call => self.send(caller, &Request::Call { call }, &[], &mut []),
        }
    }

    /// Opens a file. Returns its number.
    pub(crate) fn open(&self, caller: &Caller, open: Open<'_>) -> Result<u64> {
        self.refuse_change(open.is_change()).map_err(|error| error.of(open.path()))?;
        self.send(caller, &Request::Open { open }, &[], &mut [])?.number()
    }

    /// Reads and writes of more than [`DATA_MAX`] are several calls, and appends are refused.
    pub(crate) fn call_on_file(
        &self,
        caller: &Caller,
        file: u64,
        call: FileCall,
        data: &[u8],
        into: &mut [u8],
    ) -> Result<Reply> {
        self.refuse_change(call.is_change())?;
        let once = |call, data: &[u8], into: &mut [u8]| {
            self.send(caller, &Request::OnFile { file, call }, data, into)
        };
        match call {
            FileCall::Append if data.len() > DATA_MAX => Err(FsError::TooLarge.into()),
            FileCall::Read { offset } if into.len() > DATA_MAX => {
                in_pieces(into.len(), offset, |piece, offset| {
                    once(FileCall::Read { offset }, &[], &mut into[piece])
                })
            }
            FileCall::Write { offset } if data.len() > DATA_MAX => {
                in_pieces(data.len(), offset, |piece, offset| {
                    let is_first = piece.start == 0;
                    match once(FileCall::Write { offset }, &data[piece], &mut []) {
                        Err(error) if !is_first && is_lack_of_space(&error) => {
                            Ok(Reply::Number { number: 0 })
                        }
                        written => written,
                    }
                })
            }
            call => once(call, data, into),
        }
    }

    pub(crate) fn call_on_pair(&self, caller: &Caller, from: u64, to: u64, call: PairCall) -> Result<Reply> {
        self.send(caller, &Request::OnPair { from, to, call }, &[], &mut [])
    }

    /// Closes a file.
    pub(crate) fn release(&self, file: u64) {
        // Otherwise the owner has closed it, or closes it with the connection.
        let _ = self.send(&Caller::root(), &Request::Release { file }, &[], &mut []);
    }

    /// Makes everything durable, closes the files of this process, and disconnects.
    pub(crate) fn close(&self) -> Result<()> {
        // Waits for operations in progress.
        let client = self.client.write().take().ok_or(Error::Closed)?;
        let left = exchange(&client, &Caller::root(), &Request::Leave, &[], &mut []);
        client.disconnect();
        left.map(drop)
    }

    /// The number of releases of locks of which this process has learned.
    pub(crate) fn releases(&self) -> u64 {
        self.client.read().as_ref().map_or(0, |client| u64::from(client.notices()))
    }

    /// Waits until there are others, or the connection has ended.
    pub(crate) fn wait_for_release(&self, seen: u64) {
        let client = self.client.read().clone();
        if let (Some(client), Ok(seen)) = (client, u32::try_from(seen)) {
            // The next call finds out that the connection has ended.
            let _ = client.wait_for_notice(seen);
        }
    }

    fn refuse_change(&self, is_change: bool) -> Result<()> {
        match self.read_only && is_change {
            true => Err(FsError::ReadOnly.into()),
            false => Ok(()),
        }
    }

    fn send(&self, caller: &Caller, request: &Request<'_>, data: &[u8], into: &mut [u8]) -> Result<Reply> {
        let client = self.client.read();
        exchange(client.as_ref().ok_or(Error::Closed)?, caller, request, data, into)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Err(error) = self.close()
            && !matches!(error, Error::Closed)
        {
            tracing::error!("the attached volume was not closed properly: {error}");
        }
    }
}

fn exchange(
    client: &Client,
    caller: &Caller,
    request: &Request<'_>,
    data: &[u8],
    into: &mut [u8],
) -> Result<Reply> {
    let mut message = Vec::with_capacity(256);
    caller.put(&mut message);
    request.put(&mut message);
    if message.len() > MESSAGE_MAX {
        return Err(FsError::ArgumentTooLong.into());
    }
    let mut answer = Vec::new();
    let length = into.len();
    let filled = client.call(&message, data, &mut answer, into).map_err(|_| Error::Disconnected)?;
    match decode::<Result<Reply>>(&answer) {
        Some(reply) if is_possible(&reply, data.len(), length, filled) => reply,
        _ => {
            client.disconnect();
            Err(Error::Disconnected)
        }
    }
}

/// Whether a reply fits its call. The call sent `data` bytes and has space for `into` bytes. The owner has sent `filled`
/// bytes. A broken owner must not make this process use bytes that were not sent, or slices that do not exist.
fn is_possible(reply: &Result<Reply>, data: usize, into: usize, filled: usize) -> bool {
    match reply {
        Ok(Reply::Number { number }) if into > 0 => *number == filled as u64,
        Ok(Reply::Number { number }) if data > 0 => *number <= data as u64,
        Ok(Reply::Appended { offset, length }) => {
            *length <= data as u64 && offset.checked_add(*length).is_some()
        }
        _ => filled == 0,
    }
}

/// After a part of the data was written, such an error is a short write, as it is for the owner.
fn is_lack_of_space(error: &Error) -> bool {
    matches!(error, Error::Operation(FsError::NoSpace | FsError::NoMemory))
}

/// Calls for one piece after the other until one is shorter than asked for.
fn in_pieces(
    length: usize,
    offset: u64,
    mut call: impl FnMut(std::ops::Range<usize>, u64) -> Result<Reply>,
) -> Result<Reply> {
    let mut done = 0;
    while done < length {
        let piece = done..length.min(done + DATA_MAX);
        let wanted = piece.len();
        let bytes = call(piece, offset.saturating_add(done as u64))?.number()? as usize;
        done += bytes;
        if bytes < wanted {
            break;
        }
    }
    Ok(Reply::Number { number: done as u64 })
}
