//! Which log zones recovery can do without if the log has no other zone to continue in.

use zone::{Address, ZoneId, ZoneInfo, ZoneState};

use super::LogContents;
use crate::format::BatchKind;
use crate::scan::Found;

impl LogContents {
    /// The log zones that may be given up if the log has no other zone to continue in. These are the zones that the
    /// checkpoint has replaced, and zones with nothing but seals without which the log reads the same.
    ///
    /// The newest seal may be among them. A mount resets nothing that recovery may still need on the strength of its
    /// seal alone (`sort_zones`). It also takes a checkpoint before anything else if its seal took the last zone of
    /// the log (`Log::checkpoint_first`).
    ///
    /// Zones with a successor mark are among them only if there are no others.
    pub(super) fn to_give_up(&self) -> Vec<ZoneId> {
        let replay_from = Address::from_bits(self.checkpoint.header.replay_from.get());
        let kept = [self.checkpoint.at, self.named, self.replay_from, replay_from].map(Address::zone);
        let writable = |info: &ZoneInfo| !matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline);
        let zones = self.zones.iter().filter(|(_, info)| writable(info)).map(|(identity, _)| identity.zone);
        let (mut given_up, mut sealed) = (Vec::new(), Vec::new());
        for zone in zones.filter(|zone| !kept.contains(zone)) {
            let here = || self.batches.iter().filter(|found| found.at.zone() == zone);
            let seals = here().filter(|found| found.kind == BatchKind::Seal).map(|found| found.epoch);
            let all: Vec<u64> = sealed.iter().copied().chain(seals).collect();
            if !here().any(|found| self.counts(found))
                && all.iter().all(|&seal| self.can_do_without(seal, &all))
            {
                given_up.push(zone);
                sealed = all;
            }
        }
        if given_up.iter().any(|zone| !self.is_marked(*zone)) {
            given_up.retain(|zone| !self.is_marked(*zone));
        }
        given_up
    }

    /// Whether a batch may have records that are not in the checkpoint, or states that such records are durable.
    fn counts(&self, found: &Found) -> bool {
        let holds_records = found.first <= found.last;
        let until = if holds_records { found.last } else { found.known_durable };
        found.kind == BatchKind::Journal && until > self.checkpoint.header.cut.get()
    }

    /// Whether the log reads the same without the seal of this epoch and without `others`.
    ///
    /// A seal before the checkpoint is needed only to end the records of an epoch before it. A seal after the
    /// checkpoint is needed only if something counts that was written between it and the next remaining seal.
    fn can_do_without(&self, epoch: u64, others: &[u64]) -> bool {
        let mut written = self.batches.iter().filter(|found| self.counts(found)).map(|found| found.epoch);
        if epoch <= self.checkpoint.epoch {
            return written.all(|written| written >= epoch);
        }
        let until = self.seals.next_but(epoch, others).unwrap_or(u64::MAX);
        !written.any(|written| (epoch..until).contains(&written))
    }
}
