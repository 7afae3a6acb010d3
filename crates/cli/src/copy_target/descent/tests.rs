use super::*;

const NAME: &str = "a name of forty bytes, over and over ....";
const LEVELS: u64 = 300;

/// The depth exceeds the longest path of the system, and few files are open.
#[test]
fn directories_deeper_than_the_longest_path_are_entered_and_left() {
    let folder = tempfile::tempdir().unwrap();
    let mut descent = Descent::begin(folder.path(), 0).unwrap();
    for level in 1..=LEVELS {
        std::fs::create_dir(descent.at(NAME.as_ref())).unwrap();
        descent.enter(NAME.as_ref(), level).unwrap();
        assert_eq!(descent.key(), level);
    }
    let open = descent.levels.iter().filter(|level| level.file.is_some()).count();
    assert!(open <= OPEN_MAX + 1, "{open} directories are open");
    std::fs::write(descent.at("deep".as_ref()), "contents").unwrap();
    assert!(descent.shown("deep".as_ref()).as_os_str().len() > 4096);
    let names = (0..LEVELS).map(|_| OsStr::new(NAME));
    let same = descent.elsewhere(names).unwrap();
    assert_eq!(std::fs::read_to_string(same.at("deep".as_ref())).unwrap(), "contents");
    std::fs::remove_file(descent.at("deep".as_ref())).unwrap();
    for level in (0..LEVELS).rev() {
        assert_eq!(descent.leave().unwrap(), NAME);
        assert_eq!(descent.key(), level);
        std::fs::remove_dir(descent.at(NAME.as_ref())).unwrap();
    }
}

/// Another process moves a directory of the target during a copy. The rest of the copy must not go to the new place.
#[test]
fn a_moved_directory_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let mut descent = Descent::begin(folder.path(), 0).unwrap();
    for level in 1..=2 * OPEN_MAX as u64 {
        std::fs::create_dir(descent.at("d".as_ref())).unwrap();
        descent.enter("d".as_ref(), level).unwrap();
    }
    std::fs::create_dir(folder.path().join("other")).unwrap();
    std::fs::rename(folder.path().join("d/d/d"), folder.path().join("other/d")).unwrap();
    let moved = (0..2 * OPEN_MAX).find_map(|_| descent.leave().err()).unwrap();
    assert!(moved.to_string().contains("was moved"), "{moved:#}");
}

#[test]
fn no_symbolic_link_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    std::os::unix::fs::symlink("d", folder.path().join("link")).unwrap();
    let mut descent = Descent::begin(folder.path(), 0).unwrap();
    assert!(descent.enter("link".as_ref(), 1).is_err());
    assert!(descent.elsewhere([OsStr::new("link")]).is_err());
    descent.enter("d".as_ref(), 1).unwrap();
}
