//! Readahead of data: pieces that a sequential reader will want next are read before it asks for them.
//!
//! A reader notes its position ([`ReadPosition`]). If it reads in order, the pieces behind it are requested. A
//! background task reads one request at a time, and the next reads take the blocks from memory, or wait for them while
//! they are being read.
//!
//! **A piece is identified by its address,** not by its place in a file. What an address has does not change during
//! the life of its zone. A read looks its extents up as always, and asks here for the addresses that it has found. So
//! writes, truncations, clones and moves invalidate nothing: an outdated piece is not found any more. A reader
//! verifies the blocks of a piece like those of the device, and reads from the device if they are wrong.
//!
//! Readahead is a hint. Data that cannot be read is forgotten, and the reader that needs it reports the error. Only a
//! damaged node of the object map shuts the volume down, as if the reader had come that far.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};

use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rt::sync::{Condvar, Mutex};
use zone::zoned::port::AlignedBuffer;
use zone::{Address, Blocks, Command};

use crate::Object;

/// How far a reader is kept ahead at most, and how much is read at once. A reader that has not read much in order is
/// kept ahead by `WINDOW_FACTOR` times what it has read.
const AHEAD_BYTES: u64 = 2 << 20;
const REQUEST_BYTES: u64 = 1 << 20;
const WINDOW_FACTOR: u64 = 4;
/// A read that begins this close to the last one continues it: the kernel has several reads of one file in progress,
/// which arrive in any order. Shorter reads than this must continue exactly where the last one ended.
const NEAR_BYTES: u64 = 2 << 20;
const LONG_BYTES: u64 = 32 << 10;
/// Reads of this length and more use the device well by themselves.
const LARGE_BYTES: u64 = 512 << 10;
/// Requests that wait. A new one replaces the oldest.
const REQUESTS_MAX: usize = 16;
/// Bytes of all pieces, and their number.
const BYTES_MAX: usize = 8 << 20;
const PIECES_MAX: usize = 64;
/// A request whose blocks need more commands is not worth it.
const COMMANDS_MAX: usize = 16;

/// Wakes the background task because there is a request.
type Wake = Arc<dyn Fn() + Send + Sync>;

/// Where a reader of a file is. One for each handle. All numbers are bytes.
#[derive(Debug, Default)]
pub struct ReadPosition {
    /// The end of the reads in order.
    next: AtomicU64,
    /// How much they have read.
    in_order: AtomicU64,
    /// The end of what was requested.
    requested: AtomicU64,
}

/// Blocks of an object that a reader will want soon.
pub(crate) struct Request {
    pub(crate) object: Object,
    pub(crate) blocks: Range<u64>,
    block_size: u64,
    reader: Weak<ReadPosition>,
}

/// Blocks that are read ahead.
struct Piece {
    id: u64,
    address: Address,
    blocks: Blocks,
    /// Their bytes.
    size: usize,
    /// None while they are being read.
    bytes: Option<Arc<AlignedBuffer>>,
    /// The piece goes when the handle has been closed.
    reader: Weak<ReadPosition>,
}

/// The requests and the pieces of a volume.
#[derive(Default)]
pub struct Readahead {
    state: Mutex<State>,
    /// Signalled when pieces have been read, or could not be.
    changed: Condvar,
    /// Whether there are pieces, so that most reads need no lock.
    has_pieces: AtomicBool,
    wake: Mutex<Option<Wake>>,
    bytes_read: AtomicU64,
    bytes_used: AtomicU64,
}

#[derive(Default)]
struct State {
    requests: VecDeque<Request>,
    /// The oldest comes first.
    pieces: VecDeque<Piece>,
    /// The bytes of all pieces.
    bytes: usize,
    /// The number of pieces so far.
    begun: u64,
}

/// How much was read ahead so far, and how much of that was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadaheadCounts {
    /// Bytes that were read ahead.
    pub bytes_read: u64,
    /// Bytes that readers took from memory.
    pub bytes_used: u64,
}

impl ReadPosition {
    /// Notes a read of bytes [from, to) of data that ends at `size`. Returns the range that is to be requested now, if
    /// there is one. Threads that share a handle can lose a note, which costs a request or two.
    fn note(&self, from: u64, to: u64, size: u64) -> Option<Range<u64>> {
        let next = self.next.load(Ordering::Relaxed);
        let continues = from == next || to - from >= LONG_BYTES && from.abs_diff(next) <= NEAR_BYTES;
        if !continues || to - from >= LARGE_BYTES {
            self.next.store(to, Ordering::Relaxed);
            self.in_order.store(0, Ordering::Relaxed);
            self.requested.store(0, Ordering::Relaxed);
            return None;
        }
        if to <= next {
            return None;
        }
        self.next.fetch_max(to, Ordering::Relaxed);
        let length = to - from;
        let in_order = self.in_order.fetch_add(length, Ordering::Relaxed).saturating_add(length);
        if in_order == length {
            return None;
        }
        let window = in_order.saturating_mul(WINDOW_FACTOR).min(AHEAD_BYTES);
        let end = to.saturating_add(window).min(size);
        let before = self.requested.load(Ordering::Relaxed);
        let requested = before.max(to);
        if end <= requested || end < size && end - requested < window / 2 {
            return None;
        }
        let exchange = self.requested.compare_exchange(before, end, Ordering::Relaxed, Ordering::Relaxed);
        exchange.is_ok().then_some(requested..end)
    }
}

impl Readahead {
    /// Sets what wakes the background task.
    pub fn set_reader(&self, wake: Wake) {
        *self.wake.lock() = Some(wake);
    }

    /// What was read ahead so far.
    pub fn counts(&self) -> ReadaheadCounts {
        let (bytes_read, bytes_used) = (&self.bytes_read, &self.bytes_used);
        ReadaheadCounts {
            bytes_read: bytes_read.load(Ordering::Relaxed),
            bytes_used: bytes_used.load(Ordering::Relaxed),
        }
    }

    /// Notes that a reader has read bytes [from, to) of an object whose data ends at `size`.
    pub fn note_read(
        &self,
        object: Object,
        reader: &Arc<ReadPosition>,
        (from, to): (u64, u64),
        size: u64,
        block_size: u32,
    ) {
        let Some(wanted) = reader.note(from, to, size) else { return };
        let block_size = u64::from(block_size);
        // The block before an earlier request's end was requested with it.
        let mut first = match wanted.start > to {
            true => wanted.start.div_ceil(block_size),
            false => wanted.start / block_size,
        };
        let end = wanted.end.div_ceil(block_size);
        while first < end {
            let blocks = first..end.min(first + REQUEST_BYTES / block_size);
            first = blocks.end;
            self.request(Request { object, blocks, block_size, reader: Arc::downgrade(reader) });
        }
        self.wake();
    }

    /// The rest of the first request that its reader has not passed. Forgets what closed handles have requested.
    pub(crate) fn next_request(&self) -> Option<Request> {
        let mut state = self.state.lock();
        self.forget_closed(&mut state);
        loop {
            let Request { object, blocks, block_size, reader } = state.requests.pop_front()?;
            let Some(position) = reader.upgrade() else { continue };
            let passed = position.next.load(Ordering::Relaxed) / block_size;
            let blocks = blocks.start.max(passed)..blocks.end;
            if !blocks.is_empty() {
                return Some(Request { object, blocks, block_size, reader });
            }
        }
    }

    fn forget_closed(&self, state: &mut State) {
        let State { pieces, bytes, .. } = state;
        pieces.retain(|piece| {
            let stays = piece.bytes.is_none() || piece.reader.strong_count() > 0;
            *bytes -= if stays { 0 } else { piece.size };
            stays
        });
        self.has_pieces.store(!pieces.is_empty(), Ordering::Release);
    }

    fn request(&self, request: Request) {
        let mut state = self.state.lock();
        if state.requests.len() == REQUESTS_MAX {
            state.requests.pop_front();
        }
        state.requests.push_back(request);
    }

    fn wake(&self) {
        let wake = self.wake.lock().clone();
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Fills the beginning of `into` with the blocks from `address` on that were read ahead. Waits while they are being
    /// read. Returns how many bytes it has filled.
    pub(crate) fn take(&self, address: Address, into: &mut [u8], block_size: usize) -> usize {
        let mut filled = 0;
        while filled < into.len() && self.has_pieces.load(Ordering::Acquire) {
            let at = address.offset((filled / block_size) as Blocks);
            let Some((buffer, from)) = self.piece_with(at, (into.len() - filled) / block_size, block_size)
            else {
                break;
            };
            let length = (buffer.bytes().len() - from).min(into.len() - filled);
            into[filled..filled + length].copy_from_slice(&buffer.bytes()[from..from + length]);
            filled += length;
        }
        self.bytes_used.fetch_add(filled as u64, Ordering::Relaxed);
        filled
    }

    /// The bytes of the piece with the block at this address, and the place of that block in them. The piece is removed
    /// if the caller reads it to its end: a reader in order does not come back.
    fn piece_with(
        &self,
        address: Address,
        blocks: usize,
        block_size: usize,
    ) -> Option<(Arc<AlignedBuffer>, usize)> {
        let mut state = self.state.lock();
        loop {
            let index = state.pieces.iter().position(|piece| piece.has(address))?;
            let piece = &state.pieces[index];
            let Some(bytes) = piece.bytes.clone() else {
                self.changed.wait(&mut state);
                continue;
            };
            let skipped = (address.block() - piece.address.block()) as usize;
            if skipped + blocks >= piece.blocks as usize {
                self.remove(&mut state, index);
            }
            return Some((bytes, skipped * block_size));
        }
    }

    /// Begins to read for a request what is at these places and not there yet. None if that is nothing or too much.
    pub(crate) fn begin(
        &self,
        request: &Request,
        places: impl Iterator<Item = (Address, Blocks)>,
    ) -> Option<Reading<'_>> {
        let bytes_of = |blocks: Blocks| blocks as usize * request.block_size as usize;
        let wanted = self.without_pieces(places);
        if wanted.is_empty() || wanted.len() > COMMANDS_MAX {
            return None;
        }
        let buffers = wanted.iter().map(|(_, blocks)| AlignedBuffer::try_new(bytes_of(*blocks)));
        let buffers: Vec<AlignedBuffer> = buffers.collect::<Option<_>>()?;
        let all: usize = wanted.iter().map(|(_, blocks)| bytes_of(*blocks)).sum();
        let mut state = self.state.lock();
        while state.bytes + all > BYTES_MAX || state.pieces.len() + wanted.len() > PIECES_MAX {
            let oldest = state.pieces.iter().position(|piece| piece.bytes.is_some())?;
            self.remove(&mut state, oldest);
        }
        state.bytes += all;
        let mut pieces = VecDeque::new();
        for ((address, blocks), buffer) in wanted.into_iter().zip(buffers) {
            let (id, reader) = (state.begun, Weak::clone(&request.reader));
            state.begun += 1;
            state.pieces.push_back(Piece {
                id,
                address,
                blocks,
                size: bytes_of(blocks),
                bytes: None,
                reader,
            });
            pieces.push_back((id, address, buffer));
        }
        self.has_pieces.store(true, Ordering::Release);
        Some(Reading { readahead: self, pieces })
    }

    /// The first blocks of each place that have no piece; of not many more places than are read together.
    fn without_pieces(&self, places: impl Iterator<Item = (Address, Blocks)>) -> Vec<(Address, Blocks)> {
        let state = self.state.lock();
        let first_without = |(mut address, mut blocks): (Address, Blocks)| {
            while let Some(piece) = state.pieces.iter().find(|piece| piece.has(address)) {
                let there = piece.address.block() + piece.blocks - address.block();
                if there >= blocks {
                    return None;
                }
                (address, blocks) = (address.offset(there), blocks - there);
            }
            let next = state
                .pieces
                .iter()
                .filter(|piece| piece.is_of_life(address))
                .map(|piece| piece.address.block());
            let until = next.filter(|block| *block > address.block()).min();
            Some((address, until.map_or(blocks, |until| blocks.min(until - address.block()))))
        };
        places.filter_map(first_without).take(COMMANDS_MAX + 1).collect()
    }

    /// Ends the reading of a piece. Without `bytes` it is removed.
    fn end(&self, id: u64, bytes: Option<AlignedBuffer>) {
        let mut state = self.state.lock();
        let index = state.pieces.iter().position(|piece| piece.id == id);
        let index = index.expect("a piece that is being read stays");
        match bytes {
            Some(bytes) => {
                self.bytes_read.fetch_add(bytes.bytes().len() as u64, Ordering::Relaxed);
                state.pieces[index].bytes = Some(Arc::new(bytes));
            }
            None => self.remove(&mut state, index),
        }
        drop(state);
        self.changed.notify_all();
    }

    fn remove(&self, state: &mut State, index: usize) {
        let piece = state.pieces.remove(index).expect("the caller has found it");
        state.bytes -= piece.size;
        self.has_pieces.store(!state.pieces.is_empty(), Ordering::Release);
    }
}

impl Piece {
    fn is_of_life(&self, address: Address) -> bool {
        self.address.zone() == address.zone() && self.address.life_low_bits() == address.life_low_bits()
    }

    /// Whether it contains the block at this address.
    fn has(&self, address: Address) -> bool {
        let first = self.address.block();
        self.is_of_life(address) && (first..first + self.blocks).contains(&address.block())
    }
}

/// Pieces that are being read. Those that were not read are removed at the end, also by a panic: readers wait.
pub(crate) struct Reading<'a> {
    readahead: &'a Readahead,
    /// Their ids, addresses and bytes.
    pieces: VecDeque<(u64, Address, AlignedBuffer)>,
}

impl Reading<'_> {
    /// One command for each piece.
    pub(crate) fn commands(&mut self) -> Vec<Command<'_>> {
        let mut commands = Vec::new();
        for (_, address, buffer) in &mut self.pieces {
            let (zone, block) = (address.zone(), address.block());
            commands.push(Command::Read { zone, block, into: buffer.bytes_mut() });
        }
        commands
    }

    /// The commands have ended like this.
    pub(crate) fn end(mut self, are_read: impl Iterator<Item = bool>) {
        for is_read in are_read {
            let (id, _, buffer) = self.pieces.pop_front().expect("each command is of a piece");
            self.readahead.end(id, is_read.then_some(buffer));
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        while let Some((id, ..)) = self.pieces.pop_front() {
            self.readahead.end(id, None);
        }
    }
}

#[cfg(test)]
mod tests;
