//! One cycle: work, a crash, a check, a mount, and a comparison with what was acknowledged.

use std::time::Duration;

use anyhow::{Context, Result};
use rt::thread::Stop;

use crate::accept::programs::running::await_that;
use crate::accept::volume::Volume;

/// A program at work on a mount. What it acknowledged is remembered outside of the volume.
pub(crate) trait Application {
    /// Begins to work.
    fn start(&mut self) -> Result<()>;

    /// Whether it has acknowledged enough for a crash. One that has ended is ready; `finish` says why it has.
    fn is_ready(&mut self) -> Result<bool>;

    /// What it has acknowledged since `start`, for when that is not enough.
    fn progress(&mut self) -> String;

    /// The mount is about to go: from now on errors are no surprise, and what is acknowledged need not be true,
    /// because programs take some errors of a dead mount for success.
    fn brace(&mut self) -> Result<()>;

    /// The mount is gone, or going: waits until nothing of it runs, and returns how many transactions were
    /// acknowledged since `start`.
    fn finish(&mut self) -> Result<u64>;

    /// Judges what is there after the next mount, and goes on from that; returns how many transactions it has found.
    fn verify(&mut self) -> Result<u64>;
}

/// Works until the daemon crashes; returns how many transactions were acknowledged.
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

/// Removes what a daemon that crashed has left of its mount.
pub(crate) fn retrieve(volume: &Volume) -> Result<()> {
    volume.await_end()?;
    volume.detach()
}

/// Checks the volume, mounts it, and has its application judge what is there.
pub(crate) fn recover(volume: &Volume, application: &mut dyn Application) -> Result<u64> {
    volume.check()?;
    volume.mount()?;
    application.verify()
}
