//! Ending between two pieces of work when somebody wants the command to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use crate::inherited;

/// What the shell shows of a command that was ended by the keyboard.
const STATUS: i32 = 130;

/// Whether a signal that ends commands has come.
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes signals from now on: the first is seen by `has_come`, the second ends the command at once. To be
    /// called before other threads are started.
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

    pub(crate) fn has_come(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
