//! One cycle: work, a crash, a check, a mount, and a comparison with what was acknowledged.

use std::time::Duration;

use anyhow::{Context, Result};
use rt::thread::Stop;

use crate::accept::programs::running::await_that;
use crate::accept::volume::Volume;

/// A program that works on a mount. Its acknowledged transactions are remembered outside of the volume.
pub(crate) trait Application {
    /// Starts to work.
    fn start(&mut self) -> Result<()>;

    /// Whether it has acknowledged enough for a crash. A program that has ended is ready; `finish` reports why it
    /// ended.
    fn is_ready(&mut self) -> Result<bool>;

    /// Its acknowledged transactions since `start`, for an error message.
    fn progress(&mut self) -> String;

    /// The mount is about to fail. From now on errors are expected, and acknowledgements do not count, because
    /// programs take some errors of a dead mount for success.
    fn brace(&mut self) -> Result<()>;

    /// The mount has failed or is failing. Waits until no part of the program runs. Returns the number of
    /// transactions acknowledged since `start`.
    fn finish(&mut self) -> Result<u64>;

    /// Checks the state after the next mount, and continues from it. Returns the number of transactions found.
    fn verify(&mut self) -> Result<u64>;
}

/// Works until the daemon crashes. Returns the number of acknowledged transactions.
pub(crate) fn work(
    volume: &Volume,
    application: &mut dyn Application,
    at: Duration,
    strike: impl FnOnce(&Volume) -> Result<()>,
) -> Result<u64> {
    application.start()?;
    let begun = await_that("the first transactions", || application.is_ready());
    let progress = application.progress();
    Stop::default().wait(at);
    let braced = application.brace();
    let struck = strike(volume);
    if struck.is_err() {
        // They wait for a mount that does not answer, and end with it.
        let _ = volume.strike();
    }
    let acknowledged = application.finish()?;
    begun.context(progress)?;
    braced?;
    struck?;
    retrieve(volume)?;
    Ok(acknowledged)
}

/// Removes the dead mount of a crashed daemon.
pub(crate) fn retrieve(volume: &Volume) -> Result<()> {
    volume.await_end()?;
    volume.detach()
}

/// Checks the volume, mounts it, and lets its application check the state.
pub(crate) fn recover(volume: &Volume, application: &mut dyn Application) -> Result<u64> {
    volume.check()?;
    volume.mount()?;
    application.verify()
}
