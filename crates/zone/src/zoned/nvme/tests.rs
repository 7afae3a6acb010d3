mod handles;

use super::*;

/// A namespace without a block device accepts commands of 255 sectors, which is 31 blocks of 4 KiB. Halving found 16
/// of them, so that everything needed twice as many commands as on another namespace of the same controller.
#[test]
fn the_largest_command_is_found_to_the_block() {
    for most in 1..70 {
        for limit in 1..80 {
            let takes = |blocks: usize| if blocks <= limit { Ok(()) } else { Err(Error::from(Errno::INVAL)) };
            assert_eq!(largest(most, takes).unwrap(), limit.min(most), "{limit} of {most}");
        }
        assert!(largest(most, |_| Err(Error::from(Errno::INVAL))).is_err());
    }
}
