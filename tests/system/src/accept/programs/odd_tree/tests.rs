use super::*;
use support::workspace;

/// A tree, an `rsync` copy of it, and a difference that must be detected.
fn sees(what: &str, change: impl Fn(&Path) -> Result<()>) {
    // Some systems do not allow attributes in their folder for temporary files.
    let folder = tempfile::tempdir_in(workspace::target_dir().unwrap()).unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    for root in [&one, &other] {
        fs::create_dir_all(root.join("below")).unwrap();
        fs::write(root.join("below/file"), "contents").unwrap();
        fs::hard_link(root.join("below/file"), root.join("name")).unwrap();
        symlink("target", root.join("link")).unwrap();
        set_times(root, &mut fastrand::Rng::with_seed(1)).unwrap();
    }
    let wanted = Snapshot::of(&one).unwrap();
    wanted.judge(&Snapshot::of(&other).unwrap()).unwrap();
    change(&other).unwrap();
    assert!(wanted.judge(&Snapshot::of(&other).unwrap()).is_err(), "{what} was not seen");
}

#[test]
fn every_difference_is_seen() {
    sees("a name that is gone", |root| Ok(fs::remove_file(root.join("link"))?));
    sees("one name too many", |root| Ok(fs::write(root.join("more"), "")?));
    sees("another byte", |root| {
        fs::write(root.join("name"), "contentS")?;
        set_times(root, &mut fastrand::Rng::with_seed(1))
    });
    sees("another time", |root| set_times(root, &mut fastrand::Rng::with_seed(2)));
    sees("other permissions", |root| set_mode(&root.join("name"), 0o601));
    sees("another target", |root| {
        fs::remove_file(root.join("link"))?;
        symlink("Target", root.join("link"))?;
        set_times(root, &mut fastrand::Rng::with_seed(1))
    });
    sees("a copy in place of a hard link", |root| {
        fs::remove_file(root.join("name"))?;
        fs::copy(root.join("below/file"), root.join("name"))?;
        set_times(root, &mut fastrand::Rng::with_seed(1))
    });
}

#[test]
fn an_attribute_more_is_seen() {
    sees("an attribute", |root| Ok(lsetxattr(root.join("below"), "user.more", b"x", XattrFlags::empty())?));
}
