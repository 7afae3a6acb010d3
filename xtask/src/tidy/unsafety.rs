//! `unsafe` stays behind its fence: the few places that talk to the kernel or to C.

use super::rust::{lines_with, mask};
use super::{Finding, Looked, Repository};

/// Where `unsafe` may stand, and why it must.
const FENCED: [(&str, &str); 6] = [
    ("crates/attach/src/memory.rs", "memory that another process writes"),
    ("crates/zone/", "aligned buffers and the kernel's calls for devices"),
    ("crates/po2/src/ublk/control.rs", "commands that name memory for the kernel"),
    ("crates/po2/src/ublk/queue.rs", "the kernel's queue of requests for a block device"),
    ("crates/fuse/src/kernel/", "the kernel's queue of requests"),
    ("crates/capi/", "pointers from C"),
];

pub(super) fn check(repository: &Repository, findings: &mut Vec<Finding>) -> Looked {
    let mut looked = 0;
    for (path, text) in repository.rust() {
        looked += 1;
        let code = mask(text).code;
        if is_crate_root(path) {
            check_root(repository, path, &code, findings);
        }
        if FENCED.iter().any(|(prefix, _)| path.starts_with(prefix)) {
            continue;
        }
        findings.extend(
            lines_with(&code, "unsafe").map(|line| Finding {
                path: path.to_owned(),
                line,
                message: "`unsafe` belongs into zone, capi, or a transport to the kernel or to another process: put a safe function there"
                    .to_owned(),
            }),
        );
    }
    Looked::At(looked, "sources")
}

fn is_crate_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs") || path.contains("/src/bin/")
}

/// Crates without fenced code forbid it; those with some of it deny it everywhere else; those that
/// are fenced as a whole need nothing.
fn check_root(repository: &Repository, path: &str, code: &str, findings: &mut Vec<Finding>) {
    let folder = path.split_once("/src/").map_or(path, |(folder, _)| folder);
    let fenced = |prefix: &str| prefix.trim_end_matches('/') == folder;
    if FENCED.iter().any(|(prefix, _)| fenced(prefix)) {
        return;
    }
    let in_this_crate = |prefix: &&str| prefix.starts_with(&format!("{folder}/"));
    let has_fenced_part = FENCED
        .iter()
        .map(|(prefix, _)| *prefix)
        .filter(in_this_crate)
        .any(|prefix| repository.files.keys().any(|file| file.starts_with(prefix)));
    let wanted = if has_fenced_part { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
    if !code.contains(wanted) {
        findings.push(Finding {
            path: path.to_owned(),
            line: 0,
            message: format!("the crate's root has no `{wanted}`: add it below the header"),
        });
    }
}
