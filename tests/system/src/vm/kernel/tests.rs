use super::*;

#[test]
fn a_kernel_with_other_modules_is_none() {
    let kept = tempfile::tempdir().unwrap();
    assert!(!is_kept(kept.path()));
    fs::write(kept.path().join(LIST), "other").unwrap();
    assert!(!is_kept(kept.path()));
    fs::write(kept.path().join(LIST), MODULES.join("\n")).unwrap();
    assert!(is_kept(kept.path()));
}
