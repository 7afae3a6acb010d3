//! Lifetimes that programs set, and the resulting placement.

use std::collections::BTreeSet;

use emulated::Spec;
use extent::MapRow;
use extent::Object;
use fs::{Caller, FsError, InodeNo, LIFETIME_ATTRIBUTE, Lifetime, OpenFlags};
use zone::{Role, ZoneId};

use crate::support::{Volume, pattern};
use crate::watched::watched_volume;

const ROOT: InodeNo = InodeNo::ROOT;

fn set(volume: &Volume, inode: InodeNo, value: &str) -> fs::Result<()> {
    volume.fs.set_xattr(&Caller::root(), inode, LIFETIME_ATTRIBUTE, value.as_bytes(), false, false)
}

fn get(volume: &Volume, inode: InodeNo) -> fs::Result<String> {
    let value = volume.fs.get_xattr(&Caller::root(), inode, LIFETIME_ATTRIBUTE)?;
    Ok(String::from_utf8(value).unwrap())
}

fn zones_of(volume: &Volume, inode: InodeNo) -> BTreeSet<ZoneId> {
    let pieces = extent::view_object(volume.fs.extents().maps(), Object(inode.0)).unwrap();
    let zone = |piece| if let MapRow::Extent(extent) = piece { Some(extent.address.zone()) } else { None };
    pieces.into_iter().filter_map(|(_, piece)| zone(piece)).collect()
}

#[test]
fn the_attribute_is_the_lifetime_and_outlives_the_mount() {
    let volume = Volume::new();
    let inode = volume.file(ROOT, "f").inode();
    assert_eq!(get(&volume, inode), Err(FsError::NoAttribute));
    for lifetime in [Lifetime::Short, Lifetime::Medium, Lifetime::Long, Lifetime::Extreme] {
        set(&volume, inode, lifetime.name()).unwrap();
        assert_eq!(get(&volume, inode).as_deref(), Ok(lifetime.name()));
        assert_eq!(volume.fs.lifetime(inode), Ok(lifetime));
    }
    for refused in ["", "LONG", "long\0", "forever"] {
        assert_eq!(set(&volume, inode, refused), Err(FsError::Invalid), "{refused}");
    }
    volume.fs.set_xattr(&Caller::root(), inode, b"user.other", b"1", false, false).unwrap();
    let volume = volume.remount();
    assert_eq!(get(&volume, inode).as_deref(), Ok("extreme"));
    let names = BTreeSet::from_iter(volume.fs.list_xattrs(&Caller::root(), inode).unwrap());
    assert_eq!(names, BTreeSet::from([b"user.other".to_vec(), LIFETIME_ATTRIBUTE.to_vec()]));
    volume.settle_and_check();

    set(&volume, inode, "none").unwrap();
    assert_eq!(get(&volume, inode), Err(FsError::NoAttribute));
    assert_eq!(volume.fs.list_xattrs(&Caller::root(), inode).unwrap(), [b"user.other".to_vec()]);
    volume.settle_and_check();
}

#[test]
fn the_lifetime_is_set_replaced_and_removed_like_any_attribute() {
    let volume = Volume::new();
    let (root, inode) = (Caller::root(), volume.file(ROOT, "f").inode());
    let remove = || volume.fs.remove_xattr(&root, inode, LIFETIME_ATTRIBUTE);
    let set =
        |create, replace| volume.fs.set_xattr(&root, inode, LIFETIME_ATTRIBUTE, b"long", create, replace);
    assert_eq!(remove(), Err(FsError::NoAttribute));
    assert_eq!(set(false, true), Err(FsError::NoAttribute));
    assert_eq!(set(true, false), Ok(()));
    assert_eq!(set(true, false), Err(FsError::Exists));
    assert_eq!(remove(), Ok(()));
    assert_eq!(volume.fs.lifetime(inode), Ok(Lifetime::Unknown));

    let stranger = Caller::user(1000, 1000);
    let by_stranger = volume.fs.set_xattr(&stranger, inode, LIFETIME_ATTRIBUTE, b"long", false, false);
    assert_eq!(by_stranger, Err(FsError::Access));
    assert_eq!(volume.fs.set_lifetime(&stranger, inode, Lifetime::Long), Err(FsError::NotPermitted));
    volume.fs.symlink(&root, ROOT, b"link", b"f").unwrap();
    let link = volume.find(ROOT, "link").unwrap();
    let of_link = volume.fs.set_xattr(&root, link, LIFETIME_ATTRIBUTE, b"long", false, false);
    assert_eq!(of_link, Err(FsError::NotPermitted));
}

#[test]
fn new_files_inherit_the_lifetime_of_their_directory() {
    let volume = Volume::new();
    let logs = volume.directory(ROOT, "logs");
    let before = volume.file(logs, "before").inode();
    set(&volume, logs, "short").unwrap();
    let below = volume.directory(logs, "below");
    let file = volume.file(below, "file").inode();
    let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
    let nameless = volume.fs.temporary_file(&Caller::root(), logs, 0o600, flags).unwrap().1;
    for inode in [below, file, nameless.inode()] {
        assert_eq!(get(&volume, inode).as_deref(), Ok("short"));
    }
    assert_eq!(get(&volume, before), Err(FsError::NoAttribute), "only what is made afterwards");

    set(&volume, file, "none").unwrap();
    set(&volume, below, "long").unwrap();
    assert_eq!(volume.fs.lifetime(file), Ok(Lifetime::Unknown), "what is there keeps its own");
    let volume = volume.remount();
    let later = volume.file(below, "later");
    assert_eq!(volume.fs.lifetime(later.inode()), Ok(Lifetime::Long), "after a mount too");
}

/// Files of all classes, written in turn: only short-lived data shares zones with data of unknown lifetime, and the
/// device learns the lifetime class of each zone.
#[test]
fn data_with_different_lifetimes_is_in_different_zones() {
    let (watched, volume) = watched_volume(Spec::new(4096, 200, 256), 8 << 20);
    let classes = Lifetime::ALL.map(|lifetime| {
        let directory = volume.directory(ROOT, lifetime.name());
        volume.fs.set_lifetime(&Caller::root(), directory, lifetime).unwrap();
        let files: Vec<_> = (0..20).map(|n| volume.file(directory, &n.to_string())).collect();
        (lifetime, files)
    });
    for turn in 0..20 {
        for (_, files) in &classes {
            volume.write(&files[turn], 0, &pattern(turn as u8, 40 * 4096));
        }
    }
    let zones = classes.each_ref().map(|(lifetime, files)| {
        let zones = files.iter().flat_map(|file| zones_of(&volume, file.inode()));
        (*lifetime, zones.collect::<BTreeSet<ZoneId>>())
    });
    for (one, zones_of_one) in &zones {
        for (other, zones_of_other) in zones.iter().filter(|(other, _)| other > one) {
            let may_share = matches!((one, other), (Lifetime::Unknown, Lifetime::Short));
            let shared: Vec<_> = zones_of_one.intersection(zones_of_other).collect();
            assert!(may_share || shared.is_empty(), "{one:?} and {other:?} share {shared:?}");
        }
        let hints = watched.leased.lock();
        let is_right = |zone: &ZoneId| {
            let (role, class) = hints[zone];
            role == Role::Data && (class == one.number() || one.number() < 2 && class < 2)
        };
        assert!(zones_of_one.iter().all(is_right), "{one:?} in {zones_of_one:?}: {hints:?}");
    }
    volume.settle_and_check();
}

/// Writes of less than a block reach zones later, and nevertheless the right ones. The second class finds all zones
/// open that may be open, and takes one over.
#[test]
fn small_writes_are_placed_when_they_are_written_back() {
    let volume = Volume::on(Spec::new(4096, 200, 256));
    // More than there are open zones, so that some share a zone.
    let files: Vec<_> = (0..40).map(|n| volume.file(ROOT, &n.to_string())).collect();
    let (lasting, others) = files.split_at(20);
    for file in lasting {
        volume.fs.set_lifetime(&Caller::root(), file.inode(), Lifetime::Extreme).unwrap();
    }
    for block in 0..20 {
        files.iter().for_each(|file| volume.write(file, block * 4096 + 7, &pattern(block as u8, 3000)));
    }
    volume.settle();
    let zones = [lasting, others].map(|files| {
        let each = files.iter().map(|file| zones_of(&volume, file.inode()));
        each.inspect(|zones| assert!(!zones.is_empty())).flatten().collect::<BTreeSet<ZoneId>>()
    });
    assert!(zones[0].intersection(&zones[1]).count() <= 1, "{zones:?}");
    volume.settle_and_check();
}

/// One file may contain both long-lived and short-lived data, if its handles say so.
#[test]
fn the_lifetime_of_a_handle_applies_to_writes_through_it() {
    let volume = Volume::on(Spec::new(4096, 200, 256));
    let brief = volume.file(ROOT, "f");
    let lasting = volume.open(brief.inode());
    brief.set_lifetime(Some(Lifetime::Short));
    lasting.set_lifetime(Some(Lifetime::Extreme));
    assert_eq!((brief.lifetime(), lasting.lifetime()), (Some(Lifetime::Short), Some(Lifetime::Extreme)));
    let (piece, pieces) = (4096_u64, 64);
    for number in 0..pieces {
        let handle = if number % 2 == 0 { &brief } else { &lasting };
        volume.write(handle, number * piece, &pattern(number as u8, piece as usize));
    }
    let extents = extent::view_object(volume.fs.extents().maps(), Object(brief.inode().0)).unwrap();
    let zone = |wanted: u64| {
        let of = extents.iter().filter(move |(block, _)| block % 2 == wanted);
        BTreeSet::from_iter(of.map(|(_, piece)| match piece {
            MapRow::Extent(extent) => extent.address.zone(),
            other => panic!("{other:?} is not in a zone"),
        }))
    };
    assert!(zone(0).is_disjoint(&zone(1)), "{:?} {:?}", zone(0), zone(1));
    assert_eq!(volume.fs.lifetime(brief.inode()), Ok(Lifetime::Unknown), "the file has no lifetime");
    brief.set_lifetime(None);
    assert_eq!(brief.lifetime(), None);
    volume.settle_and_check();
}

/// The story: `user.polder.livetime` was accepted, stored, and had no effect.
#[test]
fn an_unknown_attribute_of_polder_is_refused() {
    let volume = Volume::new();
    let (root, inode) = (Caller::root(), volume.file(ROOT, "f").inode());
    let set = |name: &str| volume.fs.set_xattr(&root, inode, name.as_bytes(), b"short", false, false);
    for name in ["user.polder.livetime", "user.polder.", "user.polder.lifetime2"] {
        assert_eq!(set(name), Err(FsError::Invalid), "{name}");
        assert_eq!(volume.fs.get_xattr(&root, inode, name.as_bytes()), Err(FsError::NoAttribute), "{name}");
        assert_eq!(
            volume.fs.remove_xattr(&root, inode, name.as_bytes()),
            Err(FsError::NoAttribute),
            "{name}"
        );
    }
    // Files that are copied out of a view of zones have these.
    for name in ["lifetime", "state", "role", "life"].map(|name| format!("user.polder.{name}")) {
        assert_eq!(set(&name), Ok(()), "{name}");
    }
    assert_eq!(set("user.polders"), Ok(()));
}
