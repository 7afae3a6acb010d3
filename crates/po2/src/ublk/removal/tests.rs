//! Ownership of devices. Tests that need the driver run in the guest of `cargo system vm po2`; elsewhere they print
//! why not.

use rt::{Clock, SystemClock};

use super::super::abi::FLAG_IOCTL_ENCODE;
use super::*;

/// The longest time in which the kernel frees a number.
const PATIENCE_NS: u64 = 10_000_000_000;

/// The driver, if the kernel has it and devices may be made.
fn driver() -> Option<Control> {
    match Control::open() {
        Ok(control) => Some(control),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

/// The properties that another program requests from the driver.
fn others() -> DeviceInfo {
    let request_bytes_max = 512 << 10;
    DeviceInfo { queues: 1, depth: 1, request_bytes_max, flags: FLAG_IOCTL_ENCODE, ..DeviceInfo::default() }
}

#[test]
fn only_devices_of_ublk_are_stopped() {
    for path in ["/dev/sda", "/dev/ublkb", "/dev/ublkb01", "/dev/ublkb-1", "/run/ublkb0", "ublkb0"] {
        let error = number_of(Path::new(path)).unwrap_err();
        assert!(error.to_string().contains("is not a ublk device"), "{path}: {error}");
    }
}

/// A program that had a device open was not detected on older kernels: an exclusive open fails only if the device is
/// claimed.
#[test]
fn a_device_is_in_use_while_a_process_has_it_open() {
    let device = Path::new("/dev/full");
    let is_user = || users(device).contains(&std::process::id());
    assert!(!is_user());
    let opened = File::open(device).unwrap();
    assert!(is_user());
    drop(opened);
    assert!(!is_user());
    assert!(users(Path::new("/dev/there is no such device")).is_empty());
}

/// The check on kernels that cannot stop only unused devices.
#[test]
fn a_device_in_use_is_not_claimed() {
    let Some(device) = std::env::var_os("POLDER_TEST_BLOCK_DEVICE") else {
        println!("skipped: POLDER_TEST_BLOCK_DEVICE names no unused block device");
        return;
    };
    let is_held = || match hold(Path::new(&device)) {
        Ok(held) => {
            assert!(held.is_some(), "it is there");
            true
        }
        Err(UblkError::InUse(_)) => false,
        Err(error) => panic!("{error}"),
    };
    assert!(is_held());
    let opened = File::open(&device).unwrap();
    assert!(!is_held());
    drop(opened);
    assert!(is_held());
}

/// `polder po2 --end` removed the block device of any program, and its users lost their data.
#[test]
fn the_device_of_another_program_is_refused() {
    let Some(control) = driver() else { return };
    let made = control.add(&others()).unwrap();
    let found = ServedDevice::find(&path_of(made.device)).map(drop);
    assert!(matches!(found, Err(UblkError::Foreign(_))), "{found:?}");
    assert!(control.info(made.device).is_ok(), "it is still there");
    let opened = open_served(made.device).unwrap();
    control.remove(made.device, Some(Arc::new(opened))).unwrap();
}

/// A server that was ended freed its number after another process had done so, and thus removed the next device with
/// that number. While it has the device open, the number is not reused.
#[test]
fn a_number_is_not_reused_while_its_server_has_the_device_open() {
    let Some(control) = driver() else { return };
    let marked = DeviceInfo { server_flags: MARK, ..others() };
    let made = control.add(&marked).unwrap();
    let opened = open_served(made.device).unwrap();
    let found = ServedDevice::find(&path_of(made.device)).unwrap();
    assert_eq!(found.server().unwrap(), Some(std::process::id()), "it has not said so, and has it open");
    found.end().unwrap();
    let again = Arc::new(opened.try_clone().unwrap());
    control.remove(made.device, Some(again)).unwrap();
    let next = control.add(&marked).unwrap();
    assert_ne!(next.device, made.device);
    drop(opened);
    ServedDevice::find(&path_of(next.device)).unwrap().end().unwrap();
    // The kernel frees the number a moment after the last process has closed it.
    let clock = SystemClock::new();
    let started = clock.monotonic_ns();
    let gone = loop {
        match ServedDevice::find(&path_of(next.device)).map(drop) {
            Ok(()) if clock.monotonic_ns() - started < PATIENCE_NS => std::thread::yield_now(),
            found => break found,
        }
    };
    assert!(matches!(gone, Err(UblkError::Unsuitable(_))), "{gone:?}");
}
