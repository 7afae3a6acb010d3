//! A pool of page buffers of one size, allocated from the system in large chunks.
//!
//! Random accesses to memory of this size are slowed down by misses in the TLB as much as by the memory itself. So
//! the pool requests huge pages of 2 MiB where the system has them. It reuses free pages before it allocates a chunk.
//! It returns memory to the system only when it is dropped, and not earlier, because a cache that was full will be
//! full again.
//!
//! The first 2 MiB are not requested as huge pages: a small volume then has only the pages in memory that it uses.
//!
//! The system may run out of memory. A caller that can do without a page uses [`Pages::try_take`]. A caller that
//! cannot stop once it has begun [reserves](Pages::reserve) its pages before, and takes them with
//! [`Pages::take_reserved`]. Other callers do not get the last free pages: there are never fewer free pages than were
//! reserved and not yet taken. The pool does not know for which reservation a page is taken. So a page counts as
//! reserved until the reservation is dropped, whether it is taken or not.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use rt::sync::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The size and alignment of a chunk: a huge page of the processors that have them.
const LARGE: usize = 2 << 20;
/// The smallest size of a chunk if memory is scarce.
const SMALL: usize = 4096;

/// The pool.
pub struct Pages {
    page_size: usize,
    /// The bytes of a chunk, which consists of pages of `page_size` and is aligned to [`LARGE`] if it is at least
    /// that large.
    chunk_size: usize,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// Free pages, which are parts of `chunks`. The last one is taken first. It was used before if any free page was.
    free: Vec<NonNull<u8>>,
    /// Pages that are reserved, whether they have been taken or not.
    reserved: usize,
    /// Each of `chunk_size` bytes, mapped by [`map`].
    chunks: Vec<NonNull<u8>>,
}

// SAFETY: the pointers refer to memory that belongs to `Pages` alone, as the contents of a `Vec<Box<[u8]>>` would.
unsafe impl Send for PoolState {}

/// The system has no memory for another page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory for pages")]
pub struct NoMemory;

/// The right to take `count` pages, even if the system has no memory left, until this is dropped.
pub struct PageReservation {
    pages: Arc<Pages>,
    count: usize,
}

/// One page in memory: initialised, and aligned for direct I/O if its size is a multiple of 4096.
pub struct PageBuffer {
    /// A page of `pages` that is not free.
    start: NonNull<u8>,
    pages: Arc<Pages>,
}

// SAFETY: a buffer is the only owner of its memory, as a `Box<[u8]>` is.
unsafe impl Send for PageBuffer {}
// SAFETY: a shared buffer only gives out shared slices.
unsafe impl Sync for PageBuffer {}

impl Pages {
    /// A pool of pages of `page_size` bytes.
    pub fn new(page_size: usize) -> Arc<Pages> {
        assert!(page_size > 0, "a page has bytes");
        let at_once = if rt::memory::is_scarce() { SMALL } else { LARGE };
        let chunk_size = page_size.next_multiple_of(at_once);
        Arc::new(Pages { page_size, chunk_size, state: Mutex::new(PoolState::default()) })
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// A page with arbitrary contents that is not one of the reserved pages.
    pub fn try_take(self: &Arc<Pages>) -> Result<PageBuffer, NoMemory> {
        loop {
            let mut state = self.state.lock();
            if state.free.len() > state.reserved
                && let Some(start) = state.free.pop()
            {
                return Ok(PageBuffer { start, pages: Arc::clone(self) });
            }
            drop(state);
            self.grow(1)?;
        }
    }

    /// Reserves `count` pages, or none.
    pub fn reserve(self: &Arc<Pages>, count: usize) -> Result<PageReservation, NoMemory> {
        loop {
            let mut state = self.state.lock();
            if state.free.len() >= state.reserved + count {
                state.reserved += count;
                return Ok(PageReservation { pages: Arc::clone(self), count });
            }
            let lacking = state.reserved + count - state.free.len();
            drop(state);
            self.grow(lacking)?;
        }
    }

    /// Whether the free pages suffice for all reservations.
    pub fn covers_reservations(&self) -> bool {
        let state = self.state.lock();
        state.free.len() >= state.reserved
    }

    /// A page with arbitrary contents that the caller has reserved.
    pub fn take_reserved(self: &Arc<Pages>) -> PageBuffer {
        loop {
            let free = self.state.lock().free.pop();
            if let Some(start) = free {
                return PageBuffer { start, pages: Arc::clone(self) };
            }
            self.grow(1).expect("a caller that cannot do without a page has reserved it");
        }
    }

    /// A page of zeros that the caller has reserved.
    pub fn zeroed(self: &Arc<Pages>) -> PageBuffer {
        let mut page = self.take_reserved();
        page.fill(0);
        page
    }

    /// A page with these bytes, whose number is the page size, that the caller has reserved.
    pub fn with_bytes(self: &Arc<Pages>, bytes: &[u8]) -> PageBuffer {
        let mut page = self.take_reserved();
        page.copy_from_slice(bytes);
        page
    }

    /// Allocates chunks for at least `pages` more pages. No lock is held during the system call.
    fn grow(&self, pages: usize) -> Result<(), NoMemory> {
        if !rt::memory::grants() {
            return Err(NoMemory);
        }
        (0..pages.div_ceil(self.chunk_size / self.page_size)).try_for_each(|_| self.add_chunk())
    }

    fn add_chunk(&self) -> Result<(), NoMemory> {
        let is_first = self.state.lock().chunks.is_empty();
        let chunk = map(self.chunk_size, !is_first).ok_or(NoMemory)?;
        let mut state = self.state.lock();
        state.chunks.push(chunk);
        let pages = (0..self.chunk_size / self.page_size).rev().map(|index| {
            // SAFETY: the page ends within the chunk.
            unsafe { chunk.add(index * self.page_size) }
        });
        state.free.splice(0..0, pages);
        Ok(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        for chunk in self.state.get_mut().chunks.drain(..) {
            // SAFETY: every buffer from this pool holds a reference to it, so there are no buffers.
            unsafe { unmap(chunk, self.chunk_size) };
        }
    }
}

/// Maps zeroed memory, if the system has any, aligned to [`LARGE`] if it is at least that large.
fn map(size: usize, large: bool) -> Option<NonNull<u8>> {
    // Usually the mapping begins where the previous one ends. Then the kernel merges both, and the number of mappings
    // of a process is limited.
    let mut chunk = map_anywhere(size)?;
    if size >= LARGE && chunk.as_ptr().align_offset(LARGE) != 0 {
        // SAFETY: nothing refers to the mapping yet.
        unsafe { unmap(chunk, size) };
        let mapped = map_anywhere(size + LARGE)?;
        let before = mapped.as_ptr().align_offset(LARGE);
        // SAFETY: all ranges lie within the mapping, and nothing refers to it yet.
        unsafe {
            chunk = mapped.add(before);
            unmap(mapped, before);
            unmap(chunk.add(size), LARGE - before);
        }
    }
    if large && size >= LARGE {
        // SAFETY: advice does not change memory. A system without huge pages uses small ones.
        let _ = unsafe { rustix::mm::madvise(chunk.as_ptr().cast(), size, Advice::LinuxHugepage) };
    }
    Some(chunk)
}

fn map_anywhere(size: usize) -> Option<NonNull<u8>> {
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a mapping at an address that the system chooses changes no other mapping.
    let mapped = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), size, protection, flags) };
    mapped.ok().and_then(|mapped| NonNull::new(mapped.cast()))
}

/// Returns memory to the system, if `size` is not 0.
///
/// # Safety
/// The memory was mapped by [`map_anywhere`], consists of whole pages of the system, and no reference or pointer into
/// it exists.
unsafe fn unmap(start: NonNull<u8>, size: usize) {
    if size > 0 {
        // SAFETY: as the caller promises.
        let gone = unsafe { rustix::mm::munmap(start.as_ptr().cast(), size) };
        debug_assert!(gone.is_ok(), "a mapping can be removed");
    }
}

impl Deref for PageBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to that many bytes, initialised when mapped, that `self` owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.pages.page_size) }
    }
}

impl DerefMut for PageBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.pages.page_size) }
    }
}

impl AsMut<[u8]> for PageBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Clone for PageBuffer {
    fn clone(&self) -> Self {
        self.pages.with_bytes(self)
    }

    fn clone_from(&mut self, other: &Self) {
        if self.len() == other.len() {
            self.copy_from_slice(other);
        } else {
            *self = other.clone();
        }
    }
}

impl Drop for PageReservation {
    fn drop(&mut self) {
        self.pages.state.lock().reserved -= self.count;
    }
}

impl Drop for PageBuffer {
    fn drop(&mut self) {
        self.pages.state.lock().free.push(self.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_do_not_overlap() {
        for page_size in [512, 4096, 16384, 65536, LARGE - 4096, LARGE + 4096] {
            let pages = Pages::new(page_size);
            let many = 3 * LARGE / page_size + 2;
            let mut taken: Vec<_> = (0..many).map(|_| pages.zeroed()).collect();
            for (number, page) in taken.iter_mut().enumerate() {
                assert!(page.iter().all(|byte| *byte == 0), "no other page overlaps it");
                page.chunks_exact_mut(4)
                    .for_each(|word| word.copy_from_slice(&(number as u32 + 1).to_le_bytes()));
            }
            for (number, page) in taken.iter().enumerate() {
                let is_its_own = page.chunks_exact(4).all(|word| word == (number as u32 + 1).to_le_bytes());
                assert!(page.len() == page_size && is_its_own, "page {number} of {page_size} bytes");
            }
        }
    }

    /// Without reservations, memory that a transaction could not do without went to a reader, and the process
    /// aborted.
    #[test]
    fn reserved_pages_are_not_available_to_other_callers() {
        rt::memory::make_scarce();
        let pages = Pages::new(16384);
        let taken = pages.try_take().unwrap();
        let reservation = pages.reserve(3).unwrap();
        rt::memory::refuse(1, u64::MAX);
        assert_eq!(pages.try_take().err(), Some(NoMemory));
        assert_eq!(pages.reserve(1).err(), Some(NoMemory));
        drop(taken);
        let again = pages.try_take().unwrap();
        assert_eq!(pages.try_take().err(), Some(NoMemory));
        let reserved: Vec<_> = (0..3).map(|_| pages.take_reserved()).collect();
        drop(again);
        assert_eq!(pages.try_take().err(), Some(NoMemory), "three pages are reserved, and one is free");
        drop(reserved);
        drop(reservation);
        let all: Vec<_> = (0..4).map(|_| pages.try_take().unwrap()).collect();
        assert_eq!(pages.try_take().err(), Some(NoMemory));
        assert!(rt::memory::refused() > 4 && all.len() == 4);
        rt::memory::make_plenty();
        assert!(pages.try_take().is_ok());
    }

    #[test]
    fn returned_pages_are_reused() {
        let pages = Pages::new(16384);
        let kept = pages.take_reserved();
        let chunks = |pages: &Pages| pages.state.lock().chunks.len();
        for _ in 0..10_000 {
            let (mut one, other) = (pages.zeroed(), pages.take_reserved());
            one[7] = 7;
            let copy = one.clone();
            drop((one, other));
            assert_eq!(copy[7], 7);
        }
        assert_eq!(chunks(&pages), 1);
        let many: Vec<_> = (0..LARGE / 16384).map(|_| pages.take_reserved()).collect();
        assert_eq!(chunks(&pages), 2);
        drop((pages, many));
        assert_eq!(kept.len(), 16384);
    }
}
