use std::collections::HashSet;

use super::*;

const LONGEST: usize = WRITE_HEAD + REQUEST_BYTES_MAX as usize;

fn received(length: usize) -> RequestBuffer {
    let mut buffer = RequestBuffer::new();
    for (at, byte) in buffer.memory().space()[..length].iter_mut().enumerate() {
        *byte = at as u8;
    }
    buffer
}

#[test]
fn stored_requests_are_whole_and_long_ones_begin_on_a_page() {
    let buffers = BufferPool::new(8 << 20);
    for length in [0, 1, WRITE_HEAD, WRITE_HEAD + 1, WRITE_HEAD + 4096, WRITE_HEAD + 32769, 300_000, LONGEST]
    {
        let mut buffer = received(length);
        let sent = buffer.memory().bytes()[..length].to_vec();
        let kept = buffers.store(&mut buffer, length).unwrap();
        buffer.memory().space().fill(0xff);
        assert_eq!(kept.as_bytes(), sent);
        let data = kept.as_bytes().as_ptr().wrapping_add(WRITE_HEAD);
        let is_long = length >= WRITE_HEAD + PLACED_PAGES * ALIGNMENT;
        assert!(!is_long || data.align_offset(ALIGNMENT) == 0, "of {length} bytes");
    }
}

/// The kernel keeps as many dirty bytes as fit. Writes that did not fit would be answered by the receiving threads,
/// until none receives.
#[test]
fn the_documented_share_fits_for_writes_of_any_length() {
    const ALL: usize = 16 << 20;
    for pages in 1..=PAGES[LARGEST] {
        let size = size_for(WRITE_HEAD + pages * ALIGNMENT).unwrap();
        let fit = ALL / bytes_of(size) * pages * ALIGNMENT;
        let said = ALL * FITS.0 as usize / FITS.1 as usize;
        assert!(fit + pages * ALIGNMENT > said, "{fit} bytes in writes of {pages} pages");
    }
}

#[test]
fn a_request_beyond_the_largest_size_is_not_stored() {
    let buffers = BufferPool::new(8 << 20);
    assert!(buffers.store(&mut RequestBuffer::new(), LONGEST + 1).is_none());
    assert_eq!(buffers.state.lock().bytes, 0);
}

#[test]
fn the_largest_request_is_not_copied_and_leaves_an_empty_buffer() {
    let buffers = BufferPool::new(bytes_of(LARGEST));
    let mut buffer = received(LONGEST);
    let (place, data) = (buffer.memory().bytes().as_ptr(), buffer.memory().bytes()[..LONGEST].to_vec());
    let kept = buffers.store(&mut buffer, LONGEST).unwrap();
    assert_eq!(kept.as_bytes().as_ptr(), place);
    assert!(buffer.memory().space().len() >= LONGEST);
    assert_eq!(buffer.memory().bytes().as_ptr().wrapping_add(WRITE_HEAD).align_offset(ALIGNMENT), 0);
    buffer.memory().space()[..LONGEST].copy_from_slice(&data);
    assert!(buffers.store(&mut buffer, LONGEST).is_none(), "only one fits");
    assert_eq!(buffer.memory().bytes()[..LONGEST], data, "it stays where it was");
    assert_eq!(kept.as_bytes(), data);
}

#[test]
fn free_buffers_are_used_again_and_dropped_for_others() {
    let buffers = BufferPool::new(3 * bytes_of(0) + bytes_of(1));
    let keep = |length| buffers.store(&mut received(length), length);
    let kept = |count, length| (0..count).map(|_| keep(length).unwrap()).collect();
    let places =
        |kept: &Vec<StoredRequest>| kept.iter().map(|one| one.as_bytes().as_ptr()).collect::<HashSet<_>>();
    let small: Vec<StoredRequest> = kept(3, 100);
    let seen = places(&small);
    drop(small);
    let small = kept(3, 50);
    assert_eq!(places(&small), seen);
    let larger: Vec<StoredRequest> = kept(1, WRITE_HEAD + 5000);
    assert!(keep(1).is_none() && keep(WRITE_HEAD + 5000).is_none(), "all are in use");
    drop(larger);
    assert!(keep(1).is_some(), "in place of the larger one");
    assert_eq!(buffers.state.lock().bytes, 4 * bytes_of(0));
    drop(small);
    assert!(keep(LONGEST).is_none(), "there is never so much");
    assert_eq!(buffers.state.lock().bytes, 4 * bytes_of(0), "nothing was dropped for it");
}
