//! Sizes in arguments and output.

/// Parses `4096`, `512K`, `64M`, `1G`, `2T`; units are powers of 1024 and may end in `iB` or `B`.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size; write bytes or a number with K, M, G or T, like 512M");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = match text[..digits].parse() {
        Ok(number) => number,
        Err(_) if digits == text.len() && digits > 0 => return Err(format!("'{text}' is too large")),
        Err(_) => return Err(wrong()),
    };
    let unit = text[digits..].to_ascii_uppercase();
    let shift = match unit.strip_suffix("IB").or(unit.strip_suffix('B')).unwrap_or(&unit) {
        "" if !unit.starts_with('I') => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << shift).ok_or(format!("'{text}' is too large"))
}

/// The same as a `u32`, for sizes of blocks and pages.
pub(crate) fn parse_small(text: &str) -> Result<u32, String> {
    u32::try_from(parse(text)?).map_err(|_| format!("'{text}' is too large"))
}

/// Formats a size with at most about three digits: `1.5 GiB`, `64 MiB`, `512 B`.
pub(crate) fn show(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let Some(power) = bytes.checked_ilog2().map(|log| log as usize / 10).filter(|&power| power > 0) else {
        return format!("{bytes} B");
    };
    let value = bytes as f64 / f64::from(1 << 10).powi(power as i32);
    let decimals = if value.fract() == 0.0 || value >= 100.0 { 0 } else { 1 };
    format!("{value:.decimals$} {}", UNITS[power - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_every_usual_spelling() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("512M"), Ok(512 << 20));
        assert_eq!(parse("1G"), Ok(1 << 30));
        assert_eq!(parse("1g"), Ok(1 << 30));
        assert_eq!(parse("64KiB"), Ok(64 << 10));
        assert_eq!(parse("3TB"), Ok(3 << 40));
        assert_eq!(parse("12B"), Ok(12));
        assert_eq!(parse("0"), Ok(0));
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for text in ["", "G", "1X", "1.5G", "-1", "1 G", "1GG", "0x10", "12iB"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("99999999999999999999").unwrap_err().contains("too large"));
        assert!(parse("20000P").unwrap_err().contains("too large"));
        assert!(parse_small("4G").unwrap_err().contains("too large"));
    }

    #[test]
    fn sizes_are_shown_short() {
        assert_eq!(show(0), "0 B");
        assert_eq!(show(1023), "1023 B");
        assert_eq!(show(1 << 20), "1 MiB");
        assert_eq!(show(3 << 29), "1.5 GiB");
        assert_eq!(show((100 << 30) + (1 << 28)), "100 GiB");
        assert_eq!(show(u64::MAX), "16 EiB");
    }
}
