//! A scrub keeps the requested rate, and its progress ends at the total.

use emulated::{Emulated, Spec};
use fs::{Caller, FormatOptions, InodeNo, MountOptions, OpenFlags, Reserve};
use rt::{ManualClock, Timestamp};
use zone::{Device, FsId};

use super::*;

/// Simulates a scrub in which each piece takes `reading_ns`, with the waits that the rate demands. Returns the seconds.
fn seconds(rate: u64, bytes: u64, reading_ns: u64) -> f64 {
    let clock = Arc::new(ManualClock::at(Timestamp(0)));
    clock.advance(77 * SECOND_NS);
    let mut pace = Pace::new(Arc::clone(&clock) as _, Some(rate));
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(pace.piece);
        left -= piece;
        clock.advance(reading_ns);
        let wait = pace.left(piece);
        assert!(wait.as_secs() <= 1 || rate < PIECE_MIN, "waits are short: {wait:?} at {rate}");
        clock.advance(wait.as_nanos() as u64);
    }
    clock.monotonic_ns() as f64 / 1e9 - 77.0
}

#[test]
fn the_rate_is_kept_with_a_fast_and_a_slow_device() {
    for rate in [100 << 10, 1 << 20, 10 << 20, 1 << 30] {
        let bytes = 30 * rate + 12_345;
        let due = bytes as f64 / rate as f64;
        for reading_ns in [0, 500_000, 1_000_000] {
            let took = seconds(rate, bytes, reading_ns);
            assert!(
                (took - due).abs() < 0.01,
                "{took} s instead of {due} at {rate}, {reading_ns} ns a piece"
            );
        }
    }
    // There are no waits if the device is slower than the rate.
    assert_eq!(seconds(1 << 30, 40 << 20, SECOND_NS), 10.0);
}

#[test]
fn there_are_no_waits_without_a_rate() {
    let mut pace = Pace::new(Arc::new(ManualClock::at(Timestamp(0))), None);
    assert_eq!((pace.piece, pace.left(u64::MAX)), (PIECE, Duration::ZERO));
}

#[test]
fn the_verified_bytes_add_up_to_the_total() {
    let device: Arc<dyn Device> = Arc::new(Emulated::new(Spec::new(4096, 40, 256)));
    let clock = Arc::new(ManualClock::at(Timestamp(1)));
    let format = FormatOptions {
        label: String::new(),
        fs_id: FsId([9; 16]),
        uid: 0,
        gid: 0,
        page_size: None,
        groups: Some(1),
        reserve: Reserve::default(),
    };
    Fs::format(&device, &format, &*clock).unwrap();
    let options =
        MountOptions { cache_bytes: 8 << 20, read_only: false, commit_interval_ns: SECOND_NS, clock };
    let (volume, _) = Fs::mount(device, options).unwrap();
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    let (_, file) = volume.create(&Caller::root(), InodeNo::ROOT, b"file", 0o600, flags, true).unwrap();
    volume.write(&file, 0, &vec![7; 3_000_000]).unwrap();
    volume.unmount().unwrap();
    let (mut total, mut pieces) = (0, 0);
    let found = found(Place::start(), |at| {
        let piece = piece(&volume, &at, PIECE_MIN, DamagedCopies::Report)?;
        (total, pieces) = (piece.total, pieces + 1);
        Ok(piece)
    });
    let found = found.unwrap();
    assert!(found.clean && total > 3_000_000 && pieces > 10, "{pieces} pieces of {total}");
    assert!(found.bytes.abs_diff(total) * 20 < total, "{} of {total} bytes", found.bytes);
}
