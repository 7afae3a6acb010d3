//! Who may do what through the kernel.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;

use rustix::fs::XattrFlags;

use crate::bench_or_skip;

const ACCESS_LIST: &str = "system.posix_acl_access";

/// An access list as `setfacl` hands it over: version 2, then tag, permissions and id of each entry.
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// The kernel went on for a day with the mode that it remembered: a file that `setfacl` had closed to others
/// could be read by them.
#[test]
fn an_access_list_changes_the_mode_at_once() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let path = mounted.path("file");
    const NOBODY: u32 = u32::MAX;
    for other in [0, 4, 0, 6] {
        fs::write(&path, "x").unwrap();
        let open = File::open(&path).unwrap();
        let before = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let list = list(&[(1, 6, NOBODY), (4, 4, NOBODY), (0x20, other, NOBODY)]);
        rustix::fs::setxattr(&path, ACCESS_LIST, &list, XattrFlags::empty()).unwrap();
        let expected = 0o640 | u32::from(other);
        assert_eq!(open.metadata().unwrap().permissions().mode() & 0o777, expected, "was {before:o}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, expected, "was {before:o}");
        let mut stored = vec![0; 100];
        let length = rustix::fs::getxattr(&path, ACCESS_LIST, stored.as_mut_slice()).unwrap();
        assert_eq!(stored[..length], list);
    }
    rustix::fs::removexattr(&path, ACCESS_LIST).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o646);
    mounted.umount();
    bench.check();
}
