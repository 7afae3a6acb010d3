//! Planted bugs, which a build can be told to contain, so that the harnesses can show that they find them
//! (docs/testing.md).
//!
//! This needs the feature `planted`, which no other feature enables. In all other builds each question is answered
//! with no at compile time, and no code of the bug is left.

#[cfg(feature = "planted")]
static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Whether this bug is active.
#[cfg(feature = "planted")]
pub fn is_planted(bug: &str) -> bool {
    CHOSEN.get().is_some_and(|chosen| chosen == bug)
}

/// Whether this bug is active: no.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is_planted(_bug: &str) -> bool {
    false
}

/// Activates a bug for the rest of the process. Called before anything else is done.
#[cfg(feature = "planted")]
pub fn plant(bug: String) {
    assert!(CHOSEN.set(bug).is_ok(), "one bug is planted, once");
}

/// For tests that show that other tests notice planted bugs. Each bug is planted in a process of its own, which runs
/// one test.
#[cfg(feature = "planted")]
pub mod trial {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::process::Command;
    use std::sync::Once;

    /// Plants the bug that this environment variable names, once.
    pub fn plant(variable: &str) {
        static PLANTED: Once = Once::new();
        PLANTED.call_once(|| {
            if let Ok(bug) = std::env::var(variable) {
                super::plant(bug);
            }
        });
    }

    fn passes(variable: &str, bug: Option<&str>, test: &str) -> bool {
        let mut command = Command::new(std::env::current_exe().expect("a test has a program"));
        command.args(["--exact", test]);
        bug.map(|bug| command.env(variable, bug));
        let output = command.output().expect("the program of this test can be started again");
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(words.contains("running 1 test"), "{test} exists: {words}");
        output.status.success()
    }

    /// The bugs that the test beside each does not notice. Every test must pass without a bug.
    pub fn unnoticed<'a>(variable: &str, bugs: &[(&'a str, &str)]) -> Vec<&'a str> {
        let tests: BTreeSet<&str> = bugs.iter().map(|(_, test)| *test).collect();
        assert!(tests.iter().all(|test| passes(variable, None, test)), "without a bug nothing fails");
        bugs.iter().filter(|(bug, test)| passes(variable, Some(bug), test)).map(|(bug, _)| *bug).collect()
    }

    /// The bugs that the sources below a directory may contain.
    pub fn named_in(directory: &Path) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir(directory).expect("the sources are there") {
            let path = entry.expect("the directory can be read").path();
            if path.is_dir() {
                found.append(&mut named_in(&path));
            } else {
                let text = std::fs::read_to_string(path).expect("sources are text");
                let names = text.split("is_planted(\"").skip(1).filter_map(|rest| rest.split('"').next());
                found.extend(names.map(str::to_owned));
            }
        }
        found
    }
}
