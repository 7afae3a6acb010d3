//! A kernel that is a socket: what is sent there is read as a request, one message each.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use zerocopy::IntoBytes;

use super::abi::{InHeader, opcode};
use super::*;

/// The kernel's end.
pub(crate) struct Kernel(OwnedFd);

/// Both ends.
pub(crate) fn connected() -> (Kernel, Channel) {
    let pair =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (theirs, ours) = pair.unwrap();
    (Kernel(theirs), Channel::new(ours))
}

impl Kernel {
    pub(crate) fn send(&self, request: &[u8]) {
        assert_eq!(rustix::net::send(&self.0, request, SendFlags::empty()).unwrap(), request.len());
    }

    /// The next reply, which must be there already.
    pub(crate) fn reply(&self) -> Vec<u8> {
        self.reply_if_any().unwrap()
    }

    pub(crate) fn reply_if_any(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; 2 << 20];
        let (count, _) = rustix::net::recv(&self.0, &mut bytes[..], RecvFlags::DONTWAIT)?;
        bytes.truncate(count);
        Ok(bytes)
    }
}

/// A request of user 11, group 12, thread 13 about inode 7.
pub(crate) fn request(opcode: u32, unique: u64, arguments: &[&[u8]]) -> Vec<u8> {
    let arguments = arguments.concat();
    let header = InHeader {
        len: (size_of::<InHeader>() + arguments.len()) as u32,
        opcode,
        unique,
        nodeid: 7,
        uid: 11,
        gid: 12,
        pid: 13,
        ..InHeader::default()
    };
    [header.as_bytes(), &arguments].concat()
}

/// Header of a reply with this error and nothing else.
pub(crate) fn refusal(unique: u64, errno: Errno) -> Vec<u8> {
    let mut bytes = 16_u32.to_ne_bytes().to_vec();
    bytes.extend((-errno.raw_os_error()).to_ne_bytes());
    bytes.extend(unique.to_ne_bytes());
    bytes
}

/// What came of requests, which are not answered, as by something that went wrong.
#[derive(Default)]
struct Seen {
    asked: std::cell::RefCell<Vec<Origin>>,
    forgotten: std::cell::RefCell<Vec<u64>>,
}

impl Answers for Seen {
    fn answer(&self, request: Request<'_>, _: Reply) {
        assert!(matches!(request.operation, Operation::Statfs));
        self.asked.borrow_mut().push(request.origin);
    }

    fn forget(&self, node: u64) {
        self.forgotten.borrow_mut().push(node);
    }
}

#[test]
fn the_protocol_answers_what_is_its_own_until_nobody_asks() {
    let (kernel, channel) = connected();
    kernel.send(&request(opcode::FORGET, 1, &[&[0; 8]]));
    kernel.send(&request(opcode::BATCH_FORGET, 2, &[&[1, 0, 0, 0, 0, 0, 0, 0], &[1; 16], &[2; 16]]));
    kernel.send(&request(opcode::BATCH_FORGET, 3, &[&[0xff; 8]]));
    kernel.send(&request(opcode::INTERRUPT, 4, &[&[0; 8]]));
    kernel.send(&request(9999, 5, &[]));
    kernel.send(&request(opcode::WRITE, 6, &[&[0xff; 40]]));
    kernel.send(b"no header");
    kernel.send(&request(opcode::DESTROY, 7, &[]));
    kernel.send(&request(opcode::STATFS, 8, &[]));
    rustix::net::shutdown(&kernel.0, rustix::net::Shutdown::Write).unwrap();
    let seen = Seen::default();
    serve(&channel, &seen).unwrap();
    assert_eq!(seen.forgotten.take(), [7, 0x0101_0101_0101_0101]);
    assert_eq!(seen.asked.take(), [Origin { unique: 8, node: 7, uid: 11, gid: 12, pid: 13 }]);
    assert_eq!(kernel.reply(), refusal(4, Errno::NOSYS));
    assert_eq!(kernel.reply(), refusal(5, Errno::NOSYS));
    assert_eq!(kernel.reply(), refusal(6, Errno::IO));
    let done = [&16_u32.to_ne_bytes()[..], &[0; 4], &7_u64.to_ne_bytes()].concat();
    assert_eq!(kernel.reply(), done);
    assert_eq!(kernel.reply(), refusal(8, Errno::IO));
    assert!(kernel.reply_if_any().is_err(), "nobody waits for the others");
}

#[test]
fn what_the_kernel_is_told_has_no_number() {
    let (kernel, channel) = connected();
    Notifier::new(&channel).invalidate_inode(0x1122, -1, 5).unwrap();
    let told = kernel.reply();
    let expected = [
        &40_u32.to_ne_bytes()[..],
        &2_i32.to_ne_bytes(),
        &0_u64.to_ne_bytes(),
        &0x1122_u64.to_ne_bytes(),
        &(-1_i64).to_ne_bytes(),
        &5_i64.to_ne_bytes(),
    ];
    assert_eq!(told, expected.concat());
}
