//! A view of one file, and a test that sends the kernel's requests.

use fs::Kind;
use rt::Timestamp;
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::kernel::abi::{GetxattrIn, GetxattrOut, InHeader, StatfsOut, opcode};
use crate::kernel::tests::{Kernel, connected};

const CONTENTS: &[u8] = b"what is there to be seen";
const FILE: InodeNo = InodeNo(2);
/// A file that cannot be read.
const BROKEN: InodeNo = InodeNo(3);

struct Two;

impl View for Two {
    fn attributes(&self, inode: InodeNo) -> fs::Result<Attributes> {
        let (kind, size) = match inode {
            InodeNo::ROOT => (Kind::Directory, 2),
            FILE | BROKEN => (Kind::File, CONTENTS.len() as u64),
            _ => return Err(FsError::Stale),
        };
        let (permissions, links, uid, gid, device, blocks, generation) = (0o400, 1, 11, 12, 0, 1, 0);
        let [accessed, modified, changed, born] = [Timestamp(7); 4];
        #[rustfmt::skip]
        let attributes = Attributes {
            inode, kind, permissions, links, uid, gid, device, size, blocks, accessed, modified, changed, born, generation,
        };
        Ok(attributes)
    }

    fn lookup(&self, directory: InodeNo, name: &[u8]) -> fs::Result<InodeNo> {
        match (directory, name) {
            (InodeNo::ROOT, b"file") => Ok(FILE),
            (InodeNo::ROOT, b"broken") => Ok(BROKEN),
            (InodeNo::ROOT, _) => Err(FsError::NotFound),
            _ => Err(FsError::NotDirectory),
        }
    }

    fn entries(
        &self,
        directory: InodeNo,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry) -> bool,
    ) -> fs::Result<()> {
        if directory != InodeNo::ROOT {
            return Err(FsError::NotDirectory);
        }
        let entry =
            |cookie, inode, name: &[u8]| DirEntry { inode, cookie, kind: Kind::File, name: name.to_vec() };
        let all = [entry(1, FILE, b"file"), entry(2, BROKEN, b"broken")];
        let _ = all.into_iter().skip(cookie.min(2) as usize).all(each);
        Ok(())
    }

    fn open(&self, inode: InodeNo) -> fs::Result<()> {
        if inode == BROKEN { Err(FsError::Io("is broken".to_owned())) } else { Ok(()) }
    }

    fn read(&self, inode: InodeNo, offset: u64, into: &mut [u8]) -> fs::Result<usize> {
        self.open(inode)?;
        let rest = &CONTENTS[(offset as usize).min(CONTENTS.len())..];
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn xattr_names(&self, _: InodeNo) -> fs::Result<Vec<&'static [u8]>> {
        Ok(vec![b"user.one", b"user.two"])
    }

    fn xattr(&self, _: InodeNo, name: &[u8]) -> fs::Result<Vec<u8>> {
        if name == b"user.one" { Ok(b"1".to_vec()) } else { Err(FsError::NoAttribute) }
    }

    fn sizes(&self) -> StatFs {
        StatFs { block_size: 512, blocks: 77, ..StatFs::default() }
    }
}

struct Mount {
    kernel: Kernel,
    channel: Channel,
}

impl Mount {
    fn new() -> Mount {
        let (kernel, channel) = connected();
        Mount { kernel, channel }
    }

    /// Error and body of the reply.
    fn ask(&self, opcode: u32, node: InodeNo, arguments: &[&[u8]]) -> (i32, Vec<u8>) {
        let arguments = arguments.concat();
        let len = u32::try_from(size_of::<InHeader>() + arguments.len()).unwrap();
        let header = InHeader { len, opcode, unique: 5, nodeid: node.0, ..InHeader::default() };
        let bytes = [header.as_bytes(), &arguments].concat();
        answer(&Two, &Request::decode(&bytes).unwrap(), Reply::new(5, &self.channel));
        let mut reply = self.kernel.reply();
        assert!(self.kernel.reply_if_any().is_err(), "operation {opcode} is answered twice");
        (i32::from_ne_bytes(reply[4..8].try_into().unwrap()), reply.split_off(16))
    }

    fn succeed<T: FromBytes>(&self, opcode: u32, node: InodeNo, arguments: &[&[u8]]) -> T {
        let (error, body) = self.ask(opcode, node, arguments);
        assert_eq!(error, 0, "operation {opcode}");
        T::read_from_bytes(&body).expect("the reply is as long as its structure")
    }

    fn refusal(&self, opcode: u32, node: InodeNo, arguments: &[&[u8]]) -> Errno {
        Errno::from_raw_os_error(-self.ask(opcode, node, arguments).0)
    }
}

#[test]
fn names_lead_to_readable_files() {
    let mount = Mount::new();
    let found: EntryOut = mount.succeed(opcode::LOOKUP, InodeNo::ROOT, &[b"file\0"]);
    assert_eq!((found.nodeid, found.attr.size, found.attr.mode), (2, CONTENTS.len() as u64, 0o100_400));
    assert_eq!((found.attr.uid, found.attr.gid), (11, 12));
    let absent: EntryOut = mount.succeed(opcode::LOOKUP, InodeNo::ROOT, &[b"other\0"]);
    assert_eq!((absent.nodeid, absent.entry_valid), (0, LIFETIME));
    assert_eq!(mount.refusal(opcode::LOOKUP, FILE, &[b"file\0"]), Errno::NOTDIR);
    let told: AttrOut = mount.succeed(opcode::GETATTR, InodeNo::ROOT, &[&[0; 16]]);
    assert_eq!(told.attr.mode, 0o040_400);
    let sizes: StatfsOut = mount.succeed(opcode::STATFS, InodeNo::ROOT, &[]);
    assert_eq!((sizes.bsize, sizes.blocks, sizes.bfree), (512, 77, 0));
}

#[test]
fn reading_ends_where_the_file_does() {
    let mount = Mount::new();
    let opened: OpenOut = mount.succeed(opcode::OPEN, FILE, &[&[0; 8]]);
    assert_ne!(opened.open_flags & fopen::KEEP_CACHE, 0);
    for (offset, size, expected) in
        [(0, 4096, CONTENTS), (5, 2, &CONTENTS[5..7]), (24, 9, b""), (9999, 9, b"")]
    {
        let asked = ReadIn { offset, size, ..ReadIn::default() };
        assert_eq!(mount.ask(opcode::READ, FILE, &[asked.as_bytes()]), (0, expected.to_vec()));
    }
    assert_eq!(mount.refusal(opcode::OPEN, BROKEN, &[&[0; 8]]), Errno::IO);
    assert_eq!(
        mount.refusal(opcode::READ, BROKEN, &[ReadIn { size: 1, ..ReadIn::default() }.as_bytes()]),
        Errno::IO
    );
}

#[test]
fn extended_attributes_have_their_sizes() {
    let mount = Mount::new();
    let room = |size| GetxattrIn { size, padding: 0 };
    let size: GetxattrOut = mount.succeed(opcode::LISTXATTR, FILE, &[room(0).as_bytes()]);
    assert_eq!(size.size, 18);
    let (_, list) = mount.ask(opcode::LISTXATTR, FILE, &[room(18).as_bytes()]);
    assert_eq!(list, b"user.one\0user.two\0");
    let (_, value) = mount.ask(opcode::GETXATTR, FILE, &[room(9).as_bytes(), b"user.one\0"]);
    assert_eq!(value, b"1");
    assert_eq!(mount.refusal(opcode::GETXATTR, FILE, &[room(9).as_bytes(), b"user.no\0"]), Errno::NODATA);
    assert_eq!(mount.refusal(opcode::LISTXATTR, FILE, &[room(17).as_bytes()]), Errno::RANGE);
}

/// The mount is read-only, but root can remount it writable.
#[test]
fn every_change_is_refused() {
    let mount = Mount::new();
    let zeros = [0; 88];
    let names: &[&[u8]] = &[b"name\0", b"other\0"];
    for (opcode, length) in [
        (opcode::SETATTR, 88),
        (opcode::SYMLINK, 0),
        (opcode::MKNOD, 16),
        (opcode::MKDIR, 8),
        (opcode::UNLINK, 0),
        (opcode::RMDIR, 0),
        (opcode::RENAME, 8),
        (opcode::RENAME2, 16),
        (opcode::LINK, 8),
        (opcode::CREATE, 16),
        (opcode::TMPFILE, 16),
        (opcode::WRITE, 40),
        (opcode::SETXATTR, 8),
        (opcode::REMOVEXATTR, 0),
        (opcode::FALLOCATE, 32),
        (opcode::COPY_FILE_RANGE, 56),
    ] {
        let arguments = [&[&zeros[..length]], names].concat();
        assert_eq!(mount.refusal(opcode, InodeNo::ROOT, &arguments), Errno::ROFS, "operation {opcode}");
    }
    for opcode in [opcode::FLUSH, opcode::STATX, opcode::LSEEK, opcode::SYNCFS, opcode::READDIRPLUS] {
        assert_eq!(mount.refusal(opcode, FILE, &[&zeros]), Errno::NOSYS, "operation {opcode}");
    }
}

#[test]
fn a_listing_contains_the_entries_that_fit() {
    let mount = Mount::new();
    let list = |offset, size| {
        mount
            .ask(opcode::READDIR, InodeNo::ROOT, &[ReadIn { offset, size, ..ReadIn::default() }.as_bytes()])
            .1
    };
    assert_eq!(list(0, 4096).len(), 2 * 32);
    assert_eq!(list(0, 32), list(0, 4096)[..32]);
    assert_eq!(list(1, 4096), list(0, 4096)[32..]);
    assert_eq!(list(2, 4096), b"");
    let asked = ReadIn { size: 4096, ..ReadIn::default() };
    assert_eq!(mount.refusal(opcode::READDIR, FILE, &[asked.as_bytes()]), Errno::NOTDIR);
}
