//! Leases: limits, admission of blocks, and resuming after a crash.

use std::sync::Arc;

use crate::zone::format::decode_header;
use crate::zone::{Cause, Device, DeviceError, FsId, Leases, Life, Role, Traffic, ZoneId, ZoneState};
use crate::{pattern, tags};
use emulated::{CommandKind, CrashPlan, Effect, Emulated, Fault, Spec};

const FS: FsId = FsId([7; 16]);

fn leases_on(device: Emulated) -> (Arc<Emulated>, Arc<Leases>) {
    let device = Arc::new(device);
    let leases = Leases::new(Arc::clone(&device) as Arc<dyn Device>, FS, Arc::new(Traffic::default()));
    (device, leases)
}

fn leases() -> (Arc<Emulated>, Arc<Leases>) {
    leases_on(Emulated::new(Spec::tiny()))
}

#[test]
fn a_new_lease_writes_the_zone_header() {
    let (device, leases) = leases();
    let lease = leases.begin(ZoneId(3), Life(5), Role::Metadata).unwrap();
    let mut block = pattern(&*device, 0, 1);
    device.read(ZoneId(3), 0, &mut block).unwrap();
    let (identity, header) = decode_header(&block).unwrap();
    assert_eq!((identity.fs_id, identity.zone), (FS, ZoneId(3)));
    assert_eq!((identity.life, identity.role), (Life(5), Role::Metadata));
    assert_eq!((header.block_size.get(), header.zones.get()), (4096, 24));
    assert_eq!((lease.admitted(), lease.free_blocks()), (1, 63));
    assert_eq!(leases.traffic().bytes_written(Cause::Header), 4096);
    assert!(leases.begin(ZoneId(3), Life(6), Role::Data).is_err(), "it is not empty");
}

#[test]
fn data_never_uses_the_leases_reserved_for_log_metadata_and_gc() {
    let (_, leases) = leases_on(Emulated::new(Spec::six_active()));
    assert_eq!((leases.limit(), leases.limit_for_data()), (6, 2));
    let take = |zone, role| leases.begin(ZoneId(zone), Life(1), role);
    let data = [take(0, Role::Data).unwrap(), take(1, Role::Data).unwrap()];
    assert!(matches!(take(2, Role::Data), Err(DeviceError::TooManyOpen { limit: 2, .. })));
    let roles = [Role::Log, Role::Log, Role::Metadata, Role::Gc];
    let kept: Vec<_> =
        roles.into_iter().zip(3..).map(|(role, zone)| take(zone, role).expect("always possible")).collect();
    assert!(matches!(take(8, Role::Gc), Err(DeviceError::TooManyOpen { limit: 6, .. })));
    assert_eq!((leases.in_use(Role::Data), leases.in_use(Role::Log)), (2, 2));
    data.into_iter().for_each(|lease| lease.finish().unwrap());
    assert_eq!(leases.in_use(Role::Data), 0, "a dropped lease no longer counts");
    take(9, Role::Data).unwrap();
    drop(kept);
}

#[test]
fn blocks_are_admitted_once_and_some_can_be_reserved() {
    let (_, leases) = leases();
    let lease = leases.begin(ZoneId(0), Life(1), Role::Data).unwrap();
    assert!(lease.admit(50, 13), "1 + 50 + 13 are the 64 of the zone");
    assert!(!lease.admit(1, 13));
    assert!(!lease.admit(u32::MAX, u32::MAX));
    assert!(lease.admit(13, 0) && lease.free_blocks() == 0);
    assert!(!lease.admit(1, 0));
}

#[test]
fn concurrent_admissions_do_not_exceed_the_capacity() {
    let (device, leases) = leases();
    let lease = leases.begin(ZoneId(0), Life(1), Role::Data).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while lease.admit(2, 5) {
                    lease.append(Cause::Data, &pattern(&*device, 1, 2)).expect("admitted blocks fit");
                }
            });
        }
    });
    assert_eq!(lease.admitted(), 59);
    assert_eq!(device.report_zone(ZoneId(0)).unwrap().pointer, 59);
    assert_eq!(leases.traffic().bytes_written(Cause::Data), 58 * 4096);
}

#[test]
fn a_resumed_zone_continues_at_the_pointer_after_the_crash() {
    let (device, leases) = leases();
    device.record();
    let lease = leases.begin(ZoneId(2), Life(4), Role::Data).unwrap();
    lease.admit(3, 0);
    lease.append(Cause::Data, &pattern(&*device, 10, 3)).unwrap();
    device.flush().unwrap();
    lease.admit(2, 0);
    lease.append(Cause::Data, &pattern(&*device, 20, 2)).unwrap();
    for (plan, pointer) in [(CrashPlan::LoseAll, 4), (CrashPlan::LoseOne(0), 6)] {
        let (after, leases) = leases_on(device.image(&plan));
        assert!(
            leases.resume(ZoneId(5), Life(1), Role::Data).is_err(),
            "an empty zone is begun, not resumed"
        );
        let lease = leases.resume(ZoneId(2), Life(4), Role::Data).unwrap();
        assert_eq!((lease.admitted(), leases.in_use(Role::Data)), (pointer, 1));
        lease.admit(1, 0);
        assert_eq!(lease.append(Cause::Data, &pattern(&*after, 30, 1)).unwrap(), pointer);
        assert_eq!(tags(&*after, 2, 1, 3), [10, 11, 12]);
    }
    let (_, leases) = leases_on(device.image(&CrashPlan::KeepAll.full_active()));
    assert!(
        leases.resume(ZoneId(2), Life(4), Role::Data).is_err(),
        "a full zone has no pointer at which to continue"
    );
}

#[test]
fn a_failed_append_ends_the_lease() {
    let (device, leases) = leases();
    let lease = leases.begin(ZoneId(2), Life(1), Role::Data).unwrap();
    device.inject(Fault::nth(CommandKind::Append, 1, Effect::Error));
    lease.admit(1, 0);
    lease.append(Cause::Data, &pattern(&*device, 1, 1)).unwrap_err();
    assert!(lease.has_failed() && !lease.admit(1, 0));
    lease.finish().unwrap();
    assert_eq!(device.report_zone(ZoneId(2)).unwrap().state, ZoneState::Full);
}

#[test]
fn a_header_that_cannot_be_written_leaves_no_lease_behind() {
    let (device, leases) = leases();
    device.inject(Fault::nth(CommandKind::Append, 1, Effect::Error));
    assert!(leases.begin(ZoneId(2), Life(1), Role::Data).is_err());
    assert_eq!(leases.in_use(Role::Data), 0);
    leases.begin(ZoneId(2), Life(1), Role::Data).unwrap();
}

/// A device may report an error for the header of a zone and have written it: the zone stayed active without a lease,
/// and one active zone was lost for ever.
#[test]
fn a_header_that_failed_after_it_was_written_occupies_no_open_slot() {
    let (device, leases) = leases();
    device.inject(Fault::nth(CommandKind::Append, 1, Effect::Torn(1)));
    assert!(leases.begin(ZoneId(2), Life(1), Role::Data).is_err());
    assert_eq!(device.report_zone(ZoneId(2)).unwrap().state, ZoneState::Full);
    let all: Vec<_> = (3..11)
        .map(|zone| leases.begin(ZoneId(zone), Life(1), Role::Gc).expect("eight are possible"))
        .collect();
    drop(all);
}
