//! Operations on open files.

use fs::{Caller, Fs, Handle, LockMode, LockOwner, LockRange, OnConflict, RecordLock};

use super::{Local, attributes, done};
use crate::call::{ENTRIES_MAX, FileCall, PairCall, Reply};
use crate::error::Result;

/// Performs an operation on an open file. Reading fills `into`, and writing takes `data`.
///
/// Each caller has one kind of operation, and the compiler leaves out the others. As a call, this takes as long as the
/// shortest operations.
#[inline(always)]
pub(crate) fn perform_on_file(
    local: Local<'_>,
    handle: &Handle,
    call: FileCall,
    data: &[u8],
    into: &mut [u8],
) -> Result<Reply> {
    let Local { shared, caller } = local;
    let waits = matches!(call, FileCall::Lock { waits: true, .. } | FileCall::LockRange { waits: true, .. });
    if waits {
        shared.expect_waits();
    }
    let performed = perform(&*shared.operation()?, caller, handle, call, data, into);
    // An exclusive lock that becomes a shared one is a release too. An attempt before a wait releases nothing, and must
    // not wake the other threads that wait.
    if call.is_about_locks() && !(waits && performed.is_err()) {
        shared.note_release();
    }
    Ok(performed?)
}

#[inline(always)]
fn perform(
    fs: &Fs,
    caller: &Caller,
    handle: &Handle,
    call: FileCall,
    data: &[u8],
    into: &mut [u8],
) -> fs::Result<Reply> {
    let number = |number: u64| Reply::Number { number };
    match call {
        FileCall::Read { offset } => fs.read(handle, offset, into).map(|read| number(read as u64)),
        FileCall::Write { offset } => fs.write(handle, offset, data).map(|written| number(written as u64)),
        FileCall::Append => {
            let (offset, length) = fs.append(handle, data)?;
            Ok(Reply::Appended { offset, length: length as u64 })
        }
        FileCall::Change { changes } => fs.set_attributes_through(caller, handle, &changes).map(done),
        FileCall::Allocate { mode, offset, length } => fs.allocate(handle, mode, offset, length).map(done),
        FileCall::SeekData { offset } => fs.seek_data(handle, offset).map(number),
        FileCall::SeekHole { offset } => fs.seek_hole(handle, offset).map(number),
        FileCall::Sync { data_only } => fs.fsync(handle, data_only).map(done),
        FileCall::Metadata => fs.attributes(handle.inode()).map(attributes),
        FileCall::SetLifetime { lifetime } => {
            handle.set_lifetime(lifetime);
            Ok(Reply::Done)
        }
        FileCall::Lock { mode, .. } => fs.lock_file(handle, mode, OnConflict::Refuse).map(done),
        FileCall::Unlock => {
            fs.unlock_file(handle);
            Ok(Reply::Done)
        }
        FileCall::LockRange { range, mode, .. } => lock_range(fs, handle, range, mode).map(done),
        FileCall::UnlockRange { range } => fs.unlock_range(handle, LockOwner::Handle, range).map(done),
        FileCall::Entries { cookie } => entries(fs, handle, cookie),
    }
}

fn lock_range(fs: &Fs, handle: &Handle, range: LockRange, mode: LockMode) -> fs::Result<()> {
    fs.lock_range(handle, &RecordLock { owner: LockOwner::Handle, range, mode }, OnConflict::Refuse)
}

fn entries(fs: &Fs, handle: &Handle, cookie: u64) -> fs::Result<Reply> {
    let mut entries = Vec::with_capacity(ENTRIES_MAX);
    fs.read_directory(handle, cookie, &mut |entry| {
        entries.push(entry);
        entries.len() < ENTRIES_MAX
    })?;
    Ok(Reply::Entries { entries })
}

/// Performs an operation on two open files.
pub(crate) fn perform_on_pair(local: Local<'_>, from: &Handle, to: &Handle, call: PairCall) -> Result<Reply> {
    local.run(|fs| match call {
        PairCall::Copy { offset, to_offset, length } => {
            Ok(Reply::Number { number: fs.copy_range(from, offset, to, to_offset, length)? })
        }
        PairCall::Clone { offset, to_offset, length } => {
            fs.clone_range(from, offset, to, to_offset, length).map(done)
        }
    })
}
