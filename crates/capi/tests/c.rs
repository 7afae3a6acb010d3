//! Programs in C that use `libpolder.so` as others do: found by pkg-config, compiled with all warnings, plain and under
//! AddressSanitizer.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use support::shell::Line;
use support::stage::{self, Built};
use tempfile::TempDir;

/// The library below a directory of its own, as `cargo xtask stage` makes it.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-library");
        let archive = newest_archive();
        let header = Path::new(env!("OUT_DIR")).join("polder.h");
        stage::install(&Built { archive, header }, &prefix, &prefix).unwrap();
        prefix
    })
}

/// What cargo has built last beside this test.
fn newest_archive() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let files = fs::read_dir(test.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let archives = files.filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libpolder_capi") && name.ends_with(".a")
    });
    archives
        .max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap())
        .expect("cargo has built the library")
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c")
}

fn examples() -> PathBuf {
    support::workspace::root().join("examples/c")
}

/// What pkg-config says of the library.
fn flags() -> Vec<String> {
    let config = prefix().join("lib/pkgconfig");
    let line =
        Line::new("pkg-config --cflags --libs polder").env("PKG_CONFIG_PATH", config.to_str().unwrap());
    line.output().unwrap().split_whitespace().map(str::to_owned).collect()
}

fn compile(source: &Path, program: &Path, options: &[&str]) {
    Line::new("cc -std=c11 -Wall -Wextra -Werror -O1 -g -pthread")
        .args(options)
        .arg("-o")
        .arg(program)
        .arg(source)
        .args(flags())
        .run()
        .unwrap();
}

/// The program's output. It must succeed.
fn run(program: &Path, arguments: &[&Path]) -> String {
    let done = Command::new(program)
        .args(arguments)
        .env("LD_LIBRARY_PATH", prefix().join("lib"))
        .env("ASAN_OPTIONS", "detect_leaks=1")
        .output()
        .unwrap();
    let (output, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{}: {}\n{output}{errors}", program.display(), done.status);
    output.into_owned()
}

fn test(name: &str) {
    let sanitizers = "-fsanitize=address,undefined";
    for options in [vec![], vec![sanitizers, "-fno-sanitize-recover=all"]] {
        let place = TempDir::new().unwrap();
        let program = place.path().join("program");
        compile(&sources().join(name), &program, &options);
        let folder = place.path().join("files");
        fs::create_dir(&folder).unwrap();
        run(&program, &[&folder]);
    }
}

#[test]
fn names_directories_and_attributes() {
    test("names.c");
}

#[test]
fn open_files() {
    test("files.c");
}

#[test]
fn bad_handles_and_pointers() {
    test("bad.c");
}

/// The program of the book's page for beginners, as it stands there.
#[test]
fn the_program_of_the_book() {
    let page = fs::read_to_string(support::workspace::root().join("docs/start/program.md")).unwrap();
    let (_, rest) = page.split_once("```c\n").unwrap();
    let (shown, _) = rest.split_once("```").unwrap();
    let (include, body) = shown.split_once("\n\n").unwrap();
    let place = TempDir::new().unwrap();
    let (source, program) = (place.path().join("program.c"), place.path().join("program"));
    let text =
        format!("#include <stdio.h>\n{include}\nint main(void) {{\n{body}    return result < 0;\n}}\n");
    fs::write(&source, text).unwrap();
    compile(&source, &program, &[]);
    let done = Command::new(&program)
        .current_dir(place.path())
        .env("LD_LIBRARY_PATH", prefix().join("lib"))
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(place.path().join("data.polder").is_file());
}

#[test]
fn threads_that_share_handles() {
    test("threads.c");
}

#[test]
fn nothing_acknowledged_is_lost_by_a_kill() {
    test("crash.c");
}

#[test]
fn a_mount_of_the_process() {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: /dev/fuse is missing");
        return;
    }
    test("mounted.c");
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(prefix().join("include/polder.h")).unwrap();
    let words = header.split("polder_").skip(1).filter_map(|rest| {
        let end = rest.find(|at: char| !at.is_ascii_alphanumeric() && at != '_')?;
        let is_declared = rest[end..].starts_with('(') && !rest[end..].starts_with("()");
        is_declared.then(|| format!("polder_{}", &rest[..end]))
    });
    words.collect()
}

#[test]
fn the_library_has_what_the_header_declares_and_nothing_else() {
    let library = prefix().join("lib/libpolder.so");
    let symbols = Line::new("nm -D --defined-only").arg(library).output().unwrap();
    let functions: BTreeSet<String> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2)?.strip_suffix("@@POLDER_0.1").map(str::to_owned))
        .collect();
    assert_eq!(functions, declared());
    assert!(functions.len() > 50);
    let others: Vec<&str> =
        symbols.lines().filter(|line| line.contains(" T ") && !line.contains("polder_")).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn every_function_is_called_with_bad_handles_or_pointers() {
    let source = fs::read_to_string(sources().join("bad.c")).unwrap();
    let missing: Vec<String> =
        declared().into_iter().filter(|name| !source.contains(&format!("{name}("))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Every function and every member of a structure says what it is.
#[test]
fn the_header_documents_all_functions_and_compiles_as_c_and_cpp() {
    let header = prefix().join("include/polder.h");
    Line::new("cc -std=c99 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c").arg(&header).run().unwrap();
    Line::new("c++ -std=c++11 -Wall -Wextra -Werror -fsyntax-only -x c++").arg(&header).run().unwrap();
    let text = fs::read_to_string(header).unwrap();
    for name in declared() {
        // Behind the comment, there is the type of the result only.
        let at = text.rfind(&format!("{name}(")).unwrap();
        let comment = text[..at].rfind("*/").unwrap();
        assert!(!text[comment..at].contains(';'), "{name} has no documentation");
    }
}

#[test]
fn the_examples_work() {
    let place = TempDir::new().unwrap();
    let volume = place.path().join("volume");
    for (name, expected) in [("first_steps.c", "hello from C"), ("journal.c", "3 entries")] {
        let program = place.path().join(name.trim_end_matches(".c"));
        compile(&examples().join(name), &program, &[]);
        for _ in 0..2 {
            assert!(run(&program, &[&volume]).contains(expected), "{name}");
        }
        fs::remove_file(&volume).unwrap();
    }
}
