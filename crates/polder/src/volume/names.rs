//! Operations on names: creating, finding, moving and removing.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use fs::{Caller, DirEntry, Fs, FsError, InodeNo, Kind, OpenFlags, RenameFlags};

use super::{Volume, raw};
use crate::access::bytes;
use crate::directory::ReadDir;
use crate::error::{Error, Result};
use crate::walk::{Place, names};

/// Bytes that are read at once of a whole file.
const PIECE: usize = 1 << 20;

/// The permission bits of a new directory, from which the umask is taken off.
const DIRECTORY: u16 = 0o777;

/// # Files
impl Volume {
    /// The contents of a file.
    ///
    /// ```
    /// # let place = tempfile::tempdir().unwrap();
    /// # let volume = polder::Volume::create(place.path().join("data.polder")).size(64 << 20).open()?;
    /// volume.write("/greeting", b"hello")?;
    /// assert_eq!(volume.read("/greeting")?, b"hello");
    /// # Ok::<(), polder::Error>(())
    /// ```
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let file = self.options().read(true).open(path)?;
        let mut contents = Vec::new();
        // The file may grow meanwhile. Otherwise this is enough, and the last piece reaches beyond the end.
        let expected = usize::try_from(file.metadata()?.len()).ok().and_then(|length| length.checked_add(1));
        expected
            .filter(|&length| contents.try_reserve_exact(length).is_ok())
            .ok_or_else(|| Error::at(path, FsError::NoMemory))?;
        loop {
            let begin = contents.len();
            let free = contents.capacity() - begin;
            if free == 0 && contents.try_reserve(PIECE).is_err() {
                return Err(Error::at(path, FsError::NoMemory));
            }
            // What is read is still in the processor's cache when its checksums are verified.
            let end = begin + if free == 0 { PIECE } else { free.min(PIECE) };
            contents.resize(end, 0);
            let read = file.read_at(&mut contents[begin..], begin as u64).map_err(|error| error.of(path))?;
            contents.truncate(begin + read);
            if contents.len() < end {
                return Ok(contents);
            }
        }
    }

    /// The contents of a file as text.
    ///
    /// # Errors
    /// [`Error::NotText`] if they are not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        String::from_utf8(self.read(path)?).map_err(|_| Error::NotText(path.to_owned()))
    }

    /// Writes a file. Creates it, or replaces the contents of an existing one. A crash in between can leave an empty or
    /// incomplete file; write a new one and [`rename`](Volume::rename) it where that matters.
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let file = self.options().write(true).create(true).truncate(true).open(path)?;
        file.write_all_at(contents.as_ref(), 0).map_err(|error| error.of(path))
    }

    /// Copies the contents and the permissions of a file. An existing file is replaced. Whole blocks are shared with
    /// the original where that pays, so the copy takes little time and space. Returns the number of bytes.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = self.options().read(true).open(from)?;
        let found = source.metadata()?;
        // Before the target is created or emptied.
        match found.file_type() {
            Kind::File => {}
            Kind::Directory => return Err(Error::at(from, FsError::IsDirectory)),
            _ => return Err(Error::at(from, FsError::Invalid)),
        }
        let permissions = found.permissions() & 0o777;
        let target = self.options().write(true).create(true).open(to)?;
        if target.metadata()?.inode() == found.inode() {
            return Err(Error::at(to, FsError::Invalid));
        }
        target.set_len(0).map_err(|error| error.of(to))?;
        let mut done = 0;
        loop {
            match source.copy_range(done, &target, done, u64::MAX - done).map_err(|error| error.of(to))? {
                0 => break,
                copied => done += copied,
            }
        }
        target.set_permissions(permissions).map_err(|error| error.of(to))?;
        Ok(done)
    }
}

/// # Names
impl Volume {
    /// Whether a path leads to anything. Symbolic links are followed.
    ///
    /// # Errors
    /// It cannot be found out, for example because a directory may not be searched.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(Error::Path { cause: FsError::NotFound | FsError::NotDirectory, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Renames a file or directory. An existing file, or an empty directory, is replaced in one step. Symbolic links at
    /// the end of the paths are not followed.
    ///
    /// ```
    /// # let place = tempfile::tempdir().unwrap();
    /// # let volume = polder::Volume::create(place.path().join("data.polder")).size(64 << 20).open()?;
    /// // The complete old contents or the complete new ones survive a crash.
    /// volume.write("/settings.new", b"colour = blue")?;
    /// volume.rename("/settings.new", "/settings")?;
    /// # Ok::<(), polder::Error>(())
    /// ```
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameFlags::default())
    }

    /// The same with flags: to fail if the new name exists, to exchange two names, or to leave a whiteout.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = self.place(from, FsError::Invalid)?;
        let target = self.place(to, FsError::Invalid)?;
        self.access.run_at(from, |fs, caller| {
            if source.is_of_directory || target.is_of_directory {
                check_directory(fs, caller, &source)?;
            }
            if flags.exchange && target.is_of_directory {
                check_directory(fs, caller, &target)?;
            }
            fs.rename(caller, source.parent, &source.name, target.parent, &target.name, flags)
        })
    }

    /// Removes the name of a file, a symbolic link or anything else but a directory. The file is deleted when its last
    /// name is removed and it is not open any more.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.access.run_in(path.as_ref(), FsError::IsDirectory, |fs, caller, place| {
            if place.is_of_directory {
                check_directory(fs, caller, place)?;
            }
            fs.unlink(caller, place.parent, &place.name)
        })
    }

    /// Gives a file another name. A symbolic link at the end of `original` is not followed, and gets the name itself.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let place = self.place(link.as_ref(), FsError::Exists)?;
        self.access.run_on(original.as_ref(), false, |fs, caller, found| match place.is_of_directory {
            true => Err(FsError::NotFound),
            false => fs.link(caller, found.inode, place.parent, &place.name).map(drop),
        })
    }

    /// Makes a symbolic link. The target is not examined.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let target = raw(target.as_ref().as_os_str());
        self.access.run_in(link.as_ref(), FsError::Exists, |fs, caller, place| match place.is_of_directory {
            true => Err(FsError::NotFound),
            false => fs.symlink(caller, place.parent, &place.name, target).map(drop),
        })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) if it is none.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let target = self.access.run_on(path.as_ref(), false, |fs, _, found| fs.read_link(found.inode))?;
        Ok(OsString::from_vec(target).into())
    }
}

/// # Directories
impl Volume {
    /// The entries of a directory, without `.` and `..`.
    ///
    /// ```
    /// # let place = tempfile::tempdir().unwrap();
    /// # let volume = polder::Volume::create(place.path().join("data.polder")).size(64 << 20).open()?;
    /// volume.create_dir_all("/music/jazz")?;
    /// for entry in volume.read_dir("/music")? {
    ///     let entry = entry?;
    ///     println!("{} has {} entries", entry.path().display(), entry.metadata()?.len());
    /// }
    /// # Ok::<(), polder::Error>(())
    /// ```
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        ReadDir::new(&self.access, path.as_ref())
    }

    /// Makes a directory with the permissions 0o777 without the umask of the caller.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_dir_with(path, DIRECTORY)
    }

    /// Makes a directory with the given permissions without the umask of the caller.
    pub fn create_dir_with(&self, path: impl AsRef<Path>, permissions: u16) -> Result<()> {
        self.access.run_in(path.as_ref(), FsError::Exists, |fs, caller, place| {
            fs.make_directory(caller, place.parent, &place.name, permissions).map(drop)
        })
    }

    /// Makes a directory and those above it that do not exist. Succeeds if it exists.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut at = PathBuf::from("/");
        let mut made = Ok(());
        for name in names(bytes(path)) {
            at.push(OsStr::from_bytes(name));
            made = self.create_dir(&at);
            match &made {
                // Whatever exists there, the next name decides.
                Ok(()) | Err(Error::Path { cause: FsError::Exists, .. }) => {}
                // A directory that exists needs no right to make it.
                Err(_) if self.metadata(&at).is_ok_and(|found| found.is_dir()) => {}
                Err(_) => return made,
            }
        }
        if self.metadata(path)?.is_dir() { Ok(()) } else { made }
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.access.run_in(path.as_ref(), FsError::Invalid, |fs, caller, place| {
            fs.remove_directory(caller, place.parent, &place.name)
        })
    }

    /// Removes a directory and everything in it. Symbolic links are removed and not followed. Each entry is removed by
    /// an operation of its own, so after an error or a crash a part may be left.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let place = self.place(path, FsError::Invalid)?;
        let top = self.access.run_at(path, |fs, caller| {
            check_directory(fs, caller, &place)?;
            Ok(fs.lookup(caller, place.parent, &place.name)?.inode)
        })?;
        // Directories that are to be removed, each before those inside it. They are known by their numbers. So a deep
        // directory is not looked up from the root each time, and a link that replaces a directory is not followed.
        let mut waiting = vec![Inner { parent: place.parent, name: place.name, inode: top }];
        while let Some(last) = waiting.last() {
            let inner = self.access.run_at(path, |fs, caller| remove_files_in(fs, caller, last))?;
            let Some(inner) = inner else {
                waiting.pop();
                continue;
            };
            if inner.is_empty() {
                let removed = self
                    .access
                    .run_at(path, |fs, caller| fs.remove_directory(caller, last.parent, &last.name));
                unless_missing(removed)?;
                waiting.pop();
            } else {
                waiting.extend(inner);
            }
        }
        Ok(())
    }

    fn place(&self, path: &Path, reserved: FsError) -> Result<Place> {
        self.access.run_in(path, reserved, |_, _, place| Ok(place.clone()))
    }
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

/// Refuses a name that is not that of a directory.
fn check_directory(fs: &Fs, caller: &Caller, place: &Place) -> fs::Result<()> {
    match fs.lookup(caller, place.parent, &place.name)?.kind {
        Kind::Directory => Ok(()),
        _ => Err(FsError::NotDirectory),
    }
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
            let removed = volume.access.run_at(path, |fs, caller| remove_files_in(fs, caller, &listed));
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
