//! Sets of devices.

mod cuts;
mod dying;
mod labels;
mod members;
mod model;
mod parallel;
#[cfg(feature = "planted")]
mod planted;
mod repairs;
mod replaced;
mod slots;
mod wrapped;

use std::sync::Arc;

use crate::conformance::conforms;
use crate::zone::set::{Concatenation, Layout, Set};
use crate::zone::{Device, FsId, ZoneId};
use emulated::{Emulated, Spec};

const VOLUME: FsId = FsId([7; 16]);

/// The first zones of a member, which hold its label.
const LABEL_ZONES: u32 = 3;

/// The zone of a member that belongs to a zone of the set.
fn member_zone(zone: u32) -> ZoneId {
    ZoneId(zone + LABEL_ZONES)
}

/// The layouts and numbers of members that tests try.
const LAYOUTS: [(Layout, usize); 6] = [
    (Layout::Mirror, 2),
    (Layout::Mirror, 3),
    (Layout::Stripe { chunk: 1 }, 2),
    (Layout::STRIPE, 3),
    (Layout::Stripe { chunk: 7 }, 3),
    (Layout::STRIPE, 1),
];

fn emulated(spec: &Spec, count: usize) -> Vec<Arc<Emulated>> {
    (0..count as u64).map(|member| Arc::new(Emulated::new(spec.clone().seed(member + 1)))).collect()
}

fn devices(members: &[Arc<Emulated>]) -> Vec<Arc<dyn Device>> {
    members.iter().map(|member| Arc::clone(member) as Arc<dyn Device>).collect()
}

/// In a build with planted bugs: plants the one that the environment names.
fn plant() {
    #[cfg(feature = "planted")]
    planted::plant();
}

fn create(layout: Layout, members: &[Arc<Emulated>]) -> Set {
    plant();
    Set::create(layout, devices(members), VOLUME, 0).unwrap()
}

#[test]
fn sets_conform_in_every_layout_and_shape() {
    for (name, spec) in Spec::all().into_iter().filter(|(_, spec)| spec.max_open > 6) {
        for (layout, width) in LAYOUTS {
            println!("{name}, {layout:?} of {width}");
            let members = emulated(&spec, width);
            conforms(&create(layout, &members));
            let mut reversed = devices(&members);
            reversed.reverse();
            conforms(&Set::open(reversed, false).unwrap());
        }
    }
}

#[test]
fn sets_of_unlike_members_conform() {
    let specs = [
        Spec::new(4096, 30, 100).limits(9, 11).max_append(40),
        Spec::new(4096, 26, 64).limits(14, 14).last_zone(33),
        Spec::odd().seed(5),
    ];
    for layout in [Layout::Mirror, Layout::STRIPE, Layout::Stripe { chunk: 5 }] {
        let members = specs.clone().map(|spec| Arc::new(Emulated::new(spec)));
        conforms(&create(layout, &members));
    }
}

#[test]
fn sets_in_files_conform() {
    use crate::zone::file::{FileDevice, FileOptions};
    let directory = tempfile::tempdir().unwrap();
    for layout in [Layout::Mirror, Layout::STRIPE] {
        let member = |number: u64| {
            let path = directory.path().join(format!("{layout:?}-{number}"));
            let options = FileOptions {
                size: Some((24 + number) << 20),
                zone_bytes: Some((1 + number) << 19),
                max_open: 8,
                max_active: 9,
                ..Default::default()
            };
            Arc::new(FileDevice::create(&path, &options).unwrap()) as Arc<dyn Device>
        };
        conforms(&Set::create(layout, (0..2).map(member).collect(), VOLUME, 0).unwrap());
    }
}

#[test]
fn concatenations_conform() {
    let plain = |spec: Spec| Arc::new(Emulated::new(spec)) as Arc<dyn Device>;
    let small = || plain(Spec::tiny());
    conforms(&Concatenation::new(vec![small(), plain(Spec::odd())]).unwrap());
    conforms(&Concatenation::new(vec![small(), plain(Spec::with_conventional()), small()]).unwrap());
    let set = |layout| Arc::new(create(layout, &emulated(&Spec::tiny(), 2))) as Arc<dyn Device>;
    conforms(&Concatenation::new(vec![set(Layout::Mirror), set(Layout::STRIPE)]).unwrap());
}

#[test]
fn devices_that_do_not_fit_are_not_concatenated() {
    let refused =
        |devices: Vec<Arc<dyn Device>>| Concatenation::new(devices).err().expect("it is refused").to_string();
    let device = |spec: Spec| Arc::new(Emulated::new(spec)) as Arc<dyn Device>;
    assert!(refused(Vec::new()).contains("no device"));
    assert!(refused(vec![device(Spec::tiny()), device(Spec::blocks_of_512())]).contains("several sizes"));
    let conventional = || device(Spec::new(4096, 3, 64).conventional(3));
    assert!(refused(vec![conventional(), conventional()]).contains("0 zones"));
}
