//! Memory for direct I/O. It is aligned to pages and reused, because the first access to a new page costs more than
//! copying into a used one.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use rt::sync::Mutex;

/// The alignment of a buffer.
pub(super) const ALIGNMENT: usize = 4096;
/// The largest sum of the sizes of the unused buffers.
const UNUSED_BYTES_MAX: usize = 16 << 20;

/// Aligned, initialised memory of a power of two bytes.
pub struct Buffer {
    /// Start of an allocation made with [`Buffer::layout`].
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: a buffer is the only owner of its memory, as a `Box<[u8]>` is.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer only provides shared slices.
unsafe impl Sync for Buffer {}

impl Buffer {
    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, ALIGNMENT).expect("a size in memory rounds up to the alignment")
    }

    /// `size` bytes of zeros. Panics if `size` is 0.
    pub fn new(size: usize) -> Self {
        Buffer::try_new(size).unwrap_or_else(|| handle_alloc_error(Buffer::layout(size)))
    }

    /// The same. None if there is no memory.
    pub fn try_new(size: usize) -> Option<Self> {
        let layout = Buffer::layout(size);
        assert!(size > 0, "an allocation has a size");
        // SAFETY: the layout has a size greater than zero, as asserted.
        let start = unsafe { alloc_zeroed(layout) };
        NonNull::new(start).map(|start| Buffer { start, size })
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

/// A pool of unused buffers.
#[derive(Default)]
pub(super) struct Buffers {
    unused: Mutex<Unused>,
}

#[derive(Default)]
struct Unused {
    buffers: Vec<Buffer>,
    /// The sum of their sizes; at most [`UNUSED_BYTES_MAX`].
    bytes: usize,
}

impl Buffers {
    /// A buffer of at least `bytes` bytes with arbitrary contents.
    pub(super) fn take(&self, bytes: usize) -> Buffer {
        let size = bytes.next_power_of_two().max(ALIGNMENT);
        let mut unused = self.unused.lock();
        let Some(index) = unused.buffers.iter().rposition(|buffer| buffer.size == size) else {
            drop(unused);
            return Buffer::new(size);
        };
        unused.bytes -= size;
        unused.buffers.swap_remove(index)
    }

    /// Allocates and touches buffers of `bytes` bytes, so that `count` of them can be taken at once without a request
    /// for memory to the system.
    pub(super) fn prepare(&self, count: usize, bytes: usize) {
        let mut taken: Vec<Buffer> = (0..count).map(|_| self.take(bytes)).collect();
        for buffer in &mut taken {
            // The system provides the pages of a mapping when they are first written.
            buffer.bytes_mut().fill(1);
        }
        taken.into_iter().for_each(|buffer| self.give(buffer));
    }

    /// Returns a buffer to the pool.
    pub(super) fn give(&self, buffer: Buffer) {
        let mut unused = self.unused.lock();
        if unused.bytes + buffer.size <= UNUSED_BYTES_MAX {
            unused.bytes += buffer.size;
            unused.buffers.push(buffer);
        }
    }
}
