use super::*;

fn tree() -> (tempfile::TempDir, Tree) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
    std::fs::create_dir(folder.path().join(".git")).unwrap();
    std::fs::write(folder.path().join(".git/config"), "x").unwrap();
    std::fs::write(folder.path().join("a/b/file"), "contents").unwrap();
    std::os::unix::fs::symlink("b/file", folder.path().join("a/link")).unwrap();
    let tree = read_tree(folder.path()).unwrap();
    (folder, tree)
}

#[test]
fn a_tree_is_everything_except_gits_own_files() {
    let (_folder, tree) = tree();
    let paths: Vec<&str> = tree.keys().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(paths, ["a/b/file", "a/link"]);
}

#[test]
fn changed_missing_and_added_files_are_found() {
    let (folder, wanted) = tree();
    let reread = || read_tree(folder.path()).unwrap();
    judge(&wanted, &reread()).unwrap();
    let file = folder.path().join("a/b/file");
    std::fs::write(&file, "contemts").unwrap();
    assert!(judge(&wanted, &reread()).is_err());
    std::fs::write(&file, "contents").unwrap();
    std::fs::write(folder.path().join("more"), "").unwrap();
    assert!(judge(&wanted, &reread()).is_err());
    std::fs::remove_file(folder.path().join("more")).unwrap();
    judge(&wanted, &reread()).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(judge(&wanted, &reread()).is_err());
}

#[test]
fn the_sum_sees_places_zeros_and_lengths() {
    let different: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"ab", b"ba", b"\0\0\0\0\0\0\0\0a"];
    let sums: std::collections::BTreeSet<u64> = different.into_iter().map(sum).collect();
    assert_eq!(sums.len(), different.len());
}
