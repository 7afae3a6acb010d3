//! A decoder that no hostile target calls: nobody offers bytes to it, and the first to do so is a damaged device.
//!
//! A decoder is a function whose name begins with `decode`, in a crate that reads what is on a device. A private
//! one is reached through those that are not. What decodes under another name is not seen.

use super::rust::{is_word, mask};
use super::{Finding, Looked, Repository};

/// The crates that read what is on a device.
const CRATES: [&str; 5] = ["zone", "tree", "extent", "fs", "object"];

pub(super) fn check(repository: &Repository, findings: &mut Vec<Finding>) -> Looked {
    let mut looked = 0;
    for name in CRATES {
        let sources = format!("crates/{name}/src/");
        let of_crate = || repository.rust().filter(|(path, _)| path.starts_with(&sources));
        let targets = of_crate().filter(|(path, _)| is_target(path)).map(|(_, text)| mask(text).code);
        let targets = targets.collect::<String>();
        for (path, text) in of_crate().filter(|(path, _)| !path.contains("tests") && !is_target(path)) {
            for (line, call) in decoders(&mask(text).code) {
                looked += 1;
                if !calls(&targets, &call) {
                    findings.push(Finding {
                        path: path.to_owned(),
                        line,
                        message: format!(
                            "`{call}…)` has no target: offer bytes to it in {sources}hostile.rs"
                        ),
                    });
                }
            }
        }
    }
    Looked::At(looked, "decoders")
}

fn is_target(path: &str) -> bool {
    path.ends_with("/hostile.rs")
}

/// The decoders of a file that are not private: line, and how a call begins.
fn decoders(code: &str) -> Vec<(usize, String)> {
    let (mut of, mut found) = (String::new(), Vec::new());
    for (number, line) in (1..).zip(code.lines()) {
        if line.starts_with("impl") {
            let names = line.trim_end_matches([' ', '{']).rsplit(' ').next().unwrap_or_default();
            of = format!("{}::", names.split('<').next().unwrap_or_default());
        }
        let Some((visibility, function)) = line.split_once("fn decode") else { continue };
        if visibility.trim_start().starts_with("pub") {
            let rest: String = function.chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect();
            let of = if line.starts_with(' ') { of.as_str() } else { "" };
            found.push((number, format!("{of}decode{rest}(")));
        }
    }
    found
}

/// Whether the call stands there, and not only the end of another's name, or one of the same name of a type.
fn calls(code: &str, call: &str) -> bool {
    code.match_indices(call).any(|(at, _)| {
        let before = &code[..at];
        let named =
            before.strip_suffix("::").and_then(|path| path.rsplit(|c: char| !c.is_alphanumeric()).next());
        let is_of_type = named.is_some_and(|name| name.starts_with(|c: char| c.is_uppercase()));
        !is_of_type && !before.bytes().next_back().is_some_and(is_word)
    })
}
