//! Where log lines go: one for each mount, recovery and latch, and the first error of each kind; names of files at
//! no level by default.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::syslog::{SOCKET, Syslog};

/// Says what is to be logged, as `level` or `crate=level,…`.
const FILTER: &str = "POLDER_LOG";

/// Who reads the lines.
pub(crate) enum Reader<'a> {
    /// Whoever has started us.
    Starter,
    /// Whoever looks into this file.
    File(&'a Path),
    /// Whoever looks into the system's log; whoever has started us hears warnings as long as he listens.
    System,
}

/// Sends log lines on their way. Returns the file.
pub(crate) fn start(reader: &Reader) -> Result<Option<Arc<File>>> {
    let lines = || fmt().with_ansi(false).with_target(false);
    match reader {
        Reader::Starter => lines().with_env_filter(filter("info")).with_writer(std::io::stderr).init(),
        Reader::File(path) => {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            let file = Arc::new(opened.with_context(|| format!("{}: cannot log there", path.display()))?);
            lines().with_env_filter(filter("info")).with_writer(Arc::clone(&file)).init();
            return Ok(Some(file));
        }
        Reader::System => {
            let system = Syslog::new(Path::new(SOCKET)).context("no socket for the system's log")?;
            // That log knows the time and what severity a line has.
            let logged = fmt::layer().with_ansi(false).with_target(false).with_writer(system);
            let logged = logged.without_time().with_level(false);
            let heard = fmt::layer().with_ansi(false).with_target(false).with_writer(std::io::stderr);
            tracing_subscriber::registry()
                .with(logged.with_filter(filter("info")))
                .with(heard.with_filter(filter("warn")))
                .init();
        }
    }
    Ok(None)
}

fn filter(default: &str) -> EnvFilter {
    EnvFilter::try_from_env(FILTER).unwrap_or_else(|_| EnvFilter::new(default))
}
