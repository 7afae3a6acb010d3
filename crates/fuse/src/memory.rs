//! What the memory that is given to a mount is for.

use crate::kernel::REQUEST_BYTES_MAX;
use crate::session;

/// What every mount has for requests: what each thread receives, and with the rest writes that wait. To them goes also …
const REQUESTS_BYTES: u64 = 28 << 20;
/// … such a share of what is given to it, …
const ASIDE_SHARE: u64 = 4;
/// … but no more than this. Kernels let one mount have about as much dirty on a machine with 24 GiB.
const ASIDE_SHARE_MAX: u64 = 32 << 20;

/// Bytes for each purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// For metadata.
    pub cache_bytes: u64,
    /// For writes that wait until others are answered. Where the kernel lets us choose, it has no more to write back.
    pub aside_bytes: u64,
}

impl Memory {
    /// Divides what is given to a mount that can be written to. Beyond that it takes what every mount does.
    pub fn divide(given_bytes: u64) -> Memory {
        Self::divide_among(session::thread_count() as u64, given_bytes)
    }

    fn divide_among(threads: u64, given_bytes: u64) -> Memory {
        let rest = REQUESTS_BYTES.saturating_sub(threads * u64::from(REQUEST_BYTES_MAX));
        let share = (given_bytes / ASIDE_SHARE).min(ASIDE_SHARE_MAX);
        Memory { cache_bytes: given_bytes - share, aside_bytes: rest + share }
    }

    /// All for metadata: nothing is written.
    pub fn of_reader(given_bytes: u64) -> Memory {
        Memory { cache_bytes: given_bytes, aside_bytes: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_divided() {
        for given in [0, 4 << 20, 128 << 20, 1 << 40, u64::MAX] {
            let Memory { cache_bytes, aside_bytes } = Memory::divide_among(12, given);
            assert_eq!(u128::from(cache_bytes) + u128::from(aside_bytes), u128::from(given) + (16 << 20));
            assert!(cache_bytes >= given / 4 * 3 && aside_bytes <= 48 << 20);
        }
        let divided = |threads, aside_bytes| {
            assert_eq!(
                Memory::divide_among(threads, 128 << 20),
                Memory { cache_bytes: 96 << 20, aside_bytes }
            );
        };
        divided(12, 48 << 20);
        divided(32, 32 << 20);
    }
}
