use std::time::Duration;

use rt::thread::Stop;

use super::*;
use crate::tests::volume;
use crate::{Caller, OpenFlags};

const BLOCK: u64 = 4096;
/// The file has more extents than one piece of work can delete. Two pieces can.
const EXTENTS: u64 = STEP_EXTENTS as u64 * 3 / 2;

/// While the background had the last piece of work in progress, the queue was empty. A writer that found no space
/// concluded that there was no work left and failed, although space was freed a moment later.
#[test]
fn an_operation_without_space_waits_for_work_in_progress() {
    let (_, fs) = volume();
    assert_eq!(fs.work_backlog(), Ok(true), "the tables have been looked at");
    let root = Caller::root();
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let (_, file) = fs.create(&root, InodeNo::ROOT, b"doomed", 0o600, flags, true).unwrap();
    for extent in 0..EXTENTS {
        fs.write(&file, extent * 2 * BLOCK, &[7; BLOCK as usize]).unwrap();
    }
    let inode = file.inode();
    drop(file);
    fs.unlink(&root, InodeNo::ROOT, b"doomed").unwrap();
    assert_eq!(fs.backlog.len(), 1);

    let node = fs.node(inode).unwrap();
    let mut in_the_way = Some(Locked::one(&node));
    let background = {
        let fs = fs.clone();
        rt::thread::spawn("background", move || fs.step_backlog()).unwrap()
    };
    while fs.backlog.len() > 0 {
        Stop::default().wait(Duration::from_millis(1));
    }
    let found = fs.with_space(|| match in_the_way.take() {
        Some(_) => Err(FsError::NoSpace),
        None => Ok(()),
    });
    assert_eq!(found, Ok(()));
    assert_eq!(background.join().unwrap(), Ok(true));
    let stuck: Result<()> = fs.with_space(|| Err(FsError::NoSpace));
    assert_eq!(stuck, Err(FsError::NoSpace), "nothing is left that could free space");
}
