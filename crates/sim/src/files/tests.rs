use std::sync::Arc;

use emulated::Emulated;
use fs::{Caller, InodeNo, OpenFlags};

use super::Volume;
use super::scenarios::SAME_HASH;
use crate::shapes;

/// Otherwise the scenario of names with one hash would prove nothing: their cookies differ only in the last bits.
#[test]
fn the_names_of_one_hash_have_one_hash_on_every_simulated_volume() {
    let user = Caller { uid: 0, gid: 0, groups: Vec::new(), umask: 0, checked: true };
    let writing = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    for (seed, shape) in (1..).zip(shapes::all()) {
        rt::random::repeat_from(seed);
        let device = Arc::new(Emulated::new(shape.spec.clone().seed(seed)));
        let volume = Volume { page_size: shape.page_size, groups: 2, cache_bytes: 8 << 20 };
        volume.format(&device).unwrap();
        let fs = volume.mount(&device, Volume::clock()).unwrap();
        for name in SAME_HASH {
            fs.create(&user, InodeNo::ROOT, name.as_bytes(), 0o644, writing, true).unwrap();
        }
        let root = fs.open(&user, InodeNo::ROOT, super::observe::READING).unwrap();
        let mut cookies = Vec::new();
        fs.read_directory(&root, 2, &mut |entry| {
            cookies.push(entry.cookie);
            true
        })
        .unwrap();
        assert!(cookies.len() == 2 && cookies[0] >> 8 == cookies[1] >> 8, "{cookies:x?}");
    }
}
