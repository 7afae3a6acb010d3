use super::*;

#[test]
fn entries_are_read_with_and_without_optional_fields() {
    let line = b"36 35 0:57 / /mnt/a\\040b rw,noatime shared:1 master:2 - fuse.polder /v/x\\134y.img rw,user_id=0,group_id=0";
    let entry = parse_entry(line).unwrap();
    assert_eq!((entry.id, entry.device.as_str()), (36, "0:57"));
    assert_eq!(entry.directory, Path::new("/mnt/a b"));
    assert_eq!(entry.source, Path::new("/v/x\\y.img"));
    assert!(entry.is_ours());
    assert_eq!(entry.owner, Some(0));
    let plain = parse_entry(b"22 1 0:5 / /dev rw - devtmpfs udev rw,size=1").unwrap();
    assert_eq!(plain.kind, "devtmpfs");
    assert!(!plain.is_ours() && plain.owner.is_none());
    assert_eq!(parse_entry(b""), None);
    assert_eq!(parse_entry(b"36 35 0:57 / /mnt rw"), None);
}

#[test]
fn a_backslash_that_escapes_nothing_stays() {
    assert_eq!(unescape(b"/a\\9b"), Path::new("/a\\9b"));
    assert_eq!(unescape(b"/a\\"), Path::new("/a\\"));
}

#[test]
fn the_table_of_the_system_is_parsed() {
    let root = entry_at(Path::new("/")).unwrap().expect("something is mounted on /");
    assert!(root.device.contains(':'));
    assert!(root.is_reachable() && root.places().unwrap()[0] == root);
    // Any path of it will do. A path inside it is not the mount point.
    assert_eq!(entry_at(Path::new("/proc/../..")).unwrap(), Some(root.clone()));
    let inside = tempfile::tempdir().unwrap();
    assert_eq!(entry_at(inside.path()).unwrap(), None);
    let lost = MountEntry { device: "4095:0".to_owned(), ..root };
    assert!(lost.places().unwrap().is_empty());
}

/// A monitoring loop that called `statfs` made `umount` fail now and then.
#[test]
fn a_brief_use_is_waited_for() {
    let busy = || Err(Errno::BUSY.into());
    let mut tries = 0;
    let done = unless_briefly_busy(|| {
        tries += 1;
        if tries < 3 { busy() } else { Ok(()) }
    });
    assert!(done.is_ok() && tries == 3);
    let (clock, mut tries) = (SystemClock::new(), 0);
    let refused = unless_briefly_busy(|| {
        tries += 1;
        busy()
    });
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    assert!(clock.monotonic_ns() >= BUSY_NS && tries > BUSY_TRIES);
    let mut tries = 0;
    let refused = unless_briefly_busy(|| {
        tries += 1;
        Err(Errno::PERM.into())
    });
    assert!(refused.is_err() && tries == 1, "only use is a matter of time");
}

/// If SIGCHLD is ignored, the status of a child is lost.
#[test]
fn a_helper_is_judged_by_its_status_and_its_message() {
    let run = |script: &str| {
        let mut helper = Command::new("sh");
        complaint_of(helper.args(["-c", script]).stderr(Stdio::piped()).spawn().unwrap())
    };
    assert_eq!(run("exit 0"), None);
    assert_eq!(run("echo 'a warning' >&2"), None);
    assert_eq!(run("echo 'device busy' >&2; echo more >&2; exit 1").as_deref(), Some("device busy"));
    assert_eq!(run("exit 1").as_deref(), Some("failed"));
}

#[test]
fn the_helper_gets_a_source_with_commas() {
    let options = MountOptions { source: "/a,b\\c".into(), read_only: true, ..MountOptions::default() };
    let line = helper_options(&options).into_string().unwrap();
    assert!(line.ends_with(",ro,fsname=/a\\,b\\\\c"), "{line}");
    assert!(line.contains(",subtype=polder,"), "{line}");
    let line = helper_options(&MountOptions { is_view: true, ..options.clone() }).into_string().unwrap();
    assert!(line.contains(",subtype=polder-zones,"), "{line}");
    let line = helper_options(&MountOptions { is_of_library: true, ..options }).into_string().unwrap();
    assert!(line.contains(",subtype=polder-library,"), "{line}");
}
