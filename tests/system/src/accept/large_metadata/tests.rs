use super::*;

#[test]
fn the_peak_is_read_in_bytes() {
    assert_eq!(peak_bytes("VmPeak:\t  1 kB\nVmHWM:\t   49200 kB\nVmRSS:\t  3 kB\n"), Some(49200 << 10));
    assert_eq!(peak_bytes("VmRSS:\t  3 kB\n"), None);
}

#[test]
fn contents_differ_by_file_and_seed() {
    assert_eq!(content(1, 2), content(1, 2));
    assert_ne!(content(1, 2), content(1, 3));
    assert_ne!(content(1, 2), content(2, 2));
}

#[test]
fn both_forms_make_more_than_the_cache_holds() {
    for scale in [QUICK, FULL] {
        // In each half.
        assert!(scale.files / 2 * FILE_BYTES as u64 > 2 * scale.cache_bytes);
        assert!(scale.files.is_multiple_of(FILES_PER_DIRECTORY));
    }
}

#[test]
fn a_crash_keeps_the_first_files_and_no_later_one() {
    use Left::{Empty, Nothing, Whole};
    for (left, whole) in
        [(&[Whole, Whole][..], 2), (&[Whole, Empty, Nothing], 1), (&[Nothing, Nothing], 0), (&[Empty], 0)]
    {
        assert_eq!(judge_order(left).expect("a prefix"), whole, "{left:?}");
    }
    for left in [&[Nothing, Whole][..], &[Whole, Empty, Empty], &[Empty, Whole], &[Whole, Nothing, Empty]] {
        judge_order(left).expect_err("a file is found without an earlier one");
    }
}
