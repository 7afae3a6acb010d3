use super::*;

#[test]
fn entries_are_read_with_and_without_optional_fields() {
    let line = b"36 35 0:57 / /mnt/a\\040b rw,noatime shared:1 master:2 - fuse.polder /v/x\\134y.img rw,user_id=0,group_id=0";
    let entry = parse_entry(line).unwrap();
    assert_eq!(entry.device, "0:57");
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
fn the_system_s_own_table_is_understood() {
    let root = entry_at(Path::new("/")).unwrap().expect("something is mounted on /");
    assert!(root.device.contains(':'));
}

#[test]
fn the_helper_gets_a_source_with_commas() {
    let options = MountOptions { source: "/a,b\\c".into(), read_only: true, ..MountOptions::default() };
    let line = helper_options(&options).into_string().unwrap();
    assert!(line.ends_with(",ro,fsname=/a\\,b\\\\c"), "{line}");
    assert!(line.contains(",subtype=polder,"), "{line}");
    let line = helper_options(&MountOptions { is_view: true, ..options }).into_string().unwrap();
    assert!(line.contains(",subtype=polder-zones,"), "{line}");
}
