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
pub(crate) fn request(object: Object) -> PlaceRequest {
    PlaceRequest { object, lifetime: Lifetime::Unknown, blocks: 1, stays_in_zone: false }
}

#[test]
fn retiring_an_earlier_life_does_not_retire_the_later_one() {
    let extents = extents();
    let object = Object(1);
    let old = extents.supply().place(request(object)).unwrap();
    extents.placer().retire(&old).unwrap();
    let zone = old.lease.zone();
    let again = (0..1000).find_map(|_| {
        extents.store().sync(extents.store().last_lsn()).unwrap();
        extents.store().reclaim(true).unwrap();
        let open = extents.supply().place(request(object)).unwrap();
        if open.lease.zone() == zone {
            return Some(open);
        }
        extents.placer().retire(&open).unwrap();
        None
    });
    let again = again.expect("the zone was empty and is opened again");
    assert_ne!(again.lease.life(), old.lease.life());
    extents.placer().retire(&old).unwrap();
    assert!(Arc::ptr_eq(&extents.supply().place(request(object)).unwrap(), &again));
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
    let refused = extents.supply().place(request(Object(1))).map(|_| ()).unwrap_err();
    assert!(
        matches!(&refused, ExtentError::Store(StoreError::Device(DeviceError::Unusable(why))) if why.contains("no open zone")),
        "{refused}"
    );
    drop(leases.pop());
    extents.supply().place(request(Object(1))).unwrap();
}

/// Opens zones for data of these classes, in this order, with a small file of each.
fn open_for(extents: &Arc<Extents>, lifetimes: &[Lifetime]) -> Placement {
    let placement = Placement::new(extents.payload_min());
    placement.set_open_max(lifetimes.len());
    for (number, &lifetime) in (0..).zip(lifetimes) {
        let OpenAttempt::Zone(open) = extents.placer().open_zone(Role::Data).unwrap() else {
            panic!("zones are free")
        };
        placement.add_for(
            PlaceRequest { object: Object(number), lifetime, blocks: 100, stays_in_zone: false },
            open,
        );
    }
    placement
}

/// Long-lived data came among short-lived data whenever that zone was unused for longest.
#[test]
fn a_class_without_a_zone_shares_with_a_class_of_similar_lifetime() {
    let extents = extents();
    let placement = open_for(&extents, &[Lifetime::Short, Lifetime::Extreme]);
    let zone_of = |lifetime| {
        let open = placement
            .choose(PlaceRequest { object: Object(9), lifetime, blocks: 1, stays_in_zone: false }, false);
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

/// A large file without a zone of its own takes turns in the zones of other files: its pieces do not lie together then.
#[test]
fn joined_pieces_stay_in_one_zone() {
    let extents = extents();
    let placement = open_for(&extents, &[Lifetime::Unknown; 4]);
    placement.state.lock().slots.iter_mut().zip(0..).for_each(|(slot, file)| slot.owner = Some(Object(file)));
    let zones_of = |stays_in_zone| {
        let request =
            PlaceRequest { object: Object(9), lifetime: Lifetime::Unknown, blocks: 1, stays_in_zone };
        let zone = |_| placement.choose(request, false).unwrap().lease.zone();
        (0..4).map(zone).collect::<std::collections::BTreeSet<ZoneId>>()
    };
    assert_eq!(zones_of(false).len(), 4);
    assert_eq!(zones_of(true).len(), 1);
}

/// If the class of the file has changed, joined pieces go to a zone of the new class, and stay there.
#[test]
fn joined_pieces_follow_the_class_of_their_file() {
    let extents = extents();
    let placement = open_for(&extents, &[Lifetime::Short, Lifetime::Long, Lifetime::Long]);
    placement.state.lock().slots.iter_mut().zip(0..).for_each(|(slot, file)| slot.owner = Some(Object(file)));
    let zone_of = |lifetime| {
        let request = PlaceRequest { object: Object(0), lifetime, blocks: 1, stays_in_zone: true };
        placement.choose(request, false).unwrap().lease.zone()
    };
    let short = zone_of(Lifetime::Short);
    let long = zone_of(Lifetime::Long);
    assert_ne!(short, long);
    assert!((0..4).all(|_| zone_of(Lifetime::Long) == long));
}

/// A class without a zone writes to a zone of the other class: headroom for both does not mean that each has a zone.
#[test]
fn a_class_without_a_zone_shares_until_it_has_one() {
    let extents = extents();
    let placement = open_for(&extents, &[Lifetime::Short, Lifetime::Long]);
    let headroom = || placement.open_headroom(|free| free);
    let apart = headroom();
    assert!(!apart.is_shared);
    let long = placement.choose(
        PlaceRequest { object: Object(9), lifetime: Lifetime::Long, blocks: 1, stays_in_zone: false },
        false,
    );
    placement.retire(&long.unwrap());
    let alone = headroom();
    assert!(
        alone.is_shared && alone.until[0] == alone.until[1] && alone.until[1] < apart.until[0],
        "{alone:?}"
    );
}

/// Chooses a zone for this number of blocks of a file.
fn write(extents: &Arc<Extents>, object: u64, blocks: u64) -> ZoneId {
    let request = PlaceRequest { blocks, ..request(Object(object)) };
    let may_open = extents.placer().placement().count() < extents.placer().placement().open_max();
    let open = extents.placer().placement().choose(request, may_open).unwrap_or_else(|| {
        let OpenAttempt::Zone(open) = extents.placer().open_zone(Role::Data).unwrap() else {
            panic!("zones are free")
        };
        extents.placer().placement().add_for(request, Arc::clone(&open));
        open
    });
    open.lease.zone()
}

/// Each large file has a zone of its own as long as there are zones, and small files do not use it while it is written.
/// When no zone is left, a large file shares.
#[test]
fn large_files_have_zones_of_their_own_while_zones_are_free() {
    let extents = extents();
    let large = u64::from(extents.payload_min()) / LARGE_SHARE;
    extents.placer().placement().set_open_max(3);
    let shared = write(&extents, 1, 1);
    assert_eq!(write(&extents, 2, large - 1), shared, "it is not large yet");
    assert_eq!(write(&extents, 2, 1), shared, "with this it is");
    let owned = write(&extents, 2, 1);
    assert_ne!(owned, shared);
    for _ in 0..3 {
        assert_eq!([write(&extents, 1, 1), write(&extents, 2, 1)], [shared, owned]);
    }
    let other = [write(&extents, 3, large), write(&extents, 3, 1)][1];
    assert!(other != shared && other != owned);
    assert_eq!([write(&extents, 4, large), write(&extents, 4, 1)], [shared; 2], "three are open");
    // Nor after its owner has been idle for long, as long as there is a shared zone.
    (0..=OWNED_FOR).for_each(|_| assert_ne!(write(&extents, 1, 1), other));
    extents.placer().placement().set_by_file(false);
    assert_eq!(write(&extents, 5, 2 * large), write(&extents, 5, 1));
}
