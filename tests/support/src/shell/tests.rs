use super::*;

#[test]
fn a_line_prints_as_a_shell_would_take_it() {
    let line = Line::new("cargo doc").env("RUSTDOCFLAGS", "-D warnings").arg("it's");
    assert_eq!(line.to_string(), r"RUSTDOCFLAGS='-D warnings' cargo doc 'it'\''s'");
}

#[test]
fn a_line_may_be_started_by_another_program() {
    let line = Line::new("printf").arg("%s").arg("a b").env("KEY", "1").started_by(Line::new("nice -n 5"));
    assert_eq!(line.to_string(), "KEY=1 nice -n 5 printf %s 'a b'");
    assert_eq!(line.output().unwrap(), "a b");
}

#[test]
fn a_failing_command_is_an_error_that_names_it() {
    let error = Line::new("false").run().expect_err("`false` fails");
    assert!(error.to_string().starts_with("`false` failed"), "{error}");
    let error = Line::new("no-such-program-anywhere").run().expect_err("cannot be started");
    assert!(error.to_string().contains("cannot start `no-such-program-anywhere`"), "{error}");
}

#[test]
fn watched_lines_arrive_one_by_one() {
    let mut seen = Vec::new();
    Line::new("printf").arg("one\\ntwo\\n").run_watched(|line| seen.push(line.to_owned())).unwrap();
    assert_eq!(seen, ["one", "two"]);
}

/// A build script of a package depends on these variables. Each cargo that another program of ours started built that
/// package again, and all that depend on it.
#[test]
fn a_command_does_not_inherit_what_cargo_sets_for_this_program() {
    assert!(std::env::var_os("CARGO_PKG_NAME").is_some(), "run this by cargo, which sets it");
    let inherited = Line::new("env").output().unwrap();
    let of_package = |line: &&str| line.starts_with("CARGO_PKG_") || line.starts_with("CARGO_MANIFEST_");
    assert_eq!(inherited.lines().find(of_package), None);
}
