use super::*;

#[test]
fn a_folder_with_files_is_not_mounted_over() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("mnt");
    prepare(&dir, &folder.path().join("volume")).unwrap();
    std::fs::write(dir.join("precious"), "bytes").unwrap();
    let error = prepare(&dir, &folder.path().join("volume")).expect_err("it would hide a file");
    assert!(error.to_string().ends_with("name an empty folder to mount on"), "{error}");
}

#[test]
fn the_command_is_called_by_its_interface() {
    let (polder, file, dir) = (Path::new("polder"), Path::new("f"), Path::new("d"));
    assert_eq!(mkfs_line(polder, file).to_string(), "polder mkfs f --size 1G");
    assert_eq!(mount_line(polder, file, dir).to_string(), "polder mount f d");
}

#[test]
fn mounting_again_means_the_same_volume() {
    let args = Args { dir: Some("d".into()), volume: Some("v".into()) };
    assert_eq!(again(&args).to_string(), "cargo xtask try d --volume v");
    assert_eq!(again(&Args { dir: None, volume: None }).to_string(), "cargo xtask try");
}
