//! The memory that owner and client share.
//!
//! The other process can write to it at any time. So nothing here makes a reference to its bytes: only atomic words are
//! referred to, and all other bytes are copied.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The number of calls of a client at a time.
pub const SLOTS: usize = 8;
/// The most bytes of a message.
pub const MESSAGE_MAX: usize = 192 << 10;
/// The most bytes of data of a call.
pub const DATA_MAX: usize = 16 << 20;

/// All pages are at most this long. The words are in the first one.
const PAGE: usize = 64 << 10;
/// Words of different slots are in different lines of the processor's cache.
const LINE: usize = 128;
const AREA: usize = MESSAGE_MAX + DATA_MAX;
const LENGTH: usize = PAGE + SLOTS * AREA;

const _: () =
    assert!((SLOTS + 1) * LINE <= PAGE && MESSAGE_MAX.is_multiple_of(PAGE) && DATA_MAX.is_multiple_of(PAGE));

/// It can neither shrink nor grow, nor lose these seals.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The words of a slot.
#[derive(Clone, Copy)]
pub(crate) enum Word {
    /// [`crate::memory::state`].
    State = 0,
    /// Bytes of the message in the slot.
    Message = 1,
    /// Bytes of data in the slot.
    Data = 2,
    /// The most bytes of data that the answer may have.
    Wanted = 3,
    /// The owner waits at the socket of the slot.
    OwnerWaits = 4,
}

/// The states of a slot.
pub(crate) mod state {
    /// There is no call, or its answer.
    pub(crate) const IDLE: u32 = 0;
    /// There is a call. The client spins.
    pub(crate) const CALLED: u32 = 1;
    /// There is a call. The client waits at the socket of the slot.
    pub(crate) const AWAITED: u32 = 2;
    /// There is an answer.
    pub(crate) const ANSWERED: u32 = 3;
}

/// The words of all slots together.
#[derive(Clone, Copy)]
pub(crate) enum CommonWord {
    /// Counts the notices of the owner.
    Notices = 0,
    /// The client waits for a notice.
    NoticeAwaited = 1,
}

/// A mapping of the memory.
pub(crate) struct Memory {
    base: NonNull<u8>,
}

// SAFETY: the mapping belongs to no thread, and all access to it is by atomic words and copies.
unsafe impl Send for Memory {}
// SAFETY: as above. Threads that copy the same bytes at the same time get bytes without a meaning, as they do when the
// other process writes.
unsafe impl Sync for Memory {}

impl Memory {
    /// Creates the memory. Returns it with the descriptor for the other process.
    pub(crate) fn create() -> io::Result<(Memory, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let create = |flags| rustix::fs::memfd_create("polder-attach", flags);
        let file = match create(flags | MemfdFlags::NOEXEC_SEAL) {
            // Linux before 6.3 refuses this flag. Newer kernels can be configured to require it.
            Err(Errno::INVAL) => create(flags),
            created => created,
        }?;
        rustix::fs::ftruncate(&file, LENGTH as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Ok((Memory::map(&file)?, file))
    }

    /// Maps memory of the other process.
    ///
    /// # Errors
    /// It does not have the length of such memory, or can lose it.
    pub(crate) fn open(file: &OwnedFd) -> io::Result<Memory> {
        let has_length = rustix::fs::fstat(file)?.st_size == LENGTH as i64;
        if !has_length || !rustix::fs::fcntl_get_seals(file)?.contains(SEALS) {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        Memory::map(file)
    }

    fn map(file: &OwnedFd) -> io::Result<Memory> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so no other mapping is replaced.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), LENGTH, access, MapFlags::SHARED, file.as_fd(), 0)
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Memory { base })
    }

    pub(crate) fn word(&self, slot: usize, word: Word) -> &AtomicU32 {
        assert!(slot < SLOTS, "a slot that exists");
        self.word_at((slot + 1) * LINE + word as usize * size_of::<AtomicU32>())
    }

    pub(crate) fn common(&self, word: CommonWord) -> &AtomicU32 {
        self.word_at(word as usize * size_of::<AtomicU32>())
    }

    fn word_at(&self, at: usize) -> &AtomicU32 {
        assert!(
            at.is_multiple_of(align_of::<AtomicU32>()) && at + size_of::<AtomicU32>() <= PAGE,
            "within the words"
        );
        // SAFETY: the address is aligned and lies in the mapping, which lives as long as `self`. The other process
        // accesses the word by atomic operations too, and any value is valid.
        unsafe { self.base.add(at).cast().as_ref() }
    }

    pub(crate) fn write_message(&self, slot: usize, bytes: &[u8]) {
        assert!(bytes.len() <= MESSAGE_MAX, "the message fits");
        self.write(area(slot), bytes);
    }

    pub(crate) fn read_message(&self, slot: usize, into: &mut [u8]) {
        assert!(into.len() <= MESSAGE_MAX, "a message is not longer");
        self.read(area(slot), into);
    }

    pub(crate) fn write_data(&self, slot: usize, bytes: &[u8]) {
        assert!(bytes.len() <= DATA_MAX, "the data fits");
        self.write(area(slot) + MESSAGE_MAX, bytes);
    }

    pub(crate) fn read_data(&self, slot: usize, into: &mut [u8]) {
        assert!(into.len() <= DATA_MAX, "data is not longer");
        self.read(area(slot) + MESSAGE_MAX, into);
    }

    /// Returns the memory of a slot's data behind the first bytes to the system. These bytes are zeros then.
    pub(crate) fn release_data(&self, slot: usize, behind: usize) {
        let begin = (area(slot) + MESSAGE_MAX + behind).next_multiple_of(PAGE);
        let length = area(slot + 1).saturating_sub(begin);
        // Nothing depends on its success.
        // SAFETY: the range lies in the mapping, and only atomic words and copies access the mapping.
        let _ =
            unsafe { rustix::mm::madvise(self.base.add(begin).as_ptr().cast(), length, Advice::LinuxRemove) };
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= LENGTH), "within the memory");
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the range lies in the mapping, and `bytes` does not, because nothing refers to bytes of the mapping.
        // The other process can access the range meanwhile, which is no access of this program. The fences keep the
        // compiler from moving the copy, or from reading the range again in the place of `bytes`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at).as_ptr(), bytes.len()) };
        compiler_fence(Ordering::SeqCst);
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        assert!(at.checked_add(into.len()).is_some_and(|end| end <= LENGTH), "within the memory");
        compiler_fence(Ordering::SeqCst);
        // SAFETY: as in `write`. If the other process writes meanwhile, the copy has bytes without a meaning, and every
        // later look at `into` sees the same ones.
        unsafe { std::ptr::copy_nonoverlapping(self.base.add(at).as_ptr(), into.as_mut_ptr(), into.len()) };
        compiler_fence(Ordering::SeqCst);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nothing refers to it any more. An error leaves it mapped.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), LENGTH) };
    }
}

/// Where the message of a slot begins, and the data behind it.
fn area(slot: usize) -> usize {
    assert!(slot <= SLOTS, "a slot that exists, or the end");
    PAGE + slot * AREA
}
