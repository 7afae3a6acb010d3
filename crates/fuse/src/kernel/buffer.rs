//! Memory for transfers that lies on a page, as direct I/O wants it: what lies elsewhere is copied once more below.

/// What is aligned to. On machines with larger pages devices want no more either.
pub(super) const ALIGNMENT: usize = 4096;

/// Bytes that are never moved or made longer. Those that nobody touches take no memory.
pub(crate) struct PageBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl PageBuffer {
    /// So many bytes from the beginning of a page on, and `head` bytes before them.
    pub(crate) fn new(head: usize, length: usize) -> Self {
        let bytes = vec![0; head + ALIGNMENT + length];
        let aligned = head + bytes[head..].as_ptr().align_offset(ALIGNMENT);
        assert!(aligned + length <= bytes.len(), "the next page is less than a page away");
        PageBuffer { bytes, start: aligned - head }
    }

    /// Head and bytes, and what is left behind them.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}
