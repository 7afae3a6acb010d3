//! The handling of tags that the kernel returns, without a driver: the device is a file, whose kernel code knows none
//! of the commands.

use std::sync::mpsc::{Receiver, channel};

use super::*;

const REFUSAL: i32 = -Errno::INVAL.raw_os_error();
const END: i32 = -Errno::NODEV.raw_os_error();

fn queue() -> (Queue, Arc<Finished>, Receiver<Job>) {
    let device = tempfile::tempfile().unwrap();
    device.set_len(Descriptors::BYTES as u64).unwrap();
    let finished = Arc::new(Finished::new().unwrap());
    let (jobs, asked) = channel();
    let mut queue = Queue::idle(Arc::new(device), Arc::clone(&finished), jobs).unwrap();
    queue.waiting = DEPTH;
    (queue, finished, asked)
}

/// An answer that the kernel refused was ignored. Its request never ended, and the program waited forever; no message
/// said so, and the device continued with a tag less.
#[test]
fn an_answer_that_is_refused_becomes_an_error() {
    let (mut queue, finished, asked) = queue();
    queue.fetched(5, 0).unwrap();
    assert_eq!(asked.try_recv().unwrap().tag, 5);
    finished.note(5, Answer { result: 1 << 30, place: 0 });
    queue.hand_back();
    assert_eq!((queue.waiting, queue.in_service), (DEPTH, 0));
    queue.fetched(5, REFUSAL).unwrap();
    assert_eq!((queue.waiting, queue.last_answers[5]), (DEPTH, REFUSED), "the request is answered after all");
    queue.fetched(5, 0).unwrap();
    assert_eq!(asked.try_recv().unwrap().tag, 5, "the tag is used again");
}

/// If the kernel refuses the error too, the server ends with the reason: then the kernel ends the request.
#[test]
fn a_tag_that_the_kernel_refuses_ends_the_server() {
    let (mut queue, finished, _asked) = queue();
    queue.fetched(6, 0).unwrap();
    finished.note(6, REFUSED);
    queue.hand_back();
    let error = queue.fetched(6, REFUSAL).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::INVAL));
    let error = queue.fetched(7, REFUSAL).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::INVAL), "the first command of a tag");
}

#[test]
fn tags_returned_at_the_end_are_no_error() {
    let (mut queue, _finished, _asked) = queue();
    (0..DEPTH).for_each(|tag| queue.fetched(tag, END).unwrap());
    queue.run().unwrap();
}
