use zerocopy::{FromBytes, IntoBytes};

use super::super::abi::{InitIn, opcode};
use super::super::tests::{Kernel, connected, refusal, request};
use super::*;

const TERMS: Terms = Terms {
    wanted: init_flag::WRITEBACK_CACHE | init_flag::MAX_PAGES | init_flag::DIRECT_IO_ALLOW_MMAP,
    max_write: 1 << 20,
    max_background: 64,
};

fn offer(kernel: &Kernel, unique: u64, version: (u32, u32), flags: u64) {
    let (major, minor) = version;
    let init = InitIn { major, minor, max_readahead: 0x2_0000, flags: flags as u32 };
    let more = ((flags >> 32) as u32).to_ne_bytes();
    kernel.send(&request(opcode::INIT, unique, &[init.as_bytes(), &more, &[0; 44]]));
}

fn answer(kernel: &Kernel) -> InitOut {
    let reply = kernel.reply();
    assert_eq!(reply.len(), 80);
    InitOut::read_from_bytes(&reply[16..]).unwrap()
}

#[test]
fn common_capabilities_are_negotiated() {
    let (kernel, channel) = connected();
    let offered = init_flag::INIT_EXT | init_flag::WRITEBACK_CACHE | init_flag::DIRECT_IO_ALLOW_MMAP | 1 << 7;
    offer(&kernel, 1, (MAJOR, 99), offered);
    let granted = init_flag::WRITEBACK_CACHE | init_flag::DIRECT_IO_ALLOW_MMAP;
    assert_eq!(
        shake_hands(&channel, &TERMS).unwrap(),
        Agreed { granted, waits_for_writes: true, forgets: true }
    );
    let expected = InitOut {
        major: 7,
        minor: 41,
        max_readahead: 0x2_0000,
        flags: 1 << 16 | 1 << 30,
        max_background: 64,
        congestion_threshold: 48,
        max_write: 1 << 20,
        time_gran: 1,
        max_pages: 256,
        flags2: 1 << 4,
        ..InitOut::default()
    };
    assert_eq!(answer(&kernel), expected);
}

#[test]
fn an_older_kernel_gets_its_own_version() {
    let (kernel, channel) = connected();
    // Without `INIT_EXT`, the second word of flags is invalid.
    offer(&kernel, 1, (MAJOR, 32), init_flag::MAX_PAGES | init_flag::DIRECT_IO_ALLOW_MMAP);
    let agreed = Agreed { granted: init_flag::MAX_PAGES, waits_for_writes: false, forgets: false };
    assert_eq!(shake_hands(&channel, &TERMS).unwrap(), agreed);
    let answer = answer(&kernel);
    assert_eq!((answer.minor, answer.flags, answer.flags2), (32, 1 << 22, 0));
}

#[test]
fn a_newer_kernel_is_asked_for_our_version() {
    let (kernel, channel) = connected();
    offer(&kernel, 1, (8, 0), 0);
    offer(&kernel, 2, (MAJOR, 45), init_flag::WRITEBACK_CACHE);
    assert_eq!(shake_hands(&channel, &TERMS).unwrap().granted, init_flag::WRITEBACK_CACHE);
    assert_eq!(answer(&kernel), InitOut { major: MAJOR, minor: MINOR, ..InitOut::default() });
    assert_eq!(answer(&kernel).flags, 1 << 16);
}

#[test]
fn a_kernel_that_is_too_old_is_refused() {
    let (kernel, channel) = connected();
    offer(&kernel, 1, (MAJOR, MINOR_MIN - 1), 0);
    assert_eq!(shake_hands(&channel, &TERMS).unwrap_err().kind(), io::ErrorKind::Unsupported);
    assert_eq!(kernel.reply(), refusal(1, Errno::PROTO));

    kernel.send(&request(opcode::STATFS, 2, &[]));
    shake_hands(&channel, &TERMS).unwrap_err();
    assert_eq!(kernel.reply(), refusal(2, Errno::IO));

    kernel.send(&request(opcode::INIT, 3, &[&[0; 15]]));
    shake_hands(&channel, &TERMS).unwrap_err();

    drop(kernel);
    assert_eq!(shake_hands(&channel, &TERMS).unwrap_err().kind(), io::ErrorKind::NotConnected);
}
