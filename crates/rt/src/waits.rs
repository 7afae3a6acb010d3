//! What a thread does before it waits.
//!
//! A thread on which others depend can let another one take its place before it waits. The locks of [`crate::sync`]
//! call [`about_to_wait`] if they are not free. A call to the system that waits for a device must be preceded by it.
//! Under the scheduler of the feature `shuttle` the locks do not call it.

use std::cell::RefCell;

/// See [`call_before_waits`].
type BeforeWait = Box<dyn Fn(WaitFor)>;

thread_local! {
    static BEFORE_WAITS: RefCell<Option<BeforeWait>> = const { RefCell::new(None) };
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// Another thread, at a lock or a condition.
    Thread,
    /// A device.
    Device,
}

/// Has `before` called whenever this thread is about to wait for a lock, for a condition or for a device, until the
/// guard is dropped. It may wait itself, and is not called for that.
///
/// # Panics
/// If something is called already.
pub fn call_before_waits(before: impl Fn(WaitFor) + 'static) -> BeforeWaits {
    let replaced = BEFORE_WAITS.replace(Some(Box::new(before)));
    assert!(replaced.is_none(), "one call before the waits of a thread");
    BeforeWaits(())
}

/// Ends the calls of [`call_before_waits`].
#[derive(Debug)]
pub struct BeforeWaits(());

impl Drop for BeforeWaits {
    fn drop(&mut self) {
        BEFORE_WAITS.set(None);
    }
}

/// This thread is about to wait.
pub fn about_to_wait(what: WaitFor) {
    // Other thread-locals that are dropped at the end of a thread may take locks.
    let before = BEFORE_WAITS.try_with(RefCell::take).ok().flatten();
    if let Some(before) = before {
        before(what);
        BEFORE_WAITS.set(Some(before));
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
