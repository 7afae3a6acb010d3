//! On a namespace with placement handles: the handle for the writes of each role, as the device reports it.

use std::fs::File;
use std::sync::Arc;

use crate::file::{FileDevice, FileOptions};
use crate::zoned::nvme::command::{Data, Queue, Words, namespace_of, run};
use crate::{Cause, Device, FsId, Lease, Leases, Life, Role, Traffic, ZoneId};

/// The device under test; it is overwritten.
const DEVICE: &str = "POLDER_TEST_HANDLES";

const IO_MANAGEMENT_RECEIVE: u8 = 0x12;
/// The statuses of handles, with space for eight.
const STATUS: u32 = 1;
const HEAD_BYTES: usize = 16;
const STATUS_BYTES: usize = 32;
const HANDLES: usize = 8;

/// The number of free blocks in the reclaim unit of each handle.
fn left(generic: &File) -> [u64; HANDLES] {
    let mut found = [0; HEAD_BYTES + HANDLES * STATUS_BYTES];
    let words = [STATUS, found.len() as u32 / 4 - 1, 0, 0, 0, 0];
    let number = namespace_of(generic).unwrap();
    let words = Words { opcode: IO_MANAGEMENT_RECEIVE, words };
    run(generic, number, Queue::Io, words, Data::In(&mut found)).unwrap();
    assert_eq!(found[HEAD_BYTES - 2..HEAD_BYTES], (HANDLES as u16).to_le_bytes(), "eight handles");
    std::array::from_fn(|handle| {
        let at = HEAD_BYTES + handle * STATUS_BYTES + 8;
        u64::from_le_bytes(found[at..at + 8].try_into().unwrap())
    })
}

#[test]
fn each_role_and_class_uses_its_own_placement_handle() {
    let Ok(path) = std::env::var(DEVICE) else {
        return println!("skipped: {DEVICE} names no block device with placement handles");
    };
    let generic = File::open(path.replace("/dev/nvme", "/dev/ng")).unwrap();
    let options = FileOptions { zone_bytes: Some(4 << 20), force: true, ..FileOptions::default() };
    let device = Arc::new(FileDevice::create(path.as_ref(), &options).unwrap());
    device.flush().unwrap();
    let shared: Arc<dyn Device> = Arc::clone(&device) as _;
    let leases = Leases::new(shared, FsId::default(), Arc::new(Traffic::default()));
    // Data of unknown lifetime, roles without a class, and data of known lifetime.
    let data = |class| (Role::Data, class);
    let streams = [data(0), (Role::Gc, 0), (Role::Log, 0), (Role::Metadata, 0), data(3), data(2), data(4)];
    let before = left(&generic);
    for (number, (role, class)) in (0..).zip(streams) {
        let lease: Lease = leases.begin(ZoneId(number), Life(1), role).unwrap();
        lease.set_lifetime_class(class);
        // One block for the header, and (number + 1) times ten.
        for _ in 0..=number {
            assert!(lease.admit(10, 0));
            lease.append(Cause::Data, &[number as u8; 10 * 4096]).unwrap();
        }
    }
    device.flush().unwrap();
    let after = left(&generic);
    let written: Vec<u64> = before.iter().zip(after).map(|(before, after)| before - after).collect();
    println!("blocks written by handle: {written:?}");
    // Writes without a handle, such as the states of zones, use the first one.
    assert!(written[0] >= 11 + 3, "{written:?}");
    assert_eq!(written[1..], [21, 31, 41, 50, 60, 70, 0]);
}
