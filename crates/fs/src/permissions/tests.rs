use super::*;

/// All 512 modes, all wishes, all classes against the rule in one line.
#[test]
fn access_follows_the_bits_of_the_first_matching_class() {
    let mut record = Record::empty(rt::Timestamp(0));
    (record.uid, record.gid) = (10, 20);
    let callers = [(Caller::user(10, 20), 6), (Caller::user(11, 20), 3), (Caller::user(11, 21), 0)];
    for permissions in 0..0o1000 {
        record.permissions = permissions;
        for wanted in 0..8 {
            for (caller, shift) in &callers {
                let may = permissions >> shift & wanted == wanted;
                assert_eq!(check_bits(caller, &record, wanted).is_ok(), may, "{permissions:o} {wanted}");
            }
            let root = wanted & EXECUTE == 0 || permissions & 0o111 != 0;
            assert_eq!(check_bits(&Caller::root(), &record, wanted).is_ok(), root);
        }
    }
}

#[test]
fn root_can_search_directories_with_any_bits() {
    let record = Record { kind: Kind::Directory, ..Record::empty(rt::Timestamp(0)) };
    assert_eq!(check_bits(&Caller::root(), &record, READ | WRITE | EXECUTE), Ok(()));
}

#[test]
fn set_group_id_without_group_execution_is_a_lock_and_stays() {
    let with = |permissions| Record { permissions, ..Record::empty(rt::Timestamp(0)) };
    assert_eq!(without_set_id(&with(0o6745)), 0o2745);
    assert_eq!(without_set_id(&with(0o6755)), 0o755);
}
