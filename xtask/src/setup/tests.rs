use super::*;

#[test]
fn an_ordinary_user_is_given_one_command() {
    let missing: Vec<&Need> = NEEDS.iter().collect();
    let command = one_command(&install_lines(&missing));
    assert!(command.starts_with("sudo apt-get update && sudo DEBIAN_FRONTEND=noninteractive apt-get"));
    assert!(
        command.contains(
            "fuse3 attr acl e2fsprogs xfsprogs libacl1-dev clang && rustup component add rustfmt clippy && "
        ),
        "{command}"
    );
    assert!(command.ends_with(&format!("cargo-deny --version {CARGO_DENY}")), "{command}");
}

#[test]
fn what_is_there_is_not_installed_again() {
    const CARGO: Need = package("cargo", "cargo", "this test");
    require(&[CARGO]).unwrap();
    assert!(install_lines(&[]).is_empty());
}

#[test]
fn every_need_has_its_reason() {
    for need in NEEDS.iter().chain(&PROGRAMS).chain(&GUEST).chain(&MUTANTS).chain(&COVERAGE) {
        assert!(!need.why.is_empty(), "{} has none", need.name);
    }
}

#[test]
fn suites_are_kept_by_their_version() {
    let line = FSX.install_line(Path::new("tools/fsx-1"), Path::new("tools/build")).to_string();
    assert!(line.contains(&format!("fsx --version {} --root tools/fsx-1", FSX.version)), "{line}");
}
