use super::*;

#[test]
fn cookies_are_63_bits_and_leave_the_reserved_ones_alone() {
    for n in 0..10_000u32 {
        let cookie = first_cookie(&[3; 16], &n.to_le_bytes());
        assert!(cookie > 255 && cookie & 0xff == 0 && cookie + 255 < 1 << 63);
    }
    assert_ne!(first_cookie(&[3; 16], b"a"), first_cookie(&[4; 16], b"a"), "the secret counts");
}
