//! Submitting appends of data; and how that looks when data need not precede its record.
//!
//! With `break-data-before-record` a write returns before its appends are submitted: they follow when
//! the next read or write begins, so a record can become durable before its data. The harness uses
//! this, from one thread, to see that it notices; no release is built so.

#[cfg(not(feature = "break-data-before-record"))]
mod ordered {
    use std::sync::Arc;

    use zone::{Command, Output};

    use crate::Extents;
    use crate::place::OpenZone;

    /// Nothing is ever put off.
    #[derive(Default)]
    pub(crate) struct Deferred(());

    impl Extents {
        /// Appends, and returns when all of it is complete at the device.
        pub(crate) fn submit(&self, _open: &Arc<OpenZone>, commands: &mut [Command<'_>]) -> Vec<Output> {
            self.device.run(commands)
        }

        /// Submits what was put off.
        pub(crate) fn catch_up(&self) {
            let Deferred(()) = self.deferred;
        }
    }
}

#[cfg(feature = "break-data-before-record")]
mod broken {
    use std::sync::Arc;

    use rt::sync::Mutex;
    use zone::{Blocks, Command, Output};

    use crate::Extents;
    use crate::place::OpenZone;

    /// Appends that are to follow; each keeps its zone open.
    #[derive(Default)]
    pub(crate) struct Deferred(Mutex<Vec<(Arc<OpenZone>, Vec<u8>)>>);

    impl Extents {
        /// Puts the appends off, and says where they will land.
        pub(crate) fn submit(&self, open: &Arc<OpenZone>, commands: &mut [Command<'_>]) -> Vec<Output> {
            self.catch_up();
            let info = match self.device.report_zone(open.lease.zone()) {
                Ok(info) if info.state.has_pointer() => info,
                _ => return self.device.run(commands),
            };
            let mut next = info.pointer;
            let mut deferred = self.deferred.0.lock();
            let defer = commands.iter().map(|command| match command {
                Command::Append { from, .. } => {
                    deferred.push((Arc::clone(open), from.to_vec()));
                    let place = next;
                    next += (from.len() / self.block_size() as usize) as Blocks;
                    Ok(place)
                }
                Command::Read { .. } => unreachable!("only appends are submitted here"),
            });
            defer.collect()
        }

        /// Submits what was put off.
        pub(crate) fn catch_up(&self) {
            for (open, data) in std::mem::take(&mut *self.deferred.0.lock()) {
                if let Err(error) = self.device.append(open.lease.zone(), &data) {
                    tracing::warn!("an append that was put off has failed: {error}");
                }
            }
        }
    }

    impl Drop for Extents {
        fn drop(&mut self) {
            self.catch_up();
        }
    }
}

#[cfg(feature = "break-data-before-record")]
pub(crate) use broken::Deferred;
#[cfg(not(feature = "break-data-before-record"))]
pub(crate) use ordered::Deferred;
