use super::*;

/// On kernels before 6.2, every user with access to a file could grant all users write permission for it.
#[test]
fn only_the_owner_changes_an_access_list() {
    let caller = Caller { uid: 11, gid: 12, groups: vec![13], umask: 0, checked: true };
    for name in [fs::ACL_ACCESS, b"system.posix_acl_default"] {
        let setter = setter_of(name, caller.clone());
        assert_eq!((setter.checked, setter.uid, setter.gid), (false, 11, 12));
    }
    for name in [b"user.name".as_slice(), b"security.capability", b"trusted.name", b"system.posix_acl"] {
        assert!(setter_of(name, caller.clone()).checked);
    }
}
