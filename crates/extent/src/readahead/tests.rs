use super::*;

const MIB: u64 = 1 << 20;

#[test]
fn a_reader_in_order_is_kept_ahead() {
    const QUARTER: u64 = MIB / 4;
    let reader = ReadPosition::default();
    let note = |quarter: u64| {
        let wanted = reader.note(quarter * QUARTER, (quarter + 1) * QUARTER, u64::MAX);
        wanted.map(|wanted| (wanted.start / QUARTER, wanted.end / QUARTER))
    };
    assert_eq!(note(0), None, "one read is no order");
    assert_eq!(note(1), Some((2, 10)));
    assert_eq!([2, 3, 4].map(note), [None; 3], "less than half of it is missing");
    assert_eq!(note(5), Some((10, 14)));
    assert_eq!([200, 201].map(note), [None; 2], "it has moved");
    assert_eq!(note(202), Some((203, 211)));
    assert_eq!(reader.note(203 * QUARTER, 203 * QUARTER + LARGE_BYTES, u64::MAX), None, "a large read");
    assert_eq!(note(205), None, "it begins again");
    assert_eq!(note(206), Some((207, 215)));
}

#[test]
fn reads_in_progress_at_the_same_time_are_in_order() {
    const EIGHTH: u64 = MIB / 8;
    let reader = ReadPosition::default();
    let note = |eighth: u64| reader.note(eighth * EIGHTH, (eighth + 1) * EIGHTH, u64::MAX);
    assert_eq!(note(0), None);
    assert_eq!(note(2), Some(3 * EIGHTH..11 * EIGHTH));
    assert_eq!(note(1), None, "that is requested already");
    assert_eq!(note(3), None, "less than half of the window is missing");
    assert_eq!(note(4), Some(11 * EIGHTH..21 * EIGHTH));
}

#[test]
fn short_reads_are_in_order_only_one_after_the_other() {
    let reader = ReadPosition::default();
    for number in [0, 7, 3, 5, 4, 9, 11, 10] {
        assert_eq!(reader.note(number * 4096, (number + 1) * 4096, u64::MAX), None);
    }
    assert_eq!(reader.note(11 * 4096, 12 * 4096, u64::MAX), None);
    assert_eq!(
        reader.note(12 * 4096, 13 * 4096, u64::MAX),
        Some(13 * 4096..21 * 4096),
        "four times as much as was read"
    );
}

#[test]
fn nothing_is_requested_for_a_reader_that_goes_back_or_behind_the_end() {
    let reader = ReadPosition::default();
    for number in (0..100).rev() {
        assert_eq!(reader.note(number * LONG_BYTES, (number + 1) * LONG_BYTES, u64::MAX), None, "{number}");
    }
    let reader = ReadPosition::default();
    let size = 2 * MIB + 5000;
    let note = |from, to, size| reader.note(from, to, size);
    let half = MIB / 2 - 4096;
    assert_eq!(note(0, half, size), None);
    assert_eq!(note(half, 2 * half, size), Some(2 * half..size));
    assert_eq!(note(2 * half, 3 * half, size), None, "all is requested");
    assert_eq!(note(3 * half, 4 * half, 3 * MIB), Some(size..3 * MIB), "the file has grown");
    let last = i64::MAX as u64;
    assert_eq!((note(last - 4, last - 2, last), note(last - 2, last - 1, last)), (None, None));
    assert_eq!(note(last - 1, last, u64::MAX), Some(last..last + 8));
}

/// Threads that share a handle read beside each other. Nothing is requested twice.
#[test]
fn threads_that_share_a_position_request_each_range_once() {
    let reader = ReadPosition::default();
    let requested: Vec<Range<u64>> = std::thread::scope(|scope| {
        let read = |thread: u64| {
            let note = |number: u64| {
                let from = (4 * number + thread) * LONG_BYTES;
                reader.note(from, from + LONG_BYTES, u64::MAX)
            };
            (0..2000).filter_map(note).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || read(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(
        requested.iter().all(|range| range.start < range.end && range.end - range.start <= 2 * AHEAD_BYTES)
    );
}

fn address(zone: u32, block: Blocks, life: u32) -> Address {
    Address::new(zone::ZoneId(zone), block, zone::Life(life))
}

/// A handle that stays open.
static READER: std::sync::LazyLock<Arc<ReadPosition>> = std::sync::LazyLock::new(Arc::default);

fn begin<'a>(readahead: &'a Readahead, places: &[(Address, Blocks)]) -> Option<Reading<'a>> {
    begin_for(&READER, readahead, places)
}

fn begin_for<'a>(
    reader: &Arc<ReadPosition>,
    readahead: &'a Readahead,
    places: &[(Address, Blocks)],
) -> Option<Reading<'a>> {
    let request =
        Request { object: Object(1), blocks: 0..1, block_size: 512, reader: Arc::downgrade(reader) };
    readahead.begin(&request, places.iter().copied())
}

/// Reads a piece of these blocks, each filled with its number.
fn add(readahead: &Readahead, at: Address, blocks: Blocks) {
    let mut reading = begin(readahead, &[(at, blocks)]).unwrap();
    for command in reading.commands() {
        let Command::Read { block, into, .. } = command else { panic!("it reads") };
        for (number, into) in (block..).zip(into.chunks_mut(512)) {
            into.fill(number as u8);
        }
    }
    reading.end([true].into_iter());
}

/// The numbers of the blocks that are found, from the first on.
fn take(readahead: &Readahead, at: Address, blocks: Blocks) -> Vec<u8> {
    let mut into = vec![0; blocks as usize * 512];
    let filled = readahead.take(at, &mut into, 512);
    assert!(into[..filled].chunks(512).all(|block| block.iter().all(|byte| *byte == block[0])));
    assert!(into[filled..].iter().all(|byte| *byte == 0));
    into[..filled].iter().step_by(512).copied().collect()
}

#[test]
fn a_piece_is_found_by_its_address_alone() {
    let readahead = Readahead::default();
    assert_eq!(take(&readahead, address(3, 10, 1), 4), [0; 0]);
    add(&readahead, address(3, 10, 1), 8);
    for elsewhere in [address(4, 10, 1), address(3, 9, 1), address(3, 10, 2), address(3, 18, 1)] {
        assert_eq!(take(&readahead, elsewhere, 4), [0; 0], "{elsewhere}");
    }
    assert_eq!(take(&readahead, address(3, 12, 1), 4), [12, 13, 14, 15]);
    assert_eq!(take(&readahead, address(3, 10, 1), 3), [10, 11, 12]);
    assert_eq!(take(&readahead, address(3, 14, 1), 6), [14, 15, 16, 17], "up to its end");
    assert_eq!(take(&readahead, address(3, 10, 1), 1), [0; 0], "it has been read to its end");
    assert!(!readahead.has_pieces.load(Ordering::SeqCst));
    assert_eq!(readahead.counts(), ReadaheadCounts { bytes_read: 8 * 512, bytes_used: 11 * 512 });
}

#[test]
fn a_read_takes_from_several_pieces() {
    let readahead = Readahead::default();
    for (block, blocks) in [(10, 4), (14, 2), (16, 8), (30, 2)] {
        add(&readahead, address(3, block, 1), blocks);
    }
    assert_eq!(take(&readahead, address(3, 12, 1), 6), [12, 13, 14, 15, 16, 17]);
    assert_eq!(take(&readahead, address(3, 20, 1), 20), [20, 21, 22, 23], "the next is not adjacent");
}

#[test]
fn what_a_closed_handle_has_requested_is_forgotten() {
    let (readahead, reader) = (Readahead::default(), Arc::new(ReadPosition::default()));
    let read = begin_for(&reader, &readahead, &[(address(3, 10, 1), 4)]).unwrap();
    let being_read = begin_for(&reader, &readahead, &[(address(4, 10, 1), 4)]).unwrap();
    read.end([true].into_iter());
    readahead.note_read(Object(1), &reader, (0, MIB / 4), 9 * MIB, 512);
    readahead.note_read(Object(1), &reader, (MIB / 4, MIB / 2), 9 * MIB, 512);
    assert_eq!(readahead.next_request().unwrap().blocks, 1024..3072);
    drop(reader);
    assert!(readahead.next_request().is_none());
    assert_eq!(readahead.state.lock().bytes, 4 * 512, "what is being read stays");
    being_read.end([true].into_iter());
    assert!(readahead.next_request().is_none());
    assert_eq!((readahead.state.lock().bytes, readahead.has_pieces.load(Ordering::SeqCst)), (0, false));
}

#[test]
fn of_a_request_only_the_rest_is_read() {
    let (readahead, reader) = (Readahead::default(), Arc::new(ReadPosition::default()));
    let note = |from: u64, to: u64| readahead.note_read(Object(1), &reader, (from, to), 9 * MIB, 512);
    note(0, MIB / 4);
    note(MIB / 4, MIB / 2);
    note(MIB / 2, MIB / 2 + 700);
    assert_eq!(readahead.next_request().unwrap().blocks, 1025..3072);
    for quarter in 2..6 {
        note(quarter * MIB / 4 + 700, (quarter + 1) * MIB / 4 + 700);
    }
    assert_eq!(readahead.next_request().unwrap().blocks, 3073..5120);
}

#[test]
fn memory_is_bounded_and_the_oldest_piece_goes_first() {
    let readahead = Readahead::default();
    let blocks = (MIB / 512) as Blocks;
    (1..=20).for_each(|zone| add(&readahead, address(zone, 1, 0), blocks));
    let state = readahead.state.lock();
    assert_eq!((state.pieces.len(), state.bytes), (8, BYTES_MAX));
    assert_eq!(state.pieces[0].address, address(13, 1, 0));
    drop(state);
    (1..=100).for_each(|zone| add(&readahead, address(100 + zone, 1, 0), 1));
    assert_eq!(readahead.state.lock().pieces.len(), PIECES_MAX);
    let being_read: Vec<_> = (1..=8).map(|zone| (address(300 + zone, 1, 0), blocks)).collect();
    let reading = begin(&readahead, &being_read).unwrap();
    assert!(begin(&readahead, &[(address(400, 1, 0), 1)]).is_none(), "what is being read stays");
    reading.end([false; 8].into_iter());
    assert_eq!(readahead.state.lock().bytes, 0);
}

#[test]
fn a_reader_waits_for_what_is_being_read() {
    for seed in 0..200 {
        let is_read = seed % 2 == 0;
        let readahead = Readahead::default();
        let at = address(3, 10, 1);
        let reading = begin(&readahead, &[(at, 4)]).unwrap();
        let reader: Box<dyn FnOnce() -> usize + Send + '_> =
            Box::new(|| readahead.take(at, &mut [0; 4 * 512], 512));
        let device: Box<dyn FnOnce() -> usize + Send + '_> = Box::new(move || {
            reading.end([is_read].into_iter());
            0
        });
        let bodies = vec![("reader".to_owned(), reader), ("device".to_owned(), device)];
        let ran = rt::schedule::run(seed, bodies);
        assert_eq!(ran.returned, [if is_read { 4 * 512 } else { 0 }, 0]);
    }
}

#[test]
fn pieces_of_a_reading_that_panics_are_removed() {
    let readahead = Readahead::default();
    let reading = begin(&readahead, &[(address(3, 10, 1), 4), (address(5, 20, 1), 4)]).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _reading = reading;
        panic!("the test's own panic");
    }));
    assert!(panicked.is_err() && readahead.state.lock().pieces.is_empty());
}

#[test]
fn what_is_there_or_too_fragmented_is_not_read() {
    let readahead = Readahead::default();
    add(&readahead, address(3, 10, 1), 8);
    assert!(begin(&readahead, &[(address(3, 12, 1), 4)]).is_none());
    let mut rest = begin(&readahead, &[(address(3, 16, 1), 5), (address(3, 5, 1), 9)]).unwrap();
    let read = |command: &Command<'_>| match command {
        Command::Read { block, into, .. } => (*block, into.len() / 512),
        Command::Append { .. } => panic!("it reads"),
    };
    assert_eq!(rest.commands().iter().map(read).collect::<Vec<_>>(), [(18, 3), (5, 5)]);
    drop(rest);
    let many: Vec<_> = (0..=COMMANDS_MAX as u32).map(|zone| (address(50 + zone, 1, 0), 1)).collect();
    assert!(begin(&readahead, &many).is_none());
    assert!(begin(&readahead, &many[1..]).is_some());
}
