//! Ends a command between two pieces of work after a signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use crate::inherited;

/// The exit status that a shell reports for a command interrupted with Ctrl-C.
const STATUS: i32 = 130;

/// Whether a signal that ends commands has arrived.
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Handles signals from now on: `has_arrived` reports the first, and the second ends the command at once. Must be called
    /// before other threads are started.
    pub(crate) fn watch() -> Result<Interrupt> {
        let signals = inherited::block_signals()?;
        let come = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&come);
        rt::thread::spawn("polder-interrupt", move || {
            while signals.wait().is_ok() {
                if seen.swap(true, Ordering::SeqCst) {
                    std::process::exit(STATUS);
                }
            }
        })?;
        Ok(Interrupt(come))
    }

    pub(crate) fn has_arrived(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
