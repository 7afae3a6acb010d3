//! Writing to the standard output and to that for errors, for somebody who may stop reading.

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};

/// Writes it all, or as much as somebody wants to read.
pub(crate) fn say(text: impl AsRef<[u8]>) -> Result<()> {
    is_read(text).map(drop)
}

/// The same; whether somebody may read what comes next.
pub(crate) fn is_read(text: impl AsRef<[u8]>) -> Result<bool> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_ref()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("the output cannot be written"),
    }
}

/// Writes a line on the standard error output. Where that cannot be there is nobody left to tell.
pub(crate) fn complain(text: &str) {
    // At once, so that lines of several processes do not mix.
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Lines for people, each a name and what there is to say of it.
#[derive(Default)]
pub(crate) struct Table(String);

impl Table {
    pub(crate) fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0 += &format!("{name:<14}{value}\n");
    }

    pub(crate) fn say(self) -> Result<()> {
        say(self.0)
    }
}

/// Writes a line, as `println!` does, but for [`say`]'s reader.
macro_rules! line {
    ($($what:tt)*) => {
        $crate::output::say(format!("{}\n", format_args!($($what)*)))
    };
}
pub(crate) use line;

/// Writes a line, as `eprintln!` does, but for [`complain`]'s reader: that one panics when he has gone.
macro_rules! error_line {
    ($($what:tt)*) => {
        $crate::output::complain(&format!($($what)*))
    };
}
pub(crate) use error_line;
