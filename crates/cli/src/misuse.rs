//! Invalid command lines, independent of the files that they name, and exit statuses.

use std::fmt;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The exit status of an invalid command line.
pub(crate) const MISUSED: u8 = 2;

/// The largest edit distance between a name and a mistyped form of it.
const MISTYPED_MAX: usize = 2;
/// The largest distance is 1 for words shorter than this.
const SHORT_NAME: usize = 6;
/// Words shorter than this are not treated as mistyped names.
const TINY_NAME: usize = 3;

/// An invalid option, value or combination of them.
#[derive(Debug)]
pub(crate) struct Misuse(String);

impl Misuse {
    pub(crate) fn error(what: impl fmt::Display) -> anyhow::Error {
        Misuse(format!("{what:#}")).into()
    }
}

impl std::error::Error for Misuse {}

impl fmt::Display for Misuse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The exit status for an error: `misused` for an invalid command line, `failed` for all other errors.
pub(crate) fn exit_status(error: &anyhow::Error, misused: u8, failed: u8) -> ExitCode {
    ExitCode::from(if error.is::<Misuse>() { misused } else { failed })
}

/// A suggestion for an unknown word, to be appended to the error message. Empty if no known word is similar.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    match known.filter_map(|name| Some((mistyped(word, name)?, name))).min() {
        Some((_, name)) => format!("; did you mean '{name}'?"),
        None => String::new(),
    }
}

/// The edit distance between a word and a name. Nothing if the word cannot be a mistyped form of the name.
fn mistyped(word: &str, name: &str) -> Option<usize> {
    let most = match word.chars().count() {
        ..TINY_NAME => return None,
        TINY_NAME..SHORT_NAME => 1,
        _ => MISTYPED_MAX,
    };
    let distance = strsim::osa_distance(word, name);
    (distance <= most).then_some(distance)
}

/// The same with the suggestions of the command line parser: subcommands, options and values.
pub(crate) fn suggestions(error: &clap::Error) -> String {
    let of_layout = matches!(
        error.get(ContextKind::InvalidArg),
        Some(ContextValue::String(option)) if option.starts_with("--layout")
    );
    if error.kind() == ErrorKind::TooFewValues && of_layout {
        return "; write the members directly behind the layout, like --layout mirror A B".to_owned();
    }
    let kinds = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let names = kinds.into_iter().filter_map(|kind| error.get(kind)).flat_map(|value| match value {
        ContextValue::String(name) => vec![name.clone()],
        ContextValue::Strings(names) => names.clone(),
        _ => Vec::new(),
    });
    // The parser treats `hint` as similar to `mnt`.
    let word = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => Some(word),
        _ => None,
    };
    let names = names.filter(|name| word.is_none_or(|word| mistyped(word, name).is_some()));
    // The parser puts the best suggestion last.
    let mut names: Vec<String> = names.map(|name| format!("'{name}'")).collect();
    names.reverse();
    if names.is_empty() { String::new() } else { format!("; did you mean {}?", names.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let known = ["noatime", "nosuid", "nodev", "ro", "cache", "commit"];
        let said = |word| did_you_mean(word, known.into_iter());
        for (word, meant) in [
            ("noatme", "noatime"),
            ("nosiud", "nosuid"),
            ("nodve", "nodev"),
            ("cahce", "cache"),
            ("comit", "commit"),
        ] {
            assert_eq!(said(word), format!("; did you mean '{meant}'?"), "{word}");
        }
        for word in ["bogus", "rq", "", "nobarrier", "data"] {
            assert_eq!(said(word), "", "{word}");
        }
    }
}
