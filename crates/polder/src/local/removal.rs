//! Removing a directory and everything in it.

use std::path::Path;

use fs::{Caller, DirEntry, Fs, FsError, InodeNo, Kind, OpenFlags};

use super::{Local, check_directory};
use crate::error::{Error, Result};

/// Removes a directory and everything in it. Each entry is removed by an operation of its own.
pub(super) fn remove_all(local: Local<'_>, path: &Path) -> Result<()> {
    let place = local.place(path, FsError::Invalid)?;
    let top = local.run_at(path, |fs, caller| {
        check_directory(fs, caller, &place)?;
        Ok(fs.lookup(caller, place.parent, &place.name)?.inode)
    })?;
    // Directories that are to be removed, each before those inside it. They are known by their numbers. So a deep
    // directory is not looked up from the root each time, and a link that replaces a directory is not followed.
    let mut waiting = vec![Inner { parent: place.parent, name: place.name, inode: top }];
    while let Some(last) = waiting.last() {
        let inner = local.run_at(path, |fs, caller| remove_files_in(fs, caller, last))?;
        let Some(inner) = inner else {
            waiting.pop();
            continue;
        };
        if inner.is_empty() {
            let removed =
                local.run_at(path, |fs, caller| fs.remove_directory(caller, last.parent, &last.name));
            unless_missing(removed)?;
            waiting.pop();
        } else {
            waiting.extend(inner);
        }
    }
    Ok(())
}

/// A directory that is to be removed.
struct Inner {
    parent: InodeNo,
    name: Vec<u8>,
    inode: InodeNo,
}

/// Removes everything but directories from a directory. Returns the directories in it. Does nothing and returns `None`
/// if another thread has removed the directory or given it another name.
fn remove_files_in(fs: &Fs, caller: &Caller, directory: &Inner) -> fs::Result<Option<Vec<Inner>>> {
    let parent = directory.inode;
    let open = || {
        let found = fs.lookup(caller, directory.parent, &directory.name)?;
        match found.inode == parent {
            true => fs.open(caller, parent, OpenFlags { read: true, ..OpenFlags::default() }).map(Some),
            false => Ok(None),
        }
    };
    let handle = match open() {
        Ok(Some(handle)) => handle,
        Ok(None) | Err(FsError::NotFound | FsError::Stale) => return Ok(None),
        Err(error) => return Err(error),
    };
    let (mut inner, mut removed) = (Vec::new(), Ok(()));
    fs.read_directory(&handle, 0, &mut |DirEntry { inode, kind, name, .. }| {
        match kind {
            Kind::Directory if matches!(name.as_slice(), b"." | b"..") => {}
            Kind::Directory => inner.push(Inner { parent, name, inode }),
            _ => match fs.unlink(caller, parent, &name) {
                // Another thread has removed it.
                Ok(()) | Err(FsError::NotFound) => {}
                Err(error) => removed = Err(error),
            },
        }
        removed.is_ok()
    })?;
    removed.map(|()| Some(inner))
}

/// Another thread may have removed it.
fn unless_missing(removed: Result<()>) -> Result<()> {
    match removed {
        Err(Error::Path { cause: FsError::NotFound, .. }) => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
mod tests {
    use super::*;
    use crate::Volume;

    /// A tree is being removed, and another thread moves a directory out of it: the directory keeps its files.
    #[test]
    fn a_directory_that_was_moved_out_of_a_removed_tree_is_kept() {
        let place = tempfile::tempdir().unwrap();
        let volume = Volume::create(place.path().join("volume")).size(64 << 20).open().unwrap();
        volume.create_dir_all("/tree/inner").unwrap();
        volume.write("/tree/inner/file", b"text").unwrap();
        let inode = |path: &str| InodeNo(volume.metadata(path).unwrap().inode());
        let listed = Inner { parent: inode("/tree"), name: b"inner".to_vec(), inode: inode("/tree/inner") };
        let remove = || {
            let path = Path::new("/tree");
            let root = Caller::root();
            let local = Local { shared: volume.access.owned().unwrap(), caller: &root };
            let removed = local.run_at(path, |fs, caller| remove_files_in(fs, caller, &listed));
            removed.unwrap().map(|inner| inner.len())
        };
        volume.rename("/tree/inner", "/kept").unwrap();
        assert_eq!(remove(), None);
        volume.create_dir("/tree/inner").unwrap();
        assert_eq!(remove(), None);
        assert_eq!(volume.read("/kept/file").unwrap(), b"text");
        volume.remove_dir("/tree/inner").unwrap();
        volume.rename("/kept", "/tree/inner").unwrap();
        assert_eq!(remove(), Some(0));
        assert!(!volume.exists("/tree/inner/file").unwrap());
    }
}
