//! Paths and operations on names.

use std::path::Path;

use polder::{Error, FileType, FsError, RenameFlags};

use crate::bench::{cause, file, listed, volume};

#[test]
fn a_path_begins_at_the_root_with_or_without_a_slash() {
    let (_bench, volume) = volume();
    volume.create_dir_all("one/two").unwrap();
    volume.write("/one/two/file", b"text").unwrap();
    for path in [
        "one/two/file",
        "/one/two/file",
        "//one///two/file",
        "./one/./two/file",
        "/one/two/../two/file",
        "../../one/two/file",
        "/one/../../one/two/file",
    ] {
        assert_eq!(volume.read(path).unwrap(), b"text", "{path}");
    }
    let root = volume.metadata("/").unwrap().inode();
    for path in [".", "..", "/..", "/one/..", "/one/../..", "//"] {
        assert_eq!(volume.metadata(path).unwrap().inode(), root, "{path}");
    }
}

#[test]
fn paths_that_lead_nowhere_have_the_errors_of_posix() {
    let (_bench, volume) = volume();
    volume.create_dir("/dir").unwrap();
    volume.write("/file", b"").unwrap();
    let long = "x".repeat(256);
    for (path, expected) in [
        ("", FsError::NotFound),
        ("/missing", FsError::NotFound),
        ("/missing/..", FsError::NotFound),
        ("/file/more", FsError::NotDirectory),
        ("/file/", FsError::NotDirectory),
        ("/file/.", FsError::NotDirectory),
        ("/file/..", FsError::NotDirectory),
        ("/dir/\0", FsError::Invalid),
        (long.as_str(), FsError::NameTooLong),
    ] {
        assert_eq!(cause(volume.metadata(path)), expected, "{path:?}");
        assert_eq!(cause(volume.read(path)), expected, "{path:?}");
    }
    assert!(volume.exists("/dir/").unwrap() && !volume.exists("/missing").unwrap());
    assert!(!volume.exists("/file/more").unwrap());
    assert_eq!(cause(volume.exists(&long)), FsError::NameTooLong);
    let error = volume.read("/missing").unwrap_err();
    assert!(matches!(&error, Error::Path { path, .. } if path == Path::new("/missing")));
}

#[test]
fn symbolic_links_are_followed_within_the_volume() {
    let (_bench, volume) = volume();
    volume.create_dir_all("/one/two").unwrap();
    volume.write("/one/file", b"text").unwrap();
    for (target, link) in [
        ("two", "/one/relative"),
        ("/one/file", "/one/two/absolute"),
        ("../file", "/one/two/up"),
        ("relative/up", "/one/chain"),
        ("../../../../one/file", "/one/two/above"),
        ("missing", "/dangling"),
        ("circle", "/circle"),
        ("file/", "/one/slash"),
        ("slash", "/one/chain_to_slash"),
        ("two/", "/one/directory"),
    ] {
        volume.symlink(target, link).unwrap();
        assert_eq!(volume.read_link(link).unwrap(), Path::new(target));
    }
    for path in ["/one/two/absolute", "/one/two/up", "/one/chain", "/one/relative/../file", "/one/two/above"]
    {
        assert_eq!(volume.read(path).unwrap(), b"text", "{path}");
    }
    assert_eq!(cause(volume.read("/dangling")), FsError::NotFound);
    // The slash at the end of a link's target counts.
    assert_eq!(cause(volume.read("/one/slash")), FsError::NotDirectory);
    assert_eq!(cause(volume.metadata("/one/chain_to_slash")), FsError::NotDirectory);
    assert!(volume.metadata("/one/directory").unwrap().is_dir());
    assert!(volume.symlink_metadata("/one/slash").unwrap().is_symlink());
    assert_eq!(cause(volume.read("/circle")), FsError::Loop);
    assert_eq!(cause(volume.metadata("/circle/more")), FsError::Loop);
    assert!(volume.symlink_metadata("/circle").unwrap().is_symlink());
    assert!(volume.symlink_metadata("/one/relative/").unwrap().is_dir(), "a slash at the end follows");
    assert_eq!(cause(volume.options().read(true).no_follow(true).open("/one/chain")), FsError::Loop);
    assert_eq!(cause(volume.read_link("/one/file")), FsError::Invalid);
}

#[test]
fn forty_links_are_followed_and_no_more() {
    let (_bench, volume) = volume();
    volume.write("/link0", b"text").unwrap();
    for number in 0..41 {
        volume.symlink(format!("link{number}"), format!("/link{}", number + 1)).unwrap();
    }
    assert_eq!(volume.read("/link40").unwrap(), b"text");
    assert_eq!(cause(volume.read("/link41")), FsError::Loop);
    assert_eq!(cause(volume.write("/link41", b"")), FsError::Loop);
}

#[test]
fn a_file_is_created_where_a_link_leads() {
    let (_bench, volume) = volume();
    volume.create_dir("/dir").unwrap();
    volume.symlink("dir/new", "/link").unwrap();
    volume.symlink("../link", "/dir/chain").unwrap();
    volume.write("/dir/chain", b"text").unwrap();
    assert_eq!(volume.read("/dir/new").unwrap(), b"text");
    assert!(volume.symlink_metadata("/link").unwrap().is_symlink());
    assert_eq!(cause(volume.options().write(true).create_new(true).open("/link")), FsError::Exists);
    volume.symlink("other", "/dangling").unwrap();
    let refused = volume.options().write(true).create(true).no_follow(true).open("/dangling");
    assert_eq!(cause(refused), FsError::Loop);
    assert!(!volume.exists("/other").unwrap());
    volume.symlink("circle", "/circle").unwrap();
    assert_eq!(cause(volume.write("/circle", b"")), FsError::Loop);
}

#[test]
fn names_are_created_and_removed() {
    let (_bench, volume) = volume();
    volume.create_dir("/dir/").unwrap();
    volume.write("/dir/file", b"text").unwrap();
    volume.hard_link("/dir/file", "/dir/name").unwrap();
    assert_eq!(volume.metadata("/dir/name").unwrap().links(), 2);
    volume.remove_file("/dir/file").unwrap();
    assert_eq!(volume.read("/dir/name").unwrap(), b"text");
    assert_eq!(listed(&volume, "/dir"), ["name"]);

    volume.symlink("name", "/dir/link").unwrap();
    volume.hard_link("/dir/link", "/dir/second").unwrap();
    assert!(volume.symlink_metadata("/dir/second").unwrap().is_symlink(), "the link itself gets the name");
    volume.remove_file("/dir/link").unwrap();
    assert!(volume.exists("/dir/name").unwrap(), "its target stays");

    assert_eq!(cause(volume.create_dir("/dir")), FsError::Exists);
    assert_eq!(cause(volume.create_dir("/")), FsError::Exists);
    assert_eq!(cause(volume.create_dir("/dir/..")), FsError::Exists);
    assert_eq!(cause(volume.create_dir("/missing/inner")), FsError::NotFound);
    assert_eq!(cause(volume.create_dir("/dir/name/inner")), FsError::NotDirectory);
    assert_eq!(cause(volume.write("/new/", b"")), FsError::IsDirectory);
    assert_eq!(cause(volume.write("/", b"")), FsError::IsDirectory);
    assert_eq!(cause(volume.write("/dir", b"")), FsError::IsDirectory);
    assert_eq!(cause(volume.symlink("x", "/dir/name")), FsError::Exists);
    assert_eq!(cause(volume.symlink("x", "/new/")), FsError::NotFound);
    assert_eq!(cause(volume.symlink("", "/new")), FsError::Invalid);
    assert_eq!(cause(volume.hard_link("/dir", "/other")), FsError::NotPermitted);
    assert_eq!(cause(volume.hard_link("/missing", "/other")), FsError::NotFound);
    assert_eq!(cause(volume.remove_file("/dir")), FsError::IsDirectory);
    assert_eq!(cause(volume.remove_file("/")), FsError::IsDirectory);
    assert_eq!(cause(volume.remove_file("/dir/name/")), FsError::NotDirectory);
    assert_eq!(cause(volume.remove_file("/missing")), FsError::NotFound);
    assert_eq!(cause(volume.remove_dir("/dir")), FsError::NotEmpty);
    assert_eq!(cause(volume.remove_dir("/dir/name")), FsError::NotDirectory);
    assert_eq!(cause(volume.remove_dir("/")), FsError::Invalid);
    assert_eq!(cause(volume.remove_dir("/dir/.")), FsError::Invalid);
    assert_eq!(cause(volume.read_dir("/dir/name")), FsError::NotDirectory);
    assert_eq!(cause(volume.read_dir("/missing")), FsError::NotFound);
}

#[test]
fn names_are_moved() {
    let (_bench, volume) = volume();
    volume.create_dir("/dir").unwrap();
    volume.write("/one", b"1").unwrap();
    volume.write("/two", b"2").unwrap();
    volume.rename("/one", "/dir/one").unwrap();
    volume.rename("/two", "dir/one").unwrap();
    assert_eq!(volume.read("/dir/one").unwrap(), b"2");
    assert_eq!(listed(&volume, "/"), ["dir"]);

    volume.write("/three", b"3").unwrap();
    let exchange = RenameFlags { exchange: true, ..RenameFlags::default() };
    volume.rename_with("/three", "/dir/one", exchange).unwrap();
    assert_eq!(
        (volume.read("/three").unwrap(), volume.read("/dir/one").unwrap()),
        (b"2".into(), b"3".into())
    );
    let no_replace = RenameFlags { no_replace: true, ..RenameFlags::default() };
    assert_eq!(cause(volume.rename_with("/three", "/dir/one", no_replace)), FsError::Exists);
    assert_eq!(cause(volume.rename_with("/three", "/missing", exchange)), FsError::NotFound);
    let whiteout = RenameFlags { whiteout: true, ..RenameFlags::default() };
    volume.rename_with("/three", "/four", whiteout).unwrap();
    assert_eq!(volume.metadata("/three").unwrap().file_type(), FileType::CharDevice);

    volume.create_dir("/dir/inner").unwrap();
    assert_eq!(cause(volume.rename("/dir", "/dir/inner/below")), FsError::Invalid);
    assert_eq!(cause(volume.rename("/four", "/dir")), FsError::IsDirectory);
    assert_eq!(cause(volume.rename("/dir", "/four")), FsError::NotDirectory);
    assert_eq!(cause(volume.rename("/four", "/five/")), FsError::NotDirectory);
    assert_eq!(cause(volume.rename("/missing", "/five")), FsError::NotFound);
    assert_eq!(cause(volume.rename("/", "/five")), FsError::Invalid);
    assert_eq!(cause(volume.rename("/dir/..", "/five")), FsError::Invalid);
    volume.rename("/dir/inner/", "/moved/").unwrap();
    assert!(volume.metadata("/moved").unwrap().is_dir());
}

#[test]
fn trees_are_created_and_removed() {
    let (_bench, volume) = volume();
    volume.create_dir_all("/a/b/../c//d").unwrap();
    volume.create_dir_all("/a/b").unwrap();
    volume.create_dir_all("/").unwrap();
    assert_eq!(listed(&volume, "/a"), ["b", "c"]);
    volume.write("/outside", b"stays").unwrap();
    volume.create_dir("/kept").unwrap();
    volume.write("/kept/file", b"stays").unwrap();
    volume.symlink("/kept", "/a/c/link").unwrap();
    volume.hard_link("/outside", "/a/c/d/name").unwrap();
    for number in 0..300 {
        volume.write(format!("/a/b/{number}"), b"").unwrap();
        volume.create_dir(format!("/a/c/{number}")).unwrap();
    }
    volume.remove_dir_all("/a").unwrap();
    assert_eq!(listed(&volume, "/"), ["kept", "outside"]);
    assert_eq!(listed(&volume, "/kept"), ["file"]);
    assert_eq!(cause(volume.remove_dir_all("/a")), FsError::NotFound);
    assert_eq!(cause(volume.remove_dir_all("/outside")), FsError::NotDirectory);
    assert_eq!(cause(volume.remove_dir_all("/")), FsError::Invalid);
    volume.symlink("/kept", "/link").unwrap();
    assert_eq!(cause(volume.remove_dir_all("/link")), FsError::NotDirectory);
    assert_eq!(cause(volume.create_dir_all("/outside/inner")), FsError::NotDirectory);
    assert_eq!(cause(volume.create_dir_all("/outside")), FsError::Exists);
}

#[test]
fn a_listing_has_each_entry_once() {
    let (_bench, volume) = volume();
    volume.create_dir("/many").unwrap();
    for number in 0..1000 {
        volume.write(format!("/many/{number:04}"), b"").unwrap();
    }
    let mut listing = volume.read_dir("/many").unwrap();
    let first = listing.next().unwrap().unwrap();
    assert_eq!(first.path(), Path::new("/many").join(first.file_name()));
    assert_eq!(first.inode(), first.metadata().unwrap().inode());
    let rest = listing.map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = rest.chain([first.file_name()]).collect();
    names.sort();
    assert_eq!(names.len(), 1000);
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]));
    volume.remove_file(first.path()).unwrap();
    assert_eq!(cause(first.metadata()), FsError::NotFound);
    assert_eq!(first.file_type(), FileType::File);
}

#[test]
fn an_open_file_without_a_name_can_be_used() {
    let (_bench, volume) = volume();
    let open = file(&volume, "/file");
    open.append(b"text").unwrap();
    volume.remove_file("/file").unwrap();
    let mut bytes = [0; 4];
    open.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((&bytes, open.metadata().unwrap().links()), (b"text", 0));
}
