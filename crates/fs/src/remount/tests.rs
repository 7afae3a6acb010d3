use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use emulated::{CommandKind, Effect, Emulated, Fault, Spec};
use rt::thread::Stop;

use crate::inodes::Locked;
use crate::orphan::Work;
use crate::tests::{mount, volume, volume_on};
use crate::{Caller, Fs, FsError, InodeNo, OpenFlags};

const PAUSE: Duration = Duration::from_millis(1);

fn update_atime(fs: &Fs, inode: InodeNo) {
    fs.update_atime(inode).unwrap();
}

fn collect_garbage(fs: &Fs, inode: InodeNo) {
    fs.backlog.push(Work::Intent(inode));
    fs.collect_garbage().unwrap();
}

fn defragment(fs: &Fs, inode: InodeNo) {
    fs.defragment(inode, 0).unwrap();
}

/// GC, defragmentation and updates of access times are not system calls, so the kernel does not wait for them before
/// it remounts read-only. Those that had begun changed the volume after it had been closed, although it must not
/// change until it is made writable.
#[test]
fn changes_that_have_begun_end_before_a_volume_is_closed() {
    let works: [fn(&Fs, InodeNo); 3] = [update_atime, collect_garbage, defragment];
    for work in works {
        let (device, fs) = volume();
        while fs.work_backlog().unwrap() {}
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let (_, file) = fs.create(&Caller::root(), InodeNo::ROOT, b"file", 0o600, flags, true).unwrap();
        fs.write(&file, 0, &[7; 64 << 10]).unwrap();
        let inode = file.inode();
        drop(file);

        let node = fs.node(inode).unwrap();
        let in_the_way = Locked::one(&node);
        let holders = Arc::strong_count(&node);
        let worker = fs.clone();
        let working = rt::thread::spawn("working", move || work(&worker, inode)).unwrap();
        while Arc::strong_count(&node) == holders {
            Stop::default().wait(PAUSE);
        }
        let closer = fs.clone();
        let closing = rt::thread::spawn("closing", move || {
            closer.make_read_only().unwrap();
            closer.store().last_lsn()
        });
        let closing = closing.unwrap();
        while !fs.remounted_read_only.load(Ordering::SeqCst) {
            Stop::default().wait(PAUSE);
        }
        let is_closed = (0..100).any(|_| Stop::default().wait(PAUSE) || closing.is_finished());
        assert!(!is_closed, "it has not waited");
        drop(in_the_way);
        working.join().unwrap();
        assert_eq!(closing.join().unwrap(), fs.store().last_lsn(), "changed after it was closed");
        drop((node, fs));
        assert_eq!(mount(&device).check().unwrap(), []);
    }
}

/// After a volume could not be closed when it was made read-only, it counted as closed: making it read-only again, or
/// unmounting it, reported success.
#[test]
fn a_volume_that_could_not_be_closed_does_not_count_as_closed() {
    let device = Arc::new(Emulated::new(Spec::new(4096, 32, 256)));
    let fs = volume_on(Arc::clone(&device) as _);
    let make = |name: &[u8]| fs.make_directory(&Caller::root(), InodeNo::ROOT, name, 0o755).map(|_| ());
    make(b"before").unwrap();
    fs.sync().unwrap();
    device.inject(Fault::nth(CommandKind::Append, 1, Effect::HostFull).forever());
    for _ in 0..2 {
        assert!(fs.make_read_only().is_err());
        assert_eq!(make(b"refused"), Err(FsError::ReadOnly));
        assert!(fs.unmount().is_err());
    }
    device.clear_faults();
    // The volume has shut down.
    assert_eq!(fs.make_writable(), Err(FsError::ReadOnly));
    drop(fs);
    let fs = mount(&(device as _));
    assert!(fs.lookup(&Caller::root(), InodeNo::ROOT, b"before").is_ok());
    assert_eq!(fs.check().unwrap(), []);
    // A closed volume stays closed whatever happens to the device.
    fs.make_read_only().unwrap();
    assert_eq!((fs.make_read_only(), fs.sync(), fs.unmount()), (Ok(()), Ok(()), Ok(())));
    fs.make_writable().unwrap();
    fs.make_directory(&Caller::root(), InodeNo::ROOT, b"after", 0o755).unwrap();
    fs.unmount().unwrap();
}

/// The last close of a file without a name was forgotten while the volume was remounted read-only. Its blocks were
/// not freed until the next mount.
#[test]
fn a_file_that_is_closed_while_the_volume_is_read_only_is_deleted_afterwards() {
    let (device, fs) = volume();
    // The scan of what earlier mounts left is complete and is not repeated.
    while fs.work_backlog().unwrap() {}
    let (root, flags) = (Caller::root(), OpenFlags { write: true, ..OpenFlags::default() });
    let (_, file) = fs.create(&root, InodeNo::ROOT, b"doomed", 0o600, flags, true).unwrap();
    fs.write(&file, 0, &[7; 1 << 20]).unwrap();
    fs.unlink(&root, InodeNo::ROOT, b"doomed").unwrap();
    let live = || fs.extents.budget().space().live;
    assert_eq!(live(), 1 << 20);
    fs.make_read_only().unwrap();
    drop(file);
    assert_eq!(live(), 1 << 20, "nothing may change");
    fs.make_writable().unwrap();
    // A thread of the volume may be working on it.
    let (never, times) = (Stop::default(), 0..10_000);
    let is_deleted = |_| {
        fs.work_backlog().unwrap();
        live() == 0 || never.wait(PAUSE)
    };
    assert!(times.into_iter().any(is_deleted), "{} bytes live", live());
    fs.unmount().unwrap();
    drop(fs);
    assert_eq!(mount(&device).check().unwrap(), []);
}
