//! Paths in a volume: from names to inodes, as POSIX says.
//!
//! A path begins at the root, with or without a slash. `..` of the root is the root. A symbolic link is followed within
//! the volume: one that begins with a slash leads from the root of the volume. A path that ends with a slash, `.` or
//! `..` must lead to a directory.

use fs::{Attributes, Caller, Fs, FsError, InodeNo, Kind, Result};

/// The largest number of symbolic links on one path, as in the kernel.
const LINKS_MAX: u32 = 40;
/// How often an operation is repeated whose inode was deleted after its name was found. Each time, another thread has
/// given the name to another inode.
const TRIES: u32 = 64;

/// A caller on the way through a volume.
pub struct Walk<'a> {
    fs: &'a Fs,
    caller: &'a Caller,
    links: u32,
}

/// The place of a name, whether the name exists or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The directory.
    pub parent: InodeNo,
    /// The name: not empty, neither `.` nor `..`.
    pub name: Vec<u8>,
    /// The path requires a directory, because it ends with a slash.
    pub is_of_directory: bool,
}

impl<'a> Walk<'a> {
    /// Begins at the root.
    pub fn new(fs: &'a Fs, caller: &'a Caller) -> Walk<'a> {
        Walk { fs, caller, links: 0 }
    }

    /// The attributes of the inode at a path. With `follow`, a symbolic link at the end is followed too.
    ///
    /// # Errors
    /// [`FsError::Loop`] if more than 40 symbolic links are on the path.
    pub fn find(mut self, path: &[u8], follow: bool) -> Result<Attributes> {
        self.find_from(InodeNo::ROOT, path, follow)
    }

    /// The place of the last name of a path. Links on the way to it are followed, the last name is not looked up.
    ///
    /// # Errors
    /// `reserved` for the root and for names that no entry can have (`.` and `..`).
    pub fn place(mut self, path: &[u8], reserved: FsError) -> Result<Place> {
        self.place_from(InodeNo::ROOT, path)?.ok_or(reserved)
    }

    /// Calls `make` for the place of the last name of a path. If a symbolic link is there (`make` fails with
    /// [`FsError::Loop`]), calls it again for the place to which the link leads.
    pub fn at_target<T>(
        mut self,
        path: &[u8],
        reserved: FsError,
        mut make: impl FnMut(&Place) -> Result<T>,
    ) -> Result<T> {
        let (mut from, mut path) = (InodeNo::ROOT, path.to_vec());
        loop {
            let place = self.place_from(from, &path)?.ok_or(reserved.clone())?;
            let found = match make(&place) {
                Err(FsError::Loop) => self.fs.lookup(self.caller, place.parent, &place.name),
                made => return made,
            };
            self.count_link()?;
            match found {
                Ok(link) if link.kind == Kind::Symlink => {
                    (from, path) = (place.parent, self.fs.read_link(link.inode)?);
                }
                // Another thread has replaced or removed the link.
                Ok(_) | Err(FsError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn find_from(&mut self, from: InodeNo, path: &[u8], follow: bool) -> Result<Attributes> {
        check(path)?;
        let mut at = self.fs.attributes(start(from, path))?;
        let mut rest: Vec<Vec<u8>> = names(path).rev().map(<[u8]>::to_vec).collect();
        let mut must_be_directory = requires_directory(path);
        while let Some(name) = rest.pop() {
            let next = self.fs.lookup(self.caller, at.inode, &name)?;
            let is_last = rest.is_empty();
            if next.kind != Kind::Symlink || is_last && !follow && !must_be_directory {
                at = next;
                continue;
            }
            self.count_link()?;
            let target = self.fs.read_link(next.inode)?;
            must_be_directory |= is_last && requires_directory(&target);
            at = self.fs.attributes(start(at.inode, &target))?;
            rest.extend(names(&target).rev().map(<[u8]>::to_vec));
        }
        match must_be_directory && at.kind != Kind::Directory {
            true => Err(FsError::NotDirectory),
            false => Ok(at),
        }
    }

    /// Nothing for a path that ends with no name.
    fn place_from(&mut self, from: InodeNo, path: &[u8]) -> Result<Option<Place>> {
        check(path)?;
        let is_of_directory = path.ends_with(b"/");
        let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
        let begin = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let (directory, name) = (&path[..begin], &path[begin..end]);
        let parent = match directory {
            [] => self.fs.attributes(start(from, path))?,
            directory => self.find_from(from, directory, true)?,
        };
        let place = Place { parent: parent.inode, name: name.to_vec(), is_of_directory };
        Ok((!matches!(name, b"" | b"." | b"..")).then_some(place))
    }

    fn count_link(&mut self) -> Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX { Err(FsError::Loop) } else { Ok(()) }
    }
}

/// Repeats an operation whose inode was deleted after its name was found.
pub(crate) fn unless_stale<T>(mut operation: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..TRIES {
        match operation() {
            Err(FsError::Stale) => {}
            done => return done,
        }
    }
    Err(FsError::NotFound)
}

/// The names of a path.
pub fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty())
}

/// Refuses what cannot be a path.
fn check(path: &[u8]) -> Result<()> {
    match path {
        [] => Err(FsError::NotFound),
        path if path.contains(&0) => Err(FsError::Invalid),
        _ => Ok(()),
    }
}

/// Where a path begins that was found in a directory.
fn start(directory: InodeNo, path: &[u8]) -> InodeNo {
    if path.starts_with(b"/") { InodeNo::ROOT } else { directory }
}

fn requires_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") || matches!(names(path).next_back(), Some(b"." | b".."))
}
