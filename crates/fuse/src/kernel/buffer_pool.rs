//! Memory for queued requests.
//!
//! Buffers come in a few sizes with small differences. A request is copied into the smallest buffer in which it fits.
//! A request that needs the largest size is not copied: the receiving thread gets an empty buffer for it. Free
//! buffers are kept for later requests. All buffers together, free or not, are limited to a fixed number of bytes. Of
//! writes of any one length, at least the share [`FITS`] of that fits.
//!
//! The data of a longer write begins on a page, as direct I/O requires. For short writes the alignment would cost
//! more than another copy in the lower layers.

use std::fmt;
use std::sync::Arc;

use rt::sync::Mutex;

use super::buffer::{ALIGNMENT, PageBuffer};
use super::channel::WRITE_HEAD;
use super::{REQUEST_BYTES_MAX, RequestBuffer};

/// Pages of data for which each size has space.
const PAGES: [usize; SIZES] = [
    1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224,
    256,
];
const SIZES: usize = 28;
/// The size of a [`RequestBuffer`].
const LARGEST: usize = SIZES - 1;
/// From this number of pages on, data begins on a page.
const PLACED_PAGES: usize = 8;
/// The share of all bytes that data may take: numerator and denominator.
pub(crate) const FITS: (u64, u64) = (4, 5);

const _: () =
    assert!(PAGES[LARGEST] * ALIGNMENT == REQUEST_BYTES_MAX as usize, "the largest size fits every request");

/// All buffers of one session, without those in which requests are received.
pub(super) struct BufferPool {
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The bytes of all buffers, including those in use. At most `bytes_max`.
    bytes: usize,
    /// The free buffers of each size.
    free: [Vec<PageBuffer>; SIZES],
}

/// A stored request.
pub(super) struct StoredRequest {
    buffers: Arc<BufferPool>,
    size: usize,
    /// None only while it is returned to the pool.
    buffer: Option<PageBuffer>,
    length: usize,
}

impl BufferPool {
    pub(super) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(BufferPool { bytes_max, state: Mutex::default() })
    }

    /// Stores a request of `length` bytes that was received in this buffer. None if there is no memory for it.
    pub(super) fn store(
        self: &Arc<Self>,
        received: &mut RequestBuffer,
        length: usize,
    ) -> Option<StoredRequest> {
        let size = size_for(length)?;
        let mut buffer = self.take(size)?;
        let memory = received.memory();
        match size {
            LARGEST => std::mem::swap(&mut buffer, memory),
            _ => buffer.space()[..length].copy_from_slice(&memory.bytes()[..length]),
        }
        Some(StoredRequest { buffers: Arc::clone(self), size, buffer: Some(buffer), length })
    }

    /// A buffer with arbitrary contents. Free buffers of other sizes are dropped for it, the largest first.
    fn take(&self, size: usize) -> Option<PageBuffer> {
        let mut state = self.state.lock();
        if let Some(free) = state.free[size].pop() {
            return Some(free);
        }
        let free: usize = (0..SIZES).map(|size| state.free[size].len() * bytes_of(size)).sum();
        if state.bytes - free + bytes_of(size) > self.bytes_max {
            return None;
        }
        state.bytes += bytes_of(size);
        let dropped = state.drop_until(self.bytes_max);
        drop(state);
        drop(dropped);
        let made = match is_placed(size) {
            true => PageBuffer::try_new(WRITE_HEAD, PAGES[size] * ALIGNMENT),
            false => PageBuffer::try_anywhere(bytes_of(size)),
        };
        if made.is_none() {
            self.state.lock().bytes -= bytes_of(size);
        }
        made
    }
}

impl State {
    /// Removes free buffers, the largest first, until all have at most `bytes_max` bytes.
    fn drop_until(&mut self, bytes_max: usize) -> Vec<PageBuffer> {
        let mut dropped = Vec::new();
        while self.bytes > bytes_max {
            let largest = (0..SIZES).rev().find(|&size| !self.free[size].is_empty());
            let largest = largest.expect("enough buffers are free");
            dropped.extend(self.free[largest].pop());
            self.bytes -= bytes_of(largest);
        }
        dropped
    }
}

/// The smallest size for a request of this length. None if it is longer than any request of the kernel.
fn size_for(length: usize) -> Option<usize> {
    let pages = length.saturating_sub(WRITE_HEAD).div_ceil(ALIGNMENT);
    let size = PAGES.partition_point(|&capacity| capacity < pages);
    (size < SIZES).then_some(size)
}

fn is_placed(size: usize) -> bool {
    PAGES[size] >= PLACED_PAGES
}

fn bytes_of(size: usize) -> usize {
    let data = PAGES[size] * ALIGNMENT;
    match is_placed(size) {
        true => PageBuffer::bytes_for(WRITE_HEAD, data),
        false => WRITE_HEAD + data,
    }
}

impl StoredRequest {
    pub(super) fn as_bytes(&self) -> &[u8] {
        let buffer = self.buffer.as_ref().expect("the buffer is returned only by drop");
        &buffer.bytes()[..self.length]
    }
}

impl Drop for StoredRequest {
    fn drop(&mut self) {
        self.buffers.state.lock().free[self.size].extend(self.buffer.take());
    }
}

impl fmt::Debug for StoredRequest {
    /// Does not show the data of programs.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} bytes", self.length)
    }
}

#[cfg(test)]
mod tests;
