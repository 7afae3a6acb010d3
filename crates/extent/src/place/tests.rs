use emulated::{Emulated, Spec};
use tree::{Config, FormatOptions, Store};
use zone::{Device, FsId};

use super::*;
use crate::{Extents, Recovering};

pub(crate) fn extents() -> Arc<Extents> {
    extents_on(Arc::new(Emulated::new(Spec::power_of_two())))
}

pub(crate) fn extents_on(device: Arc<dyn Device>) -> Arc<Extents> {
    let (label, page_size) = ("test".to_owned(), device.geometry().block_size.max(4096));
    let (fs_id, reserve) = (FsId([3; 16]), tree::Reserve::default());
    let options = FormatOptions { fs_id, label, page_size, groups: 4, created_ns: 1, reserve };
    Store::format(&device, &options).unwrap();
    let mut recovering = Recovering::new(Arc::clone(&device));
    let config = Config { cache_bytes: 8 << 20, read_only: false, accept_loss: false };
    let (store, _) = Store::open(device, &config, &mut recovering).unwrap();
    Extents::open(Arc::new(store), recovering).unwrap()
}

/// A small write without a known lifetime.
pub(crate) fn request() -> PlaceRequest {
    PlaceRequest { lifetime: Lifetime::Unknown, blocks: 1 }
}

/// A writer with a zone of an earlier life removed the zone's later life from the placement.
#[test]
fn retiring_an_earlier_life_does_not_retire_the_later_one() {
    let extents = extents();
    let old = extents.supply().place(request()).unwrap();
    extents.placer().retire(&old).unwrap();
    let zone = old.lease.zone();
    let again = (0..1000).find_map(|_| {
        extents.store().sync(extents.store().last_lsn()).unwrap();
        extents.store().reclaim(true).unwrap();
        let open = extents.supply().place(request()).unwrap();
        if open.lease.zone() == zone {
            return Some(open);
        }
        extents.placer().retire(&open).unwrap();
        None
    });
    let again = again.expect("the zone was empty and is opened again");
    assert_ne!(again.lease.life(), old.lease.life());
    extents.placer().retire(&old).unwrap();
    assert!(Arc::ptr_eq(&extents.supply().place(request()).unwrap(), &again));
    extents.placer().retire(&again).unwrap();
    assert_eq!(extents.placer().placement().count(), 0);
}

/// Other threads have all open zones that the device allows, and return none. The writer gets this error, and not that
/// the volume is full, which would make the user delete files for nothing.
#[test]
fn the_lack_of_open_zones_is_not_reported_as_lack_of_space() {
    let extents = extents();
    let mut leases = Vec::new();
    let error = loop {
        match extents.store().open_zone(Role::Data) {
            Ok(lease) => leases.push(lease.expect("zones are free")),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Device(DeviceError::TooManyOpen { .. })), "{error}");
    let refused = extents.supply().place(request()).map(|_| ()).unwrap_err();
    assert!(
        matches!(&refused, ExtentError::Store(StoreError::Device(DeviceError::Unusable(why))) if why.contains("no open zone")),
        "{refused}"
    );
    drop(leases.pop());
    extents.supply().place(request()).unwrap();
}

/// Opens zones for data of these classes, in this order, with a small file of each.
fn open_for(extents: &Arc<Extents>, lifetimes: &[Lifetime]) -> Placement {
    let placement = Placement::new();
    placement.set_open_max(lifetimes.len());
    for &lifetime in lifetimes {
        let OpenAttempt::Zone(open) = extents.placer().open_zone(Role::Data).unwrap() else {
            panic!("zones are free")
        };
        placement.add_for(PlaceRequest { lifetime, blocks: 100 }, open);
    }
    placement
}

/// Long-lived data came among short-lived data whenever that zone was unused for longest.
#[test]
fn a_class_without_a_zone_shares_with_a_class_of_similar_lifetime() {
    let extents = extents();
    let placement = open_for(&extents, &[Lifetime::Short, Lifetime::Extreme]);
    let zone_of = |lifetime| {
        let open = placement.choose(PlaceRequest { lifetime, blocks: 1 }, false);
        open.unwrap().lease.zone()
    };
    let (short, extreme) = (zone_of(Lifetime::Short), zone_of(Lifetime::Extreme));
    assert_ne!(short, extreme);
    for _ in 0..3 {
        // Independently of the zone that was used last.
        assert_eq!(zone_of(Lifetime::Long), extreme);
        assert_eq!(zone_of(Lifetime::Medium), short);
    }
}

/// A class without a zone writes to a zone of the other class: headroom for both does not mean that each has a zone.
#[test]
fn a_class_without_a_zone_shares_until_it_has_one() {
    let extents = extents();
    let placement = open_for(&extents, &[Lifetime::Short, Lifetime::Long]);
    let headroom = || placement.open_headroom(|free| free);
    let apart = headroom();
    assert!(!apart.is_shared);
    let long = placement.choose(PlaceRequest { lifetime: Lifetime::Long, blocks: 1 }, false);
    placement.retire(&long.unwrap());
    let alone = headroom();
    assert!(
        alone.is_shared && alone.until[0] == alone.until[1] && alone.until[1] < apart.until[0],
        "{alone:?}"
    );
}

/// After a mount several zones of one class may be open. They are filled one after the other: a file whose writes took
/// turns in them would lie in pieces.
#[test]
fn the_zone_that_was_used_last_is_filled_first() {
    let extents = extents();
    let placement = open_for(&extents, &[Lifetime::Unknown; 3]);
    let request = PlaceRequest { lifetime: Lifetime::Unknown, blocks: 1 };
    let first = placement.choose(request, true).unwrap().lease.zone();
    assert!((0..4).all(|_| placement.choose(request, true).unwrap().lease.zone() == first));
}
