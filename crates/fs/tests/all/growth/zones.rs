//! Zones of a device, equal and different ones, and operations on each of them.

use std::sync::Arc;

use emulated::{Emulated, Spec};
use fs::{FormatOptions, Fs, InodeNo};
use rt::{ManualClock, Timestamp};

use super::{Meter, compare, kill, mount, name, remount};
use crate::support::Volume;

const ROOT: InodeNo = InodeNo::ROOT;
const ZONE_BLOCKS: u32 = 64;

fn spec(zones: u64, are_alike: bool) -> Spec {
    let mut spec = Spec::new(4096, zones as u32, ZONE_BLOCKS);
    if !are_alike {
        for (index, capacity) in spec.capacities.iter_mut().enumerate() {
            *capacity -= index as u32 % 7;
        }
    }
    spec
}

/// Formats and mounts a volume, and measures both.
fn made(spec: Spec) -> (Volume, Meter) {
    let device = Arc::new(Emulated::new(spec));
    let clock = Arc::new(ManualClock::at(Timestamp(1_000_000_000)));
    let mut meter = Meter::new(&device);
    let options = FormatOptions {
        label: "many zones".into(),
        fs_id: zone::FsId([5; 16]),
        uid: 0,
        gid: 0,
        page_size: None,
        groups: Some(4),
        reserve: fs::Reserve::default(),
    };
    let shared: Arc<dyn zone::Device> = device.clone();
    meter.measure("make", || Fs::format(&shared, &options, &*clock).unwrap());
    let fs = meter.measure("mount", || mount(&device, &clock));
    (Volume { device, clock, fs }, meter)
}

#[test]
fn zones_of_a_device() {
    for are_alike in [true, false] {
        compare(if are_alike { "zones" } else { "zones of several sizes" }, 1000, |number| {
            let (volume, mut meter) = made(spec(number, are_alike));
            // Nine tenths of the space. Blocks that repeat one word take no memory of the emulated device.
            let piece = vec![7; 128 << 10];
            let pieces = number * 9 / 10 / 2 * u64::from(ZONE_BLOCKS) * 4096 * 8 / 10 / piece.len() as u64;
            let files: Vec<_> = (0..8).map(|n| volume.file(ROOT, &name(n))).collect();
            let mut write = |what: &'static str, files: &[fs::Handle]| {
                meter.measure(what, || {
                    for n in 0..pieces {
                        let file = &files[n as usize % files.len()];
                        volume.write(file, n / files.len() as u64 * piece.len() as u64, &piece);
                    }
                    volume.settle();
                });
            };
            write("fill half", &files);
            write("overwrite", &files);
            write("overwrite again", &files);
            meter.measure("count space, a hundred times", || {
                (0..100).for_each(|_| _ = volume.fs.statfs().unwrap());
            });
            meter.measure("check", || assert_eq!(volume.fs.check().unwrap(), []));
            drop(files);
            let volume = meter.measure("unmount and mount", || remount(volume));
            (0..8).step_by(2).for_each(|n| volume.unlink(ROOT, &name(n)).unwrap());
            meter.measure("collect garbage", || {
                while volume.fs.collect_garbage().unwrap() {}
                volume.settle();
            });
            volume.fs.sync().unwrap();
            let volume = meter.measure("recovery after a kill", || kill(volume));
            meter.measure("settle", || volume.settle_and_check());
            meter
        });
    }
}
