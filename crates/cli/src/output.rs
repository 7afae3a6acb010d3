//! Output to standard output and standard error. The reader may close its end at any time.

use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// From now on, only errors and requested data are printed.
pub(crate) fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Whether summaries and progress are not wanted.
pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Writes the text. It is no error if the reader has closed the pipe.
pub(crate) fn say(text: impl AsRef<[u8]>) -> Result<()> {
    is_read(text).map(drop)
}

/// The same. Returns false if the reader has closed the pipe.
pub(crate) fn is_read(text: impl AsRef<[u8]>) -> Result<bool> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_ref()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("the output cannot be written"),
    }
}

/// Writes a line to standard error. An error is ignored, because it could not be reported.
pub(crate) fn complain(text: &str) {
    // In one call, so that lines of several processes do not mix.
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Human-readable lines, each with a name and a value.
#[derive(Default)]
pub(crate) struct Table(String);

impl Table {
    pub(crate) fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0 += &format!("{name:<14}{value}\n");
    }

    pub(crate) fn print(self) -> Result<()> {
        say(self.0)
    }
}

/// Like `println!`, but a closed pipe is no error, see [`say`].
macro_rules! line {
    ($($what:tt)*) => {
        $crate::output::say(format!("{}\n", format_args!($($what)*)))
    };
}
pub(crate) use line;

/// The same for a summary, which is not printed if the user asked to be quiet.
macro_rules! note {
    ($($what:tt)*) => {
        match $crate::output::is_quiet() {
            true => Ok(()),
            false => $crate::output::line!($($what)*),
        }
    };
}
pub(crate) use note;

/// Like `eprintln!`, but does not panic if the pipe is closed, see [`complain`].
macro_rules! error_line {
    ($($what:tt)*) => {
        $crate::output::complain(&format!($($what)*))
    };
}
pub(crate) use error_line;
