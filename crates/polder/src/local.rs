//! Performing operations on a volume that this process owns.

mod files;
mod removal;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use fs::{Attributes, Caller, Fs, FsError, Handle, OpenFlags};

use crate::call::{Call, Creation, Open, OpenHow, Reply};
use crate::error::{Error, Result};
use crate::shared::Shared;
use crate::stats::Stats;
use crate::walk::{Place, Walk, unless_stale};

pub(crate) use files::{perform_on_file, perform_on_pair};

/// A volume as one caller sees it.
#[derive(Clone, Copy)]
pub(crate) struct Local<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) caller: &'a Caller,
}

impl Local<'_> {
    /// Performs an operation on the volume or on a path.
    #[inline(always)]
    pub(crate) fn perform(self, call: Call<'_>) -> Result<Reply> {
        match call {
            Call::Sync => self.run(Fs::sync).map(done),
            Call::Space => self.run(|fs| Ok(Reply::Space { space: fs.statfs()? })),
            Call::Info => self.run(|fs| Ok(Reply::Info { info: fs.volume_info() })),
            Call::Stats => self.run(|fs| Ok(stats(fs))),
            Call::IsReadOnly => self.run(|fs| Ok(Reply::Flag { flag: fs.is_read_only() })),
            Call::Metadata { path, follow } => {
                self.run_on(path, follow, |_, _, found| Ok(attributes(*found)))
            }
            Call::InodeMetadata { inode } => self.run(|fs| fs.attributes(inode).map(attributes)),
            Call::Change { path, follow, changes } => self.run_on(path, follow, |fs, caller, found| {
                fs.set_attributes(caller, found.inode, &changes).map(done)
            }),
            Call::GetXattr { path, name } => self.run_on(path, true, |fs, caller, found| {
                Ok(Reply::Bytes { bytes: fs.get_xattr(caller, found.inode, name)? })
            }),
            Call::SetXattr { path, name, value } => self.run_on(path, true, |fs, caller, found| {
                fs.set_xattr(caller, found.inode, name, value, false, false).map(done)
            }),
            Call::ListXattrs { path } => self.run_on(path, true, |fs, caller, found| {
                Ok(Reply::Names { names: fs.list_xattrs(caller, found.inode)? })
            }),
            Call::RemoveXattr { path, name } => self
                .run_on(path, true, |fs, caller, found| fs.remove_xattr(caller, found.inode, name).map(done)),
            Call::Lifetime { path } => self.run_on(path, true, |fs, _, found| {
                Ok(Reply::Lifetime { lifetime: fs.lifetime(found.inode)? })
            }),
            Call::SetLifetime { path, lifetime } => self.run_on(path, true, |fs, caller, found| {
                fs.set_lifetime(caller, found.inode, lifetime).map(done)
            }),
            Call::ReadLink { path } => self
                .run_on(path, false, |fs, _, found| Ok(Reply::Bytes { bytes: fs.read_link(found.inode)? })),
            call => self.change_names(call),
        }
    }

    fn change_names(self, call: Call<'_>) -> Result<Reply> {
        let changed = match call {
            Call::Rename { from, to, flags } => self.rename(from, to, flags),
            Call::RemoveFile { path } => self.run_in(path, FsError::IsDirectory, |fs, caller, place| {
                if place.is_of_directory {
                    check_directory(fs, caller, place)?;
                }
                fs.unlink(caller, place.parent, &place.name)
            }),
            Call::HardLink { original, link } => self.hard_link(original, link),
            Call::Symlink { target, link } => {
                self.run_in(link, FsError::Exists, |fs, caller, place| match place.is_of_directory {
                    true => Err(FsError::NotFound),
                    false => fs.symlink(caller, place.parent, &place.name, target).map(drop),
                })
            }
            Call::CreateDir { path, permissions } => {
                self.run_in(path, FsError::Exists, |fs, caller, place| {
                    fs.make_directory(caller, place.parent, &place.name, permissions).map(drop)
                })
            }
            Call::RemoveDir { path } => self.run_in(path, FsError::Invalid, |fs, caller, place| {
                fs.remove_directory(caller, place.parent, &place.name)
            }),
            Call::RemoveDirAll { path } => removal::remove_all(self, path),
            call => unreachable!("{call:?} changes no names"),
        };
        changed.map(done)
    }

    fn rename(self, from: &Path, to: &Path, flags: fs::RenameFlags) -> Result<()> {
        let source = self.place(from, FsError::Invalid)?;
        let target = self.place(to, FsError::Invalid)?;
        self.run_at(from, |fs, caller| {
            if source.is_of_directory || target.is_of_directory {
                check_directory(fs, caller, &source)?;
            }
            if flags.exchange && target.is_of_directory {
                check_directory(fs, caller, &target)?;
            }
            fs.rename(caller, source.parent, &source.name, target.parent, &target.name, flags)
        })
    }

    fn hard_link(self, original: &Path, link: &Path) -> Result<()> {
        let place = self.place(link, FsError::Exists)?;
        self.run_on(original, false, |fs, caller, found| match place.is_of_directory {
            true => Err(FsError::NotFound),
            false => fs.link(caller, found.inode, place.parent, &place.name).map(drop),
        })
    }

    /// Opens a file or directory.
    pub(crate) fn open(self, open: Open<'_>) -> Result<Handle> {
        match open {
            Open::Directory { path } => self.open_directory(path),
            Open::File { path, how } => match how.creation {
                Creation::Never => {
                    let follow = !how.no_follow;
                    self.run_on(path, follow, |fs, caller, found| fs.open(caller, found.inode, how.flags))
                }
                Creation::IfMissing => self.open_or_create(path, &how, FsError::IsDirectory),
                Creation::Always => self.open_or_create(path, &how, FsError::Exists),
            },
        }
    }

    fn open_or_create(self, path: &Path, how: &OpenHow, reserved: FsError) -> Result<Handle> {
        self.run_at(path, |fs, caller| {
            unless_stale(|| {
                let walk = Walk::new(fs, caller);
                let create = |place: &Place| create_at(fs, caller, place, how);
                match how.no_follow {
                    true => create(&walk.place(bytes(path), reserved.clone())?),
                    false => walk.at_target(bytes(path), reserved.clone(), create),
                }
            })
        })
    }

    fn open_directory(self, path: &Path) -> Result<Handle> {
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        self.run_on(path, true, |fs, caller, found| match found.kind {
            fs::Kind::Directory => fs.open(caller, found.inode, flags),
            _ => Err(FsError::NotDirectory),
        })
    }

    fn place(self, path: &Path, reserved: FsError) -> Result<Place> {
        self.run_in(path, reserved, |_, _, place| Ok(place.clone()))
    }

    /// Runs an operation on the whole volume.
    fn run<T>(self, operation: impl FnOnce(&Fs) -> fs::Result<T>) -> Result<T> {
        Ok(operation(&*self.shared.operation()?)?)
    }

    /// Runs an operation on a path.
    pub(crate) fn run_at<T>(
        self,
        path: &Path,
        operation: impl FnOnce(&Fs, &Caller) -> fs::Result<T>,
    ) -> Result<T> {
        let fs = self.shared.operation()?;
        let done = operation(&fs, self.caller);
        self.shared.release_unlinked(&fs);
        done.map_err(|cause| Error::at(path, cause))
    }

    /// Runs an operation on the inode at a path. With `follow`, a symbolic link at the end is followed.
    fn run_on<T>(
        self,
        path: &Path,
        follow: bool,
        mut operation: impl FnMut(&Fs, &Caller, &Attributes) -> fs::Result<T>,
    ) -> Result<T> {
        self.run_at(path, |fs, caller| {
            unless_stale(|| {
                let found = Walk::new(fs, caller).find(bytes(path), follow)?;
                operation(fs, caller, &found)
            })
        })
    }

    /// Runs an operation on a name that exists or not. `reserved` is the error for the root, `.` and `..`.
    fn run_in<T>(
        self,
        path: &Path,
        reserved: FsError,
        operation: impl FnOnce(&Fs, &Caller, &Place) -> fs::Result<T>,
    ) -> Result<T> {
        self.run_at(path, |fs, caller| {
            let place = unless_stale(|| Walk::new(fs, caller).place(bytes(path), reserved.clone()))?;
            operation(fs, caller, &place)
        })
    }
}

fn create_at(fs: &Fs, caller: &Caller, place: &Place, how: &OpenHow) -> fs::Result<Handle> {
    if place.is_of_directory {
        return Err(FsError::IsDirectory);
    }
    let is_new = how.creation == Creation::Always;
    let (parent, name) = (place.parent, &place.name);
    Ok(fs.create(caller, parent, name, how.permissions, how.flags, is_new)?.1)
}

/// Refuses a name that is not that of a directory.
fn check_directory(fs: &Fs, caller: &Caller, place: &Place) -> fs::Result<()> {
    match fs.lookup(caller, place.parent, &place.name)?.kind {
        fs::Kind::Directory => Ok(()),
        _ => Err(FsError::NotDirectory),
    }
}

fn done<T>(_: T) -> Reply {
    Reply::Done
}

fn attributes(attributes: Attributes) -> Reply {
    Reply::Attributes { attributes }
}

fn stats(fs: &Fs) -> Reply {
    Reply::Stats { stats: Box::new(Stats::of(fs, fs.is_read_only())) }
}

/// The bytes of a path.
fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
