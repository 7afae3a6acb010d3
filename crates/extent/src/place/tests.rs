use emulated::{Emulated, Spec};
use tree::{Config, FormatOptions, Store};
use zone::{Device, FsId};

use super::*;
use crate::Recovering;

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

/// A small write that nothing is known of.
pub(crate) fn wanted(object: Object) -> Wanted {
    Wanted { object, lifetime: Lifetime::Unknown, blocks: 1, stays: false }
}

#[test]
fn who_retires_an_earlier_life_leaves_the_later_one_alone() {
    let extents = extents();
    let object = Object(1);
    let old = extents.place(wanted(object)).unwrap();
    extents.retire(&old).unwrap();
    let zone = old.lease.zone();
    let again = (0..1000).find_map(|_| {
        extents.store.sync(extents.store.last_lsn()).unwrap();
        extents.store.reclaim(true).unwrap();
        let open = extents.place(wanted(object)).unwrap();
        if open.lease.zone() == zone {
            return Some(open);
        }
        extents.retire(&open).unwrap();
        None
    });
    let again = again.expect("the zone was empty and is opened again");
    assert_ne!(again.lease.life(), old.lease.life());
    extents.retire(&old).unwrap();
    assert!(Arc::ptr_eq(&extents.place(wanted(object)).unwrap(), &again));
    extents.retire(&again).unwrap();
    assert_eq!(extents.placement.count(), 0);
}

/// Others hold all open zones that the device allows, and will give none back: who wants to write is told that, and not
/// that the volume is full, which would have him delete files for nothing.
#[test]
fn a_device_without_an_open_zone_left_is_not_told_as_a_full_one() {
    let extents = extents();
    let mut held = Vec::new();
    let error = loop {
        match extents.store.open_zone(Role::Data) {
            Ok(lease) => held.push(lease.expect("zones are free")),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Device(DeviceError::TooManyOpen { .. })), "{error}");
    let refused = extents.place(wanted(Object(1))).map(|_| ()).unwrap_err();
    assert!(
        matches!(&refused, ExtentError::Store(StoreError::Device(DeviceError::Unusable(why))) if why.contains("no open zone")),
        "{refused}"
    );
    drop(held.pop());
    extents.place(wanted(Object(1))).unwrap();
}

/// Open zones for data of these classes, in this order, and a small file of each.
fn open_for(extents: &Arc<Extents>, lifetimes: &[Lifetime]) -> Placement {
    let placement = Placement::new(extents.payload_min);
    placement.set_open_max(lifetimes.len());
    for (number, &lifetime) in (0..).zip(lifetimes) {
        let Opened::Zone(open) = extents.open_zone(Role::Data).unwrap() else { panic!("zones are free") };
        placement.add_for(Wanted { object: Object(number), lifetime, blocks: 100, stays: false }, open);
    }
    placement
}

/// What is to stay whole for long came among what dies soon whenever that zone was the one used least.
#[test]
fn who_has_no_zone_shares_with_what_lives_about_as_long() {
    let extents = extents();
    let placement = open_for(&extents, &[Lifetime::Short, Lifetime::Extreme]);
    let zone_of = |lifetime| {
        let open = placement.choose(Wanted { object: Object(9), lifetime, blocks: 1, stays: false }, false);
        open.unwrap().lease.zone()
    };
    let (short, extreme) = (zone_of(Lifetime::Short), zone_of(Lifetime::Extreme));
    assert_ne!(short, extreme);
    for _ in 0..3 {
        // Whichever was used last.
        assert_eq!(zone_of(Lifetime::Long), extreme);
        assert_eq!(zone_of(Lifetime::Medium), short);
    }
}

/// A large file without a zone of its own goes from one of the others' to the next: its pieces are not together then.
#[test]
fn who_puts_together_stays_in_one_zone() {
    let extents = extents();
    let placement = open_for(&extents, &[Lifetime::Unknown; 4]);
    placement.state.lock().slots.iter_mut().zip(0..).for_each(|(slot, file)| slot.owner = Some(Object(file)));
    let zones_of = |stays| {
        let wanted = Wanted { object: Object(9), lifetime: Lifetime::Unknown, blocks: 1, stays };
        let zone = |_| placement.choose(wanted, false).unwrap().lease.zone();
        (0..4).map(zone).collect::<std::collections::BTreeSet<ZoneId>>()
    };
    assert_eq!(zones_of(false).len(), 4);
    assert_eq!(zones_of(true).len(), 1);
}

/// Where its class has changed meanwhile, what is put together goes to a zone of that, and stays there.
#[test]
fn who_puts_together_follows_his_class() {
    let extents = extents();
    let placement = open_for(&extents, &[Lifetime::Short, Lifetime::Long, Lifetime::Long]);
    placement.state.lock().slots.iter_mut().zip(0..).for_each(|(slot, file)| slot.owner = Some(Object(file)));
    let zone_of = |lifetime| {
        let wanted = Wanted { object: Object(0), lifetime, blocks: 1, stays: true };
        placement.choose(wanted, false).unwrap().lease.zone()
    };
    let short = zone_of(Lifetime::Short);
    let long = zone_of(Lifetime::Long);
    assert_ne!(short, long);
    assert!((0..4).all(|_| zone_of(Lifetime::Long) == long));
}

/// A class that has no zone writes to the other's: that there is room for both does not say that all is well.
#[test]
fn a_class_without_a_zone_shares_until_it_has_one() {
    let extents = extents();
    let placement = open_for(&extents, &[Lifetime::Short, Lifetime::Long]);
    let rooms = || placement.rooms(|room| room);
    let apart = rooms();
    assert!(!apart.is_shared);
    let long = placement
        .choose(Wanted { object: Object(9), lifetime: Lifetime::Long, blocks: 1, stays: false }, false);
    placement.retire(&long.unwrap());
    let alone = rooms();
    assert!(
        alone.is_shared && alone.until[0] == alone.until[1] && alone.until[1] < apart.until[0],
        "{alone:?}"
    );
}

/// Writes so much of a file, as far as choosing a zone goes.
fn write(extents: &Arc<Extents>, object: u64, blocks: u64) -> ZoneId {
    let wanted = Wanted { blocks, ..wanted(Object(object)) };
    let plenty = extents.placement.count() < extents.placement.open_max();
    let open = extents.placement.choose(wanted, plenty).unwrap_or_else(|| {
        let Opened::Zone(open) = extents.open_zone(Role::Data).unwrap() else { panic!("zones are free") };
        extents.placement.add_for(wanted, Arc::clone(&open));
        open
    });
    open.lease.zone()
}

/// As many large files as there are zones for have one each, which small ones stay out of while it is written;
/// who comes when none is left shares.
#[test]
fn large_files_have_zones_of_their_own_while_there_are_some() {
    let extents = extents();
    let large = u64::from(extents.payload_min) / LARGE_SHARE;
    extents.placement.set_open_max(3);
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
    // Nor when its owner has not written for long, while there is another.
    (0..=OWNED_FOR).for_each(|_| assert_ne!(write(&extents, 1, 1), other));
    extents.placement.set_by_file(false);
    assert_eq!(write(&extents, 5, 2 * large), write(&extents, 5, 1));
}
