use super::*;

/// The file in a folder that was made.
const FILE: &str = "file";

fn make(made: &Path, contents: &str) -> Result<()> {
    fs::create_dir(made)?;
    Ok(fs::write(made.join(FILE), contents)?)
}

/// The kernel that was kept was removed before the one to replace it had come: where the mirror could not be reached,
/// there was none any more.
#[test]
fn what_was_fetched_is_kept_until_the_next_is_there() {
    let home = tempfile::tempdir().unwrap();
    let kept = home.path().join("kept");
    let contents = || fs::read_to_string(kept.join(FILE)).ok();
    renew(home.path(), &kept, |_, made| make(made, "first")).unwrap();
    assert_eq!(contents().as_deref(), Some("first"));
    for fails in [false, true] {
        let failed = renew(home.path(), &kept, |_, made| {
            if fails {
                make(made, "half")?;
            }
            bail!("the mirror is away")
        });
        assert!(failed.is_err());
        assert_eq!(contents().as_deref(), Some("first"));
    }
    renew(home.path(), &kept, |_, made| make(made, "second")).unwrap();
    assert_eq!(contents().as_deref(), Some("second"));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "nothing else is left");
}
