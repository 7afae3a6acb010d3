//! How many resets are running, and how many are over.

/// The counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resets {
    running: u32,
    over: u64,
}

impl Resets {
    pub(crate) fn begin(&mut self) {
        self.running += 1;
    }

    pub(crate) fn end(&mut self) {
        assert!(self.running > 0, "a reset ends that began");
        self.running -= 1;
        self.over += 1;
    }

    /// A zone was made available by other means: a thread that found none looks again.
    pub(crate) fn count_one_more(&mut self) {
        self.over += 1;
    }

    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    pub(crate) fn over(&self) -> u64 {
        self.over
    }
}
