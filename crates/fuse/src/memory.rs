//! How the memory of a mount is divided.

use crate::kernel::REQUEST_BYTES_MAX;
use crate::session;

/// Every mount uses this for requests: one buffer for each thread, and the rest for queued writes. These also get …
const REQUESTS_BYTES: u64 = 28 << 20;
/// … this share (1 / `QUEUE_SHARE`) of the given memory, …
const QUEUE_SHARE: u64 = 4;
/// … but no more than this. With 24 GiB of memory, kernels allow one mount about as many dirty bytes.
const QUEUE_SHARE_MAX: u64 = 32 << 20;

/// Bytes for each purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// For metadata.
    pub cache_bytes: u64,
    /// For queued writes. If the kernel lets us choose, it keeps no more dirty bytes than fit there.
    pub write_queue_bytes: u64,
}

impl Memory {
    /// Divides the given memory of a writable mount. The mount also uses the constant memory for requests.
    pub fn divide(given_bytes: u64) -> Memory {
        Self::divide_among(session::thread_count() as u64, given_bytes)
    }

    fn divide_among(threads: u64, given_bytes: u64) -> Memory {
        let rest = REQUESTS_BYTES.saturating_sub(threads * u64::from(REQUEST_BYTES_MAX));
        let share = (given_bytes / QUEUE_SHARE).min(QUEUE_SHARE_MAX);
        Memory { cache_bytes: given_bytes - share, write_queue_bytes: rest + share }
    }

    /// A read-only mount uses all of it for metadata.
    pub fn of_reader(given_bytes: u64) -> Memory {
        Memory { cache_bytes: given_bytes, write_queue_bytes: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_divided() {
        for given in [0, 4 << 20, 128 << 20, 1 << 40, u64::MAX] {
            let Memory { cache_bytes, write_queue_bytes } = Memory::divide_among(12, given);
            assert_eq!(
                u128::from(cache_bytes) + u128::from(write_queue_bytes),
                u128::from(given) + (16 << 20)
            );
            assert!(cache_bytes >= given / 4 * 3 && write_queue_bytes <= 48 << 20);
        }
        let divided = |threads, write_queue_bytes| {
            assert_eq!(
                Memory::divide_among(threads, 128 << 20),
                Memory { cache_bytes: 96 << 20, write_queue_bytes }
            );
        };
        divided(12, 48 << 20);
        divided(32, 32 << 20);
    }
}
