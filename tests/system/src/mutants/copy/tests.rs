use super::*;

#[test]
fn a_file_that_is_the_same_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("src/lib.rs");
    update(&path, b"one").unwrap();
    let begun = fs::metadata(&path).unwrap().modified().unwrap() - std::time::Duration::from_secs(60);
    fs::File::options().write(true).open(&path).unwrap().set_modified(begun).unwrap();
    update(&path, b"one").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), begun);
    update(&path, b"two").unwrap();
    assert_ne!(fs::metadata(&path).unwrap().modified().unwrap(), begun);
    assert_eq!(fs::read(&path).unwrap(), b"two");
}
