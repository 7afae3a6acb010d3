//! The log. It has a line for each mount, recovery and shutdown, and the first error of each kind. No default level logs
//! file names.

use std::fmt::{Debug, Write};
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::FilterExt;
use tracing_subscriber::layer::{self, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::logged_kinds::LoggedKinds;
use crate::syslog::{SOCKET, Syslog};

/// The environment variable with the filter: `level` or `crate=level,…`.
const FILTER: &str = "POLDER_LOG";
/// The level of `--verbose`.
const VERBOSE: &str = "debug";

static IS_VERBOSE: AtomicBool = AtomicBool::new(false);

/// From now on, details are logged, unless the environment variable says otherwise.
pub(crate) fn be_verbose() {
    IS_VERBOSE.store(true, Ordering::Relaxed);
}

/// Whether the user asked for details.
pub(crate) fn is_verbose() -> bool {
    IS_VERBOSE.load(Ordering::Relaxed)
}

/// The destination of the lines.
pub(crate) enum Reader<'a> {
    /// The starter, through standard error.
    Starter,
    /// This file.
    File(&'a Path),
    /// The system's log. Warnings also go to the starter, as long as it reads them.
    System,
}

/// Starts logging. Returns the log file, if there is one.
pub(crate) fn start(reader: &Reader) -> Result<Option<Arc<File>>> {
    let registry = tracing_subscriber::registry();
    match reader {
        Reader::Starter => {
            registry.with(lines().with_writer(std::io::stderr).with_filter(filter("info"))).init()
        }
        Reader::File(path) => {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            let file = Arc::new(
                opened.with_context(|| format!("{}: the log file cannot be opened", path.display()))?,
            );
            registry.with(lines().with_writer(Arc::clone(&file)).with_filter(filter("info"))).init();
            return Ok(Some(file));
        }
        Reader::System => {
            let system = Syslog::new(Path::new(SOCKET)).context("no socket for the system's log")?;
            // The system's log adds the time and the severity itself.
            let logged = lines().with_writer(system).without_time().with_level(false);
            let heard = lines().with_writer(std::io::stderr).with_filter(filter("warn"));
            registry.with(logged.with_filter(filter("info"))).with(heard).init();
        }
    }
    Ok(None)
}

fn lines<S: Subscriber + for<'s> LookupSpan<'s>>() -> fmt::Layer<S> {
    fmt::layer().with_ansi(false).with_target(false)
}

fn filter<S: Subscriber + for<'s> LookupSpan<'s>>(default: &str) -> impl layer::Filter<S> + use<S> {
    let default = if is_verbose() { VERBOSE } else { default };
    let asked = EnvFilter::try_from_env(FILTER).unwrap_or_else(|_| EnvFilter::new(default));
    let all = asked.max_level_hint().is_none_or(|level| level >= LevelFilter::DEBUG);
    asked.and(FirstOfAKind { all, kinds: LoggedKinds::default() })
}

/// Passes the first warning or error of each kind.
struct FirstOfAKind {
    /// Passes all of them.
    all: bool,
    kinds: LoggedKinds,
}

impl FirstOfAKind {
    fn is_first(&self, event: &Event<'_>) -> bool {
        let mut said = Said::default();
        event.record(&mut said);
        self.kinds.is_new(&said.0)
    }
}

impl<S> layer::Filter<S> for FirstOfAKind {
    fn enabled(&self, _: &Metadata<'_>, _: &layer::Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &layer::Context<'_, S>) -> bool {
        self.all || *event.metadata().level() > Level::WARN || self.is_first(event)
    }
}

/// The text of all fields of an event.
#[derive(Default)]
struct Said(String);

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).expect("a string takes all that is written");
    }
}

#[cfg(test)]
mod tests {
    use rt::sync::Mutex;
    use tracing::subscriber::with_default;

    use super::*;

    /// Collects the written lines.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn said(all: bool, say: impl FnOnce()) -> Vec<String> {
        let lines = Lines::default();
        let into = lines.clone();
        let layer = fmt::layer().with_ansi(false).without_time().with_target(false);
        let layer = layer
            .with_writer(move || into.clone())
            .with_filter(FirstOfAKind { all, kinds: LoggedKinds::default() });
        with_default(tracing_subscriber::registry().with(layer), say);
        let said = String::from_utf8(lines.0.lock().clone()).expect("lines of a log are text");
        said.lines().map(|line| line.trim().to_owned()).collect()
    }

    fn fail() {
        for zone in 0..3 {
            for error in ["Input/output error", "No space left on device"] {
                tracing::warn!(zone, %error, "a zone cannot be finished");
            }
            tracing::info!("mounted");
        }
    }

    #[test]
    fn the_first_error_of_each_kind_is_logged() {
        let first = said(false, fail);
        let errors: Vec<_> = first.iter().filter(|line| line.starts_with("WARN")).collect();
        assert_eq!(
            errors,
            [
                "WARN a zone cannot be finished zone=0 error=Input/output error",
                "WARN a zone cannot be finished zone=0 error=No space left on device"
            ]
        );
        assert_eq!(
            first.iter().filter(|line| line.contains("mounted")).count(),
            3,
            "other lines are all logged"
        );
        assert_eq!(said(true, fail).len(), 9);
    }
}
