//! Operations on names: creating, finding, moving and removing.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use fs::{FsError, Kind, RenameFlags};

use super::{Volume, raw};
use crate::call::Call;
use crate::directory::ReadDir;
use crate::error::{Error, Result};
use crate::walk::names;

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
            // A small piece is still in the processor's cache when its checksums are verified.
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
        self.access.call(Call::Rename { from, to, flags }).map(drop)
    }

    /// Removes the name of a file, a symbolic link or anything else but a directory. The file is deleted when its last
    /// name is removed and it is not open any more.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.access.call(Call::RemoveFile { path: path.as_ref() }).map(drop)
    }

    /// Gives a file another name. A symbolic link at the end of `original` is not followed, and gets the name itself.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (original, link) = (original.as_ref(), link.as_ref());
        self.access.call(Call::HardLink { original, link }).map(drop)
    }

    /// Makes a symbolic link. The target is not examined.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (target, link) = (raw(target.as_ref().as_os_str()), link.as_ref());
        self.access.call(Call::Symlink { target, link }).map(drop)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`InvalidInput`](std::io::ErrorKind::InvalidInput) if it is none.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let target = self.access.call(Call::ReadLink { path: path.as_ref() })?.bytes()?;
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
        self.access.call(Call::CreateDir { path: path.as_ref(), permissions }).map(drop)
    }

    /// Makes a directory and those above it that do not exist. Succeeds if it exists.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut at = PathBuf::from("/");
        let mut made = Ok(());
        for name in names(raw(path.as_os_str())) {
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
        self.access.call(Call::RemoveDir { path: path.as_ref() }).map(drop)
    }

    /// Removes a directory and everything in it. Symbolic links are removed and not followed. Each entry is removed by
    /// an operation of its own, so after an error or a crash a part may be left.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        self.access.call(Call::RemoveDirAll { path: path.as_ref() }).map(drop)
    }
}
