//! The switch from one log zone to the next.
//!
//! The place where the log continues is durable before any record is acknowledged there. Otherwise a crash after which
//! the newer zone cannot be read would make recovery take the older one for the newest, and the loss would not be
//! reported. A **successor mark** prevents this: an empty batch that names the next zone. The order, at every switch
//! of the log:
//!
//! 1. The next zone gets its header and a first batch, and they are flushed. By sequence that batch comes after the
//!    mark.
//! 2. The mark is appended outside the next zone.
//! 3. The next flush makes the mark durable. Only after it may records be acknowledged.
//!
//! So a newer batch is durable before a mark can be. If a mark is the newest batch of all that recovery finds, records
//! are lost, in any state of the named zone (`recover/missing.rs`). A crash alone never leads to this state.
//!
//! The mark goes to the old zone. If that zone has failed, it is tried once more. If it does not accept the mark, a
//! third zone does, the **witness**. If there is none, nothing is acknowledged any more, unless the old zone is
//! read-only: recovery does not take a read-only zone for the newest if another one cannot be read. A zone that a loss
//! of power has filled accepts no mark either. Then recovery admits nothing before a checkpoint, after which that zone
//! is reset.
//!
//! A mark must outlast the zones without one. So these are reset first, and the others once a flush has made these
//! resets durable. A zone that cannot be reset is **silent**. As long as there is one, the newest zone with a mark is
//! retained as the witness until the log needs it.
//!
//! The information in a mark is needed only here. A mark states no LSN to be durable, so recovery can give up a zone
//! that contains nothing else.

use pool::{LOG_ZONES_WITHIN, Usage};
use rt::sync::atomic::Ordering;
use std::sync::Arc;
use zerocopy::little_endian::{U32, U64};
use zone::{Address, Cause, DeviceError, Lease, Role, ZoneId, ZoneState};

use super::{Appended, Io, Log};
use crate::format::BatchKind;
use crate::scan::next_life;
use crate::types::{Epoch, Result, StoreError};

/// A log zone that is no longer in use, until a checkpoint has replaced it and it is reset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OldZone {
    pub(crate) zone: ZoneId,
    /// Its last batch is a successor mark.
    pub(crate) is_marked: bool,
}

/// The position of a successor mark in the order of batches: newer than all batches appended before it, and older than
/// the first batch of the next zone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) epoch: Epoch,
    pub(super) sequence: u64,
}

impl Log {
    /// Called before a checkpoint's cut. The journal moves to the next zone, and a checkpoint has to follow it there.
    /// All submitted records have been appended, in this epoch or an earlier one.
    pub(super) fn switch(&self, io: &mut Io, epoch: Epoch) -> Result<()> {
        let old = io.lease.take();
        match self.begin_next(io, &[self.empty_batch(io, epoch)]) {
            Ok((mark, _)) => {
                // If the next zone fails, batches that are not durable are appended to a third zone. They must not come
                // from two zones, so the old zone is flushed now.
                if !rt::is_planted("break-flush-before-mark") {
                    self.flush(io)?;
                }
                if let Some(old) = old {
                    let left = self.leave(io, old, &mark)?;
                    io.previous.push(left);
                }
            }
            Err(StoreError::Device(error @ DeviceError::TooManyOpen { .. })) => {
                io.lease = old;
                self.switch_in_one_slot(io, epoch, &error)?;
            }
            Err(error) => return Err(error),
        }
        if rt::is_planted("break-log-reset-after-checkpoint") {
            for left in std::mem::take(&mut io.previous) {
                self.retire(left.zone);
            }
        }
        self.moved(io);
        Ok(())
    }

    /// The log zone in use accepts no more. All batches that are not durable are appended to the next one, and then
    /// this batch.
    pub(super) fn fail_over(&self, io: &mut Io, batch: Appended, error: &DeviceError) -> Result<Address> {
        tracing::warn!(%error, "the log zone failed; the log moves to the standby");
        let old = io.lease.take();
        let mut again = std::mem::take(&mut io.unflushed);
        again.push(batch);
        let (mark, at) = self.begin_next(io, &again)?;
        io.unflushed = again;
        if !rt::is_planted("break-flush-before-mark") {
            // This flushes only the device. Nothing is acknowledged before the mark is durable as well.
            self.device.flush()?;
        }
        if let Some(old) = old {
            let left = self.leave(io, old, &mark)?;
            io.outlived.push(left);
        }
        self.moved(io);
        Ok(at)
    }

    fn moved(&self, io: &Io) {
        self.state.lock().room = io.room();
        self.checkpoint_due.store(true, Ordering::Release);
    }

    /// Begins a zone with these batches, and another one if that fails. Returns the mark that precedes them, and the
    /// address of the last of them.
    fn begin_next(&self, io: &mut Io, batches: &[Appended]) -> Result<(Mark, Address)> {
        let epoch = batches.last().expect("a log zone begins with a batch").epoch;
        loop {
            let mark = Mark { epoch, sequence: io.next_sequence() };
            io.lease = Some(self.begin_standby(io)?);
            let mut appended = Ok(Address::NONE);
            for batch in batches {
                appended = appended.and_then(|_| self.append_to_zone(io, batch));
            }
            match appended {
                Ok(at) => return Ok((mark, at)),
                Err(StoreError::Device(error)) if error.ends_zone() => {
                    let failed = io.lease.take().expect("it was begun above");
                    let zone = self.close(failed);
                    tracing::warn!(zone = zone.0, %error, "a zone cannot be used for the log");
                    // The mark that names the replacement is newer than the contents of this zone.
                    io.outlived.push(OldZone { zone, is_marked: false });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Leaves the old log zone: it gets its mark, and its slot is freed. A failed zone is never used again in this
    /// mount.
    fn leave(&self, io: &mut Io, old: Lease, mark: &Mark) -> Result<OldZone> {
        if rt::is_planted("break-successor-mark") {
            return Ok(OldZone { zone: self.close(old), is_marked: true });
        }
        let is_marked = self.append_mark(io, &old, mark);
        let zone = self.close(old);
        io.is_marked |= is_marked;
        if !is_marked {
            self.begin_witness(io, &[zone], mark)?;
        }
        Ok(OldZone { zone, is_marked })
    }

    /// Closes a log zone for good, and frees its slot.
    fn close(&self, lease: Lease) -> ZoneId {
        let zone = lease.zone();
        if let Err(error) = self.device.finish(zone) {
            tracing::warn!(zone = zone.0, %error, "a log zone cannot be finished");
        }
        if lease.has_failed() {
            self.pool.retire(zone);
        }
        zone
    }

    /// Whether the zone is read-only or offline.
    fn takes_no_mark(&self, zone: ZoneId) -> bool {
        let state = self.device.report_zone(zone).map(|info| info.state);
        matches!(state, Ok(ZoneState::ReadOnly | ZoneState::Offline))
    }

    /// Appends the mark that names the zone in use. Returns whether the zone accepted it. A failed zone may accept it:
    /// only one command failed, and a batch behind a torn one is found.
    fn append_mark(&self, io: &Io, to: &Lease, mark: &Mark) -> bool {
        let is_active = self.device.report_zone(to.zone()).is_ok_and(|info| info.state.is_active());
        if !is_active || !(to.has_failed() || to.admit(1, 0)) {
            return false;
        }
        let next = io.lease.as_ref().expect("the log has moved there");
        let mut batch = self.empty_batch(io, mark.epoch);
        batch.header.successor = U32::new(next.zone().0 + 1);
        batch.header.successor_life = U32::new(next.life().0);
        let bytes = self.encode(to, mark.sequence, &batch);
        let appended = to.append(Cause::Journal, &bytes);
        appended
            .inspect_err(|error| tracing::warn!(%error, "the end mark cannot be written to a log zone"))
            .is_ok()
    }

    /// Begins a zone that contains only the mark, because the `silent` zones have none.
    fn begin_witness(&self, io: &mut Io, silent: &[ZoneId], mark: &Mark) -> Result<()> {
        loop {
            let witness = match self.begin_standby(io) {
                Ok(witness) => witness,
                Err(StoreError::ShutDown(why)) if silent.iter().all(|&zone| self.takes_no_mark(zone)) => {
                    tracing::warn!(%why, "the end mark of the log cannot be written, because the zone is read-only");
                    io.is_marked = false;
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            let is_marked = self.append_mark(io, &witness, mark);
            let zone = self.close(witness);
            if is_marked {
                io.is_marked = true;
                io.outlived.push(OldZone { zone, is_marked });
                return Ok(());
            }
            // It has no batch, so recovery skips it.
            self.pool.retire(zone);
        }
    }

    /// A batch without records. With the number of a zone it is a mark, without one it begins a zone.
    fn empty_batch(&self, io: &Io, epoch: Epoch) -> Appended {
        let mut header = self.header(io, 0, io.appended + 1, io.appended);
        header.known_durable = U64::ZERO;
        Appended { kind: BatchKind::Journal, epoch, header, body: Vec::new() }
    }

    /// Switches if the device has no slot for a second log zone, because some zone could not be finished. The mark
    /// comes first, then the next zone. Recovery accepts such a mark only if the device refuses to read the zone that
    /// it names.
    fn switch_in_one_slot(&self, io: &mut Io, epoch: Epoch, error: &DeviceError) -> Result<()> {
        tracing::warn!(%error, "the log moves to another zone without a standby");
        let next = (0..LOG_ZONES_WITHIN).find(|&zone| self.pool.is_free(ZoneId(zone)));
        if let (Some(next), 1..) = (next, io.room()) {
            let mut batch = self.empty_batch(io, epoch);
            batch.header.successor = U32::new(next + 1);
            let before = io.zone();
            self.append(io, batch)?;
            if io.zone() != before {
                return Ok(());
            }
        }
        self.flush(io)?;
        if let Some(old) = io.lease.take() {
            io.previous.push(OldZone { zone: self.close(old), is_marked: false });
        }
        io.is_marked = false;
        io.lease = Some(self.begin_standby(io)?);
        Ok(())
    }

    // ---- zones -------------------------------------------------------------------------------

    /// Begins a free zone, or the witness if there is none.
    pub(super) fn begin_standby(&self, io: &mut Io) -> Result<Lease> {
        loop {
            if let Some(lease) = self.begin_free()? {
                return Ok(lease);
            }
            let witness = io.witness.take().ok_or_else(|| {
                StoreError::ShutDown(Arc::from("none of the first four zones can be used for the log"))
            })?;
            self.pool.give_back(witness, false);
        }
    }

    fn begin_free(&self) -> Result<Option<Lease>> {
        for zone in (0..LOG_ZONES_WITHIN).map(ZoneId) {
            if !self.pool.take_zone(zone) {
                continue;
            }
            match self.begin_log_zone(zone) {
                Ok(lease) => return Ok(Some(lease)),
                Err(StoreError::Device(error)) if error.ends_zone() => {
                    tracing::warn!(zone = zone.0, %error, "a zone cannot be used for the log");
                    self.pool.retire(zone);
                }
                Err(error) => {
                    self.pool.give_back(zone, false);
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    fn begin_log_zone(&self, zone: ZoneId) -> Result<Lease> {
        let life = next_life(&*self.device, self.fs_id, &self.pool, zone)?;
        if self.device.report_zone(zone)?.state != ZoneState::Empty {
            self.device.reset(zone)?;
        }
        let lease = self.leases.begin(zone, life, Role::Log)?;
        self.pool.open_for_store(zone, life, Role::Log, lease.capacity());
        Ok(lease)
    }

    /// Resets the log zones that a durable checkpoint has replaced. The mark is older than the record of the
    /// checkpoint.
    pub(super) fn retire_all(&self, replaced: Vec<OldZone>, mark: &Mark) -> Result<()> {
        let (mut marked, unmarked): (Vec<OldZone>, Vec<OldZone>) =
            replaced.into_iter().partition(|left| left.is_marked);
        let silent: Vec<ZoneId> =
            unmarked.iter().map(|left| left.zone).filter(|&zone| !self.retire(zone)).collect();
        if !unmarked.is_empty() && !marked.is_empty() {
            self.device.flush()?;
        }
        self.leading(|io| {
            io.silent.extend(silent);
            if !io.silent.is_empty() {
                io.witness = marked.pop().map(|left| left.zone);
            }
            Ok(())
        })?;
        for left in marked {
            self.retire(left.zone);
        }
        self.leading(|io| {
            // These zones have no mark that the log is in the zone in use. The witness has it.
            if !io.is_marked && !io.silent.is_empty() {
                let silent = io.silent.clone();
                self.begin_witness(io, &silent, mark)?;
            }
            Ok(())
        })
    }

    /// Resets a log zone that a checkpoint has replaced. Returns whether that was possible.
    pub(super) fn retire(&self, zone: ZoneId) -> bool {
        match self.device.reset(zone).and_then(|()| self.device.report_zone(zone)) {
            Ok(info) if self.pool.usage(zone) == Usage::Retired => {
                self.pool.forget_role(zone);
                self.pool.set_info(zone, info);
                true
            }
            Ok(info) => {
                self.pool.freed(zone, info);
                true
            }
            Err(error) => {
                tracing::warn!(zone = zone.0, %error, "a log zone could not be reset");
                self.pool.retire(zone);
                false
            }
        }
    }
}

impl Io {
    /// The zones that the newest durable checkpoint frees, in the order in which the log left them.
    pub(super) fn take_replaced(&mut self) -> Vec<OldZone> {
        let witness = self.witness.take().map(|zone| OldZone { zone, is_marked: true });
        witness.into_iter().chain(self.previous.drain(..)).collect()
    }
}
