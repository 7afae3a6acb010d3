//! Appends that reach the device before their file is locked.
//!
//! A writer needs the lock of its file to change the file, but not to append data to the device. So where the append
//! does not depend on the state of the file, the data is appended first, and the lock is held for the transaction
//! only. Writers of one file then append concurrently, and readers do not wait for the appends.
//!
//! An early append is for one object. It consists of whole blocks and fits in one transaction. Under the lock it is
//! checked against the present state of the file. It is not used if the file has another object by then, if the last
//! block would overwrite bytes of the file, or if one transaction cannot replace all overwritten extents. Then the
//! appended blocks stay dead, and the data is written under the lock.
//!
//! Nothing is appended early for a write to the end of the file, for a write that does not begin on a block boundary or
//! is shorter than a block, for a file whose contents are shared, and for one whose contents stay inline. Nothing is
//! appended early when space is scarce, because its reservation could be missing to the thread that holds the lock.

use extent::{WriteCall, Written};

use crate::errno::Result;
use crate::file_io::{PIECE, write_call};
use crate::format::{FILE_SIZE_MAX, FLAG_INLINE, FLAG_SHARES, Record};
use crate::handle::Handle;
use crate::types::Kind;
use crate::volume::Fs;

impl Fs {
    /// Admits a write at an offset, or at the end. Appends all its data if the state of the file allows it before the
    /// lock.
    pub(crate) fn begin_write(
        &self,
        handle: &Handle,
        offset: Option<u64>,
        data: &[u8],
    ) -> Result<Option<Written>> {
        let early = offset.and_then(|offset| self.early_call(handle, offset, data));
        Ok(self.extents.begin_write(data.len() as u64, early.as_ref())?)
    }

    fn early_call<'d>(&self, handle: &Handle, offset: u64, data: &'d [u8]) -> Option<WriteCall<'d>> {
        let block = u64::from(self.extents.block_size());
        let end = offset.saturating_add(data.len() as u64);
        let is_one_piece = data.len() as u64 <= PIECE;
        let is_whole = offset.is_multiple_of(block) && data.len() as u64 >= block;
        // Delayed writes are inserted first, under the lock.
        if handle.node().delayed.any()
            || handle.flags().append
            || !is_one_piece
            || !is_whole
            || end > FILE_SIZE_MAX
        {
            return None;
        }
        let state = handle.node().state.read();
        let record = state.record().ok().filter(|record| self.accepts_whole_blocks(record, end))?;
        let stays_inline = record.has(FLAG_INLINE) && end <= self.inline_bytes_max() as u64;
        (!stays_inline).then(|| write_call(handle, record, offset, data))
    }

    /// Whether blocks up to the one that contains `end` can be replaced without reading what the file has there. Inline
    /// contents end before `end`, or are moved to blocks before these are replaced.
    pub(crate) fn accepts_whole_blocks(&self, record: &Record, end: u64) -> bool {
        let block = u64::from(self.extents.block_size());
        let is_plain = record.kind == Kind::File && !record.has(FLAG_SHARES);
        is_plain && (end.is_multiple_of(block) || end >= record.size)
    }
}

#[cfg(test)]
mod tests;
