//! Progress bars for long operations, on standard error and only if it is a terminal.

use std::sync::Arc;
use std::time::Duration;

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use rt::thread::{JoinHandle, Stop};

use crate::output;

const TICK: Duration = Duration::from_millis(100);

/// The bar, unless the user asked to be quiet.
fn visible(bar: ProgressBar) -> ProgressBar {
    if output::is_quiet() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar
}

/// Shows an operation of unknown duration.
pub(crate) fn waiting(what: &str) -> ProgressBar {
    let bar = visible(ProgressBar::new_spinner()).with_message(what.to_owned());
    bar.enable_steady_tick(TICK);
    bar
}

/// Shows how many of these bytes are done.
pub(crate) fn moving(bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {eta} left");
    visible(ProgressBar::new(bytes)).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Shows how many of these parts are done.
pub(crate) fn parts(count: u64, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} {msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    visible(ProgressBar::new(count)).with_style(style).with_message(what.to_owned())
}

/// Shows the progress of parts of several kinds, one kind after the other.
#[derive(Default)]
pub(crate) struct Kinds {
    /// The current kind, its number of parts, and its bar.
    now: Option<(&'static str, u64, ProgressBar)>,
}

impl Kinds {
    /// Sets the number of parts that are done, and the number of all parts.
    pub(crate) fn at(&mut self, what: &'static str, done: u64, of: u64) {
        match &mut self.now {
            Some((kind, count, bar)) if *kind == what => {
                if *count != of {
                    *count = of;
                    bar.set_length(of);
                }
                bar.set_position(done);
            }
            _ => {
                // A reused bar would briefly show the count of one kind with the name of another.
                self.clear();
                let bar = parts(of, what);
                bar.set_position(done);
                self.now = Some((what, of, bar));
            }
        }
    }

    fn clear(&self) {
        if let Some((.., bar)) = &self.now {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Kinds {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Shows the progress of writing an unknown amount. The bar disappears when this is dropped.
pub(crate) struct Writing {
    bar: ProgressBar,
    stop: Arc<Stop>,
    watch: Option<JoinHandle<()>>,
}

/// Shows how many bytes are written from now on. `written` reads a counter of bytes.
pub(crate) fn writing(
    what: &'static str,
    mut written: impl FnMut() -> Option<u64> + Send + 'static,
) -> Writing {
    let bar = waiting(what);
    let stop = Arc::new(Stop::default());
    let watch = (!bar.is_hidden()).then(|| {
        let (bar, stop) = (bar.clone(), Arc::clone(&stop));
        rt::thread::spawn("polder-progress", move || {
            let before = written();
            while !stop.wait(TICK)
                && let (Some(before), Some(now)) = (before, written())
            {
                bar.set_message(so_far(what, now.saturating_sub(before)));
            }
        })
    });
    Writing { bar, stop, watch: watch.and_then(Result::ok) }
}

fn so_far(what: &str, bytes: u64) -> String {
    if bytes == 0 { what.to_owned() } else { format!("{what}: {} so far", HumanBytes(bytes)) }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(watch) = self.watch.take() {
            // The thread only shows progress, so its result does not matter.
            let _ = watch.join();
        }
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_bytes_are_shown_if_there_are_any() {
        assert_eq!(so_far("syncing", 0), "syncing");
        assert_eq!(so_far("syncing", 3 << 20), "syncing: 3.00 MiB so far");
    }

    #[test]
    fn each_kind_has_its_own_count() {
        let mut kinds = Kinds::default();
        for (what, done, of) in [("nodes", 1, 7), ("nodes", 7, 7), ("rows", 1, 3), ("rows", 2, 4)] {
            kinds.at(what, done, of);
            let (.., bar) = kinds.now.as_ref().unwrap();
            assert_eq!((bar.message().as_str(), bar.position(), bar.length()), (what, done, Some(of)));
        }
    }
}
