use std::io::Write as _;

use super::*;

/// An engine on an unnamed file of 1 MiB in which every block is filled with its number.
fn numbered() -> Engine {
    let mut file = tempfile::tempfile().unwrap();
    for number in 0..=255u8 {
        file.write_all(&[number; 4096]).unwrap();
    }
    Engine::new(file, 4096).unwrap()
}

/// A hundred reads and a hundred writes with memory that is not aligned.
fn shuffle(engine: &Engine) {
    let mut found = vec![0u8; 100 * 4096 + 1];
    let written: Vec<Vec<u8>> = (0..100u8).map(|number| vec![number ^ 0xff; 4097]).collect();
    let mut transfers = Vec::new();
    for (number, into) in found[1..].chunks_mut(4096).enumerate() {
        transfers.push(Transfer::Read { offset: number as u64 * 4096, into });
        let from = &written[number][1..];
        transfers.push(Transfer::Write { offset: (number as u64 + 128) * 4096, from, stream: 0 });
    }
    engine.run(&mut transfers).into_iter().for_each(|result| result.unwrap());
    for (number, block) in found[1..].chunks(4096).enumerate() {
        assert!(block.iter().all(|&byte| byte == number as u8));
    }
    let mut back = vec![0; 100 * 4096];
    engine.read(128 * 4096, &mut back).unwrap();
    for (number, block) in back.chunks(4096).enumerate() {
        assert!(block.iter().all(|&byte| byte == number as u8 ^ 0xff));
    }
}

#[test]
fn a_batch_larger_than_the_ring_is_executed_completely() {
    shuffle(&numbered());
}

#[test]
fn batches_are_executed_one_by_one_without_io_uring() {
    let engine = numbered();
    engine.forbid_rings();
    shuffle(&engine);
    assert!(engine.rings.lock().is_empty());
}

#[test]
fn a_transfer_beyond_the_end_does_not_fail_the_others() {
    for rings in [true, false] {
        let engine = numbered();
        if !rings {
            engine.forbid_rings();
        }
        let (mut good, mut bad) = (vec![0; 4096], vec![0; 8192]);
        let mut transfers = [
            Transfer::Read { offset: 255 * 4096, into: &mut bad },
            Transfer::Read { offset: 7 * 4096, into: &mut good },
        ];
        let results = engine.run(&mut transfers);
        assert_eq!(results[0].as_ref().unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
        assert!(results[1].is_ok() && good == [7; 4096]);
    }
}

#[test]
fn buffers_are_aligned_and_reused() {
    let buffers = Buffers::default();
    let buffer = buffers.take(5000);
    assert_eq!((buffer.bytes().len(), buffer.bytes().as_ptr().addr() % ALIGNMENT), (8192, 0));
    let address = buffer.bytes().as_ptr();
    buffers.give(buffer);
    assert_eq!(buffers.take(8192).bytes().as_ptr(), address);
}

/// A file ignores the stream, and without io_uring it is not passed on.
#[test]
fn data_for_a_stream_is_written_to_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let engine = Engine::new(file.reopen().unwrap(), 4096).unwrap();
    for (stream, byte) in [(0, 3), (2, 4), (255, 5)] {
        let mut found = [0; 8192];
        engine.write_to(stream, 16384, &[byte; 8192]).unwrap();
        engine.read(16384, &mut found).unwrap();
        assert_eq!(found, [byte; 8192]);
        engine.forbid_rings();
    }
}

/// A thread that others wait for must be able to let another one take its place first.
#[test]
fn each_wait_for_the_file_is_announced() {
    let engine = numbered();
    let count = std::rc::Rc::new(std::cell::Cell::new(0));
    let _guard = {
        let count = std::rc::Rc::clone(&count);
        rt::waits::call_before_waits(move |_| count.set(count.get() + 1))
    };
    let announced = || count.take() > 0;
    let mut block = vec![0; 4096];
    engine.read(0, &mut block).unwrap();
    assert!(announced(), "a read");
    engine.write(0, &block).unwrap();
    assert!(announced(), "a write");
    engine.sync().unwrap();
    assert!(announced(), "a flush");
    engine.allocate(0, 4096).unwrap();
    assert!(announced(), "an allocation");
    engine.punch(0, 4096).unwrap();
    assert!(announced(), "a discard");
    let mut again = block.clone();
    let mut both =
        [Transfer::Read { offset: 0, into: &mut block }, Transfer::Read { offset: 4096, into: &mut again }];
    engine.run(&mut both).into_iter().for_each(|read| read.unwrap());
    assert!(announced(), "a batch");
}
