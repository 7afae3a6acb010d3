//! Requests of a mount whose process changes the volume by itself too.

use super::*;
use crate::kernel::abi::{InitIn, InitOut, init_flag};
use crate::kernel::tests::request;

const READ_ONLY: fs::OpenFlags =
    fs::OpenFlags { read: true, write: false, append: false, truncate: false, sync: false };

/// Whatever the kernel kept of a mount could be old: the process that serves it changes the volume as well.
#[test]
fn the_kernel_keeps_nothing_of_an_uncached_mount() {
    let mount = Mount::uncached();
    let (file, opened) = mount.create(b"file\0", OFlags::RDWR);
    assert_eq!(
        (file.attr_valid, file.entry_valid, opened.open_flags),
        (0, 0, fopen::DIRECT_IO | fopen::NO_FLUSH)
    );
    assert_eq!((mount.attributes(file.nodeid).attr_valid, mount.statx(ROOT).attr_valid), (0, 0));
    let open = OpenIn { flags: OFlags::RDWR.bits(), open_flags: 0 };
    let again: OpenOut = mount.succeed(opcode::OPEN, file.nodeid, &[open.as_bytes()]);
    assert_eq!(again.open_flags, fopen::DIRECT_IO | fopen::NO_FLUSH);
    let direct = OpenIn { flags: (OFlags::RDWR | OFlags::DIRECT).bits(), open_flags: 0 };
    let refused = mount.ask(opcode::OPEN, file.nodeid, &[direct.as_bytes()]);
    assert_eq!(refused.0, -Errno::INVAL.raw_os_error());
    let directory: OpenOut = mount.succeed(opcode::OPENDIR, ROOT, &[&[0; 8]]);
    assert_eq!(directory.open_flags, 0);
    let found: EntryOut = mount.succeed(opcode::LOOKUP, ROOT, &[b"file\0"]);
    assert_eq!((found.nodeid, found.attr_valid, found.entry_valid), (file.nodeid, 0, 0));
    assert_eq!(mount.ask(opcode::LOOKUP, ROOT, &[b"missing\0"]).0, -Errno::NOENT.raw_os_error());
    // Nothing is asked of the kernel: it has no dirty pages, counts of blocks or listings.
    let link = LinkIn { oldnodeid: file.nodeid };
    let linked: EntryOut = mount.succeed(opcode::LINK, ROOT, &[link.as_bytes(), b"link\0"]);
    assert_eq!((linked.attr.nlink, linked.entry_valid), (2, 0));
    mount.write(file.nodeid, opened.fh, &[7; 5000]);
    let fsync = FsyncIn { fh: opened.fh, ..FsyncIn::default() };
    assert_eq!(mount.ask_and_note(opcode::FSYNC, file.nodeid, &[fsync.as_bytes()]), []);
    for _ in 0..2 {
        assert_eq!(mount.list(opcode::READDIR, 0).0, 0);
        assert_eq!(mount.list(opcode::READDIR, u64::MAX >> 1), (0, vec![]));
    }
    assert_eq!((mount.written_back.take(), mount.listings_dropped.take()), (vec![], vec![]));
}

/// Asynchronous access would depend on the kernel's size of a file. Pages are dropped when a file has changed.
#[test]
fn an_uncached_mount_requests_nothing_that_relies_on_the_kernels_knowledge() {
    let mount = Mount::uncached();
    let init = InitIn { major: 7, minor: 41, max_readahead: 0, flags: u32::MAX };
    mount.kernel.send(&request(opcode::INIT, 1, &[init.as_bytes(), &[0xff; 4], &[0; 44]]));
    mount.transport.begin(&mount.channel, 1).unwrap();
    let agreed = InitOut::read_from_bytes(&mount.kernel.reply()[16..]).unwrap();
    let flags = u64::from(agreed.flags) | u64::from(agreed.flags2) << 32;
    assert_eq!(CACHES.iter().find(|cache| flags & **cache != 0), None);
    assert!(flags & init_flag::AUTO_INVAL_DATA != 0);
}

/// `ftruncate` of such a mount names a handle and no time.
#[test]
fn an_open_file_of_an_uncached_mount_can_be_cut() {
    let mount = Mount::uncached();
    let (file, opened) = mount.create(b"file\0", OFlags::RDWR);
    mount.write(file.nodeid, opened.fh, &[7; 100]);
    let valid = fattr::SIZE | fattr::FH | fattr::LOCKOWNER;
    let set = SetattrIn { valid, fh: opened.fh, size: 10, ..SetattrIn::default() };
    let cut: AttrOut = mount.succeed(opcode::SETATTR, file.nodeid, &[set.as_bytes()]);
    assert_eq!(cut.attr.size, 10);
}

/// The kernel sends the end of the file that it knows, and the process may have made the file longer.
#[test]
fn an_uncached_append_goes_to_the_end_of_the_file() {
    let mount = Mount::uncached();
    let (file, opened) = mount.create(b"log\0", OFlags::RDWR | OFlags::APPEND);
    let append = |offset: u64, flags: OFlags| {
        let write = WriteIn { fh: opened.fh, offset, size: 100, flags: flags.bits(), ..WriteIn::default() };
        let written: u64 = mount.succeed(opcode::WRITE, file.nodeid, &[write.as_bytes(), &[7; 100]]);
        assert_eq!(written, 100);
        mount.attributes(file.nodeid).attr.size
    };
    assert_eq!(append(0, OFlags::APPEND), 100);
    assert_eq!(append(0, OFlags::APPEND), 200);
    assert_eq!(append(0, OFlags::APPEND | OFlags::DIRECT), 300);
    assert_eq!(append(0, OFlags::empty()), 300);
}

/// The kernel sends no `fsync` after a synchronous write that bypasses its cache.
#[test]
fn an_uncached_synchronous_write_is_durable() {
    let mount = Mount::uncached();
    let flags = OFlags::RDWR | DSYNC;
    let (file, opened) = mount.create(b"log\0", flags);
    let write = WriteIn { fh: opened.fh, size: 4, flags: flags.bits(), ..WriteIn::default() };
    let written: u64 = mount.succeed(opcode::WRITE, file.nodeid, &[write.as_bytes(), b"text"]);
    assert_eq!(written, 4);
    let found: EntryOut = mount.after_power_loss().succeed(opcode::LOOKUP, ROOT, &[b"log\0"]);
    assert_eq!(found.attr.size, 4);
}

/// The process removes a file: it is deleted at once if the kernel has never seen it, and otherwise when the kernel has
/// forgotten each of its lookups.
#[test]
fn an_inode_that_the_process_removes_exists_until_the_kernel_forgets_it() {
    let mount = Mount::uncached();
    let server = &mount.transport.server;
    let (fs, references) = (server.fs(), server.references().unwrap());
    let root = fs::Caller::root();
    let exists = |inode| fs.attributes(inode).is_ok_and(|_| fs.open(&root, inode, READ_ONLY).is_ok());
    for is_replaced in [false, true] {
        let remove = |name: &[u8]| {
            if is_replaced {
                fs.make_node(&root, InodeNo::ROOT, b"new", fs::Kind::File, 0o600, 0).unwrap();
                fs.rename(&root, InodeNo::ROOT, b"new", InodeNo::ROOT, name, fs::RenameFlags::default())
                    .unwrap();
            }
            fs.unlink(&root, InodeNo::ROOT, name).unwrap();
            references.release_unlinked(fs);
        };
        let unseen = fs.make_node(&root, InodeNo::ROOT, b"unseen", fs::Kind::File, 0o600, 0).unwrap().inode;
        remove(b"unseen");
        assert!(!exists(unseen));

        let seen = fs.make_node(&root, InodeNo::ROOT, b"seen", fs::Kind::File, 0o600, 0).unwrap().inode;
        let lookup = || mount.succeed::<EntryOut>(opcode::LOOKUP, ROOT, &[b"seen\0"]).nodeid;
        assert_eq!([lookup(), lookup()], [seen.0; 2]);
        remove(b"seen");
        mount.transport.forget(seen.0, 1);
        assert!(exists(seen));
        mount.transport.forget(seen.0, 1);
        assert!(!exists(seen));
    }
    // Between the lookup of a name and its count, the process has removed the inode.
    let found = fs.make_node(&root, InodeNo::ROOT, b"gone", fs::Kind::File, 0o600, 0).unwrap();
    fs.unlink(&root, InodeNo::ROOT, b"gone").unwrap();
    references.release_unlinked(fs);
    assert!(!server.note_found(&found));
    assert!(!references.forget(found.inode, 1), "the kernel does not get it");
}
