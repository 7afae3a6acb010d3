//! A volume and a test that sends the kernel's requests.

mod uncached;

use std::cell::{Cell, RefCell};
use std::sync::mpsc::{self, Receiver};

use emulated::{CrashPlan, Emulated, Spec};
use fs::{FormatOptions, Fs, MountOptions};
use rt::{ManualClock, Timestamp};
use rustix::fs::OFlags;
use zerocopy::{FromBytes, IntoBytes};
use zone::Device;

use super::*;
use crate::atime::AccessTimes;
use crate::deferred::{DeferredQueues, Pages};
use crate::kernel::Notifier;
use crate::kernel::abi::{
    AttrOut, CopyFileRangeIn, CreateIn, Dirent, EntryOut, FallocateIn, FsyncIn, GetxattrIn, InHeader, LinkIn,
    LseekIn, OpenIn, OpenOut, READ_LOCKOWNER, ReadIn, ReleaseIn, Rename2In, STATX_BTIME, SetattrIn,
    SetxattrIn, StatxIn, StatxOut, WRITE_CACHE, WriteIn, fattr, fopen, opcode,
};
use crate::kernel::tests::{Kernel, connected};
use crate::page_cache::PageCache;

const ROOT: u64 = 1;
/// `O_DSYNC`, which `OFlags` does not have: its name there stands for `O_SYNC`.
const DSYNC: OFlags = OFlags::from_bits_retain(0o10000);
const STALE: i32 = Errno::STALE.raw_os_error();
const BORN: i64 = 1_700_000_000_000_000_007;

struct Mount {
    device: Arc<Emulated>,
    kernel: Kernel,
    channel: Channel,
    transport: Transport,
    deferred: Receiver<DeferredWork>,
    clock: Arc<ManualClock>,
    unique: Cell<u64>,
    /// Inodes whose cached attributes the kernel had to drop.
    forgotten: RefCell<Vec<u64>>,
    /// Inodes that the kernel had to write back before something was done.
    written_back: RefCell<Vec<u64>>,
    /// Parts of files whose pages the kernel had to drop.
    dropped: RefCell<Vec<Pages>>,
    /// Directories of whose listings the kernel had to drop the first page, and whether it cannot.
    listings_dropped: RefCell<Vec<u64>>,
    drops_fail: Cell<bool>,
    /// Old ends of files behind which the kernel had to clear its pages.
    ends_cleared: RefCell<Vec<u64>>,
}

impl Mount {
    fn new() -> Mount {
        let device = Arc::new(Emulated::new(Spec::new(4096, 40, 256)));
        device.record();
        let format = FormatOptions {
            label: String::new(),
            fs_id: zone::FsId([1; 16]),
            uid: 0,
            gid: 0,
            page_size: None,
            groups: Some(3),
            reserve: fs::Reserve::default(),
        };
        let shared: Arc<dyn Device> = device.clone();
        Fs::format(&shared, &format, &ManualClock::at(Timestamp(BORN))).unwrap();
        Mount::of(device)
    }

    /// Mounts the volume on a device.
    fn of(device: Arc<Emulated>) -> Mount {
        Mount::with_caches(device, true)
    }

    /// Mounts a new volume that its process changes too.
    fn uncached() -> Mount {
        let mount = Mount::with_caches(Mount::new().device, false);
        mount.transport.server.keep_unlinked();
        mount
    }

    fn with_caches(device: Arc<Emulated>, caches: bool) -> Mount {
        let clock = Arc::new(ManualClock::at(Timestamp(BORN)));
        let options = MountOptions {
            cache_bytes: 4 << 20,
            read_only: false,
            commit_interval_ns: 1,
            clock: clock.clone(),
        };
        let (fs, _) = Fs::mount(device.clone(), options).unwrap();
        let (sender, deferred) = mpsc::channel();
        let transport = Transport::new(
            Arc::new(Server::new(fs, AccessTimes::new(false), !caches)),
            DeferredQueues::to(&sender),
            true,
        );
        let (kernel, channel) = connected();
        Mount {
            device,
            kernel,
            channel,
            transport,
            deferred,
            clock,
            unique: Cell::new(0),
            forgotten: RefCell::default(),
            written_back: RefCell::default(),
            dropped: RefCell::default(),
            listings_dropped: RefCell::default(),
            drops_fail: Cell::new(false),
            ends_cleared: RefCell::default(),
        }
    }

    /// Notes what the kernel has agreed to.
    fn agree(&self, granted: u64, waits_for_writes: bool) {
        self.transport.agreed.set(Agreed { granted, waits_for_writes, forgets: true }).unwrap();
    }

    /// Error and bytes of a reply with entries of the root.
    fn list(&self, opcode: u32, offset: u64) -> (i32, Vec<u8>) {
        let read = ReadIn { offset, size: 4096, ..ReadIn::default() };
        self.ask(opcode, ROOT, &[read.as_bytes()])
    }

    /// A mount after a loss of power: only flushed data is left.
    fn after_power_loss(&self) -> Mount {
        Mount::of(Arc::new(self.device.image(&CrashPlan::LoseAll)))
    }

    /// Error and body of the reply to a request of root.
    fn ask(&self, opcode: u32, node: u64, arguments: &[&[u8]]) -> (i32, Vec<u8>) {
        self.unique.set(self.unique.get() + 1);
        let arguments = arguments.concat();
        let length = u32::try_from(size_of::<InHeader>() + arguments.len()).unwrap();
        let (unique, nodeid) = (self.unique.get(), node);
        let header = InHeader { len: length, opcode, unique, nodeid, ..InHeader::default() };
        let bytes = [header.as_bytes(), &arguments].concat();
        let request = Request::decode(&bytes).unwrap();
        self.transport.answer(request, Reply::new(unique, &self.channel));
        self.run_deferred();
        let mut reply = self.kernel.reply();
        assert_eq!(reply[..4], u32::try_from(reply.len()).unwrap().to_ne_bytes());
        assert_eq!(reply[8..16], unique.to_ne_bytes());
        let error = i32::from_ne_bytes(reply[4..8].try_into().unwrap());
        (error, reply.split_off(16))
    }

    /// Sends a request that must succeed. Returns the inodes whose attributes the kernel has to drop for it.
    fn ask_and_note(&self, opcode: u32, node: u64, arguments: &[&[u8]]) -> Vec<u64> {
        self.forgotten.take();
        assert_eq!(self.ask(opcode, node, arguments).0, 0);
        self.forgotten.take()
    }

    /// Runs deferred work without a kernel and records it.
    fn run_deferred(&self) {
        let (_elsewhere, channel) = connected();
        let cache = PageCache::new(Notifier::new(&channel), None);
        while let Ok(work) = self.deferred.try_recv() {
            match &work {
                DeferredWork::ForgetAttributes(inode) | DeferredWork::ForgetThen(inode, _) => {
                    self.forgotten.borrow_mut().push(inode.0);
                }
                DeferredWork::Name(files, _) => {
                    self.written_back.borrow_mut().extend(files.iter().map(|inode| inode.0));
                }
                DeferredWork::Sync(_) => {
                    let cut = self.transport.server.cut_files().all();
                    self.written_back.borrow_mut().extend(cut.iter().map(|(inode, _)| inode.0));
                }
                DeferredWork::DropPages(pages, _) => self.dropped.borrow_mut().push(*pages),
                DeferredWork::ClearBehindEnd(file, _) => self.ends_cleared.borrow_mut().push(file.size),
                DeferredWork::DropListing(directory, _) => {
                    self.listings_dropped.borrow_mut().push(directory.0);
                }
                DeferredWork::Seek(..) | DeferredWork::Evict(_) => {}
            }
            if self.drops_fail.get()
                && let DeferredWork::DropListing(_, then) = work
            {
                then(false);
                continue;
            }
            work.run(&self.transport.server, &cache);
        }
    }

    fn succeed<T: FromBytes>(&self, opcode: u32, node: u64, arguments: &[&[u8]]) -> T {
        let (error, body) = self.ask(opcode, node, arguments);
        assert_eq!(error, 0, "operation {opcode}");
        T::read_from_bytes(&body).expect("the reply is as long as its structure")
    }

    fn statx(&self, node: u64) -> StatxOut {
        self.succeed(opcode::STATX, node, &[StatxIn { sx_mask: 0xfff, ..StatxIn::default() }.as_bytes()])
    }

    fn attributes(&self, node: u64) -> AttrOut {
        self.succeed(opcode::GETATTR, node, &[&[0; 16]])
    }

    /// Creates a file in the root that is open with these flags. Returns its node and its handle.
    fn create(&self, name: &[u8], flags: OFlags) -> (EntryOut, OpenOut) {
        let create = CreateIn { flags: flags.bits(), mode: 0o100_640, umask: 0o27, open_flags: 0 };
        let (error, body) = self.ask(opcode::CREATE, ROOT, &[create.as_bytes(), name]);
        assert_eq!(error, 0);
        let (entry, rest) = EntryOut::read_from_prefix(&body).unwrap();
        (entry, OpenOut::read_from_bytes(rest).unwrap())
    }

    /// Creates an open file without a name. Returns its node and its handle.
    fn temporary(&self) -> (EntryOut, OpenOut) {
        let create = CreateIn { flags: 0o2, mode: 0o100_640, umask: 0o27, open_flags: 0 };
        let (error, body) = self.ask(opcode::TMPFILE, ROOT, &[create.as_bytes()]);
        assert_eq!(error, 0);
        let (entry, rest) = EntryOut::read_from_prefix(&body).unwrap();
        (entry, OpenOut::read_from_bytes(rest).unwrap())
    }

    fn write(&self, node: u64, fh: u64, data: &[u8]) {
        let size = u32::try_from(data.len()).unwrap();
        let write = WriteIn { fh, size, ..WriteIn::default() };
        let written: u64 = self.succeed(opcode::WRITE, node, &[write.as_bytes(), data]);
        assert_eq!(written, u64::from(size));
    }
}

/// A rename, a link or an `fsync` waits only for files of which the kernel may have dirty pages.
#[test]
fn a_name_waits_for_the_data_of_a_file_that_is_open_for_writing_and_of_no_other() {
    let mount = Mount::new();
    let rename = |flags: u32, name: &[u8], new_name: &[u8]| {
        let asked = Rename2In { newdir: ROOT, flags, padding: 0 };
        assert_eq!(mount.ask(opcode::RENAME2, ROOT, &[asked.as_bytes(), name, new_name]).0, 0);
        mount.written_back.take()
    };
    let link = |node: u64, name: &[u8]| {
        assert_eq!(mount.ask(opcode::LINK, ROOT, &[LinkIn { oldnodeid: node }.as_bytes(), name]).0, 0);
        mount.written_back.take()
    };
    let (one, open_one) = mount.create(b"one\0", OFlags::RDWR);
    let (two, open_two) = mount.create(b"two\0", OFlags::RDWR);
    assert_eq!(rename(0, b"one\0", b"1\0"), [one.nodeid]);
    assert_eq!(rename(0, b"1\0", b"two\0"), [one.nodeid], "the replaced file is not waited for");
    assert_eq!(link(one.nodeid, b"1\0"), [one.nodeid]);
    let (three, open_three) = mount.create(b"three\0", OFlags::RDWR);
    let exchange = 2;
    assert_eq!(rename(exchange, b"1\0", b"three\0"), [one.nodeid, three.nodeid]);
    for (node, opened) in [(one, open_one), (two, open_two), (three, open_three)] {
        let release = ReleaseIn { fh: opened.fh, ..ReleaseIn::default() };
        assert_eq!(mount.ask(opcode::RELEASE, node.nodeid, &[release.as_bytes()]).0, 0);
    }
    assert_eq!(rename(0, b"two\0", b"2\0"), [0; 0], "closed files have been written back");
    assert_eq!(link(one.nodeid, b"4\0"), [0; 0]);
}

#[test]
fn an_fsync_waits_for_files_that_were_cut_until_they_are_closed_or_written_back() {
    let mount = Mount::new();
    let (file, opened) = mount.create(b"file\0", OFlags::RDWR);
    let (other, open_other) = mount.create(b"other\0", OFlags::RDWR);
    mount.write(file.nodeid, opened.fh, &[7; 5000]);
    let sync = |node: &EntryOut, opened: &OpenOut| {
        let fsync = FsyncIn { fh: opened.fh, ..FsyncIn::default() };
        assert_eq!(mount.ask(opcode::FSYNC, node.nodeid, &[fsync.as_bytes()]).0, 0);
        mount.written_back.take()
    };
    let set_size = |size: u64| {
        let asked = SetattrIn { valid: fattr::SIZE, size, ..SetattrIn::default() };
        assert_eq!(mount.ask(opcode::SETATTR, file.nodeid, &[asked.as_bytes()]).0, 0);
    };
    let release = |node: &EntryOut, opened: &OpenOut| {
        let release = ReleaseIn { fh: opened.fh, ..ReleaseIn::default() };
        assert_eq!(mount.ask(opcode::RELEASE, node.nodeid, &[release.as_bytes()]).0, 0);
    };
    set_size(9000);
    assert_eq!(sync(&other, &open_other), [0; 0], "nothing was cut off");
    set_size(100);
    assert_eq!(sync(&other, &open_other), [file.nodeid]);
    assert_eq!(sync(&other, &open_other), [0; 0], "it has been written back");
    set_size(10);
    assert_eq!(
        sync(&file, &opened),
        [file.nodeid],
        "the kernel may have written back a part before it asked"
    );
    assert_eq!(sync(&other, &open_other), [0; 0]);
    let open = OpenIn { flags: (OFlags::RDWR | OFlags::TRUNC).bits(), open_flags: 0 };
    let again: OpenOut = mount.succeed(opcode::OPEN, file.nodeid, &[open.as_bytes()]);
    assert_eq!(sync(&other, &open_other), [file.nodeid]);
    set_size(0);
    mount.write(file.nodeid, again.fh, &[7; 5000]);
    set_size(1);
    release(&file, &again);
    release(&file, &opened);
    assert_eq!(sync(&other, &open_other), [0; 0], "the kernel has written it back before it was closed");
    set_size(0);
    assert_eq!(sync(&other, &open_other), [0; 0], "no handle could write to it");
}

/// A log that stayed open had the same count of blocks for every program for as long as it was open: `du` reported
/// kilobytes for a file of gigabytes.
#[test]
fn a_write_back_makes_the_kernel_ask_for_the_count_of_blocks() {
    let mount = Mount::new();
    let (entry, opened) = mount.create(b"log\0", OFlags::RDWR);
    let data = vec![7; 64 << 10];
    let write_back = |piece: u64| {
        let write = WriteIn {
            fh: opened.fh,
            offset: piece * data.len() as u64,
            size: data.len() as u32,
            write_flags: WRITE_CACHE,
            ..WriteIn::default()
        };
        mount.ask_and_note(opcode::WRITE, entry.nodeid, &[write.as_bytes(), &data])
    };
    assert_eq!(write_back(0), [entry.nodeid], "more than none");
    assert_eq!(write_back(1), [], "it has not asked");
    assert_eq!(mount.attributes(entry.nodeid).attr.blocks, 256);
    assert_eq!(write_back(2), [entry.nodeid]);
    assert_eq!(mount.attributes(entry.nodeid).attr.blocks, 384);
    assert_eq!(write_back(2), [], "as many as before");
}

/// On a volume that was nearly full, a direct write failed with an input/output error: a part of it fitted, and the
/// kernel takes a partial write for a device error.
#[test]
fn a_direct_write_that_does_not_fit_is_no_space() {
    let mount = Mount::new();
    let (entry, opened) = mount.temporary();
    let data = vec![7; 1 << 20];
    let size = data.len() as u32;
    let flags = OFlags::DIRECT.bits();
    let full = (0..100).map(|piece| {
        let write = WriteIn { fh: opened.fh, offset: piece << 20, size, flags, ..WriteIn::default() };
        mount.ask(opcode::WRITE, entry.nodeid, &[write.as_bytes(), &data])
    });
    let written = u64::from(size).to_ne_bytes();
    let refused = full.map(|(error, body)| (error, body == written)).find(|told| *told != (0, true));
    assert_eq!(refused, Some((-Errno::NOSPC.raw_os_error(), false)));
}

#[test]
fn the_birth_time_is_reported_and_stays() {
    let mount = Mount::new();
    let (entry, opened) = mount.temporary();
    mount.clock.advance(5_000_000_000);
    mount.write(entry.nodeid, opened.fh, b"contents");
    let told = mount.statx(entry.nodeid).stat;
    assert_eq!(told.mask, 0xfff);
    assert_eq!((told.btime.tv_sec, told.btime.tv_nsec), (1_700_000_000, 7));
    assert_eq!((told.mtime.tv_sec, told.mtime.tv_nsec), (1_700_000_005, 7));
    let attr = mount.attributes(entry.nodeid).attr;
    assert_eq!((u32::from(told.mode), told.nlink, told.size), (attr.mode, attr.nlink, 8));
    assert_eq!((told.ino, told.blocks, told.blksize), (attr.ino, attr.blocks, attr.blksize));
    assert_eq!((told.ctime.tv_sec, told.atime.tv_sec), (attr.ctime, attr.atime));
    assert_ne!(mount.statx(ROOT).stat.mask & STATX_BTIME, 0);
}

#[test]
fn devices_are_reported_by_both_numbers() {
    let mount = Mount::new();
    // Major 0x123, minor 0x45678, as the kernel's `mknod` encodes them.
    let device = 0x78 | 0x123 << 8 | 0x456 << 20_u32;
    let arguments = [0o020_600_u32, device, 0, 0];
    let made: EntryOut = mount.succeed(opcode::MKNOD, ROOT, &[arguments.as_bytes(), b"device\0"]);
    assert_eq!(made.attr.rdev, device);
    let told = mount.statx(made.nodeid).stat;
    assert_eq!((told.rdev_major, told.rdev_minor), (0x123, 0x45678));
}

#[test]
fn a_file_without_a_name_exists_while_it_is_open() {
    let mount = Mount::new();
    let (entry, opened) = mount.temporary();
    assert_eq!((entry.attr.nlink, entry.attr.mode), (0, 0o100_640));
    mount.write(entry.nodeid, opened.fh, b"gone");
    let read = ReadIn { fh: opened.fh, size: 100, ..ReadIn::default() };
    assert_eq!(mount.ask(opcode::READ, entry.nodeid, &[read.as_bytes()]), (0, b"gone".to_vec()));
    let release = ReleaseIn { fh: opened.fh, flags: 0o2, ..ReleaseIn::default() };
    assert_eq!(mount.ask(opcode::RELEASE, entry.nodeid, &[release.as_bytes()]).0, 0);
    let fs = mount.transport.server.fs();
    let reopened = mount.ask(opcode::OPEN, entry.nodeid, &[&[0; 8]]).0;
    assert_eq!(reopened, -Errno::STALE.raw_os_error());
    let node = entry.nodeid.to_ne_bytes();
    assert_ne!(mount.ask(opcode::LINK, ROOT, &[&node, b"name\0"]).0, 0);
    assert_eq!(fs.check().unwrap(), []);
}

#[test]
fn a_file_without_a_name_can_get_one() {
    let mount = Mount::new();
    let (entry, opened) = mount.temporary();
    mount.write(entry.nodeid, opened.fh, b"kept");
    let node = entry.nodeid.to_ne_bytes();
    let linked: EntryOut = mount.succeed(opcode::LINK, ROOT, &[&node, b"name\0"]);
    assert_eq!((linked.nodeid, linked.attr.nlink), (entry.nodeid, 1));
    let release = ReleaseIn { fh: opened.fh, flags: 0o2, ..ReleaseIn::default() };
    assert_eq!(mount.ask(opcode::RELEASE, entry.nodeid, &[release.as_bytes()]).0, 0);
    let found: EntryOut = mount.succeed(opcode::LOOKUP, ROOT, &[b"name\0"]);
    assert_eq!((found.nodeid, found.attr.nlink, found.attr.size), (entry.nodeid, 1, 4));
    assert_eq!(mount.ask(opcode::SYNCFS, ROOT, &[&[0; 8]]), (0, Vec::new()));
    assert_eq!(mount.transport.server.fs().check().unwrap(), []);
}

#[test]
fn the_absence_of_a_name_may_be_cached() {
    let mount = Mount::new();
    let absent: EntryOut = mount.succeed(opcode::LOOKUP, ROOT, &[b"nothing\0"]);
    assert_eq!((absent.nodeid, absent.entry_valid), (0, 24 * 60 * 60));
}

/// Requests that a kernel would not send, with random numbers: each is answered once, and the volume is intact
/// afterwards.
#[test]
fn every_request_is_answered() {
    let mount = Mount::new();
    let (entry, opened) = mount.temporary();
    let mut rng = fastrand::Rng::with_seed(2);
    let (mut done, mut refused) = (0, 0);
    for _ in 0..4000 {
        let mut numbers: [u64; 11] = std::array::from_fn(|_| match rng.u8(..8) {
            0 => rng.u64(..),
            1 => entry.nodeid,
            2 => opened.fh,
            3 => 1 << rng.u32(..64),
            _ => rng.u64(..4),
        });
        let names: [&[u8]; 4] = [b"name\0", b".\0", b"a/b\0", b"\0"];
        let name = names[rng.usize(..names.len())];
        let opcode = loop {
            let opcode = rng.u32(1..56);
            if !matches!(
                opcode,
                opcode::FORGET | opcode::INIT | opcode::INTERRUPT | opcode::DESTROY | opcode::BATCH_FORGET
            ) {
                break opcode;
            }
        };
        if matches!(opcode, opcode::WRITE | opcode::SETXATTR) {
            // As many bytes as there are.
            numbers[2] = rng.u64(..8);
            numbers[0] = if opcode == opcode::SETXATTR { rng.u64(..8) } else { numbers[0] };
        }
        if opcode == opcode::READ {
            // No more bytes than a message of the socket has.
            numbers[2] &= 0xffff;
        }
        let node = [ROOT, entry.nodeid, rng.u64(..)][rng.usize(..3)];
        let arguments = [numbers.as_bytes(), name, name];
        let length = u32::try_from(size_of::<InHeader>() + arguments.concat().len()).unwrap();
        let header = InHeader { len: length, opcode, unique: 5, nodeid: node, ..InHeader::default() };
        let bytes = [header.as_bytes(), &arguments.concat()].concat();
        let Ok(request) = Request::decode(&bytes) else { continue };
        if matches!(request.operation, Operation::Unknown(_)) {
            continue;
        }
        mount.transport.answer(request, Reply::new(5, &mount.channel));
        mount.run_deferred();
        let reply = mount.kernel.reply();
        assert!(mount.kernel.reply_if_any().is_err(), "operation {opcode} is answered twice");
        match reply[4..8] {
            [0, 0, 0, 0] => done += 1,
            _ => refused += 1,
        }
    }
    assert!(done > 100 && refused > 100, "{done} done, {refused} refused");
    assert_eq!(mount.transport.server.fs().check().unwrap(), []);
}

/// A kernel that does not wait for write-back in progress gets no answer about holes while there may be some.
#[test]
fn data_that_may_not_have_arrived_is_no_hole() {
    let mount = Mount::new();
    let (entry, opened) = mount.temporary();
    mount.write(entry.nodeid, opened.fh, b"data");
    // The next hole.
    let seek = LseekIn { fh: opened.fh, offset: 0, whence: 4, padding: 0 };
    let sought = || mount.ask(opcode::LSEEK, entry.nodeid, &[seek.as_bytes()]);
    assert_eq!(sought().0, -Errno::NOSYS.raw_os_error());
    mount.agree(0, true);
    assert_eq!(sought(), (0, 4_u64.to_ne_bytes().to_vec()));
}

/// Node and name of each entry of the root.
fn listed(mut bytes: &[u8]) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (entry, rest) = EntryOut::read_from_prefix(bytes).unwrap();
        let (dirent, rest) = Dirent::read_from_prefix(rest).unwrap();
        found.push((entry.nodeid, String::from_utf8(rest[..dirent.namelen as usize].to_vec()).unwrap()));
        bytes = &rest[(dirent.namelen as usize).next_multiple_of(8)..];
    }
    found
}

/// One damaged inode row made its whole directory unlistable: `ls` reported an input/output error for everything in
/// it, so no program could reach the intact files.
#[test]
fn an_inode_that_cannot_be_read_hides_no_other() {
    let mount = Mount::new();
    let names = [&b"first\0"[..], b"second\0", b"third\0"];
    let make = |name| mount.succeed::<EntryOut>(opcode::MKNOD, ROOT, &[&[0xa4, 0x81, 0, 0], &[0; 12], name]);
    let made = names.map(|name| make(name).nodeid);
    let store = mount.transport.server.fs().store();
    let mut damage = tree::Tx::new();
    let key = fs::format::inode_key(InodeNo(made[1]));
    damage.put(store.group_of(made[1]), fs::format::INODE, key, vec![0xff; 3]);
    store.commit(damage).unwrap();
    mount.transport.server.fs().sync().unwrap();
    // A mount without cached inodes.
    let mount = mount.after_power_loss();
    let (error, bytes) = mount.list(opcode::READDIRPLUS, 0);
    assert_eq!(error, 0);
    let mut found = listed(&bytes);
    found.sort_by(|one, other| one.1.cmp(&other.1));
    let wanted = [(0, "."), (0, ".."), (made[0], "first"), (0, "second"), (made[2], "third")];
    assert_eq!(found, wanted.map(|(node, name)| (node, name.to_owned())));
    let asked = |name| mount.ask(opcode::LOOKUP, ROOT, &[name]).0;
    assert_eq!(names.map(asked), [0, -Errno::IO.raw_os_error(), 0]);
}

/// Asynchronous direct writes with `O_DSYNC` (`io_submit`, io_uring) were acknowledged before they were durable, and
/// the kernel sends no `fsync` for them: a database lost data that it had promised to keep.
#[test]
fn synchronous_direct_writes_are_durable() {
    let data = vec![7; 8192];
    for (flags, kept) in [(DSYNC, 8192), (OFlags::SYNC, 8192), (OFlags::empty(), 0)] {
        let mount = Mount::new();
        let (entry, opened) = mount.create(b"file\0", OFlags::RDWR | OFlags::DIRECT);
        mount.transport.server.fs().sync().unwrap();
        let flags = (flags | OFlags::RDWR | OFlags::DIRECT).bits();
        let write = WriteIn { fh: opened.fh, size: 8192, flags, ..WriteIn::default() };
        mount.succeed::<u64>(opcode::WRITE, entry.nodeid, &[write.as_bytes(), &data]);
        assert_eq!(mount.after_power_loss().attributes(entry.nodeid).attr.size, kept);
    }
}

/// Preallocated space and copies made through a file opened with `O_SYNC` were gone after a loss of power, because
/// the kernel sends no `fsync` for them.
#[test]
fn ranges_of_synchronous_files_are_durable() {
    for (flags, kept) in [(DSYNC, 1 << 20), (OFlags::empty(), 0)] {
        let mount = Mount::new();
        let (entry, opened) = mount.create(b"kept\0", OFlags::RDWR | flags);
        mount.transport.server.fs().sync().unwrap();
        let keep = FallocateIn { fh: opened.fh, length: 1 << 20, ..FallocateIn::default() };
        assert_eq!(mount.ask(opcode::FALLOCATE, entry.nodeid, &[keep.as_bytes()]).0, 0);
        assert_eq!(mount.after_power_loss().attributes(entry.nodeid).attr.size, kept);

        let mount = Mount::new();
        let (source, from) = mount.create(b"from\0", OFlags::RDWR);
        mount.write(source.nodeid, from.fh, &[3; 5000]);
        let (target, to) = mount.create(b"to\0", OFlags::RDWR | flags);
        mount.transport.server.fs().sync().unwrap();
        let (fh_in, fh_out, nodeid_out) = (from.fh, to.fh, target.nodeid);
        let copy = CopyFileRangeIn { fh_in, fh_out, nodeid_out, len: 5000, ..CopyFileRangeIn::default() };
        let copied: u64 = mount.succeed(opcode::COPY_FILE_RANGE, source.nodeid, &[copy.as_bytes()]);
        assert_eq!(copied, 5000);
        let size = mount.after_power_loss().attributes(target.nodeid).attr.size;
        assert_eq!(size, kept.min(5000));
    }
}

/// `make` and backup programs used a modification time and a link count of a directory that were old for up to a day:
/// an answer that was in flight while a name was created arrived last.
#[test]
fn attributes_of_directories_are_not_cached_for_long() {
    let mount = Mount::new();
    let modes = [0o700_u32, 0].map(u32::to_ne_bytes).concat();
    let made: EntryOut = mount.succeed(opcode::MKDIR, ROOT, &[&modes, b"directory\0"]);
    assert_eq!((made.attr_valid, made.entry_valid), (1, 24 * 60 * 60));
    assert_eq!(mount.attributes(made.nodeid).attr_valid, 1);
    assert_eq!(mount.statx(ROOT).attr_valid, 1);
    let (file, _) = mount.create(b"file\0", OFlags::RDWR);
    assert_eq!((file.attr_valid, file.entry_valid), (24 * 60 * 60, 24 * 60 * 60));
}

/// Two requests for each directory that was listed: `git status` sent twice as many.
#[test]
fn the_kernel_opens_directories_itself_if_it_can() {
    let mount = Mount::new();
    mount.agree(init_flag::NO_OPENDIR_SUPPORT, true);
    assert_eq!(mount.ask(opcode::OPENDIR, ROOT, &[&[0; 8]]).0, -Errno::NOSYS.raw_os_error());
    let mount = Mount::new();
    mount.agree(0, true);
    let opened: OpenOut = mount.succeed(opcode::OPENDIR, ROOT, &[&[0; 8]]);
    assert_eq!((opened.fh, opened.open_flags), (0, fopen::KEEP_CACHE | fopen::CACHE_DIR));
    assert_eq!(mount.ask(opcode::RELEASEDIR, ROOT, &[ReleaseIn::default().as_bytes()]), (0, Vec::new()));
}

/// Listings of one directory in the kernel's cache mixed two of its states.
#[test]
fn old_entries_are_dropped_before_they_could_be_used() {
    for opcode in [opcode::READDIR, opcode::READDIRPLUS] {
        let mount = Mount::new();
        // The last reply, and what the kernel has to drop for it.
        let list = |change: &dyn Fn()| {
            let (error, bytes) = mount.list(opcode, 0);
            assert!(error == 0 && bytes.len() > 8 && mount.listings_dropped.borrow().is_empty(), "{bytes:?}");
            change();
            (mount.list(opcode, u64::MAX >> 1).1, mount.listings_dropped.take())
        };
        let nothing = || {};
        assert_eq!([list(&nothing), list(&nothing)], [const { (vec![], vec![]) }; 2]);
        let create = || assert_eq!(mount.create(b"file\0", OFlags::RDWR).0.attr.size, 0);
        assert_eq!(list(&create), (vec![], vec![ROOT]), "a change while it is listed");
        assert_eq!(list(&nothing), (vec![], vec![]));
        assert_eq!(mount.ask(opcode::UNLINK, ROOT, &[b"file\0"]).0, 0);
        assert_eq!(list(&nothing), (vec![], vec![ROOT]), "a change before");
        assert_eq!(list(&nothing), (vec![], vec![]));
        mount.transport.server.access_times().set_enabled(true);
        assert_eq!(list(&nothing), (vec![0; 8], vec![]), "the next one comes here too");
    }
}

/// If the kernel's first page cannot be dropped, a listing must not end with an empty reply.
#[test]
fn a_listing_stays_incomplete_if_nothing_can_be_dropped() {
    let mount = Mount::new();
    mount.create(b"file\0", OFlags::RDWR);
    assert_eq!(mount.list(opcode::READDIR, 0).0, 0);
    mount.create(b"other\0", OFlags::RDWR);
    mount.drops_fail.set(true);
    assert_eq!(mount.list(opcode::READDIR, u64::MAX >> 1), (0, vec![0; 8]));
    mount.drops_fail.set(false);
    assert_eq!(mount.list(opcode::READDIR, u64::MAX >> 1), (0, Vec::new()));
    assert_eq!(mount.listings_dropped.take(), [ROOT, ROOT]);
}

/// The kernel's FORGET for a directory that it knew before could arrive while it lists that directory again.
#[test]
fn lookups_of_directories_are_counted() {
    let mount = Mount::new();
    let modes = [0o700_u32, 0].map(u32::to_ne_bytes).concat();
    let made: EntryOut = mount.succeed(opcode::MKDIR, ROOT, &[&modes, b"directory\0"]);
    let found: EntryOut = mount.succeed(opcode::LOOKUP, ROOT, &[b"directory\0"]);
    assert_eq!(found.nodeid, made.nodeid);
    assert_eq!(mount.list(opcode::READDIRPLUS, 0).0, 0);
    let listings = mount.transport.server.listings();
    mount.transport.forget(made.nodeid, 2);
    assert!(!listings.is_old(InodeNo(made.nodeid)), "the listing is the third");
    mount.transport.forget(made.nodeid, 1);
    assert!(listings.is_old(InodeNo(made.nodeid)), "nothing is known");
}

/// A program that has a directory open uses it after another one has removed it.
#[test]
fn a_removed_directory_can_be_used_until_the_kernel_forgets_it() {
    let mount = Mount::new();
    mount.transport.server.fs().keep_unlinked();
    let modes = [0o700_u32, 0].map(u32::to_ne_bytes).concat();
    let made: EntryOut = mount.succeed(opcode::MKDIR, ROOT, &[&modes, b"directory\0"]);
    let found: EntryOut = mount.succeed(opcode::LOOKUP, ROOT, &[b"directory\0"]);
    assert_eq!(found.nodeid, made.nodeid);
    let set = SetxattrIn { size: 3, ..SetxattrIn::default() };
    assert_eq!(mount.ask(opcode::SETXATTR, made.nodeid, &[set.as_bytes(), b"user.color\0", b"red"]).0, 0);
    assert_eq!(mount.ask(opcode::RMDIR, ROOT, &[b"directory\0"]).0, 0);
    assert_eq!(mount.attributes(made.nodeid).attr.nlink, 0);
    let get = GetxattrIn { size: 8, ..GetxattrIn::default() };
    let got = mount.ask(opcode::GETXATTR, made.nodeid, &[get.as_bytes(), b"user.color\0"]);
    assert_eq!(got, (0, b"red".to_vec()));
    let read = ReadIn { size: 4096, ..ReadIn::default() };
    assert_eq!(mount.ask(opcode::READDIR, made.nodeid, &[read.as_bytes()]), (0, Vec::new()));
    assert_eq!(mount.ask(opcode::FSYNCDIR, made.nodeid, &[FsyncIn::default().as_bytes()]).0, 0);
    let create = CreateIn { flags: 0o102, mode: 0o100_644, ..CreateIn::default() };
    let created = mount.ask(opcode::CREATE, made.nodeid, &[create.as_bytes(), b"file\0"]);
    assert_eq!(created.0, -Errno::NOENT.raw_os_error());
    // The kernel had forgotten it and found it again before it was removed.
    mount.transport.forget(made.nodeid, 1);
    assert_eq!(mount.ask(opcode::GETXATTR, made.nodeid, &[get.as_bytes(), b"user.color\0"]).0, 0);
    mount.transport.forget(made.nodeid, 1);
    let fs = mount.transport.server.fs();
    while fs.step().unwrap() == tree::Step::Worked {}
    assert_eq!(mount.ask(opcode::GETXATTR, made.nodeid, &[get.as_bytes(), b"user.color\0"]).0, -STALE);
    assert_eq!(fs.check().unwrap(), []);
}

/// Each operation that changes entries, in each of its directories.
#[test]
fn every_change_of_entries_is_noted() {
    let mount = Mount::new();
    let modes = [0o700_u32, 0].map(u32::to_ne_bytes).concat();
    let made: EntryOut = mount.succeed(opcode::MKDIR, ROOT, &[&modes, b"other\0"]);
    let (file, _) = mount.create(b"file\0", OFlags::RDWR);
    let rename = |newdir| Rename2In { newdir, ..Rename2In::default() };
    let link = LinkIn { oldnodeid: file.nodeid };
    let node = [&[0xa4, 0x81, 0, 0][..], &[0; 12]].concat();
    let (away, back) = (rename(made.nodeid), rename(ROOT));
    let flags = (OFlags::RDWR | OFlags::CREATE).bits();
    let create = CreateIn { flags, mode: 0o100_644, ..CreateIn::default() };
    let both = [ROOT, made.nodeid].map(InodeNo);
    let listings = mount.transport.server.listings();
    let check = |opcode, directory, arguments: &[&[u8]], changed: &[u64]| {
        for directory in both {
            listings.note_entries(directory);
            listings.note_drop(directory);
        }
        assert_eq!(mount.ask(opcode, directory, arguments).0, 0, "operation {opcode}");
        let noted = both.map(|directory| listings.is_old(directory));
        assert_eq!(noted, both.map(|directory| changed.contains(&directory.0)), "operation {opcode}");
    };
    check(opcode::CREATE, ROOT, &[create.as_bytes(), b"new\0"], &[ROOT]);
    check(opcode::MKNOD, ROOT, &[&node, b"node\0"], &[ROOT]);
    check(opcode::MKDIR, ROOT, &[&modes, b"directory\0"], &[ROOT]);
    check(opcode::SYMLINK, ROOT, &[b"symlink\0", b"target\0"], &[ROOT]);
    check(opcode::LINK, ROOT, &[link.as_bytes(), b"link\0"], &[ROOT]);
    check(opcode::RENAME2, ROOT, &[away.as_bytes(), b"link\0", b"moved\0"], &[ROOT, made.nodeid]);
    check(opcode::RENAME2, made.nodeid, &[back.as_bytes(), b"moved\0", b"link\0"], &[ROOT, made.nodeid]);
    check(opcode::UNLINK, ROOT, &[b"link\0"], &[ROOT]);
    check(opcode::RMDIR, ROOT, &[b"directory\0"], &[ROOT]);
}

/// A program that read through the cache while another did asynchronous direct writes (`io_submit`, io_uring) saw old
/// contents for as long as the kernel kept them.
#[test]
fn a_write_past_the_cache_drops_pages_that_may_be_old() {
    let mount = Mount::new();
    let (entry, opened) = mount.create(b"file\0", OFlags::RDWR | OFlags::DIRECT);
    let (node, fh, flags) = (entry.nodeid, opened.fh, OFlags::DIRECT.bits());
    let dropped_by = |fh, write_flags| {
        let write = WriteIn { fh, offset: 4096, size: 8192, flags, write_flags, ..WriteIn::default() };
        mount.succeed::<u64>(opcode::WRITE, node, &[write.as_bytes(), &[7; 8192]]);
        mount.dropped.take()
    };
    let dropped_by_write = |write_flags| dropped_by(fh, write_flags);
    let read = |fh, read_flags| {
        let read = ReadIn { fh, size: 4096, read_flags, flags, ..ReadIn::default() };
        assert_eq!(mount.ask(opcode::READ, node, &[read.as_bytes()]).0, 0);
    };
    assert_eq!(dropped_by_write(0), [], "nothing was read");
    read(fh, READ_LOCKOWNER);
    assert_eq!(dropped_by_write(0), [], "nothing was read into the cache");
    // A mapping of the same descriptor reads like this.
    read(fh, 0);
    let written = [Pages { inode: InodeNo(node), offset: 4096, length: 8192 }];
    assert_eq!(dropped_by_write(0), written);
    assert_eq!(dropped_by_write(WRITE_CACHE), [], "it comes from the cache");
    assert_eq!(dropped_by_write(0), written, "the page that was read may still be there");

    // If no handle can write, the kernel has not begun a write either. Before the next one it drops the pages.
    let release = ReleaseIn { fh, flags: flags | 2, ..ReleaseIn::default() };
    assert_eq!(mount.ask(opcode::RELEASE, node, &[release.as_bytes()]).0, 0);
    let open = |flags: OFlags| {
        let open = OpenIn { flags: flags.bits(), open_flags: 0 };
        mount.succeed::<OpenOut>(opcode::OPEN, node, &[open.as_bytes()]).fh
    };
    read(open(OFlags::RDONLY), 0);
    assert_eq!(dropped_by(open(OFlags::RDWR | OFlags::DIRECT), 0), []);
}

/// Bytes behind the old end of a file became part of it when it grew.
#[test]
fn bytes_behind_the_end_are_cleared_before_the_kernel_learns_that_a_file_has_grown() {
    let mount = Mount::new();
    let (entry, opened) = mount.create(b"file\0", OFlags::RDWR);
    let (node, fh) = (entry.nodeid, opened.fh);
    let cleared_by = |opcode, node, arguments: &[&[u8]]| {
        assert_eq!(mount.ask(opcode, node, arguments).0, 0);
        mount.ends_cleared.take()
    };
    let resize = |size| {
        let set = SetattrIn { valid: fattr::SIZE, size, ..SetattrIn::default() };
        cleared_by(opcode::SETATTR, node, &[set.as_bytes()])
    };
    assert_eq!(resize(100), [0]);
    assert_eq!([resize(100), resize(50)], [[0; 0], [0; 0]], "it does not grow");
    let keep = |mode, length| {
        let keep = FallocateIn { fh, mode, length, ..FallocateIn::default() };
        cleared_by(opcode::FALLOCATE, node, &[keep.as_bytes()])
    };
    assert_eq!([keep(0, 50), keep(1, 9000)], [[0; 0], [0; 0]], "it keeps its size");
    assert_eq!(keep(0, 9000), [50]);
    let copy = |off_out| {
        let range = CopyFileRangeIn {
            fh_in: fh,
            fh_out: fh,
            nodeid_out: node,
            off_out,
            len: 10,
            ..CopyFileRangeIn::default()
        };
        cleared_by(opcode::COPY_FILE_RANGE, node, &[range.as_bytes()])
    };
    assert_eq!(copy(9000), [0; 0], "nothing lies between");
    assert_eq!(copy(10_000), [9010]);
    let write = |offset, write_flags| {
        let flags = OFlags::DIRECT.bits();
        let write = WriteIn { fh, offset, size: 1, flags, write_flags, ..WriteIn::default() };
        cleared_by(opcode::WRITE, node, &[write.as_bytes(), b"x"])
    };
    assert_eq!(write(20_000, WRITE_CACHE), [0; 0], "the kernel has grown it before");
    assert_eq!(write(20_001, 0), [0; 0], "nothing lies between");
    assert_eq!(write(30_000, 0), [20_002]);

    let release = ReleaseIn { fh, flags: 2, ..ReleaseIn::default() };
    assert_eq!(mount.ask(opcode::RELEASE, node, &[release.as_bytes()]).0, 0);
    assert_eq!(resize(1 << 20), [0; 0], "no program can have stored anything");
}
