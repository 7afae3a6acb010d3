//! Writing much to the standard output, for somebody who may stop reading.

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};

/// Writes it all, or as much as somebody wants to read.
pub(crate) fn say(text: impl AsRef<[u8]>) -> Result<()> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_ref()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("the output cannot be written"),
    }
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
