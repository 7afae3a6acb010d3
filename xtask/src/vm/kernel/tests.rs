use super::*;

fn make(work: &Path, contents: &str) -> Result<()> {
    fs::create_dir(work.join("kernel"))?;
    Ok(fs::write(work.join("kernel").join(IMAGE), contents)?)
}

/// The kernel that was kept was removed before the one to replace it had come: where the mirror could not be reached,
/// there was none any more.
#[test]
fn a_kernel_is_kept_until_the_next_is_there() {
    let home = tempfile::tempdir().unwrap();
    let kept = home.path().join("kernel");
    let contents = || fs::read_to_string(kept.join(IMAGE)).ok();
    renew(home.path(), &kept, |work| make(work, "first")).unwrap();
    assert_eq!(contents().as_deref(), Some("first"));
    for fails in [false, true] {
        let failed = renew(home.path(), &kept, |work| {
            if fails {
                make(work, "half")?;
            }
            bail!("the mirror is away")
        });
        assert!(failed.is_err());
        assert_eq!(contents().as_deref(), Some("first"));
    }
    renew(home.path(), &kept, |work| make(work, "second")).unwrap();
    assert_eq!(contents().as_deref(), Some("second"));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn a_kernel_with_other_modules_is_none() {
    let kept = tempfile::tempdir().unwrap();
    assert!(!is_kept(kept.path()));
    fs::write(kept.path().join(LIST), "other").unwrap();
    assert!(!is_kept(kept.path()));
    fs::write(kept.path().join(LIST), MODULES.join("\n")).unwrap();
    assert!(is_kept(kept.path()));
}
