//! Files that no module imports: the compiler never sees them, so they are no part of the project
//! however green it is.

use std::collections::BTreeSet;

use super::rust::mask;
use super::{Finding, Looked, Repository};

pub(super) fn check(repository: &Repository, findings: &mut Vec<Finding>) -> Looked {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<String> =
        repository.rust().map(|(path, _)| path.to_owned()).filter(|path| is_root(repository, path)).collect();
    while let Some(path) = waiting.pop() {
        if let Some(text) = repository.files.get(&path)
            && reached.insert(path.clone())
        {
            waiting.extend(imported_by(repository, &path, text));
        }
    }
    let mut looked = 0;
    for (path, _) in repository.rust() {
        looked += 1;
        if !reached.contains(path) {
            findings.push(Finding {
                path: path.to_owned(),
                line: 0,
                message: "no module imports this file: add `mod`, or remove it".to_owned(),
            });
        }
    }
    Looked::At(looked, "sources")
}

/// What cargo starts from: targets named by cargo, by convention or by their path in a manifest. Those for fuzzing
/// and for YCSB are in workspaces of their own.
fn is_root(repository: &Repository, path: &str) -> bool {
    if path.starts_with("fuzz/fuzz_targets/") || path == "ycsb/src/main.rs" {
        return true;
    }
    let root = repository.metadata["workspace_root"].as_str().unwrap_or_default();
    repository
        .packages()
        .iter()
        .flat_map(|package| package["targets"].as_array().map_or(&[][..], Vec::as_slice))
        .filter_map(|target| target["src_path"].as_str())
        .any(|source| source.strip_prefix(root) == Some(&format!("/{path}")))
}

/// The files that `mod name;` in this file can mean; only those that exist.
fn imported_by(repository: &Repository, path: &str, text: &str) -> Vec<String> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.trim_end_matches(".rs");
    let children = if matches!(stem, "lib" | "main" | "mod") || is_root(repository, path) {
        folder.to_owned()
    } else {
        format!("{folder}/{stem}")
    };
    let code = mask(text).code;
    let named = code.lines().filter_map(declared_module);
    let mut files: Vec<String> = named
        .flat_map(|name| [format!("{children}/{name}.rs"), format!("{children}/{name}/mod.rs")])
        .collect();
    files.extend(quoted_paths(text).map(|relative| joined(folder, relative)));
    files.retain(|file| repository.files.contains_key(file));
    files
}

/// `name` in `pub(crate) mod name;`.
fn declared_module(line: &str) -> Option<&str> {
    let name = line.trim().strip_suffix(';')?;
    let (visibility, name) = name.rsplit_once("mod ")?;
    let visibility = visibility.trim();
    (visibility.is_empty() || visibility.starts_with("pub") || visibility.ends_with(']')).then(|| name.trim())
}

/// Files named by `#[path = "…"]` and `include!("…")`.
fn quoted_paths(text: &str) -> impl Iterator<Item = &str> {
    ["#[path = \"", "include!(\""].into_iter().flat_map(|opening| {
        text.split(opening).skip(1).filter_map(|rest| rest.split_once('"')).map(|(path, _)| path)
    })
}

/// `relative` seen from `folder`.
pub(super) fn joined(folder: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
