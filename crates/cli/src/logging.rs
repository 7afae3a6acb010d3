//! Where log lines go: one for each mount, recovery and latch; names of files at no level by default.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

/// Says what is to be logged, as `level` or `crate=level,…`.
const FILTER: &str = "POLDER_LOG";

/// Sends log lines to a file, or to the standard error output. Returns the file.
pub(crate) fn start(file: Option<&Path>, level: &str) -> Result<Option<Arc<File>>> {
    let filter = EnvFilter::try_from_env(FILTER).unwrap_or_else(|_| EnvFilter::new(level));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_target(false);
    let Some(path) = file else {
        lines.with_writer(std::io::stderr).init();
        return Ok(None);
    };
    let opened = OpenOptions::new().create(true).append(true).open(path);
    let file = Arc::new(opened.with_context(|| format!("{}: cannot log there", path.display()))?);
    lines.with_writer(Arc::clone(&file)).init();
    Ok(Some(file))
}
