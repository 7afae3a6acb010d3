//! Hand-over of leases: they never exceed the limit of the device, a thread that waits for one gets it when another
//! thread returns one, and no thread waits forever.

use std::sync::Arc;

use emulated::{Emulated, Spec};
use polder_extent::Lifetime;
use rt::sync::{Condvar, Mutex};
use zone::{Device, DeviceError, FsId, Leases, Life, Role, Traffic, ZoneId, ZoneState};

use crate::objects::{Volume, Written};
use crate::{Seen, explore, prepared, spawn};

/// The smallest supported limit: two leases for data.
const ACTIVE: u32 = 6;

/// Blocks of each object: one and a half zones.
const BLOCKS: u64 = 96;

/// Small zones, so that a few writes fill each.
fn spec() -> Spec {
    Spec::tiny().limits(ACTIVE, ACTIVE)
}

/// Begins a zone and returns its lease. Waits while the limit is reached.
fn lease_once(leases: &Arc<Leases>, zone: u32, returned: &(Mutex<u32>, Condvar)) -> u64 {
    let mut waits = 0;
    loop {
        let seen = *returned.0.lock();
        match leases.begin(ZoneId(zone), Life(1), Role::Data) {
            Ok(lease) => {
                assert!(
                    leases.in_use(Role::Data) <= leases.limit_for_data(),
                    "data has no more than its share"
                );
                lease.finish().unwrap();
                *returned.0.lock() += 1;
                returned.1.notify_all();
                return waits;
            }
            Err(DeviceError::TooManyOpen { .. }) => waits += 1,
            Err(error) => panic!("zone {zone}: {error}"),
        }
        let mut count = returned.0.lock();
        while *count == seen {
            returned.1.wait(&mut count);
        }
    }
}

#[test]
fn leases_never_exceed_the_limit_of_the_device() {
    let waited = Seen::default();
    let counted = waited.clone();
    let device = prepared(spec(), 1, |_| {});
    explore("leases::leases_never_exceed_the_limit_of_the_device", 3000, device, move |device| {
        let leases = Leases::new(device.clone(), FsId([3; 16]), Arc::new(Traffic::default()));
        let returned = Arc::new((Mutex::new(0), Condvar::new()));
        let clients = (10..15).map(|zone| {
            let (leases, returned) = (Arc::clone(&leases), Arc::clone(&returned));
            spawn("client", move || lease_once(&leases, zone, &returned))
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().for_each(|client| counted.add(client.join().unwrap()));
        assert_eq!(leases.in_use(Role::Data), 0, "all leases were returned");
    });
    waited.report("waits for a lease");
}

/// The number of zones of the device in such a state.
fn count(device: &Emulated, is_such: impl Fn(ZoneState) -> bool) -> u32 {
    device.report().unwrap().iter().filter(|info| is_such(info.state)).count() as u32
}

#[test]
fn writers_hand_their_zones_on() {
    let filled = Seen::default();
    let counted = filled.clone();
    let device = prepared(spec(), 1, |device| Volume::open(device).store.close().unwrap());
    let classes = [Lifetime::Short, Lifetime::Long, Lifetime::Unknown, Lifetime::Extreme];
    explore("leases::writers_hand_their_zones_on", 600, device, move |device| {
        let volume = Arc::new(Volume::open(&device));
        let objects =
            (1..).zip(classes).map(|(number, class)| Written::found(&volume, number, class, BLOCKS));
        let objects: Vec<_> = objects.collect();
        let start = |object: &Arc<Written>| {
            let (volume, object) = (Arc::clone(&volume), Arc::clone(object));
            let write = move || {
                for at in (0..object.blocks()).step_by(12) {
                    object.write(&volume, at, 12);
                    assert!(count(&volume.device, ZoneState::is_active) <= ACTIVE);
                }
            };
            spawn("writer", write)
        };
        let writers: Vec<_> = objects.iter().map(start).collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        objects.iter().for_each(|object| object.verify(&volume, &object.returned()));
        volume.check();
        counted.add(u64::from(count(&device, |state| state == ZoneState::Full)));
    });
    filled.report("zones filled");
}
