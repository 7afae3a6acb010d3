//! Memory for transfers that lies on a page, as direct I/O wants it: what lies elsewhere is copied once more below.

/// What is aligned to. On machines with larger pages devices want no more either.
pub(super) const ALIGNMENT: usize = 4096;

/// Bytes that are never moved or made longer.
pub(crate) struct PageBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl PageBuffer {
    /// So many bytes from the beginning of a page on, and `head` bytes before them. Those that nobody touches take no
    /// memory.
    pub(crate) fn new(head: usize, length: usize) -> Self {
        Self::placed(vec![0; Self::bytes_for(head, length)], head, length)
    }

    /// The same, if there is memory for all of them.
    pub(super) fn try_new(head: usize, length: usize) -> Option<Self> {
        Some(Self::placed(zeros(Self::bytes_for(head, length))?, head, length))
    }

    /// Bytes that lie anywhere, if there is memory for them.
    pub(super) fn try_anywhere(length: usize) -> Option<Self> {
        Some(PageBuffer { bytes: zeros(length)?, start: 0 })
    }

    /// What [`Self::new`] takes, so that there is a page to begin on.
    pub(super) const fn bytes_for(head: usize, length: usize) -> usize {
        head + ALIGNMENT + length
    }

    fn placed(bytes: Vec<u8>, head: usize, length: usize) -> Self {
        let aligned = head + bytes[head..].as_ptr().align_offset(ALIGNMENT);
        assert!(aligned + length <= bytes.len(), "the next page is less than a page away");
        PageBuffer { bytes, start: aligned - head }
    }

    /// Head and bytes, and what is left behind them.
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
