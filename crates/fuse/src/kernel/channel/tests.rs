use std::fs::File;

use super::super::abi::opcode;
use super::super::buffer::ALIGNMENT;
use super::super::tests::{connected, request};
use super::super::{Operation, Request};
use super::*;

#[test]
fn the_bytes_of_a_write_begin_on_a_page() {
    let (kernel, channel) = connected();
    // Several lengths, so that the alignment is unlikely to be right by chance.
    for payload in [1, 4096, 100_000] {
        let mut buffer = RequestBuffer::new();
        assert!(buffer.space().len() >= WRITE_HEAD + REQUEST_BYTES_MAX as usize);
        let mut arguments = [0; 40];
        arguments[16..20].copy_from_slice(&u32::to_ne_bytes(payload));
        kernel.send(&request(opcode::WRITE, 1, &[&arguments, &vec![b'x'; payload as usize]]));
        let Received::Request(length) = channel.receive(&mut buffer).unwrap() else {
            panic!("a request was sent");
        };
        let Operation::Write(_, data) = Request::decode(buffer.bytes(length)).unwrap().operation else {
            panic!("it is a write");
        };
        assert_eq!(data.len(), payload as usize);
        assert_eq!(data.as_ptr().align_offset(ALIGNMENT), 0);
    }
}

#[test]
fn no_request_arrives_after_the_connection_ended() {
    let (kernel, channel) = connected();
    let mut buffer = RequestBuffer::new();
    assert!(matches!(channel.receive(&mut buffer).unwrap(), Received::Nothing), "without waiting");
    drop(kernel);
    channel.wait().unwrap();
    assert!(matches!(channel.receive(&mut buffer).unwrap(), Received::End));
}

#[test]
fn only_a_fuse_device_becomes_a_channel() {
    let (_kernel, channel) = connected();
    assert!(channel.fork(File::open("/dev/null").unwrap().into()).is_err());
}
