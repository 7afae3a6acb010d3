//! A volume for unit tests.

use std::sync::Arc;

use emulated::{Emulated, Spec};
use rt::{ManualClock, Timestamp};
use zone::Device;

use crate::{FormatOptions, Fs, MountOptions};

/// An empty mounted volume without threads, and its device.
pub(crate) fn volume() -> (Arc<dyn Device>, Arc<Fs>) {
    let device: Arc<dyn Device> = Arc::new(Emulated::new(Spec::new(4096, 32, 256)));
    (device.clone(), volume_on(device))
}

/// The same on this device.
pub(crate) fn volume_on(device: Arc<dyn Device>) -> Arc<Fs> {
    let clock = ManualClock::at(Timestamp(0));
    let options = FormatOptions {
        label: String::new(),
        fs_id: zone::FsId([1; 16]),
        uid: 0,
        gid: 0,
        page_size: None,
        groups: Some(3),
        reserve: crate::Reserve::default(),
    };
    Fs::format(&device, &options, &clock).expect("an empty device can be formatted");
    mount(&device)
}

pub(crate) fn mount(device: &Arc<dyn Device>) -> Arc<Fs> {
    let clock = Arc::new(ManualClock::at(Timestamp(0)));
    let options = MountOptions { cache_bytes: 1 << 20, read_only: false, commit_interval_ns: 1, clock };
    Fs::mount(device.clone(), options).expect("a sound volume can be mounted").0
}
