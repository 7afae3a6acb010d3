//! The behaviour of every device.

use crate::zone::file::{FileDevice, FileOptions, OpenMode};
use crate::zone::{Blocks, Command, Device, DeviceError, Geometry, Output, ZoneId, ZoneInfo, ZoneState};
use crate::{pattern, tags};
use emulated::{Emulated, Spec};

#[test]
fn the_emulated_device_conforms_in_every_shape() {
    for (name, spec) in Spec::all() {
        println!("{name}");
        conforms(&Emulated::new(spec));
    }
}

#[test]
fn the_file_device_conforms_in_every_shape() {
    let shapes = [
        ("usual", 4096, None, None, 96 << 20),
        ("zones that are no power of two", 4096, Some(3 * 333 * 4096), None, 72 << 20),
        ("blocks of 512", 512, Some(768 << 10), None, 24 << 20),
        ("blocks of 64 KiB", 65536, None, None, 100 << 20),
        ("zones that take less than they are apart", 4096, Some(4 << 20), Some(3 << 20), 75 << 20),
    ];
    let directory = tempfile::tempdir().unwrap();
    for (name, block_size, zone_bytes, zone_capacity, size) in shapes {
        println!("{name}");
        let path = directory.path().join(name);
        let options = FileOptions {
            size: Some(size),
            block_size,
            zone_bytes,
            zone_capacity,
            max_open: 8,
            max_active: 9,
            ..Default::default()
        };
        conforms(&FileDevice::create(&path, &options).unwrap());
        conforms(&crate::reopen(|| FileDevice::open(&path, OpenMode::ReadWrite)));
    }
}

/// Tests every clause of the contract on an empty device, and leaves it empty. Conventional zones are the last, and
/// tests begin with the first. So if there are some, the tests run again with the opposite order.
pub(crate) fn conforms(device: &dyn Device) {
    all_hold(device);
    if device.geometry().conventional > 0 {
        all_hold(&Backwards(device));
    }
}

fn all_hold(device: &dyn Device) {
    is_born_empty(device);
    appends_land_one_after_the_other(device);
    refuses_what_is_malformed(device);
    a_batch_is_done_as_a_whole(device);
    a_zone_filled_to_its_capacity_is_full(device);
    a_finished_zone_takes_no_more(device);
    limits_hold(device);
    threads_share_a_zone(device);
    for zone in 0..device.geometry().zones {
        assert_eq!(state(device, zone), ZoneState::Empty, "zone {zone} was left empty");
    }
}

/// A device with its zones numbered from the last to the first.
struct Backwards<'d>(&'d dyn Device);

impl Backwards<'_> {
    fn other(&self, zone: ZoneId) -> ZoneId {
        // A number beyond the last zone stays beyond it.
        ZoneId((self.0.geometry().zones - 1).wrapping_sub(zone.0))
    }

    fn told<T>(&self, done: Result<T, DeviceError>) -> Result<T, DeviceError> {
        done.map_err(|error| match error {
            DeviceError::Unwritten { zone, block } => {
                DeviceError::Unwritten { zone: self.other(zone), block }
            }
            error => error,
        })
    }
}

impl Device for Backwards<'_> {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn report(&self) -> Result<Vec<ZoneInfo>, DeviceError> {
        self.0.report().map(|zones| zones.into_iter().rev().collect())
    }

    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo, DeviceError> {
        self.0.report_zone(self.other(zone))
    }

    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<(), DeviceError> {
        self.told(self.0.read(self.other(zone), block, into))
    }

    fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks, DeviceError> {
        self.0.append(self.other(zone), from)
    }

    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        for command in batch.iter_mut() {
            let (Command::Read { zone, .. } | Command::Append { zone, .. }) = command;
            *zone = self.other(*zone);
        }
        self.0.run(batch).into_iter().map(|output| self.told(output)).collect()
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.0.finish(self.other(zone))
    }

    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.0.reset(self.other(zone))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.0.flush()
    }
}

fn info(device: &dyn Device, zone: u32) -> ZoneInfo {
    device.report_zone(ZoneId(zone)).unwrap()
}

fn state(device: &dyn Device, zone: u32) -> ZoneState {
    info(device, zone).state
}

fn is_born_empty(device: &dyn Device) {
    let (geometry, zones) = (device.geometry(), device.report().unwrap());
    assert_eq!(zones.len(), geometry.zones as usize);
    assert!(geometry.max_open >= 6 && geometry.max_active >= geometry.max_open);
    assert!(geometry.block_size.is_power_of_two() && geometry.max_append > 0);
    for zone in zones {
        assert_eq!((zone.state, zone.pointer), (ZoneState::Empty, 0));
        assert!(0 < zone.capacity && zone.capacity <= geometry.zone_blocks);
    }
}

fn appends_land_one_after_the_other(device: &dyn Device) {
    let zone = ZoneId(1);
    assert_eq!(device.append(zone, &pattern(device, 10, 3)).unwrap(), 0);
    assert_eq!(device.append(zone, &pattern(device, 20, 1)).unwrap(), 3);
    assert_eq!((info(device, 1).state, info(device, 1).pointer), (ZoneState::Open, 4));
    assert_eq!(tags(device, 1, 0, 4), [10, 11, 12, 20]);
    let mut two = pattern(device, 0, 2);
    let error = device.read(zone, 3, &mut two).unwrap_err();
    assert!(matches!(error, DeviceError::Unwritten { zone: ZoneId(1), block: 4 }), "{error}");
    device.flush().unwrap();
    assert_eq!(tags(device, 1, 2, 2), [12, 20], "a flush changes nothing that can be read");
    device.reset(zone).unwrap();
    let error = device.read(zone, 0, &mut two).unwrap_err();
    assert!(matches!(error, DeviceError::Unwritten { block: 0, .. }), "{error}");
}

fn refuses_what_is_malformed(device: &dyn Device) {
    let beyond = ZoneId(device.geometry().zones);
    let block = pattern(device, 0, 1);
    let large = pattern(device, 0, device.geometry().max_append + 1);
    let refused = [
        device.append(beyond, &block).map(|_| ()),
        device.append(ZoneId(0), &block[1..]).map(|_| ()),
        device.append(ZoneId(0), &[]).map(|_| ()),
        device.append(ZoneId(0), &large).map(|_| ()),
        device.read(beyond, 0, &mut block.clone()),
        device.read(ZoneId(0), device.geometry().zone_blocks, &mut block.clone()),
        device.read(ZoneId(0), 0, &mut block.clone()[1..]),
        device.report_zone(beyond).map(|_| ()),
        device.finish(beyond),
        device.reset(beyond),
    ];
    for (index, refusal) in refused.into_iter().enumerate() {
        assert!(matches!(refusal, Err(DeviceError::Invalid { .. })), "{index}: {refusal:?}");
    }
}

fn a_batch_is_done_as_a_whole(device: &dyn Device) {
    let written = pattern(device, 40, 2);
    device.append(ZoneId(3), &written).unwrap();
    let (first, second, third) = (pattern(device, 50, 2), pattern(device, 60, 1), pattern(device, 70, 1));
    let (mut back, mut nothing) = (pattern(device, 0, 2), pattern(device, 0, 1));
    let mut batch = [
        Command::Append { zone: ZoneId(1), from: &first },
        Command::Read { zone: ZoneId(3), block: 0, into: &mut back },
        Command::Append { zone: ZoneId(1), from: &second },
        Command::Read { zone: ZoneId(5), block: 0, into: &mut nothing },
        Command::Append { zone: ZoneId(2), from: &third },
    ];
    let outputs = device.run(&mut batch);
    assert_eq!(outputs.len(), 5);
    assert!(matches!(outputs[1], Ok(0)) && back == written);
    assert!(matches!(outputs[3], Err(DeviceError::Unwritten { zone: ZoneId(5), block: 0 })));
    let place = |index: usize| *outputs[index].as_ref().unwrap();
    assert_eq!(tags(device, 1, place(0), 2), [50, 51]);
    assert_eq!(tags(device, 1, place(2), 1), [60]);
    assert_eq!((place(4), info(device, 1).pointer), (0, 3));
    assert!(device.run(&mut []).is_empty());
    for zone in 1..=3 {
        device.reset(ZoneId(zone)).unwrap();
    }
}

fn a_zone_filled_to_its_capacity_is_full(device: &dyn Device) {
    let last = device.geometry().zones - 1;
    for number in [2, last] {
        let (zone, capacity) = (ZoneId(number), info(device, number).capacity);
        let most = device.geometry().max_append;
        let mut written = 0;
        while written + most < capacity {
            written += most;
            device.append(zone, &pattern(device, 1, most)).unwrap();
        }
        let rest = capacity - written;
        if rest < most {
            let error = device.append(zone, &pattern(device, 1, rest + 1)).unwrap_err();
            assert!(matches!(error, DeviceError::ZoneFull { .. }), "{error}");
        }
        assert_eq!(device.append(zone, &pattern(device, 7, rest)).unwrap(), written);
        assert_eq!(state(device, number), ZoneState::Full);
        assert_eq!(tags(device, number, capacity - 1, 1), [7u8.wrapping_add((rest - 1) as u8)]);
        let error = device.append(zone, &pattern(device, 1, 1)).unwrap_err();
        assert!(matches!(error, DeviceError::ZoneFull { blocks: 1, .. }), "{error}");
        device.reset(zone).unwrap();
        assert_eq!((state(device, number), info(device, number).pointer), (ZoneState::Empty, 0));
    }
}

fn a_finished_zone_takes_no_more(device: &dyn Device) {
    let zone = ZoneId(4);
    device.append(zone, &pattern(device, 90, 2)).unwrap();
    device.finish(zone).unwrap();
    assert_eq!(state(device, 4), ZoneState::Full);
    assert_eq!(tags(device, 4, 0, 2), [90, 91]);
    let capacity = info(device, 4).capacity;
    device.read(zone, capacity - 1, &mut pattern(device, 0, 1)).expect("no pointer, so it reads as anything");
    assert!(matches!(device.append(zone, &pattern(device, 1, 1)), Err(DeviceError::ZoneFull { .. })));
    device.finish(zone).unwrap();
    device.reset(zone).unwrap();
}

fn limits_hold(device: &dyn Device) {
    let geometry = device.geometry().clone();
    assert!(geometry.max_active + 1 < geometry.zones);
    let one = pattern(device, 1, 1);
    for zone in 0..geometry.max_open {
        device.append(ZoneId(zone), &one).unwrap();
    }
    let next = ZoneId(geometry.max_open);
    assert!(matches!(device.append(next, &one), Err(DeviceError::TooManyOpen { .. })));
    device.finish(ZoneId(1)).unwrap();
    device.append(next, &one).expect("a finished zone frees its slots");
    device.reset(next).unwrap();
    device.append(next, &one).expect("and so does a reset one");
    for zone in 0..=geometry.max_open {
        device.reset(ZoneId(zone)).unwrap();
    }
}

fn threads_share_a_zone(device: &dyn Device) {
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                for round in 0..6u8 {
                    let tag = thread * 50 + round * 2;
                    let block = device.append(ZoneId(5), &pattern(device, tag, 1)).unwrap();
                    assert_eq!(tags(device, 5, block, 1), [tag]);
                }
            });
        }
    });
    assert_eq!(info(device, 5).pointer, 24);
    let mut found = tags(device, 5, 0, 24);
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 24, "no append was lost and none landed on another");
    device.reset(ZoneId(5)).unwrap();
    device.flush().unwrap();
}
