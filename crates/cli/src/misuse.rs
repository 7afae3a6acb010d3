//! Command lines that make no sense, whatever the paths in them lead to, and exit statuses.

use std::fmt;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};

/// The exit status of a command line that makes no sense.
pub(crate) const MISUSED: u8 = 2;

/// Two names that differ in more places than this are different names and no mistypings of each other.
const MISTYPED_MAX: usize = 2;
/// In a name shorter than this one place is all that may differ.
const SHORT_NAME: usize = 6;
/// In a name shorter than this none may.
const TINY_NAME: usize = 3;

/// An option, a value or a combination of them that cannot be.
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

/// The exit status of a command that could not do its work and says so with `failed`.
pub(crate) fn exit_status(error: &anyhow::Error, misused: u8, failed: u8) -> ExitCode {
    ExitCode::from(if error.is::<Misuse>() { misused } else { failed })
}

/// What an unknown word was probably meant to be, ready to follow the complaint; nothing where no known word is like it.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    match known.filter_map(|name| Some((mistyped(word, name)?, name))).min() {
        Some((_, name)) => format!("; did you mean '{name}'?"),
        None => String::new(),
    }
}

/// In how many places a word differs from a name that it may be a mistyping of.
fn mistyped(word: &str, name: &str) -> Option<usize> {
    let most = match word.chars().count() {
        ..TINY_NAME => return None,
        TINY_NAME..SHORT_NAME => 1,
        _ => MISTYPED_MAX,
    };
    let distance = strsim::osa_distance(word, name);
    (distance <= most).then_some(distance)
}

/// The same for what the parser of the command line has found: subcommands, options and values.
pub(crate) fn suggestions(error: &clap::Error) -> String {
    let kinds = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let names = kinds.into_iter().filter_map(|kind| error.get(kind)).flat_map(|value| match value {
        ContextValue::String(name) => vec![name.clone()],
        ContextValue::Strings(names) => names.clone(),
        _ => Vec::new(),
    });
    // For the parser `hint` is like `mnt`.
    let word = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => Some(word),
        _ => None,
    };
    let names = names.filter(|name| word.is_none_or(|word| mistyped(word, name).is_some()));
    // The likeliest comes last.
    let mut names: Vec<String> = names.map(|name| format!("'{name}'")).collect();
    names.reverse();
    if names.is_empty() { String::new() } else { format!("; did you mean {}?", names.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_like_a_word_are_suggested() {
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
