use zerocopy::IntoBytes;

use super::super::tests::request;
use super::*;

/// Every operation with arguments: its number, its bytes, and the decoded form. All fields differ.
fn examples() -> Vec<(u32, Vec<u8>, Operation<'static>)> {
    let all = [names(), attributes(), files(), others()];
    all.into_iter().flatten().collect()
}

fn names() -> Vec<(u32, Vec<u8>, Operation<'static>)> {
    let mknod = MknodIn { mode: 0o100_644, rdev: 3, umask: 0o22, padding: 0 };
    let mkdir = MkdirIn { mode: 0o755, umask: 0o27 };
    let rename = Rename2In { newdir: 9, flags: 0, padding: 0 };
    let exchange = Rename2In { newdir: 9, flags: 2, padding: 0 };
    let link = LinkIn { oldnodeid: 12 };
    vec![
        (1, b"name\0".into(), Operation::Lookup(b"name")),
        (6, b"name\0to\0".into(), Operation::Symlink { name: b"name", target: b"to" }),
        (8, [mknod.as_bytes(), b"n\0"].concat(), Operation::Mknod(mknod, b"n")),
        (9, [mkdir.as_bytes(), b"d\0"].concat(), Operation::Mkdir(mkdir, b"d")),
        (10, b"gone\0".into(), Operation::Unlink(b"gone")),
        (11, b"gone too\0".into(), Operation::Rmdir(b"gone too")),
        (12, [&9_u64.to_ne_bytes()[..], b"a\0b\0"].concat(), Operation::Rename(rename, b"a", b"b")),
        (45, [exchange.as_bytes(), b"a\0b\0"].concat(), Operation::Rename(exchange, b"a", b"b")),
        (13, [link.as_bytes(), b"l\0"].concat(), Operation::Link(link, b"l")),
    ]
}

fn attributes() -> Vec<(u32, Vec<u8>, Operation<'static>)> {
    let getattr = GetattrIn { getattr_flags: 1, dummy: 0, fh: 44 };
    let statx = StatxIn { getattr_flags: 1, reserved: 0, fh: 45, sx_flags: 2, sx_mask: 0xfff };
    let setattr = SetattrIn {
        valid: 0x7ff,
        fh: 1,
        size: 2,
        lock_owner: 3,
        atime: -4,
        mtime: -5,
        ctime: -6,
        atimensec: 7,
        mtimensec: 8,
        ctimensec: 9,
        mode: 10,
        uid: 11,
        gid: 12,
        ..SetattrIn::default()
    };
    let setxattr = SetxattrIn { size: 3, flags: 1 };
    let getxattr = GetxattrIn { size: 77, padding: 0 };
    vec![
        (3, getattr.as_bytes().into(), Operation::Getattr(getattr)),
        (4, setattr.as_bytes().into(), Operation::Setattr(setattr)),
        (52, statx.as_bytes().into(), Operation::Statx(statx)),
        (
            21,
            [setxattr.as_bytes(), b"user.x\0a\0b"].concat(),
            Operation::Setxattr(setxattr, b"user.x", b"a\0b"),
        ),
        (22, [getxattr.as_bytes(), b"user.x\0"].concat(), Operation::Getxattr(getxattr, b"user.x")),
        (23, getxattr.as_bytes().into(), Operation::Listxattr(getxattr)),
        (24, b"user.x\0".into(), Operation::Removexattr(b"user.x")),
    ]
}

fn files() -> Vec<(u32, Vec<u8>, Operation<'static>)> {
    let open = OpenIn { flags: 0o2, open_flags: 1 };
    let create = CreateIn { flags: 0o101, mode: 0o100_600, umask: 0o77, open_flags: 1 };
    let read = ReadIn { fh: 1, offset: 2, size: 3, read_flags: 4, lock_owner: 5, flags: 6, padding: 0 };
    let write = WriteIn { fh: 1, offset: 2, size: 5, write_flags: 4, lock_owner: 5, flags: 6, padding: 0 };
    let release = ReleaseIn { fh: 1, flags: 2, release_flags: 3, lock_owner: 4 };
    let fsync = FsyncIn { fh: 1, fsync_flags: 1, padding: 0 };
    let fallocate = FallocateIn { fh: 1, offset: 2, length: 3, mode: 4, padding: 0 };
    let lseek = LseekIn { fh: 1, offset: -2, whence: 3, padding: 0 };
    let copy =
        CopyFileRangeIn { fh_in: 1, off_in: 2, nodeid_out: 3, fh_out: 4, off_out: 5, len: 6, flags: 7 };
    vec![
        (14, open.as_bytes().into(), Operation::Open(open)),
        (35, [create.as_bytes(), b"new\0"].concat(), Operation::Create(create, b"new")),
        (51, create.as_bytes().into(), Operation::Tmpfile(create)),
        (15, read.as_bytes().into(), Operation::Read(read)),
        (16, [write.as_bytes(), b"b\0tes"].concat(), Operation::Write(write, b"b\0tes")),
        (18, release.as_bytes().into(), Operation::Release(release)),
        (20, fsync.as_bytes().into(), Operation::Fsync(fsync)),
        (27, open.as_bytes().into(), Operation::Opendir(open)),
        (28, read.as_bytes().into(), Operation::Readdir(read)),
        (44, read.as_bytes().into(), Operation::Readdirplus(read)),
        (29, release.as_bytes().into(), Operation::Releasedir(release)),
        (30, fsync.as_bytes().into(), Operation::Fsyncdir(fsync)),
        (43, fallocate.as_bytes().into(), Operation::Fallocate(fallocate)),
        (46, lseek.as_bytes().into(), Operation::Lseek(lseek)),
        (47, copy.as_bytes().into(), Operation::CopyFileRange(copy)),
    ]
}

fn others() -> Vec<(u32, Vec<u8>, Operation<'static>)> {
    let init = InitIn { major: 7, minor: 41, max_readahead: 9, flags: 1 << 30 | 5 };
    let all = Init { major: 7, minor: 41, max_readahead: 9, flags: 3 << 32 | 1 << 30 | 5 };
    let (forget, once) = (BatchForgetIn { count: 2, dummy: 0 }, ForgetIn { nlookup: 3 });
    vec![
        (2, once.as_bytes().into(), Operation::Forget(once)),
        (26, [init.as_bytes(), &3_u32.to_ne_bytes()].concat(), Operation::Init(all)),
        (42, [forget.as_bytes(), &[0; 32]].concat(), Operation::BatchForget(Forgotten(&[0; 32]))),
    ]
}

#[test]
fn every_request_is_decoded() {
    let origin = Origin { unique: 99, node: 7, uid: 11, gid: 12, pid: 13 };
    for (opcode, arguments, operation) in examples() {
        let bytes = request(opcode, 99, &[&arguments]);
        assert_eq!(Request::decode(&bytes), Ok(Request { origin, operation }));
    }
    for (opcode, operation) in [
        (5, Operation::Readlink),
        (17, Operation::Statfs),
        (25, Operation::Flush),
        (36, Operation::Interrupt),
        (38, Operation::Destroy),
        (50, Operation::Syncfs),
        (53, Operation::Unknown(53)),
        (4096, Operation::Unknown(4096)),
    ] {
        assert_eq!(Request::decode(&request(opcode, 99, &[])), Ok(Request { origin, operation }));
    }
}

#[test]
fn a_request_that_is_too_short_is_refused_at_every_length() {
    for (opcode, arguments, _) in examples() {
        for length in 0..arguments.len() {
            let bytes = request(opcode, 99, &[&arguments[..length]]);
            let malformed = Request::decode(&bytes).expect_err("something is missing");
            assert_eq!(
                malformed.answer_to,
                (!matches!(opcode, 2 | 42)).then_some(99),
                "{opcode} of {length} bytes"
            );
        }
    }
    for length in 0..40 {
        let malformed = Request::decode(&request(17, 99, &[])[..length]).unwrap_err();
        assert_eq!(malformed.answer_to, None, "no request number is in {length} bytes");
    }
}

#[test]
fn a_wrong_length_is_refused() {
    let mut bytes = request(17, 99, &[]);
    for wrong in [0_u32, 39, 41, u32::MAX] {
        bytes[..4].copy_from_slice(&wrong.to_ne_bytes());
        assert_eq!(Request::decode(&bytes).unwrap_err().answer_to, Some(99));
    }
}

#[test]
fn appended_bytes_of_a_newer_kernel_are_ignored() {
    for (opcode, arguments, operation) in examples() {
        let bytes = request(opcode, 1, &[&arguments, &[0xee; 24]]);
        assert_eq!(Request::decode(&bytes).unwrap().operation, operation);
    }
    let mut bytes = request(1, 1, &[b"name\0", &[0; 16]]);
    bytes[36..38].copy_from_slice(&2_u16.to_ne_bytes());
    assert_eq!(Request::decode(&bytes).unwrap().operation, Operation::Lookup(b"name"));
    bytes[36..38].copy_from_slice(&3_u16.to_ne_bytes());
    assert!(Request::decode(&bytes).is_err(), "more is appended than there is");
}

#[test]
fn decoding_never_panics() {
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..200_000 {
        let mut bytes = vec![0; rng.usize(..200)];
        rng.fill(&mut bytes);
        // Nearly valid requests find more mistakes than random bytes.
        if rng.u8(..4) > 0 && bytes.len() >= 8 {
            let length = u32::try_from(bytes.len()).unwrap();
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            bytes[4..8].copy_from_slice(&rng.u32(..56).to_ne_bytes());
            if bytes.len() >= 40 && rng.bool() {
                bytes[36..38].copy_from_slice(&rng.u16(..4).to_ne_bytes());
            }
        }
        match Request::decode(&bytes) {
            Ok(_) => taken += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(taken > 10_000 && refused > 10_000, "{taken} taken, {refused} refused");
}
