//! An open zone of data: its lease, its reverse map, and the count of open zones.

use std::sync::Arc;

use rt::sync::atomic::{AtomicU8, Ordering};
use rt::sync::{Condvar, Mutex};
use zone::Lease;

use crate::Lifetime;
use crate::reverse::ZoneMap;

/// A zone that takes data.
pub(crate) struct OpenZone {
    // Drop order: a thread that is notified of a returned lease must find it returned.
    pub(crate) lease: Lease,
    pub(crate) map: Arc<Mutex<ZoneMap>>,
    /// The number of the lifetime class for which it was last chosen.
    class: AtomicU8,
    _counted: CountedOpen,
}

impl OpenZone {
    pub(crate) fn new(lease: Lease, map: Arc<Mutex<ZoneMap>>, open_count: &Arc<OpenCount>) -> OpenZone {
        OpenZone { lease, map, class: AtomicU8::new(0), _counted: CountedOpen::new(open_count) }
    }

    /// It was chosen for data of this class.
    pub(crate) fn set_lifetime(&self, lifetime: Lifetime) {
        self.class.store(lifetime.number(), Ordering::Relaxed);
    }

    /// The lifetime class for which it was last chosen.
    pub(crate) fn lifetime(&self) -> Lifetime {
        Lifetime::from_number(self.class.load(Ordering::Relaxed)).unwrap_or_default()
    }
}

/// Counts the open zones. A thread can wait until one of them closes.
#[derive(Default)]
pub(crate) struct OpenCount {
    /// Open zones now, and zones that have closed.
    counts: Mutex<(usize, u64)>,
    changed: Condvar,
}

/// Counts one open zone until it is dropped.
struct CountedOpen(Arc<OpenCount>);

impl CountedOpen {
    fn new(open_count: &Arc<OpenCount>) -> Self {
        open_count.counts.lock().0 += 1;
        CountedOpen(Arc::clone(open_count))
    }
}

impl Drop for CountedOpen {
    fn drop(&mut self) {
        let mut counts = self.0.counts.lock();
        assert!(counts.0 > 0, "a zone that closes was open");
        counts.0 -= 1;
        counts.1 += 1;
        self.0.changed.notify_all();
    }
}

impl OpenCount {
    /// Zones that have closed.
    pub(crate) fn closed(&self) -> u64 {
        self.counts.lock().1
    }

    /// Waits until a zone has closed since `seen` was read. Returns false if no zone is open.
    pub(crate) fn wait(&self, seen: u64) -> bool {
        let mut counts = self.counts.lock();
        while counts.1 == seen && counts.0 > 0 {
            self.changed.wait(&mut counts);
        }
        counts.1 != seen
    }
}
