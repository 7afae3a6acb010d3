//! Parses whole numbers in arguments.

use std::num::{IntErrorKind, NonZeroU16, ParseIntError};
use std::str::FromStr;

/// Parses a whole number.
pub(crate) fn whole<N: FromStr<Err = ParseIntError>>(text: &str) -> Result<N, String> {
    text.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => format!("'{text}' is too large"),
        IntErrorKind::Zero => "it must be at least 1".to_owned(),
        _ => format!("'{text}' is not a whole number; write one, like 3"),
    })
}

/// Parses a count that must not be zero.
pub(crate) fn some(text: &str) -> Result<u16, String> {
    whole(text).map(NonZeroU16::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_number_is_refused_with_advice() {
        assert_eq!(whole::<u32>("17"), Ok(17));
        for text in ["", "x", "-1", "1.5", "0x10", " 1"] {
            let said = format!("'{text}' is not a whole number; write one, like 3");
            assert_eq!(whole::<u32>(text), Err(said));
        }
        assert_eq!(whole::<u32>("4294967296"), Err("'4294967296' is too large".to_owned()));
        assert_eq!((some("1"), some("0")), (Ok(1), Err("it must be at least 1".to_owned())));
    }
}
