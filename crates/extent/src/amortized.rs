//! Work on all zones that zones which are opened or filled pay for: so seldom that each pays for a bounded number of
//! zones, however many the device has.

use rt::sync::atomic::{AtomicU64, Ordering};

/// Zones that one event pays for. On a device with no more of them all are worked on at each event.
const ZONES_PER_EVENT: u64 = 1024;

/// How many events have paid.
#[derive(Debug)]
pub(crate) struct Amortized {
    zones: u64,
    paid: AtomicU64,
}

impl Amortized {
    pub(crate) fn new(zones: u32) -> Amortized {
        Amortized { zones: zones.into(), paid: AtomicU64::new(0) }
    }

    /// One more event; whether the work is due.
    pub(crate) fn is_due(&self) -> bool {
        let paid = ZONES_PER_EVENT + self.paid.fetch_add(ZONES_PER_EVENT, Ordering::Relaxed);
        let is_due = paid >= self.zones;
        if is_due {
            self.paid.store(0, Ordering::Relaxed);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_pays_for_no_more_than_so_many_zones() {
        for zones in [1, 1000, 1024, 1025, 4096, 75_000] {
            let (amortized, events) = (Amortized::new(zones), 1000);
            let due = (0..events).filter(|_| amortized.is_due()).count() as u64;
            let most = (events * ZONES_PER_EVENT).div_ceil(zones.into()).min(events);
            assert!(due <= most && due >= most / 2, "{due} of {events} with {zones} zones");
        }
    }
}
