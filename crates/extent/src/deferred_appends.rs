//! Submitting appends. A planted fault defers them.
//!
//! With `break-data-before-record` a write returns before its appends are submitted. They are submitted when the next read or
//! write begins, so a record can become durable before its data. The test harness uses this, in one thread, to show that it
//! finds such a bug. No release defers an append.

use std::sync::Arc;

use rt::sync::Mutex;
use zone::{Blocks, Command, Device, Output};

use crate::open_zone::OpenZone;

/// The commands of this crate that append, and the appends that a planted fault defers.
pub(crate) struct Appends {
    device: Arc<dyn Device>,
    /// Each keeps its zone open.
    deferred: Mutex<Vec<(Arc<OpenZone>, Vec<u8>)>>,
}

impl Appends {
    pub(crate) fn new(device: &Arc<dyn Device>) -> Appends {
        Appends { device: Arc::clone(device), deferred: Mutex::default() }
    }

    /// Carries out appends to a zone, and reads beside them. Returns when all are complete at the device.
    pub(crate) fn run(&self, open: &Arc<OpenZone>, commands: &mut [Command<'_>]) -> Vec<Output> {
        match rt::is_planted("break-data-before-record") {
            false => self.device.run(commands),
            true => commands.iter_mut().map(|command| self.defer(open, command)).collect(),
        }
    }

    /// Submits the deferred appends.
    pub(crate) fn submit_deferred(&self) {
        if !rt::is_planted("break-data-before-record") {
            return;
        }
        for (open, data) in std::mem::take(&mut *self.deferred.lock()) {
            if let Err(error) = self.device.append(open.lease.zone(), &data) {
                tracing::warn!("a deferred append has failed: {error}");
            }
        }
    }

    /// Defers an append, and returns its future place.
    fn defer(&self, open: &Arc<OpenZone>, command: &mut Command<'_>) -> Output {
        let Command::Append { zone, from } = *command else {
            return self.device.run(std::slice::from_mut(command)).remove(0);
        };
        let info = match self.device.report_zone(zone) {
            Ok(info) if info.state.has_pointer() => info,
            _ => return self.device.append(zone, from),
        };
        assert_eq!(zone, open.lease.zone(), "appends go to the open zone");
        let mut deferred = self.deferred.lock();
        let before = deferred.iter().filter(|(open, _)| open.lease.zone() == zone);
        let bytes: usize = before.map(|(_, data)| data.len()).sum();
        deferred.push((Arc::clone(open), from.to_vec()));
        Ok(info.pointer + (bytes / self.device.geometry().block_size as usize) as Blocks)
    }
}

impl Drop for Appends {
    fn drop(&mut self) {
        self.submit_deferred();
    }
}
