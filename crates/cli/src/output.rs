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

/// A name that others have chosen, so that it stays within its line whatever is in it.
pub(crate) fn in_line(name: &str) -> String {
    let mut shown = String::with_capacity(name.len());
    for character in name.chars() {
        match character.is_control() {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::in_line;

    #[test]
    fn a_name_cannot_pass_for_a_line() {
        assert_eq!(in_line("a b\u{fc}/c"), "a b\u{fc}/c");
        assert_eq!(in_line("x\nvolume: clean\u{1b}[2J"), "x\\nvolume: clean\\u{1b}[2J");
    }
}
