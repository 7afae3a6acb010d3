//! Data that reaches the device before their file is locked.
//!
//! A writer needs the lock of his file to change the file, not to bring data to the device. So data are appended first
//! where that needs nothing of the file, and the lock is held for the transaction alone: writers of one file append
//! beside each other, and readers do not wait for them.
//!
//! What is appended is for one object, in whole blocks and in one transaction. What the file has become meanwhile is
//! looked at under the lock ([`Fs::still_fits`]): where it has another object by then, where a block's rest is
//! no longer beyond its end, or where one transaction cannot write over all that is there, what was appended stays
//! dead and the data are written like any others.
//!
//! Nothing is appended ahead of a write whose place is the end of the file, that begins within a block, that is less
//! than one, or to a file with contents in its record or with shared blocks; nor where space is scarce, since what
//! is promised meanwhile is missing to whoever holds the lock.

use extent::{ExtentError, Written};

use crate::errno::Result;
use crate::file_io::{PIECE, hint_of};
use crate::format::{FILE_SIZE_MAX, FLAG_INLINE, FLAG_SHARES, Record};
use crate::handle::Handle;
use crate::types::{InodeNo, Kind};
use crate::volume::Fs;

/// Data of a write that are complete at the device and nobody's yet.
pub(crate) struct Ahead(Written);

impl Fs {
    /// Appends all data of a write, if nothing about its file speaks against it.
    pub(crate) fn append_ahead(&self, handle: &Handle, offset: u64, data: &[u8]) -> Result<Option<Ahead>> {
        let block = u64::from(self.extents.block_size());
        let end = offset.saturating_add(data.len() as u64);
        let is_one_piece = offset / PIECE == (end - 1) / PIECE;
        let is_whole = offset.is_multiple_of(block) && data.len() as u64 >= block;
        if handle.flags().append || !is_one_piece || !is_whole || end > FILE_SIZE_MAX {
            return Ok(None);
        }
        let (object, hint, size) = match handle.node().state.read().record() {
            Ok(record) if self.takes_whole_blocks(record, end) => {
                (record.object(handle.inode()), hint_of(handle, record), record.size)
            }
            _ => return Ok(None),
        };
        match self.extents.write_ahead(object, hint, offset, data, size) {
            Err(ExtentError::NoSpace) => Ok(None),
            written => Ok(written?.map(Ahead)),
        }
    }

    /// What was appended ahead, if the file, which is locked, can have it as it is.
    pub(crate) fn still_fits(
        &self,
        ahead: Ahead,
        record: &Record,
        inode: InodeNo,
        end: u64,
    ) -> Option<Written> {
        let is_all = ahead.0.end() == end.div_ceil(u64::from(self.extents.block_size()));
        let is_for_it =
            is_all && ahead.0.object() == record.object(inode) && self.takes_whole_blocks(record, end);
        is_for_it.then_some(ahead.0)
    }

    /// Whether blocks up to that which has `end` can be put into the file without a look at what it has there.
    fn takes_whole_blocks(&self, record: &Record, end: u64) -> bool {
        let block = u64::from(self.extents.block_size());
        let is_plain = record.kind == Kind::File && !record.has(FLAG_INLINE) && !record.has(FLAG_SHARES);
        is_plain && (end.is_multiple_of(block) || end >= record.size)
    }
}

#[cfg(test)]
mod tests;
