use tree::{Config, FormatOptions, Store};
use zone::emulated::{Emulated, Spec};
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
    let config = Config { cache_bytes: 8 << 20, read_only: false };
    let (store, _) = Store::open(device, &config, &mut recovering).unwrap();
    Extents::open(Arc::new(store), recovering).unwrap()
}

/// A small write that nothing is known of.
pub(crate) fn wanted(object: Object) -> Wanted {
    Wanted { object, lifetime: Lifetime::Unknown, blocks: 1 }
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
        match extents.store.zones().open(Role::Data) {
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
