//! Commands to a namespace: concurrently with io_uring if that is permitted, and one after the other otherwise.
//!
//! The memory of a command belongs to it until its completion was seen, as in [`crate::engine`].
//!
//! Commands that the ring itself refuses are executed without it. No other command is repeated: an append that may
//! have been executed would be written twice.

use std::fs::File;
use std::io::Result;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, Ordering};
use rustix::io::Errno;

use super::command::{Data, Queue, RING, Words, refusal, ring_bytes, run};
use crate::engine::wait;

/// The largest number of commands in flight.
const DEPTH: u32 = 64;

/// A ring whose entries are large enough for a command.
type Ring = IoUring<squeue::Entry128, cqueue::Entry32>;

/// Rings that are not in use.
#[derive(Default)]
pub(super) struct Rings {
    kept: Mutex<Vec<Ring>>,
    /// Set once the kernel has refused one.
    are_refused: AtomicBool,
}

/// One command.
pub(super) struct Move<'a> {
    pub(super) words: Words,
    /// As many bytes as `words` says.
    pub(super) data: Data<'a>,
}

/// The kernel's answer to a command: an errno (negative), or the status and the result of the controller.
type Said = (i32, u64);

impl Move<'_> {
    /// The same memory, for another attempt.
    fn again(&mut self) -> Data<'_> {
        match &mut self.data {
            Data::None => Data::None,
            Data::In(into) => Data::In(into),
            Data::Out(from) => Data::Out(from),
        }
    }
}

impl Rings {
    /// Executes all commands, in any order, and waits for them. Returns one result for each.
    pub(super) fn run(&self, device: &File, namespace: u32, moves: &mut [Move<'_>]) -> Vec<Result<u64>> {
        let one = |one: &mut Move<'_>| run(device, namespace, Queue::Io, one.words, one.again());
        let Some(mut ring) = self.take() else { return moves.iter_mut().map(one).collect() };
        let said = submit_all(&mut ring, device, namespace, moves);
        self.kept.lock().push(ring);
        let result = |(moved, (status, result)): (&mut Move<'_>, Said)| match status {
            0 => Ok(result),
            1.. => Err(refusal(status)),
            _ if is_refused_by_ring(Errno::from_raw_os_error(-status)) => one(moved),
            _ => Err(Errno::from_raw_os_error(-status).into()),
        };
        moves.iter_mut().zip(said).map(result).collect()
    }

    fn take(&self) -> Option<Ring> {
        if self.are_refused.load(Ordering::Relaxed) {
            return None;
        }
        if let Some(ring) = self.kept.lock().pop() {
            return Some(ring);
        }
        let made = Ring::builder().build(DEPTH);
        if made.is_err() {
            self.are_refused.store(true, Ordering::Relaxed);
        }
        made.ok()
    }
}

/// Whether the error means that a command did not reach the controller.
fn is_refused_by_ring(errno: Errno) -> bool {
    let refused = [
        Errno::OPNOTSUPP,
        Errno::NOTTY,
        Errno::INVAL,
        Errno::ACCESS,
        Errno::PERM,
        Errno::AGAIN,
        Errno::NOMEM,
        Errno::FAULT,
    ];
    refused.contains(&errno)
}

/// Submits every command and waits until all have completed. Returns the kernel's answers.
fn submit_all(ring: &mut Ring, device: &File, namespace: u32, moves: &mut [Move<'_>]) -> Vec<Said> {
    let device = types::Fd(device.as_raw_fd());
    let mut said = vec![(0, 0); moves.len()];
    let (mut next, mut in_flight) = (0, 0);
    while next < moves.len() || in_flight > 0 {
        while next < moves.len() && in_flight < DEPTH {
            let Move { words, data } = &mut moves[next];
            let command = ring_bytes(namespace, *words, data);
            let entry = opcode::UringCmd80::new(device, RING).cmd(command).build().user_data(next as u64);
            // SAFETY: the memory that the entry refers to is borrowed by `moves[next]`, which is not accessed again
            // before this function returns; and it returns only after every completion was seen.
            let pushed = unsafe { ring.submission().push(&entry) };
            pushed.expect("the ring has DEPTH places and fewer commands are in flight");
            next += 1;
            in_flight += 1;
        }
        wait(ring);
        for completion in ring.completion() {
            let [result, _] = *completion.big_cqe();
            said[completion.user_data() as usize] = (completion.result(), result);
            in_flight -= 1;
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A file that is no namespace refuses every command, with and without a ring.
    #[test]
    fn a_batch_that_is_refused_has_a_result_for_each_command() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 8192]).unwrap();
        let mut memory = vec![0; 100 * 512];
        let words = Words { opcode: 2, words: [0; 6] };
        let mut moves: Vec<Move<'_>> =
            memory.chunks_mut(512).map(|into| Move { words, data: Data::In(into) }).collect();
        let results = Rings::default().run(&file, 1, &mut moves);
        assert!(results.len() == 100 && results.iter().all(|result| result.is_err()));
    }
}
