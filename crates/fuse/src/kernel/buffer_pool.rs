//! Memory for requests that are put aside.
//!
//! Buffers come in a few sizes, each little larger than the one before. A request is copied into the least that has room
//! for it; one that needs the largest stays where it is, and whoever received it has an empty one instead. What comes
//! free is kept for the next request; all buffers together, free or not, never have more than a fixed number of bytes. Of
//! writes of any one length at least [`FITS`] of that fit.
//!
//! The bytes of a longer write begin on a page, as direct I/O wants it; those of a short one take less to be copied once
//! more below than to be placed.

use std::fmt;
use std::sync::Arc;

use rt::sync::Mutex;

use super::buffer::{ALIGNMENT, PageBuffer};
use super::channel::WRITE_HEAD;
use super::{REQUEST_BYTES_MAX, RequestBuffer};

/// Pages of data that buffers have room for.
const PAGES: [usize; SIZES] = [
    1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224,
    256,
];
const SIZES: usize = 28;
/// What a [`RequestBuffer`] has.
const LARGEST: usize = SIZES - 1;
/// From so many pages on data begins on a page.
const PLACED_PAGES: usize = 8;
/// The share of all bytes that data may take: numerator and denominator.
pub(crate) const FITS: (u64, u64) = (4, 5);

const _: () =
    assert!(PAGES[LARGEST] * ALIGNMENT == REQUEST_BYTES_MAX as usize, "it has room for every request");

/// All buffers of one session, without those that requests are received in.
pub(super) struct Shelf {
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of all buffers, those in use included; at most `bytes_max`.
    bytes: usize,
    /// By size.
    free: [Vec<PageBuffer>; SIZES],
}

/// A request that was put aside.
pub(super) struct Kept {
    shelf: Arc<Shelf>,
    size: usize,
    /// None: it goes back.
    buffer: Option<PageBuffer>,
    length: usize,
}

impl Shelf {
    pub(super) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Shelf { bytes_max, state: Mutex::default() })
    }

    /// Puts the request aside that was received there and has so many bytes; nothing where there is no room for it.
    pub(super) fn keep(self: &Arc<Self>, received: &mut RequestBuffer, length: usize) -> Option<Kept> {
        let size = size_for(length)?;
        let mut buffer = self.take(size)?;
        let memory = received.memory();
        match size {
            LARGEST => std::mem::swap(&mut buffer, memory),
            _ => buffer.space()[..length].copy_from_slice(&memory.bytes()[..length]),
        }
        Some(Kept { shelf: Arc::clone(self), size, buffer: Some(buffer), length })
    }

    /// A buffer with anything in it. Free ones of other sizes make room for it, the largest first.
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
    /// Takes free buffers out, the largest first, until all have no more than so many bytes.
    fn drop_until(&mut self, bytes_max: usize) -> Vec<PageBuffer> {
        let mut dropped = Vec::new();
        while self.bytes > bytes_max {
            let largest = (0..SIZES).rev().find(|&size| !self.free[size].is_empty());
            let largest = largest.expect("there are enough that are free");
            dropped.extend(self.free[largest].pop());
            self.bytes -= bytes_of(largest);
        }
        dropped
    }
}

/// The least size for a request of so many bytes; none: it is longer than any that the kernel sends.
fn size_for(length: usize) -> Option<usize> {
    let pages = length.saturating_sub(WRITE_HEAD).div_ceil(ALIGNMENT);
    let size = PAGES.partition_point(|&room| room < pages);
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

impl Kept {
    pub(super) fn as_bytes(&self) -> &[u8] {
        let buffer = self.buffer.as_ref().expect("it goes back when this is dropped");
        &buffer.bytes()[..self.length]
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.shelf.state.lock().free[self.size].extend(self.buffer.take());
    }
}

impl fmt::Debug for Kept {
    /// What programs write is shown to nobody.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} bytes", self.length)
    }
}

#[cfg(test)]
mod tests;
