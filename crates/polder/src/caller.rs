//! On whose behalf operations run.

/// The user on whose behalf operations run: who owns new files, and whether permissions restrict.
///
/// A program that can open the file of a volume can read and change everything in it, whatever the permissions inside
/// are. So by default nothing is refused to a library's user ([`Caller::unrestricted`]). A program that acts for
/// several users takes a view of the volume for each of them:
///
/// ```
/// # let place = tempfile::tempdir().unwrap();
/// # let volume = polder::Volume::create(place.path().join("data.polder")).size(64 << 20).open()?;
/// use polder::Caller;
/// volume.create_dir("/private")?;
/// volume.set_permissions("/private", 0o700)?;
/// let guest = volume.as_caller(Caller::user(65534, 65534));
/// assert_eq!(guest.read_dir("/private").unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
/// # Ok::<(), polder::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Caller(pub(crate) fs::Caller);

impl Caller {
    /// Permissions restrict nothing. New files belong to the effective user and group of the process. This is the
    /// default. Writing and cutting a file do not clear its set-id bits.
    pub fn unrestricted() -> Caller {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Caller(fs::Caller { checked: true, ..fs::Caller::user(uid, gid) })
    }

    /// A user with one group. Permission bits and access control lists restrict it as POSIX says. User 0 is root, to
    /// whom nearly everything is permitted.
    pub fn user(uid: u32, gid: u32) -> Caller {
        Caller(fs::Caller::user(uid, gid))
    }

    /// Sets the further groups of the user.
    pub fn groups(mut self, groups: &[u32]) -> Caller {
        self.0.groups = groups.to_vec();
        self
    }

    /// Sets the permission bits that new files and directories do not get. The default is 0o022. The umask of the
    /// process does not matter.
    pub fn umask(mut self, umask: u16) -> Caller {
        self.0.umask = umask & 0o777;
        self
    }
}

impl Default for Caller {
    fn default() -> Caller {
        Caller::unrestricted()
    }
}
