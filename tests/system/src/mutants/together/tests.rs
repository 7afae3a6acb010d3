use super::*;

#[test]
fn the_compiler_says_which_lines_are_wrong() {
    let printed = r#"
        {"reason":"compiler-message","message":{"level":"warning","spans":
            [{"file_name":"crates/tree/src/a.rs","line_start":3,"is_primary":true}]}}
        {"reason":"compiler-artifact","executable":null}
        "#
    .replace("\n            ", "")
        + r#"{"reason":"compiler-message","message":{"level":"error","spans":[{"file_name":"b.rs","line_start":7,"is_primary":false},{"file_name":"crates/tree/src/a.rs","line_start":9,"is_primary":true}]}}"#
        + "\nno JSON";
    assert_eq!(errors(&printed), [("crates/tree/src/a.rs".to_owned(), 9)]);
}

#[test]
fn test_programs_are_distinguished_from_others() {
    let printed = [
        r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/fs/Cargo.toml","profile":{"test":false},"executable":"/w/t/polder"}"#,
        r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/fs/Cargo.toml","profile":{"test":true},"executable":null}"#,
        r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/fs/Cargo.toml","profile":{"test":true},"executable":"/w/t/all-1"}"#,
        r#"{"reason":"build-finished","success":true}"#,
    ]
    .join("\n");
    assert_eq!(built(&printed), [(PathBuf::from("/w/t/all-1"), PathBuf::from("/w/crates/fs"))]);
}

#[test]
fn the_switch_is_a_module_of_its_own() {
    let text = switch();
    assert!(text.starts_with("\nmod mutant_switch {\n"));
    assert!(text.contains("pub(crate) fn is_on(number: usize) -> bool {"));
    assert!(!text.contains("//!"), "these say something of the file that they are in");
}
