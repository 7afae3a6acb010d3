use super::*;

#[test]
fn a_readme_without_its_commands_is_seen() {
    assert!(check_readme("```sh\ncargo xtask try\ncargo xtask ci\n```\n").is_ok());
    let error = check_readme("cargo xtask ci\n```sh\ncargo xtask try\n```\n").expect_err("one is not fenced");
    assert_eq!(error.to_string(), "README.md has no fenced line `cargo xtask ci`");
}

#[test]
fn files_come_from_the_seed() {
    assert_eq!(files(7), files(7));
    assert_ne!(files(7), files(8));
    assert_eq!(files(7).iter().map(Vec::len).max(), Some(LONGEST));
    assert!(files(7).iter().any(Vec::is_empty));
}
