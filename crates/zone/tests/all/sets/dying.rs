//! Members that are wrapped: a disk that dies answers with I/O errors, and a flush comes at a chosen moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use super::cuts::small;
use super::{VOLUME, devices, emulated};
use crate::zone::set::{Layout, MemberState, Set};
use crate::zone::{Blocks, Command, Device, DeviceError, Geometry, Output, Result, ZoneId, ZoneInfo};
use emulated::{CommandKind, Emulated};

/// A member device.
struct Wrapped {
    device: Arc<Emulated>,
    /// Every command fails with an I/O error of its zone, as those of a disk do that is gone.
    is_dead: AtomicBool,
    /// A set that is flushed before each reset.
    flushed: OnceLock<Weak<Set>>,
}

impl Wrapped {
    fn new(device: &Arc<Emulated>) -> Arc<Wrapped> {
        let (device, is_dead) = (Arc::clone(device), AtomicBool::new(false));
        Arc::new(Wrapped { device, is_dead, flushed: OnceLock::new() })
    }

    fn check(&self, zone: ZoneId, operation: &'static str) -> Result<()> {
        match self.is_dead.load(Ordering::Relaxed) {
            true => Err(DeviceError::Io { zone, operation, reason: "no such device".to_owned() }),
            false => Ok(()),
        }
    }
}

impl Device for Wrapped {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self) -> Result<Vec<ZoneInfo>> {
        self.check(ZoneId(0), "report")?;
        self.device.report()
    }

    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo> {
        self.check(zone, "report")?;
        self.device.report_zone(zone)
    }

    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<()> {
        self.check(zone, "read")?;
        self.device.read(zone, block, into)
    }

    fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks> {
        self.check(zone, "append")?;
        self.device.append(zone, from)
    }

    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        match self.check(ZoneId(0), "batch") {
            Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
            Ok(()) => self.device.run(batch),
        }
    }

    fn finish(&self, zone: ZoneId) -> Result<()> {
        self.check(zone, "finish")?;
        self.device.finish(zone)
    }

    fn reset(&self, zone: ZoneId) -> Result<()> {
        self.check(zone, "reset")?;
        if let Some(set) = self.flushed.get().and_then(Weak::upgrade) {
            set.flush()?;
        }
        self.device.reset(zone)
    }

    fn flush(&self) -> Result<()> {
        self.check(ZoneId(0), "flush")?;
        self.device.flush()
    }
}

fn mirror(width: usize) -> (Vec<Arc<Emulated>>, Vec<Arc<Wrapped>>, Arc<Set>) {
    let members = emulated(&small(), width);
    let wrapped: Vec<Arc<Wrapped>> = members.iter().map(Wrapped::new).collect();
    let dynamic = wrapped.iter().map(|one| Arc::clone(one) as Arc<dyn Device>).collect();
    let set = Set::create(Layout::Mirror, dynamic, VOLUME, 0).unwrap();
    (members, wrapped, Arc::new(set))
}

fn append(set: &Set, zone: u32, tag: u8) -> Result<Blocks> {
    set.append(ZoneId(zone), &crate::pattern(set, tag, 1))
}

#[test]
fn a_disk_that_dies_is_excluded_and_the_command_succeeds() {
    type Try = fn(&Set) -> bool;
    let commands: [(&str, Try); 6] = [
        ("append", |set| append(set, 1, 2).is_ok_and(|at| at == 1)),
        ("first append", |set| append(set, 2, 2).is_ok_and(|at| at == 0)),
        ("finish", |set| set.finish(ZoneId(1)).is_ok()),
        ("reset", |set| set.reset(ZoneId(1)).is_ok()),
        ("flush", |set| set.flush().is_ok()),
        ("report", |set| set.report().is_ok() && set.report_zone(ZoneId(1)).is_ok()),
    ];
    for (width, position) in [(2, 0), (2, 1), (3, 1)] {
        for (name, command) in commands {
            let (members, wrapped, set) = mirror(width);
            append(&set, 1, 1).unwrap();
            wrapped[position].is_dead.store(true, Ordering::Relaxed);
            assert!(command(&set), "{name} of {width} without {position}");
            assert_eq!(set.members()[position], MemberState::Failed, "{name}");
            append(&set, 3, 1).unwrap();
            let again = Set::open(devices(&members), true).unwrap();
            assert_eq!(again.members()[position], MemberState::Failed, "{name}");
        }
    }
}

#[test]
fn a_disk_that_is_dead_at_opening_counts_as_missing() {
    let (_, wrapped, set) = mirror(2);
    append(&set, 1, 1).unwrap();
    drop(set);
    wrapped[0].is_dead.store(true, Ordering::Relaxed);
    let dynamic: Vec<_> = wrapped.iter().map(|one| Arc::clone(one) as Arc<dyn Device>).collect();
    let set = Set::open(dynamic, true).unwrap();
    assert_eq!(set.members(), [MemberState::Failed, MemberState::Counts]);
    assert_eq!(crate::tags(&set, 1, 0, 1), [1]);
}

/// A flush that begins after a reset was noted, and before the member has executed it, does not make it durable.
#[test]
fn a_flush_during_a_reset_does_not_cover_it() {
    let (members, wrapped, set) = mirror(2);
    append(&set, 1, 1).unwrap();
    set.flush().unwrap();
    wrapped[1].flushed.set(Arc::downgrade(&set)).unwrap();
    set.reset(ZoneId(1)).unwrap();
    let flushes = || members[1].counters().of(CommandKind::Flush);
    let before = flushes();
    append(&set, 1, 2).unwrap();
    assert_eq!(flushes(), before + 1, "the reset is made durable before the new life");
    append(&set, 1, 3).unwrap();
    assert_eq!(flushes(), before + 1);
}
