use rustix::mount::{MountFlags, mount};
use tempfile::TempDir;

use super::*;
use crate::kernel::tests::connected;

/// A mount that is detached when this is dropped.
struct Alive {
    place: TempDir,
}

impl Alive {
    fn new() -> io::Result<Alive> {
        let place = tempfile::tempdir()?;
        mount("test", place.path(), "tmpfs", MountFlags::empty(), c"size=64k")?;
        Ok(Alive { place })
    }

    fn entry(&self) -> Option<MountEntry> {
        mount::entry_at(&self.place.path().canonicalize().unwrap()).unwrap()
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        // A detached mount is no mount point any more.
        let _ = mount::unmount_lazily(self.place.path());
    }
}

/// A volume was unmounted by `umount` and another one mounted at the same place. The next mount had the
/// number of the last one. The daemon of that one, which had not ended yet, took it for its own and detached it.
#[test]
fn a_later_mount_at_the_same_place_stays() {
    let alive = match Alive::new() {
        Ok(alive) => alive,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return eprintln!("skipped: nothing can be mounted: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    let entry = alive.entry();
    assert!(entry.is_some(), "it is in the table of mounts");
    let (kernel, channel) = connected();
    drop(kernel);
    detach_leftover(&channel, entry.as_ref());
    assert_eq!(alive.entry(), entry);
    // While the connection exists, it is the leftover of a session that failed.
    let (_kernel, channel) = connected();
    detach_leftover(&channel, entry.as_ref());
    assert_eq!(alive.entry(), None);
}

#[test]
fn dirty_bytes_are_bounded_where_possible_and_never_raised() {
    let directory = tempfile::tempdir().unwrap();
    let (bdi, knob) = (BdiSettings(directory.path().into()), directory.path().join("max_bytes"));
    assert!(!bdi.bound_dirty(1000), "the kernel has none");
    std::fs::write(&knob, "many\n").unwrap();
    assert!(!bdi.bound_dirty(1000));
    for (before, after) in [("5000\n", "1000"), ("1000\n", "1000\n"), ("7\n", "7\n"), ("0\n", "0\n")] {
        std::fs::write(&knob, before).unwrap();
        assert!(bdi.bound_dirty(1000));
        assert_eq!(std::fs::read_to_string(&knob).unwrap(), after);
    }
    std::fs::write(&knob, "11000\n").unwrap();
    assert!(!bdi.bound_dirty(1000), "it would be too small a share");
    assert!(!bdi.bound_dirty(0), "nothing can be queued");
    assert_eq!(std::fs::read_to_string(&knob).unwrap(), "11000\n");
}

#[test]
fn requests_in_progress_can_be_queued() {
    assert_eq!(usize::from(background_max_unbounded(10 << 20)), writers() + 8);
    assert_eq!(background_max_unbounded(1 << 40), 64);
    assert_eq!(background_max_unbounded(0), 64, "there are no writes");
}
