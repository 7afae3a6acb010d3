use emulated::{CommandKind, Effect, Emulated, Fault, Spec};
use rt::random::Rng;
use tree::Replay;
use zone::{Address, Blocks, FsId, Life};

use super::*;
use crate::{Object, format};

const ZONE: ZoneId = ZoneId(5);
const LIFE: Life = Life(3);
const BLOCKS: Blocks = 4;

/// A device with a data zone in its third life and four written blocks, and the extent that names them.
fn written() -> (Arc<Emulated>, Extent) {
    let device = Arc::new(Emulated::new(Spec::power_of_two()));
    let identity = ZoneIdentity { fs_id: FsId([3; 16]), zone: ZONE, life: LIFE, role: Role::Data };
    device.append(ZONE, &zone::format::encode_header(&identity, device.geometry())).unwrap();
    let size = device.geometry().block_size as usize;
    let mut data = vec![0; size * BLOCKS as usize];
    Rng::with_seed(1).fill(&mut data);
    let at = device.append(ZONE, &data).unwrap();
    let crcs = data.chunks(size).map(|block| zone::format::checksum(&[block])).collect();
    (device, Extent::new(Address::new(ZONE, at, LIFE), crcs))
}

/// Whether a record with this extent counts if the log does not say that it was durable.
fn counts(device: &Arc<Emulated>, extent: &Extent) -> tree::Result<bool> {
    let key = format::key(Object(1), 0)[..].into();
    let put = Op::Put { group: tree::Group(0), table: EXTENT, key, value: extent.encode() };
    Recovering::new(Arc::clone(device) as _).verify(&[put])
}

fn at(extent: &Extent, zone: ZoneId, block: Blocks, life: Life) -> Extent {
    Extent { address: Address::new(zone, block, life), ..extent.clone() }
}

#[test]
fn a_record_whose_data_is_there_counts() {
    let (device, extent) = written();
    assert!(counts(&device, &extent).unwrap());
    // The rest of an older extent is older than the record.
    let trimmed = Extent { trimmed: true, ..at(&extent, ZONE, 40, LIFE) };
    assert!(counts(&device, &trimmed).unwrap());
}

#[test]
fn a_record_without_its_data_does_not_count() {
    let (device, extent) = written();
    let geometry = device.geometry().clone();
    let block = extent.address.block();
    let elsewhere = [
        ("in no zone", at(&extent, ZoneId(geometry.zones), block, LIFE)),
        ("in another life", at(&extent, ZONE, block, Life(LIFE.0 - 1))),
        ("in a life that never began", at(&extent, ZONE, block, Life(LIFE.0 + 1))),
        ("in a zone without a header", at(&extent, ZoneId(ZONE.0 + 1), block, LIFE)),
        ("across the end of a zone", at(&extent, ZONE, geometry.zone_blocks - BLOCKS + 1, LIFE)),
        ("behind the pointer", at(&extent, ZONE, block + 1, LIFE)),
    ];
    for (place, extent) in elsewhere {
        assert!(!counts(&device, &extent).unwrap(), "{place}");
    }
    device.corrupt(ZONE, block + BLOCKS - 1, 7, 1);
    assert!(!counts(&device, &extent).unwrap(), "the last block is wrong");
    let (device, extent) = written();
    device.make_unreadable(ZONE, block);
    assert!(!counts(&device, &extent).unwrap(), "the first block cannot be read");
}

/// One bit that was read wrong during a mount made acknowledged changes disappear for good.
#[test]
fn data_that_cannot_be_read_once_is_read_again() {
    for effect in [Effect::Error, Effect::FlipBit(77)] {
        // The header first, then the data.
        for nth in 1..=2 {
            let (device, extent) = written();
            device.inject(Fault::nth(CommandKind::Read, nth, effect).on(ZONE));
            assert!(counts(&device, &extent).unwrap(), "{effect:?} at read {nth}");
            assert_eq!(device.failed_zones().len(), 1);
        }
    }
}

#[test]
fn a_record_counts_if_its_zone_is_offline() {
    for nth in 1..=2 {
        let (device, extent) = written();
        device.inject(Fault::nth(CommandKind::Read, nth, Effect::TurnOffline).on(ZONE));
        assert!(counts(&device, &extent).unwrap(), "the record counts");
    }
    let (device, extent) = written();
    device.set_zone_state(ZONE, ZoneState::Offline);
    assert!(counts(&device, &extent).unwrap());
}

#[test]
fn a_failed_device_fails_the_recovery() {
    for nth in 1..=2 {
        let (device, extent) = written();
        device.inject(Fault::nth(CommandKind::Read, nth, Effect::HostFull).on(ZONE).forever());
        assert!(counts(&device, &extent).is_err(), "read {nth}");
    }
}
