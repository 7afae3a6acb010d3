use std::path::Path;
use std::time::Duration;

use rt::thread::Stop;
use rt::{Clock, SystemClock};

use super::*;

/// A test that waits longer has failed.
const PATIENCE_NS: u64 = 20_000_000_000;

/// Each killed command left the disks of its machine and its archive behind permanently.
#[test]
fn files_of_killed_commands_are_removed_when_no_command_is_running() {
    let home = tempfile::tempdir().unwrap();
    let fill = || {
        for folder in ["run-a", "image-b", "kernel"] {
            std::fs::create_dir_all(home.path().join(folder)).unwrap();
            std::fs::write(home.path().join(folder).join("file"), "").unwrap();
        }
        for file in ["image-b.names", "c.cpio", "vmlinux"] {
            std::fs::write(home.path().join(file), "").unwrap();
        }
    };
    let names = || {
        let entries = std::fs::read_dir(home.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    // A program that another test has just started has a copy of each lock until it is run.
    let sweep_all = || {
        let (clock, pause) = (SystemClock::new(), Stop::default());
        loop {
            let lock = sweep(home.path()).unwrap();
            if names() == ["kernel", "lock", "vmlinux"] {
                return lock;
            }
            assert!(clock.monotonic_ns() < PATIENCE_NS, "{:?} is left", names());
            pause.wait(Duration::from_millis(5));
        }
    };
    fill();
    let first = sweep_all();
    fill();
    let second = sweep(home.path()).unwrap();
    assert_eq!(names().len(), 7, "the first is still at work");
    drop((first, second));
    drop(sweep_all());
}

/// The function of the guest's first process, with a log, mounts and a `polder` of this test.
fn shown_state(folder: &Path, mounts: &str, log_lines: usize) -> String {
    let function = image::INIT.split("\nshow_state() {").nth(1).and_then(|rest| rest.split("\n}\n").next());
    let function = function.expect("the function is in the script");
    let [log, table, program] = ["log", "mounts", "polder"].map(|name| folder.join(name));
    std::fs::write(&log, (1..=log_lines).map(|line| format!("log {line}\n")).collect::<String>()).unwrap();
    std::fs::write(&table, mounts).unwrap();
    std::fs::write(&program, "for line in $(seq 100); do echo \"$1 of $2, $line\"; done\nexit 1\n").unwrap();
    let function = function.replace("polder stats \"", &format!("sh {} stats \"", program.display()));
    let script = folder.join("script");
    std::fs::write(&script, format!("show_state() {{{function}\n}}\nshow_state \"$@\"\n")).unwrap();
    support::shell::Line::new("sh").arg(&script).arg(&log).arg(&table).output().unwrap()
}

#[test]
fn a_failure_shows_the_end_of_the_log_and_the_mounts_that_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display();
    let mounts = format!("proc /proc proc rw 0 0\nthe-device {place} fuse.polder rw 0 0\n");
    let shown = shown_state(folder.path(), &mounts, 100);
    let has = |line: &str| shown.lines().any(|shown| shown == line);
    assert!(has("log 100") && has("log 61") && !has("log 60"), "{shown}");
    assert!(has(&format!("the-device is still mounted on {place}:")), "{shown}");
    assert!(has(&format!("stats of {place}, 1")) && !shown.contains("/proc:"), "{shown}");
    assert_eq!(shown.lines().count(), 1 + 40 + 40, "{shown}");
    let shown = shown_state(folder.path(), "", 1);
    assert_eq!(shown.lines().count(), 2, "no mount is there: {shown}");
}

/// A suite runs for hours before it writes its table.
#[test]
fn suites_with_figures_have_a_place_in_the_page() {
    let has_figures = |suite: &&Suite| suite.script.contains("vm: figure ");
    let suites: Vec<_> = SUITES.iter().filter(has_figures).collect();
    assert!(!suites.is_empty(), "there are suites with figures");
    for suite in suites {
        marked::check(marked::PERFORMANCE, &format!("vm {}", suite.name)).unwrap();
    }
}

/// A filter that names no test runs none. When tests moved to another crate, a suite kept calling those of the old
/// one.
#[test]
fn suites_name_modules_of_tests_that_exist() {
    let folders = [
        ("zone-tests", "crates/zone/tests/all"),
        ("zone-unit-tests", "crates/zone/src"),
        ("po2-unit-tests", "crates/po2/src"),
    ];
    let mut calls = 0;
    for suite in &SUITES {
        let words: Vec<&str> = suite.script.split_whitespace().collect();
        for (at, program) in words.iter().enumerate() {
            let Some((_, folder)) = folders.iter().find(|(name, _)| name == program) else { continue };
            let filter = words[at + 1..].iter().find(|word| !word.starts_with("--")).expect("a filter");
            let module = filter.trim_end_matches("::").rsplit("::").next().expect("a name");
            let found = support::shell::Line::new("find")
                .arg(support::workspace::root().join(folder))
                .args(["-name", &format!("{module}.rs")])
                .output()
                .unwrap();
            assert!(!found.trim().is_empty(), "{}: {program} has no module {module}", suite.name);
            calls += 1;
        }
    }
    assert!(calls > 3, "the calls were found");
}
