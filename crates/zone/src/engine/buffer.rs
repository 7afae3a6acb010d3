//! Memory that direct I/O can use: aligned to pages, and used again, because a page that is touched
//! for the first time costs more than copying into one that is not.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use rt::sync::Mutex;

/// What the address of a buffer is a multiple of.
pub(super) const ALIGNMENT: usize = 4096;
/// Bytes of all unused buffers that are kept.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// Aligned, initialised memory of a power of two bytes.
pub struct Buffer {
    /// Start of an allocation made with [`Buffer::layout`].
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: a buffer is the only owner of its memory, as a `Box<[u8]>` is.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer only gives out shared slices.
unsafe impl Sync for Buffer {}

impl Buffer {
    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, ALIGNMENT).expect("a size in memory rounds up to the alignment")
    }

    /// `size` bytes of memory, all zeros. Panics if `size` is 0.
    pub fn new(size: usize) -> Self {
        let layout = Buffer::layout(size);
        assert!(size > 0, "an allocation has a size");
        // SAFETY: the layout has a size greater than zero, as asserted.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Buffer { start, size }
    }

    /// The bytes, to be read.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start` points to `size` bytes, initialised when allocated, that `self` owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.size) }
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `self` is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.size) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: `start` was allocated with this layout and is freed only here.
        unsafe { dealloc(self.start.as_ptr(), Buffer::layout(self.size)) }
    }
}

/// Buffers that wait to be used again.
#[derive(Default)]
pub(super) struct Buffers {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    buffers: Vec<Buffer>,
    /// The sum of their sizes; at most [`KEPT_BYTES_MAX`].
    bytes: usize,
}

impl Buffers {
    /// A buffer of at least so many bytes, with anything in it.
    pub(super) fn take(&self, bytes: usize) -> Buffer {
        let size = bytes.next_power_of_two().max(ALIGNMENT);
        let mut kept = self.kept.lock();
        let Some(index) = kept.buffers.iter().rposition(|buffer| buffer.size == size) else {
            drop(kept);
            return Buffer::new(size);
        };
        kept.bytes -= size;
        kept.buffers.swap_remove(index)
    }

    /// Makes and touches buffers of so many bytes, so that as many can be taken at once without asking the
    /// system for memory.
    pub(super) fn prepare(&self, count: usize, bytes: usize) {
        let mut taken: Vec<Buffer> = (0..count).map(|_| self.take(bytes)).collect();
        for buffer in &mut taken {
            // Memory that was only promised is given page by page, when it is written to.
            buffer.bytes_mut().fill(1);
        }
        taken.into_iter().for_each(|buffer| self.give(buffer));
    }

    /// Takes a buffer back.
    pub(super) fn give(&self, buffer: Buffer) {
        let mut kept = self.kept.lock();
        if kept.bytes + buffer.size <= KEPT_BYTES_MAX {
            kept.bytes += buffer.size;
            kept.buffers.push(buffer);
        }
    }
}
