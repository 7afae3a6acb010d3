//! Attributes of files, and what the caller may do.

use std::io::ErrorKind;
use std::time::{Duration, UNIX_EPOCH};

use polder::{Caller, Error, FsError, Lifetime, Times, VolumeOptions};

use crate::bench::{Bench, cause, file, volume};

#[test]
fn attributes_are_set_and_reported() {
    let (_bench, volume) = volume();
    volume.write("/file", vec![1; 10_000]).unwrap();
    let found = volume.metadata("/file").unwrap();
    assert!(found.is_file() && found.len() == 10_000 && found.allocated_bytes() == 12_288);
    assert_eq!((found.permissions(), found.links()), (0o644, 1));
    assert_eq!(found.uid(), rustix_uid());
    assert!(found.created() <= found.modified() && found.modified() <= found.changed());

    volume.set_permissions("/file", 0o4755).unwrap();
    volume.set_owner("/file", Some(7), None).unwrap();
    let then = UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    volume.set_times("/file", Times { modified: Some(then), ..Times::default() }).unwrap();
    let found = volume.metadata("/file").unwrap();
    assert_eq!((found.permissions(), found.uid(), found.modified()), (0o755, 7, then));

    volume.symlink("file", "/link").unwrap();
    volume.set_symlink_owner("/link", Some(8), Some(9)).unwrap();
    volume.set_symlink_times("/link", Times { accessed: Some(then), modified: None }).unwrap();
    let link = volume.symlink_metadata("/link").unwrap();
    assert_eq!((link.uid(), link.gid(), link.accessed()), (8, 9, then));
    assert_eq!(volume.metadata("/link").unwrap(), volume.metadata("/file").unwrap());
    assert_eq!(cause(volume.set_permissions("/missing", 0)), FsError::NotFound);
    assert_eq!(cause(volume.set_owner("/missing", None, None)), FsError::NotFound);
    assert_eq!(cause(volume.set_times("/missing", Times::default())), FsError::NotFound);

    let open = file(&volume, "/file");
    open.set_permissions(0o600).unwrap();
    open.set_modified(UNIX_EPOCH).unwrap();
    let found = open.metadata().unwrap();
    assert_eq!((found.permissions(), found.modified()), (0o600, UNIX_EPOCH));
}

/// The user whom the volume's files belong to.
fn rustix_uid() -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid()
}

#[test]
fn extended_attributes_are_set_and_removed() {
    let (_bench, volume) = volume();
    volume.write("/file", b"").unwrap();
    volume.set_xattr("/file", "user.one", b"1").unwrap();
    volume.set_xattr("/file", "user.one", b"one").unwrap();
    volume.set_xattr("/file", "trusted.two", b"2").unwrap();
    let mut names = volume.as_caller(Caller::user(0, 0)).list_xattrs("/file").unwrap();
    names.sort();
    assert_eq!(names, ["trusted.two", "user.one"]);
    assert_eq!(volume.get_xattr("/file", "user.one").unwrap(), b"one");
    volume.remove_xattr("/file", "user.one").unwrap();
    assert_eq!(cause(volume.get_xattr("/file", "user.one")), FsError::NoAttribute);
    assert_eq!(cause(volume.remove_xattr("/file", "user.one")), FsError::NoAttribute);
    assert_eq!(cause(volume.set_xattr("/file", "other.one", b"")), FsError::NotSupported);
    assert_eq!(cause(volume.set_xattr("/file", "user.big", &[0; (64 << 10) + 1])), FsError::ArgumentTooLong);
    assert_eq!(cause(volume.list_xattrs("/missing")), FsError::NotFound);
    let guest = volume.as_caller(Caller::user(65_534, 65_534));
    assert_eq!(guest.list_xattrs("/file").unwrap(), [""; 0]);
}

#[test]
fn lifetimes_are_inherited() {
    let (_bench, volume) = volume();
    volume.create_dir("/logs").unwrap();
    volume.set_lifetime("/logs", Lifetime::Short).unwrap();
    volume.write("/logs/today", b"text").unwrap();
    assert_eq!(volume.lifetime("/logs/today").unwrap(), Lifetime::Short);
    assert_eq!(volume.get_xattr("/logs/today", "user.polder.lifetime").unwrap(), b"short");
    let open = file(&volume, "/other");
    open.set_lifetime(Some(Lifetime::Long));
    open.append(&[7; 100_000]).unwrap();
    assert_eq!(volume.lifetime("/other").unwrap(), Lifetime::Unknown);
    assert_eq!(cause(volume.set_lifetime("/missing", Lifetime::Long)), FsError::NotFound);
}

#[test]
fn permissions_restrict_callers_that_are_users() {
    let (_bench, volume) = volume();
    volume.create_dir("/shared").unwrap();
    volume.set_permissions("/shared", 0o1777).unwrap();
    let ann = volume.as_caller(Caller::user(1000, 1000).umask(0o077));
    let ben = volume.as_caller(Caller::user(1001, 1001).groups(&[1000]));
    ann.write("/shared/hers", b"secret").unwrap();
    let found = volume.metadata("/shared/hers").unwrap();
    assert_eq!((found.uid(), found.gid(), found.permissions()), (1000, 1000, 0o600));
    for refused in
        [ben.read("/shared/hers").map(drop), ben.write("/shared/hers", b""), ben.write("/new", b"")]
    {
        let error = refused.unwrap_err();
        assert_eq!((error.kind(), error.errno()), (ErrorKind::PermissionDenied, 13));
    }
    assert_eq!(cause(ben.remove_file("/shared/hers")), FsError::NotPermitted);
    ann.set_permissions("/shared/hers", 0o640).unwrap();
    assert_eq!(ben.read("/shared/hers").unwrap(), b"secret", "by the group");
    assert_eq!(volume.read("/shared/hers").unwrap(), b"secret", "nothing restricts the default caller");
}

#[test]
fn the_root_belongs_to_the_caller_of_the_options() {
    let bench = Bench::new();
    let options = VolumeOptions::new().caller(Caller::user(1000, 1001));
    let volume = bench.create().open_options(options).open().unwrap();
    let root = volume.metadata("/").unwrap();
    assert_eq!((root.uid(), root.gid(), root.permissions()), (1000, 1001, 0o755));
    volume.write("/mine", b"").unwrap();
    assert_eq!(volume.metadata("/mine").unwrap().uid(), 1000);
}

#[test]
fn errors_have_the_numbers_and_kinds_of_the_system() {
    let (bench, volume) = volume();
    volume.write("/file", b"").unwrap();
    let of = |error: Error| {
        let (kind, errno) = (error.kind(), error.errno());
        let converted = std::io::Error::from(error);
        assert_eq!((converted.kind(), converted.raw_os_error()), (kind, Some(errno)));
        (kind, errno)
    };
    assert_eq!(of(volume.read("/missing").unwrap_err()), (ErrorKind::NotFound, 2));
    assert_eq!(of(volume.read("/file/x").unwrap_err()), (ErrorKind::NotADirectory, 20));
    assert_eq!(of(volume.read("/").unwrap_err()), (ErrorKind::IsADirectory, 21));
    assert_eq!(of(volume.create_dir("/file").unwrap_err()), (ErrorKind::AlreadyExists, 17));
    assert_eq!(of(volume.read("\0").unwrap_err()), (ErrorKind::InvalidInput, 22));
    assert_eq!(of(bench.create().open().err().unwrap()), (ErrorKind::ResourceBusy, 16));
    let clone = volume.clone();
    volume.close().unwrap();
    assert_eq!(of(clone.read("/file").unwrap_err()).1, 9);
    assert_eq!(of(bench.create().open().err().unwrap()), (ErrorKind::AlreadyExists, 17));
}
