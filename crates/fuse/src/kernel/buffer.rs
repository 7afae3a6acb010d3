//! Memory for transfers that begins on a page, as direct I/O requires. Other memory is copied once more in lower
//! layers.

/// The alignment. Devices require no more on machines with larger pages either.
pub(super) const ALIGNMENT: usize = 4096;

/// A buffer that is never moved or extended.
pub(crate) struct PageBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl PageBuffer {
    /// `length` bytes that begin on a page, and `head` bytes before them. Untouched bytes take no memory.
    pub(crate) fn new(head: usize, length: usize) -> Self {
        Self::placed(vec![0; Self::bytes_for(head, length)], head, length)
    }

    /// The same. None if there is no memory.
    pub(super) fn try_new(head: usize, length: usize) -> Option<Self> {
        Some(Self::placed(zeros(Self::bytes_for(head, length))?, head, length))
    }

    /// Bytes without alignment. None if there is no memory.
    pub(super) fn try_anywhere(length: usize) -> Option<Self> {
        Some(PageBuffer { bytes: zeros(length)?, start: 0 })
    }

    /// The number of bytes that [`Self::new`] allocates for the alignment.
    pub(super) const fn bytes_for(head: usize, length: usize) -> usize {
        head + ALIGNMENT + length
    }

    fn placed(bytes: Vec<u8>, head: usize, length: usize) -> Self {
        let aligned = head + bytes[head..].as_ptr().align_offset(ALIGNMENT);
        assert!(aligned + length <= bytes.len(), "the next page is less than a page away");
        PageBuffer { bytes, start: aligned - head }
    }

    /// The head, the aligned bytes, and the bytes behind them.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

fn zeros(count: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(count).ok()?;
    bytes.resize(count, 0);
    Some(bytes)
}
