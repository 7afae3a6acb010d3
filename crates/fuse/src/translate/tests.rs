use super::*;

fn opened(flags: OFlags) -> OpenFlags {
    open_flags(flags.bits().cast_signed())
}

#[test]
fn what_may_be_written_may_be_read_too() {
    let write_only = opened(OFlags::WRONLY);
    assert!(write_only.read && write_only.write && !write_only.truncate);
    let read_only = opened(OFlags::RDONLY);
    assert!(read_only.read && !read_only.write);
    assert!(!opened(OFlags::RDWR | OFlags::APPEND).append, "the kernel appends");
    assert!(opened(OFlags::RDWR | OFlags::TRUNC).truncate);
    assert!(is_exclusive((OFlags::RDWR | OFlags::EXCL).bits().cast_signed()));
}

#[test]
fn unknown_rename_flags_are_refused() {
    assert_eq!(rename_flags(0), Some(RenameFlags::default()));
    assert!(rename_flags(1).unwrap().no_replace);
    assert!(rename_flags(2).unwrap().exchange);
    assert!(rename_flags(4).unwrap().whiteout);
    assert_eq!(rename_flags(8), None);
}

#[test]
fn fallocate_modes_are_all_known_or_refused() {
    assert_eq!(fallocate_mode(0), Some(FallocateMode::Allocate { keep_size: false }));
    assert_eq!(fallocate_mode(1), Some(FallocateMode::Allocate { keep_size: true }));
    assert_eq!(fallocate_mode(3), Some(FallocateMode::PunchHole));
    assert_eq!(fallocate_mode(2), None, "a hole never changes the size");
    assert_eq!(fallocate_mode(0x11), Some(FallocateMode::ZeroRange { keep_size: true }));
    assert_eq!(fallocate_mode(0x08), Some(FallocateMode::CollapseRange));
    assert_eq!(fallocate_mode(0x20), Some(FallocateMode::InsertRange));
    assert_eq!(fallocate_mode(0x28), None);
    assert_eq!(fallocate_mode(0x40), None);
}

#[test]
fn kinds_of_modes() {
    assert_eq!(kind_of_mode(0o644), Some(Kind::File));
    assert_eq!(kind_of_mode(0o100_644), Some(Kind::File));
    assert_eq!(kind_of_mode(0o010_644), Some(Kind::Fifo));
    assert_eq!(kind_of_mode(0o020_644), Some(Kind::CharDevice));
    assert_eq!(kind_of_mode(0o060_644), Some(Kind::BlockDevice));
    assert_eq!(kind_of_mode(0o140_644), Some(Kind::Socket));
    assert_eq!(kind_of_mode(0o040_755), None, "directories are not made this way");
    assert_eq!(kind_of_mode(0o120_777), None);
}

#[test]
fn set_id_bits_go_and_mandatory_locking_stays() {
    assert_eq!(without_set_id(0o4755), Some(0o755));
    assert_eq!(without_set_id(0o6755), Some(0o755));
    assert_eq!(without_set_id(0o2755), Some(0o755));
    assert_eq!(without_set_id(0o2644), None);
    assert_eq!(without_set_id(0o1755), None);
}

/// What `fuser` does with a time of the kernel.
fn decoded(seconds: i64, nanoseconds: u32) -> SystemTime {
    if seconds >= 0 {
        UNIX_EPOCH + Duration::new(seconds.unsigned_abs(), nanoseconds)
    } else {
        UNIX_EPOCH - Duration::new(seconds.unsigned_abs(), nanoseconds)
    }
}

#[test]
fn times_before_the_epoch_survive() {
    assert_eq!(from_request(decoded(-2, 800_000_000)), Timestamp(-1_200_000_000));
    assert_eq!(from_request(decoded(-1, 0)), Timestamp(-1_000_000_000));
    assert_eq!(from_request(decoded(0, 5)), Timestamp(5));
    assert_eq!(from_request(decoded(1_700_000_000, 7)), Timestamp(1_700_000_000_000_000_007));
}

#[test]
fn times_too_far_away_become_the_nearest() {
    assert_eq!(from_request(decoded(1 << 40, 0)), Timestamp(i64::MAX));
    assert_eq!(from_request(decoded(-(1 << 40), 0)), Timestamp(i64::MIN));
    let (latest, first) = (i64::MAX.div_euclid(1_000_000_000), i64::MIN.div_euclid(1_000_000_000));
    let at = |nanoseconds: i64| u32::try_from(nanoseconds.rem_euclid(1_000_000_000)).unwrap();
    assert!(can_be_kept(decoded(latest, at(i64::MAX))) && !can_be_kept(decoded(latest, at(i64::MAX) + 1)));
    assert!(can_be_kept(decoded(first, at(i64::MIN))) && !can_be_kept(decoded(first, at(i64::MIN) - 1)));
}

#[test]
fn replies_keep_nanoseconds() {
    assert_eq!(to_reply(Timestamp(-1)), UNIX_EPOCH - Duration::from_nanos(1));
    assert_eq!(to_reply(Timestamp(1_000_000_001)), UNIX_EPOCH + Duration::new(1, 1));
}
