//! Submitting appends of data; and how that looks when data need not precede its record.
//!
//! With `break-data-before-record` a write returns before its appends are submitted: they follow when
//! the next read or write begins, so a record can become durable before its data. The harness uses
//! this, from one thread, to see that it notices; in no release is anything ever put off.

use std::sync::Arc;

use rt::sync::Mutex;
use zone::{Blocks, Command, Output};

use crate::Extents;
use crate::place::OpenZone;

/// Appends that are to follow; each keeps its zone open.
#[derive(Default)]
pub(crate) struct Deferred(Mutex<Vec<(Arc<OpenZone>, Vec<u8>)>>);

impl Extents {
    /// Appends, and reads what is to be read beside, and returns when all of it is complete at the device.
    pub(crate) fn submit(&self, open: &Arc<OpenZone>, commands: &mut [Command<'_>]) -> Vec<Output> {
        match rt::is_planted("break-data-before-record") {
            false => self.device.run(commands),
            true => self.put_off(open, commands),
        }
    }

    /// Submits what was put off.
    pub(crate) fn catch_up(&self) {
        if !rt::is_planted("break-data-before-record") {
            return;
        }
        for (open, data) in std::mem::take(&mut *self.deferred.0.lock()) {
            if let Err(error) = self.device.append(open.lease.zone(), &data) {
                tracing::warn!("an append that was put off has failed: {error}");
            }
        }
    }

    /// Puts the appends off, and says where they will land.
    fn put_off(&self, open: &Arc<OpenZone>, commands: &mut [Command<'_>]) -> Vec<Output> {
        self.catch_up();
        let info = match self.device.report_zone(open.lease.zone()) {
            Ok(info) if info.state.has_pointer() => info,
            _ => return self.device.run(commands),
        };
        let mut next = info.pointer;
        let mut deferred = self.deferred.0.lock();
        let defer = commands.iter_mut().map(|command| match command {
            Command::Append { from, .. } => {
                deferred.push((Arc::clone(open), from.to_vec()));
                let place = next;
                next += (from.len() / self.block_size() as usize) as Blocks;
                Ok(place)
            }
            Command::Read { .. } => self.device.run(std::slice::from_mut(command)).remove(0),
        });
        defer.collect()
    }
}

impl Drop for Extents {
    fn drop(&mut self) {
        self.catch_up();
    }
}
