//! Writing much to the standard output, for somebody who may stop reading.

use std::io::{ErrorKind, Write};

use anyhow::Result;

/// Writes it all, or as much as somebody wants to read.
pub(crate) fn say(text: impl AsRef<[u8]>) -> Result<()> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_ref()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Writes a line, as `println!` does, but for [`say`]'s reader.
macro_rules! line {
    ($($what:tt)*) => {
        $crate::output::say(format!("{}\n", format_args!($($what)*)))
    };
}
pub(crate) use line;
