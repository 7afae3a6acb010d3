//! Several devices with one power supply.

use std::sync::Arc;

use crate::emulated::{CrashPlan, Emulated, Spec, Supply};
use crate::{pattern, tags};
use zone::{Device, DeviceError, ZoneId};

const ZONE: ZoneId = ZoneId(1);

fn two() -> (Arc<Supply>, Vec<Arc<Emulated>>) {
    let supply = Supply::new();
    let device = |_| Arc::new(supply.connect(Emulated::new(Spec::tiny())));
    (Arc::clone(&supply), (0..2).map(device).collect())
}

fn append(device: &Emulated, tag: u8) -> Result<u32, DeviceError> {
    device.append(ZONE, &pattern(device, tag, 1))
}

#[test]
fn all_devices_lose_their_power_at_one_command() {
    let (supply, devices) = two();
    append(&devices[0], 1).unwrap();
    supply.lose_power_after(2);
    append(&devices[1], 2).unwrap();
    append(&devices[0], 3).unwrap();
    for device in &devices {
        assert!(matches!(append(device, 4), Err(DeviceError::PowerLost)));
        assert!(matches!(device.report(), Err(DeviceError::PowerLost)));
    }
}

#[test]
fn images_show_all_devices_at_one_moment() {
    let (supply, devices) = two();
    append(&devices[0], 9).unwrap();
    supply.record(&devices);
    for (device, tag) in [(0, 1), (1, 2), (1, 3), (0, 4)] {
        append(&devices[device], tag).unwrap();
    }
    assert_eq!((supply.commands(), supply.commands_at(3)), (4, vec![1, 2]));
    let images = supply.images_at(3, &devices, &[CrashPlan::KeepAll, CrashPlan::BackFrom(1)]);
    assert_eq!(tags(&*images[0], 1, 0, 2), [9, 1]);
    assert_eq!(images[1].report_zone(ZONE).unwrap().pointer, 1);
    // They share a supply of their own.
    images[0].supply().unwrap().lose_power_after(0);
    assert!(append(&images[1], 5).is_err() && append(&devices[1], 5).is_ok());
    let killed = supply.killed_at(4, &devices);
    assert_eq!(tags(&*killed[0], 1, 0, 3), [9, 1, 4]);
    assert_eq!(killed[0].image(&CrashPlan::LoseAll).report_zone(ZONE).unwrap().pointer, 1);
    let supply = Arc::clone(killed[1].supply().unwrap());
    append(&killed[1], 5).unwrap();
    assert_eq!((supply.commands(), supply.commands_at(5)), (5, vec![2, 3]));
    let images = supply.images_at(4, &killed, &[CrashPlan::KeepAll, CrashPlan::KeepAll]);
    assert_eq!(tags(&*images[1], 1, 0, 2), [2, 3]);
}

#[test]
fn a_device_can_fail_alone() {
    let (supply, devices) = two();
    devices[0].lose_power_after(0);
    assert!(append(&devices[0], 1).is_err());
    append(&devices[1], 1).unwrap();
    assert_eq!(supply.commands(), 1, "a command that fails changes nothing");
}
