//! Work on all zones, spread over events: a zone is opened or filled. It is due so seldom that each event costs a
//! bounded number of zones, however many the device has.

use rt::sync::atomic::{AtomicU64, Ordering};

/// The cost of an event, in zones. On a device with no more of them, the work is due at each event.
const ZONES_PER_EVENT: u64 = 1024;

/// The events since the work was last due.
#[derive(Debug)]
pub(crate) struct Amortized {
    zones: u64,
    zones_covered: AtomicU64,
}

impl Amortized {
    pub(crate) fn new(zones: u32) -> Amortized {
        Amortized { zones: zones.into(), zones_covered: AtomicU64::new(0) }
    }

    /// Counts an event. Returns whether the work is due.
    pub(crate) fn is_due(&self) -> bool {
        let zones_covered =
            ZONES_PER_EVENT + self.zones_covered.fetch_add(ZONES_PER_EVENT, Ordering::Relaxed);
        let is_due = zones_covered >= self.zones;
        if is_due {
            self.zones_covered.store(0, Ordering::Relaxed);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_an_event_is_bounded() {
        for zones in [1, 1000, 1024, 1025, 4096, 75_000] {
            let (amortized, events) = (Amortized::new(zones), 1000);
            let due = (0..events).filter(|_| amortized.is_due()).count() as u64;
            let most = (events * ZONES_PER_EVENT).div_ceil(zones.into()).min(events);
            assert!(due <= most && due >= most / 2, "{due} of {events} with {zones} zones");
        }
    }
}
