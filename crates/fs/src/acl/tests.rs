use super::*;

fn entry(tag: u16, permissions: u16, id: u32) -> AclEntry {
    AclEntry { tag: tag.into(), permissions: permissions.into(), id: id.into() }
}

fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    AccessList(entries.iter().map(|&(tag, permissions, id)| entry(tag, permissions, id)).collect()).encode()
}

fn list(entries: &[(u16, u16, u32)]) -> AccessList {
    AccessList::decode(&value(entries)).expect("this is a list")
}

/// Checks all permissions of all classes, for callers of each class, against acl(5).
#[test]
fn the_first_matching_class_decides() {
    const OWNING: u32 = 20;
    let in_groups = |uid, groups: &[u32]| Caller { groups: groups.to_vec(), ..Caller::user(uid, 99) };
    // A named user, members of the owning group, of a named group and of both, and a stranger.
    let callers = [
        (in_groups(11, &[OWNING, 30]), [true, false, false, false]),
        (in_groups(12, &[OWNING]), [false, true, false, false]),
        (Caller::user(12, 30), [false, false, true, false]),
        (in_groups(12, &[30, OWNING]), [false, true, true, false]),
        (in_groups(12, &[40]), [false, false, false, true]),
    ];
    // Two bits are enough instead of three, because any two behave alike.
    for permissions in 0..1 << 10 {
        let bits = |place: u16| permissions >> (2 * place) & 3;
        let (classes, mask) = ([bits(0), bits(1), bits(2), bits(3)], bits(4));
        let list = list(&[
            (USER_OBJ, 0, NO_ID),
            (USER, classes[0], 11),
            (GROUP_OBJ, classes[1], NO_ID),
            (GROUP, classes[2], 30),
            (MASK, mask, NO_ID),
            (OTHER, classes[3], NO_ID),
        ]);
        for wanted in 0..4 {
            for (caller, fits) in &callers {
                let any = fits.iter().zip(classes).any(|(&fits, class)| fits && class & wanted == wanted);
                let masked = fits[3] || mask & wanted == wanted;
                assert_eq!(
                    list.grants(caller, OWNING, wanted),
                    any && masked,
                    "{list:?} {caller:?} {wanted}"
                );
            }
        }
    }
}

#[test]
fn the_group_class_is_the_mask_or_without_one_the_owning_group() {
    let mut minimal = list(&[(USER_OBJ, 7, 0), (GROUP_OBJ, 5, 0), (OTHER, 1, 0)]);
    assert!(minimal.is_minimal());
    assert_eq!(minimal.bits(), 0o751);
    minimal.set_bits(0o4640);
    assert_eq!(minimal.encode(), value(&[(USER_OBJ, 6, 0), (GROUP_OBJ, 4, 0), (OTHER, 0, 0)]));

    let masked = [(USER_OBJ, 7, 0), (USER, 6, 11), (GROUP_OBJ, 5, 0), (MASK, 4, 0), (OTHER, 1, 0)];
    let mut masked = list(&masked);
    assert!(!masked.is_minimal());
    assert_eq!(masked.bits(), 0o741);
    masked.set_bits(0o602);
    let expected = [(USER_OBJ, 6, 0), (USER, 6, 11), (GROUP_OBJ, 5, 0), (MASK, 0, 0), (OTHER, 2, 0)];
    assert_eq!(masked.encode(), value(&expected));
    assert!(!list(&[(USER_OBJ, 7, 0), (GROUP_OBJ, 5, 0), (MASK, 4, 0), (OTHER, 1, 0)]).is_minimal());
}

#[test]
fn invalid_lists_are_recognised() {
    let (owner, group, other, mask) = ((USER_OBJ, 7, 0), (GROUP_OBJ, 5, 0), (OTHER, 1, 0), (MASK, 7, 0));
    let (ann, ben) = ((USER, 7, 11), (USER, 7, 10));
    // Named users need not be in order.
    list(&[owner, ann, ben, group, (GROUP, 1, 11), mask, other]);
    let bad: [&[(u16, u16, u32)]; 14] = [
        &[],
        &[owner],
        &[owner, group],
        &[owner, other, group],
        &[owner, owner, group, other],
        &[owner, group, mask, mask, other],
        &[owner, ann, group, other],
        &[owner, group, (GROUP, 1, 11), other],
        &[owner, ann, ann, group, mask, other],
        &[owner, ann, ben, ann, group, mask, other],
        &[owner, (USER, 7, NO_ID), group, mask, other],
        &[(USER_OBJ, 8, 0), group, other],
        &[(3, 7, 0), owner, group, other],
        &[owner, group, other, (0x40, 7, 0)],
    ];
    for bad in bad {
        assert!(AccessList::decode(&value(bad)).is_none(), "{bad:?}");
    }
    let good = value(&[owner, group, other]);
    assert!((0..good.len()).all(|length| AccessList::decode(&good[..length]).is_none()));
    assert!(AccessList::decode(&[&good[..], &[0]].concat()).is_none());
    let version_3 = [&[3, 0, 0, 0], &good[4..]].concat();
    assert!(AccessList::decode(&version_3).is_none());
}
