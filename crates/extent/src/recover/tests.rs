use emulated::{CommandKind, Effect, Emulated, Fault, Spec};
use rt::random::Rng;
use tree::Replay;
use zone::{Address, Blocks, FsId, Life};

use super::*;
use crate::{Object, format};

const ZONE: ZoneId = ZoneId(5);
const LIFE: Life = Life(3);
const BLOCKS: Blocks = 4;

/// A device with a zone of data in its third life, of which four blocks were written, and the extent that names them.
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

/// Whether a record that names this extent and is not known to be durable counts.
fn counts(device: &Arc<Emulated>, extent: &Extent) -> tree::Result<bool> {
    let key = format::key(Object(1), 0).to_vec();
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
    // What is only the rest of an older extent is older than the record.
    let trimmed = Extent { trimmed: true, ..at(&extent, ZONE, 40, LIFE) };
    assert!(counts(&device, &trimmed).unwrap());
}

#[test]
fn a_record_whose_data_is_not_there_does_not_count() {
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

/// A bit that came wrong once during a mount made acknowledged changes disappear for good.
#[test]
fn what_cannot_be_read_once_is_asked_again() {
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
fn nothing_can_be_said_of_a_zone_that_goes_offline() {
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
fn a_device_that_is_gone_says_nothing_of_any_record() {
    for nth in 1..=2 {
        let (device, extent) = written();
        device.inject(Fault::nth(CommandKind::Read, nth, Effect::HostFull).on(ZONE).forever());
        assert!(counts(&device, &extent).is_err(), "read {nth}");
    }
}
