//! Modules have walls: the methods of a type are in at most three files, and the modules of a crate do not import each
//! other in cycles.
//!
//! [`METHODS`] and [`CYCLES`] are the exceptions of today. A number there may only become smaller, and this rule asks for
//! that when it can.
//!
//! The rule is for every crate below `crates/`. It sees `impl Type` at the beginning of a line and paths that begin with
//! `crate::`. It takes the modules below one module of the crate for a part of that module. If several modules define a
//! type of this name, the methods are of the nearest one. If several are equally near, the file counts for each of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::rust::mask;
use super::{Finding, Looked, Repository};

/// The methods of a type are in at most this number of files.
const FILES_MAX: usize = 3;

/// Types whose methods are in more files: the crate, the path of the type in it, the number of files.
const METHODS: [(&str, &str, usize); 5] = [
    ("fs", "format::Record", 6),
    ("fs", "volume::Fs", 31),
    ("fuse", "transport::Transport", 6),
    ("zone", "file::FileDevice", 4),
    ("zone", "zoned::ZonedDevice", 4),
];

/// Crates with modules that import each other in cycles, and the number of these modules.
const CYCLES: [(&str, usize); 2] = [("cli", 11), ("fs", 10)];

/// The sources of one crate without tests: paths relative to `src`, and the code.
struct Sources(BTreeMap<String, String>);

pub(super) fn check(repository: &Repository, findings: &mut Vec<Finding>) -> Looked {
    let mut looked = 0;
    for name in crates(repository) {
        let sources = Sources::of(repository, name);
        looked += sources.0.len();
        check_methods(name, &sources, findings);
        check_cycles(name, &sources, findings);
    }
    Looked::At(looked, "files")
}

/// All crates, and those that only an exception names.
fn crates(repository: &Repository) -> BTreeSet<&str> {
    let present = repository.rust().filter_map(|(path, _)| {
        let (name, rest) = path.strip_prefix("crates/")?.split_once('/')?;
        rest.starts_with("src/").then_some(name)
    });
    let excepted = METHODS.iter().map(|(of, ..)| *of).chain(CYCLES.iter().map(|(of, _)| *of));
    present.chain(excepted).collect()
}

fn check_methods(name: &str, sources: &Sources, findings: &mut Vec<Finding>) {
    let mut files = sources.files_of_methods();
    let exceptions = METHODS.into_iter().filter(|(of, ..)| *of == name);
    let mut allowed: BTreeMap<&str, usize> = exceptions.map(|(_, of, count)| (of, count)).collect();
    files.retain(|of, files| files.len() > FILES_MAX || allowed.contains_key(of.as_str()));
    for (of, files) in &files {
        let most = allowed.remove(of.as_str()).unwrap_or(FILES_MAX);
        if files.len() != most {
            let advice = match files.len() > most {
                true => "put methods together, or give a part of the fields a type of its own",
                false => "lower the number in xtask/src/tidy/walls.rs",
            };
            findings.push(of_crate(
                name,
                format!("the methods of `{of}` are in {} files and not {most}: {advice}", files.len()),
            ));
        }
    }
    for of in allowed.into_keys() {
        findings
            .push(of_crate(name, format!("`{of}` needs no exception in xtask/src/tidy/walls.rs: remove it")));
    }
}

fn check_cycles(name: &str, sources: &Sources, findings: &mut Vec<Finding>) {
    let cyclic = in_cycles(&sources.imports());
    let most = CYCLES.iter().find(|(of, _)| *of == name).map_or(0, |(_, count)| *count);
    if cyclic.len() != most {
        let advice = match cyclic.len() > most {
            true => "move what both sides need to a module below them",
            false => "lower the number in xtask/src/tidy/walls.rs",
        };
        let (count, names) = (cyclic.len(), cyclic.into_iter().collect::<Vec<_>>().join(", "));
        findings.push(of_crate(
            name,
            format!("{count} modules import each other in cycles and not {most} ({names}): {advice}"),
        ));
    }
}

fn of_crate(name: &str, message: String) -> Finding {
    Finding { path: format!("crates/{name}/src"), line: 0, message }
}

impl Sources {
    fn of(repository: &Repository, name: &str) -> Sources {
        let folder = format!("crates/{name}/src/");
        let within = |path: &str| path.strip_prefix(&folder).map(str::to_owned);
        let is_test = |path: &str| path.contains("tests") || path.ends_with("shuttled.rs");
        let files = repository.rust().filter_map(|(path, text)| Some((within(path)?, text)));
        Sources(
            files.filter(|(path, _)| !is_test(path)).map(|(path, text)| (path, mask(text).code)).collect(),
        )
    }

    /// For each type, by its path in the crate, the files with its methods.
    fn files_of_methods(&self) -> BTreeMap<String, BTreeSet<&str>> {
        let mut modules: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (path, code) in &self.0 {
            for name in code.lines().filter_map(defined_type) {
                modules.entry(name).or_default().insert(module_of(path));
            }
        }
        let mut files: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for (path, code) in &self.0 {
            for name in code.lines().filter_map(implemented) {
                for module in nearest(modules.get(name), module_of(path)) {
                    files.entry(path_of_type(module, name)).or_default().insert(path);
                }
            }
        }
        files
    }

    /// For each module of the crate the others that it names.
    fn imports(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let module = |path: &'_ str| path.split(['/', '.']).next().map_or(0, str::len);
        let modules: BTreeSet<&str> = self.0.keys().map(|path| &path[..module(path)]).collect();
        let mut imports: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (path, code) in &self.0 {
            let own = &path[..module(path)];
            let named = paths_of_crate(code).filter_map(|name| modules.get(name).copied());
            imports.entry(own).or_default().extend(named.filter(|named| *named != own));
        }
        imports
    }
}

/// The module of a file, with slashes: `a/b` of `a/b.rs` and of `a/b/mod.rs`; empty for the root of a crate.
fn module_of(path: &str) -> &str {
    let module = path.strip_suffix(".rs").unwrap_or(path);
    match module {
        "lib" | "main" => "",
        module => module.strip_suffix("/mod").unwrap_or(module),
    }
}

/// `a::b::Type`.
fn path_of_type(module: &str, name: &str) -> String {
    let steps = steps(module).chain([name]);
    steps.collect::<Vec<_>>().join("::")
}

fn steps(module: &str) -> impl Iterator<Item = &str> {
    module.split('/').filter(|step| !step.is_empty())
}

/// Of the modules that define a type, those with the longest path in common with `from`, and of these the highest. The
/// root of the crate if none is known, because a macro defines the type.
fn nearest<'m>(modules: Option<&BTreeSet<&'m str>>, from: &str) -> Vec<&'m str> {
    let Some(modules) = modules else { return vec![""] };
    let rank = |module: &str| {
        let common = steps(module).zip(steps(from)).take_while(|(one, other)| one == other).count();
        (common, Reverse(steps(module).count()))
    };
    let first = modules.iter().map(|module| rank(module)).max();
    modules.iter().copied().filter(|module| Some(rank(module)) == first).collect()
}

/// `Type` in `impl<T> Type<T> {` and in `impl super::Type {`; none if the line implements a trait.
fn implemented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generic) => generic.split_once("> ")?.1,
        None => rest.strip_prefix(' ')?,
    };
    let is_of_trait = rest.contains(" for ");
    let rest = rest.strip_prefix("dyn ").unwrap_or(rest);
    let path = rest.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').next()?;
    (!is_of_trait).then(|| path.rsplit("::").next()).flatten()
}

/// `Type` in `pub(crate) struct Type`.
fn defined_type(line: &str) -> Option<&str> {
    let (visibility, rest) = line.split_once("struct ").or_else(|| line.split_once("enum "))?;
    (visibility.is_empty() || visibility.starts_with("pub")).then(|| word(rest))
}

fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The first names of all paths of the crate: `a` and `b` in `use crate::{a::c, b}`.
fn paths_of_crate(code: &str) -> impl Iterator<Item = &str> {
    code.split("crate::").skip(1).flat_map(|rest| match rest.strip_prefix('{') {
        Some(group) => first_names(group),
        None => vec![word(rest)],
    })
}

/// The names at the beginning of the parts of a group.
fn first_names(group: &str) -> Vec<&str> {
    let (mut depth, mut names, mut begins) = (0, Vec::new(), true);
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            letter if begins && !letter.is_whitespace() => {
                names.push(word(&group[at..]));
                begins = false;
            }
            _ => {}
        }
    }
    names
}

/// The modules from which a chain of imports leads back to them.
fn in_cycles<'m>(imports: &BTreeMap<&'m str, BTreeSet<&'m str>>) -> BTreeSet<&'m str> {
    let reaches_itself = |module: &&&str| {
        let (mut seen, mut waiting) = (BTreeSet::new(), vec![**module]);
        while let Some(at) = waiting.pop() {
            waiting.extend(imports.get(at).into_iter().flatten().copied().filter(|next| seen.insert(*next)));
        }
        seen.contains(**module)
    };
    imports.keys().filter(reaches_itself).copied().collect()
}
