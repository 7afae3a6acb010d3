//! Records changes of the host and injects errors in tests. Outside tests it does nothing.

use std::io::Result;

/// Sees every change before the host executes it.
#[derive(Default)]
pub(crate) struct HostRecorder {
    #[cfg(test)]
    seen: rt::sync::Mutex<Vec<HostChange>>,
    /// The number of writes and syncs that still succeed; `None`: all.
    #[cfg(test)]
    successes_left: rt::sync::Mutex<Option<u32>>,
}

/// A change that is requested from the host.
#[cfg(test)]
#[derive(Clone, Debug)]
pub(crate) enum HostChange {
    Write { offset: u64, bytes: Vec<u8> },
    Punch { offset: u64, length: u64 },
    Sync,
}

#[cfg(not(test))]
impl HostRecorder {
    #[inline(always)]
    pub(super) fn write(&self, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    #[inline(always)]
    pub(super) fn punch(&self, _offset: u64, _length: u64) {}

    #[inline(always)]
    pub(super) fn sync(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
impl HostRecorder {
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_fault()?;
        self.seen.lock().push(HostChange::Write { offset, bytes: bytes.to_vec() });
        Ok(())
    }

    pub(super) fn punch(&self, offset: u64, length: u64) {
        self.seen.lock().push(HostChange::Punch { offset, length });
    }

    /// A sync is recorded after it has completed.
    pub(super) fn sync(&self) -> Result<()> {
        self.check_fault()?;
        self.seen.lock().push(HostChange::Sync);
        Ok(())
    }

    fn check_fault(&self) -> Result<()> {
        match &mut *self.successes_left.lock() {
            Some(0) => Err(std::io::Error::other("a fault was injected")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Lets `successes` writes and syncs succeed and all later ones fail; `None` removes the fault.
    pub(crate) fn fail_after(&self, successes: Option<u32>) {
        *self.successes_left.lock() = successes;
    }

    pub(crate) fn seen(&self) -> Vec<HostChange> {
        self.seen.lock().clone()
    }

    pub(crate) fn seen_count(&self) -> usize {
        self.seen.lock().len()
    }
}
