use super::*;

fn opened(flags: OFlags) -> OpenFlags {
    open_flags(flags.bits().cast_signed())
}

#[test]
fn a_file_opened_for_writing_can_be_read() {
    let write_only = opened(OFlags::WRONLY);
    assert!(write_only.read && write_only.write && !write_only.truncate);
    let read_only = opened(OFlags::RDONLY);
    assert!(read_only.read && !read_only.write);
    assert!(!opened(OFlags::RDWR | OFlags::APPEND).append, "the kernel appends");
    assert!(opened(OFlags::RDWR | OFlags::TRUNC).truncate);
    assert!(is_exclusive((OFlags::RDWR | OFlags::EXCL).bits().cast_signed()));
}

/// `O_DSYNC` alone was not recognised, because its name stood for both bits of `O_SYNC`.
#[test]
fn both_flags_for_synchronous_writes_are_recognised() {
    assert!(is_synchronous(0o10_000) && is_synchronous(OFlags::SYNC.bits().cast_signed()));
    assert!(!is_synchronous((OFlags::RDWR | OFlags::DIRECT).bits().cast_signed()));
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
fn fallocate_modes_are_supported_or_refused() {
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

/// A file that is not executable kept the set-group-ID bit of a group to which its writer does not belong.
#[test]
fn set_id_bits_go_and_the_groups_own_keep_that_of_a_file_that_does_not_run() {
    for is_in_group in [false, true] {
        let left = |permissions| without_set_id(permissions, || is_in_group);
        assert_eq!(left(0o4755), Some(0o755));
        assert_eq!(left(0o6755), Some(0o755));
        assert_eq!(left(0o2755), Some(0o755));
        assert_eq!(left(0o1755), None);
        assert_eq!(left(0o2644), (!is_in_group).then_some(0o644));
        assert_eq!(left(0o6666), Some(if is_in_group { 0o2666 } else { 0o666 }));
    }
}

#[test]
fn times_before_the_epoch_survive() {
    for time in [-1_200_000_000, -1_000_000_000, -1, 0, 5, 1_700_000_000_000_000_007, i64::MIN, i64::MAX] {
        let (seconds, nanoseconds) = to_reply(Timestamp(time));
        assert_eq!(from_request(seconds, nanoseconds), Timestamp(time));
        assert!(is_representable(seconds, nanoseconds));
    }
    assert_eq!(to_reply(Timestamp(-1_200_000_000)), (-2, 800_000_000));
    assert_eq!(to_reply(Timestamp(1_000_000_001)), (1, 1));
}

#[test]
fn times_too_far_away_become_the_nearest() {
    assert_eq!(from_request(1 << 40, 0), Timestamp(i64::MAX));
    assert_eq!(from_request(-(1 << 40), 0), Timestamp(i64::MIN));
    assert_eq!(from_request(i64::MAX, u32::MAX), Timestamp(i64::MAX));
    assert_eq!(from_request(i64::MIN, u32::MAX), Timestamp(i64::MIN));
    let (latest, at_most) = to_reply(Timestamp(i64::MAX));
    let (first, at_least) = to_reply(Timestamp(i64::MIN));
    assert!(is_representable(latest, at_most) && !is_representable(latest, at_most + 1));
    assert!(is_representable(first, at_least) && !is_representable(first, at_least - 1));
}
