use super::*;

/// An ordinary `busybox` on the machine was once copied into the guest, whose kernel then panicked.
#[test]
fn a_busybox_that_needs_libraries_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("busybox");
    assert!(check(&program).is_err(), "there is none");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let error = check(&program).expect_err("this program has an interpreter");
    assert!(error.to_string().ends_with("it is linked dynamically"), "{error}");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(check(&program).expect_err("nobody may run it").to_string().ends_with("it is not executable"));
}
