//! Reading directories.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use polder::{FileType, ReadDir};
use rt::sync::Mutex;

use crate::call::{output, path, run};
use crate::handles::{Kind, Table};
use crate::volume::{polder_volume, to_chars};

/// A directory that is being read. Threads that share it get different entries. 0 is never open.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct polder_dir {
    /// Not to be interpreted.
    pub id: u64,
}

/// An entry of a directory.
#[repr(C)]
pub struct polder_entry {
    /// The inode number.
    pub inode: u64,
    /// The type: DT_REG, DT_DIR, DT_LNK and so on, of <dirent.h>.
    pub kind: u8,
    /// The name, with a zero at its end.
    pub name: [c_char; 256],
}

fn directories() -> &'static Table<Mutex<ReadDir>> {
    static TABLE: OnceLock<Table<Mutex<ReadDir>>> = OnceLock::new();
    TABLE.get_or_init(|| Table::new(Kind::Directory))
}

/// Begins to read a directory. Each entry that exists until the end is returned exactly once, any other once or not at
/// all. The order is not defined.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_dir_open(
    volume: polder_volume,
    at: *const c_char,
    directory: *mut polder_dir,
) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let (at, directory) = unsafe { (path(at)?, output(directory)?) };
        let opened = volume.get()?.volume.read_dir(at)?;
        directory.id = directories().insert(Mutex::new(opened))?;
        Ok(())
    })
}

/// The next entry, without "." and "..". Returns 1 if *entry was set, and 0 at the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_dir_next(directory: polder_dir, entry: *mut polder_entry) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let entry = unsafe { output(entry)? };
        let directory = directories().get(directory.id)?;
        let Some(found) = directory.lock().next().transpose()? else { return Ok(false) };
        entry.inode = found.inode();
        entry.kind = match found.file_type() {
            FileType::File => libc::DT_REG,
            FileType::Directory => libc::DT_DIR,
            FileType::Symlink => libc::DT_LNK,
            FileType::CharDevice => libc::DT_CHR,
            FileType::BlockDevice => libc::DT_BLK,
            FileType::Fifo => libc::DT_FIFO,
            FileType::Socket => libc::DT_SOCK,
        };
        entry.name = to_chars(found.file_name().as_bytes());
        Ok(true)
    })
}

/// Ends reading a directory.
#[unsafe(no_mangle)]
pub extern "C" fn polder_dir_close(directory: polder_dir) -> c_int {
    run(|| directories().remove(directory.id).map(drop))
}
