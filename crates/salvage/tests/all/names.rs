//! Names and contents of a volume whose log is lost, and that is otherwise undamaged or not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use emulated::{Emulated, Spec};
use fs::{Caller, FallocateMode, FsError, InodeNo, Kind};
use rt::random::Rng;
use salvage::{Problem, Salvage, Unsaved};
use zone::format::decode_header;
use zone::{Blocks, Device, Role, ZoneId, ZoneState};

use crate::support::{Volume, pattern};

const ROOT: InodeNo = InodeNo::ROOT;

/// The contents of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Saved {
    inode: InodeNo,
    kind: Kind,
    owner: (u32, u32, u16),
    modified: i64,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    contents: Vec<u8>,
}

type Tree = BTreeMap<String, Saved>;

/// A volume with files of every kind, after some use.
fn used(seed: u64) -> Volume {
    let volume = Volume::on(Spec::new(4096, 40, 256));
    let (root, mut rng) = (Caller::root(), Rng::with_seed(seed));
    let mut directories = vec![ROOT];
    for number in 0..30 {
        let parent = directories[rng.usize(0..directories.len())];
        directories.push(volume.directory(parent, &format!("d{number}")));
    }
    for number in 0..300usize {
        let parent = directories[rng.usize(0..directories.len())];
        let file = volume.file(parent, &format!("file {number}"));
        let length = [0, 10, 900, 3000, 5000, 70_000][rng.usize(0..6)];
        volume.clock.advance(1_000_000);
        volume.write(&file, rng.u64(0..3) * 40_000, &pattern(number as u8, length));
        match number % 13 {
            0 => volume
                .fs
                .set_xattr(&root, file.inode(), b"user.a", &pattern(1, number * 30), false, false)
                .unwrap(),
            1 => volume
                .fs
                .link(&root, file.inode(), ROOT, format!("link {number}").as_bytes())
                .map(drop)
                .unwrap(),
            2 => drop(volume.fs.symlink(&root, parent, format!("s{number}").as_bytes(), b"../x").unwrap()),
            3 => volume.fs.allocate(&file, FallocateMode::Allocate { keep_size: false }, 0, 60_000).unwrap(),
            4 => volume.write(&file, 5001, b"in the middle of a block"),
            5 | 6 => {
                let clone = volume.file(parent, &format!("clone {number}"));
                volume.fs.clone_range(&file, 0, &clone, 0, 0).unwrap();
                volume.write(if number % 2 == 0 { &clone } else { &file }, 9000, b"changed since");
            }
            _ => {}
        }
        if number % 7 == 6 {
            volume.fs.unlink(&root, parent, format!("file {number}").as_bytes()).unwrap();
        }
        if number % 50 == 49 {
            volume.settle();
            volume.fs.store().checkpoint().unwrap();
        }
    }
    // Overwrites until garbage collection has moved blocks.
    let large = volume.file(ROOT, "large");
    for round in 0..=u8::MAX {
        if volume.fs.extents().collector().stats().zones_reclaimed > 0 {
            break;
        }
        volume.write(&large, 0, &pattern(round, 2_000_000));
        volume.write(&large, 3_000_000, &pattern(round, 700_000));
        volume.settle();
        // It moves nothing out of zones in which all blocks are dead.
        volume.fs.collect_garbage().unwrap();
    }
    volume
}

/// The names of a mounted volume.
fn tree_of(volume: &Volume) -> Tree {
    let (root, fs) = (Caller::root(), &volume.fs);
    let mut tree = Tree::new();
    let mut left = vec![(ROOT, String::new())];
    while let Some((inode, path)) = left.pop() {
        let found = fs.attributes(inode).unwrap();
        let names = fs.list_xattrs(&Caller::root(), inode).unwrap().into_iter();
        let xattrs = names.map(|name| (name.clone(), fs.get_xattr(&root, inode, &name).unwrap()));
        let xattrs = xattrs.collect();
        let contents = match found.kind {
            Kind::File => volume.contents(&volume.open(inode)),
            Kind::Symlink => fs.read_link(inode).unwrap(),
            _ => Vec::new(),
        };
        let (owner, modified) = ((found.uid, found.gid, found.permissions), found.modified.0);
        if found.kind == Kind::Directory {
            let handle = fs.open(&root, inode, crate::support::READ).unwrap();
            fs.read_directory(&handle, 0, &mut |entry| {
                let name = String::from_utf8(entry.name).unwrap();
                if name != "." && name != ".." {
                    left.push((entry.inode, format!("{path}/{name}")));
                }
                true
            })
            .unwrap();
        }
        tree.insert(path, Saved { inode, kind: found.kind, owner, modified, xattrs, contents });
    }
    tree
}

/// What salvage saves and reports, and whether it found the newest checkpoint.
fn salvaged(device: &Arc<Emulated>) -> (Tree, Vec<Problem>, bool) {
    let salvage = Salvage::open(device.clone(), &mut |_, _| ()).unwrap();
    let (mut tree, mut reports) = (Tree::new(), Vec::new());
    let (problems, _) = salvage
        .walk::<FsError>(&mut |item, names| {
            let path = names.path_in(item.parent, &item.name);
            let path = match path.as_slice() {
                b"" => String::new(),
                path => format!("/{}", String::from_utf8(path.to_vec()).unwrap()),
            };
            let record = &item.record;
            let mut contents = Vec::new();
            if record.kind == Kind::Symlink {
                contents.clone_from(&record.content);
            }
            if record.kind == Kind::File {
                contents.resize(if item.has_record { record.size as usize } else { 0 }, 0);
                let what = salvage.contents(item, &mut |offset, bytes| {
                    let (from, to) = (offset as usize, offset as usize + bytes.len());
                    assert!(!item.has_record || to <= contents.len(), "not beyond the size");
                    contents.resize(contents.len().max(to), 0);
                    contents[from..to].copy_from_slice(bytes);
                })?;
                let place = names.path_in(item.parent, &item.name);
                let problem = |what| Problem { path: place.clone(), inode: item.inode, what };
                reports.extend(what.into_iter().map(problem));
            }
            let saved = Saved {
                inode: item.inode,
                kind: record.kind,
                owner: (record.uid, record.gid, record.permissions),
                modified: record.modified.0,
                xattrs: item.xattrs.iter().cloned().collect(),
                contents,
            };
            if item.is_link {
                let first = format!("/{}", String::from_utf8(names.path(item.inode)).unwrap());
                let saved = Saved { inode: item.inode, ..Tree::clone(&tree).remove(&first).unwrap() };
                tree.insert(path, saved);
                return Ok(());
            }
            tree.insert(path, saved);
            Ok(())
        })
        .unwrap();
    reports.extend(problems);
    (tree, reports, salvage.tables().is_newest())
}

/// Blocks in zones of a role that begin with these bytes, each with those that follow it.
fn blocks(
    device: &Emulated,
    wanted: Role,
    (at, magic): (usize, &[u8]),
    each: Blocks,
) -> Vec<(ZoneId, Blocks)> {
    let mut found = Vec::new();
    for (index, info) in device.report().unwrap().into_iter().enumerate() {
        let (zone, mut bytes) = (ZoneId(index as u32), vec![0; 4096]);
        let header = device.read(zone, 0, &mut bytes).ok().and_then(|()| decode_header(&bytes).ok());
        if header.is_none_or(|(identity, _)| identity.role != wanted) {
            continue;
        }
        let end = if info.state.has_pointer() { info.pointer } else { info.capacity };
        for block in (1..end).step_by(each as usize) {
            let is_one = device.read(zone, block, &mut bytes).is_ok() && bytes[at..].starts_with(magic);
            found.extend((block..block + if is_one { each } else { 0 }).map(|block| (zone, block)));
        }
    }
    found
}

fn log(device: &Emulated) -> Vec<(ZoneId, Blocks)> {
    blocks(device, Role::Log, (0, b"PLOG"), 1)
}

fn metadata(device: &Emulated) -> Vec<(ZoneId, Blocks)> {
    blocks(device, Role::Metadata, (4, b"PPAG"), 4)
}

/// All blocks of files.
fn data(volume: &Volume, tree: &Tree) -> Vec<(ZoneId, Blocks)> {
    let inodes: BTreeSet<u64> = tree.values().map(|saved| saved.inode.0).collect();
    let extents = inodes.into_iter().flat_map(|inode| {
        let pieces = extent::view_object(volume.fs.extents().maps(), extent::Object(inode)).unwrap();
        pieces.into_iter().filter_map(|(_, piece)| match piece {
            extent::MapRow::Extent(extent) if extent.is_stored() => Some(extent),
            _ => None,
        })
    });
    let blocks = extents.flat_map(|extent| (0..extent.blocks).map(move |index| extent.address_of(index)));
    blocks.map(|at| (at.zone(), at.block())).collect()
}

fn wipe_log(device: &Emulated) {
    log(device).into_iter().for_each(|(zone, block)| device.make_unreadable(zone, block));
}

#[test]
fn all_files_are_saved_without_the_log() {
    for seed in 0..3 {
        let volume = used(seed);
        let expected = tree_of(&volume);
        assert!(expected.len() > 280, "{} names", expected.len());
        while volume.fs.collect_garbage().unwrap() {}
        volume.fs.unmount().unwrap();
        assert!(volume.fs.extents().collector().stats().zones_reclaimed > 0);
        wipe_log(&volume.device);
        let commands = volume.device.commands();
        let (found, reports, is_newest) = salvaged(&volume.device);
        assert!(is_newest && reports.is_empty(), "{reports:?}");
        for (path, saved) in &expected {
            assert!(found.get(path) == Some(saved), "seed {seed}: {path}");
        }
        assert_eq!(found.len(), expected.len());
        assert_eq!(volume.device.commands(), commands, "nothing is written");
    }
}

/// After the last checkpoint, files are changed, deleted, and moved by garbage collection; only the journal has that.
/// Unchanged files are saved from their new places, unless their zone is not full and therefore has no complete reverse
/// map. Changed files are saved as they were at the checkpoint, or reported as uncertain.
#[test]
fn blocks_that_gc_moved_after_the_checkpoint_are_found() {
    let volume = used(7);
    volume.fs.store().checkpoint().unwrap();
    let expected = tree_of(&volume);
    let moved_by_now = |volume: &Volume| paths_in(volume, &expected, full_zones(volume, Role::Gc));
    let (before, large) = (moved_by_now(&volume), volume.open(expected["/large"].inode));
    let checkpoints = volume.fs.store().stats().checkpoints;
    let mut rounds = 0;
    // Some zones with dead blocks have live ones too.
    while moved_by_now(&volume).difference(&before).count() < 10 {
        volume.write(&large, rounds % 5 * 200_000, &pattern(77, 100_000));
        volume.fs.extents().step().unwrap();
        volume.fs.extents().collector().manual_gc().unwrap();
        rounds += 1;
        assert!(rounds < 200);
    }
    let new = volume.file(ROOT, "new");
    volume.write(&new, 0, &pattern(5, 1_000_000));
    volume.fs.sync().unwrap();
    assert_eq!(volume.fs.store().stats().checkpoints, checkpoints, "only the journal knows");
    let mut changed = paths_in(&volume, &expected, open_zones(&volume));
    changed.insert("/large".to_owned());
    // The checkpoint has no inode of the new file. Its data in full zones are found without a name.
    changed.insert(format!("/lost+found/data-{}", new.inode().0));
    let Volume { device, fs, .. } = volume;
    drop((large, new, fs));
    wipe_log(&device);
    let (found, reports, is_newest) = salvaged(&device);
    assert!(is_newest);
    let other: BTreeSet<String> =
        reports.iter().map(|problem| format!("/{}", String::from_utf8_lossy(&problem.path))).collect();
    assert!(other.contains("/large") && other.is_subset(&changed), "{reports:?}");
    for (path, saved) in expected.iter().filter(|(path, _)| !changed.contains(*path)) {
        assert!(found.get(path) == Some(saved), "{path}");
    }
}

fn full_zones(volume: &Volume, role: Role) -> BTreeSet<ZoneId> {
    let zones = volume.fs.store().pool().in_role(role).into_iter();
    zones.filter(|zone| volume.device.report_zone(*zone).unwrap().state == ZoneState::Full).collect()
}

/// Zones that are not full.
fn open_zones(volume: &Volume) -> BTreeSet<ZoneId> {
    let states = volume.device.report().unwrap().into_iter().enumerate();
    states.filter(|(_, info)| info.state != ZoneState::Full).map(|(index, _)| ZoneId(index as u32)).collect()
}

/// Files that have a block in one of these zones.
fn paths_in(volume: &Volume, tree: &Tree, zones: BTreeSet<ZoneId>) -> BTreeSet<String> {
    let lies_there = |saved: &Saved| {
        let one = Tree::from([(String::new(), saved.clone())]);
        data(volume, &one).iter().any(|(zone, _)| zones.contains(zone))
    };
    tree.iter().filter(|(_, saved)| lies_there(saved)).map(|(path, _)| path.clone()).collect()
}

/// Whether the reports about a name allow what was saved under it.
fn is_reported(reports: &[Problem], path: &str, saved: &Saved, found: Option<&Saved>) -> bool {
    let of_path = || reports.iter().filter(|problem| problem.path == path.trim_start_matches('/').as_bytes());
    let Some(found) = found else {
        // One of the directories above it must be reported as incomplete.
        let mut above = path;
        while let Some((parent, _)) = above.rsplit_once('/') {
            let named = parent.trim_start_matches('/').as_bytes();
            let says = |problem: &Problem| {
                problem.path == named
                    && matches!(problem.what, Unsaved::Entries { .. } | Unsaved::NoInode | Unsaved::Older)
            };
            if reports.iter().any(says) {
                return true;
            }
            above = parent;
        }
        return false;
    };
    if of_path().any(|problem| matches!(problem.what, Unsaved::Older | Unsaved::NoInode)) {
        return true;
    }
    let attributes = of_path().any(|problem| problem.what == Unsaved::Attributes);
    let same_but_bytes = Saved { contents: saved.contents.clone(), ..found.clone() };
    let same_but_both = Saved { xattrs: saved.xattrs.clone(), ..same_but_bytes.clone() };
    if *saved != same_but_bytes && !(attributes && *saved == same_but_both) {
        return false;
    }
    let ranges: Vec<_> = of_path()
        .flat_map(|problem| match &problem.what {
            Unsaved::LostBytes(ranges) | Unsaved::OlderBytes(ranges) | Unsaved::UnknownBytes(ranges) => {
                ranges.clone()
            }
            _ => Vec::new(),
        })
        .collect();
    let bytes = saved.contents.iter().zip(&found.contents).enumerate();
    saved.contents.len() == found.contents.len()
        && bytes
            .filter(|(_, (one, other))| one != other)
            .all(|(at, _)| ranges.iter().any(|range| range.contains(&(at as u64))))
}

/// How one differs from the other.
fn differs(saved: &Saved, found: Option<&Saved>) -> String {
    let Some(found) = found else { return "missing".to_owned() };
    let mut bytes = saved.contents.iter().zip(&found.contents);
    let lengths = (saved.contents.len(), found.contents.len());
    let first = bytes.position(|(one, other)| one != other);
    let of = |saved: &Saved| (saved.inode, saved.kind, saved.owner, saved.modified, saved.xattrs.len());
    format!("{:?} instead of {:?}, of {lengths:?} bytes, from {first:?}", of(found), of(saved))
}

/// Random blocks are destroyed beside the log. Each file that is saved is right, or reported as uncertain.
#[test]
fn files_of_a_damaged_volume_are_right_or_reported() {
    let volume = used(1);
    let expected = tree_of(&volume);
    volume.fs.unmount().unwrap();
    wipe_log(&volume.device);
    volume.device.record();
    let (metadata, data) = (metadata(&volume.device), data(&volume, &expected));
    let (mut right, mut other, mut missing, mut newest, mut refused) = (0, 0, 0, 0, 0);
    for seed in 0..40 {
        let device = Arc::new(volume.device.image(&emulated::CrashPlan::KeepAll));
        let mut rng = Rng::with_seed(seed);
        for _ in 0..seed % 9 {
            let (zone, block) = metadata[rng.usize(0..metadata.len())];
            device.make_unreadable(zone, block);
        }
        for _ in 0..seed % 3 * 5 {
            let (zone, block) = data[rng.usize(0..data.len())];
            device.corrupt(zone, block, 5, 1);
        }
        let Ok(salvage) = Salvage::open(device.clone(), &mut |_, _| ()) else {
            refused += 1;
            continue;
        };
        let damaged = salvage.tables().counts().pages_damaged;
        drop(salvage);
        let (found, reports, is_newest) = salvaged(&device);
        newest += u32::from(is_newest);
        // That a later checkpoint may be lost is reported for the volume as a whole, and never without damage.
        assert!(
            is_newest || damaged > 0,
            "seed {seed}: nothing is damaged, and all files are reported as older"
        );
        for (path, saved) in &expected {
            match found.get(path) {
                Some(there) if there == saved => right += 1,
                there => {
                    let is_reported = !is_newest || is_reported(&reports, path, saved, there);
                    assert!(
                        is_reported,
                        "seed {seed}: {path} is {}, and this is not reported",
                        differs(saved, there)
                    );
                    (other, missing) =
                        (other + u32::from(there.is_some()), missing + u32::from(there.is_none()));
                }
            }
        }
        // Nothing is invented: an unexpected file is in a place that is reported as uncertain.
        for path in found.keys().filter(|path| !expected.contains_key(*path)) {
            let bare = path.trim_start_matches('/');
            let is_doubtful = bare.starts_with("lost+found")
                || reports.iter().any(|problem| bare.as_bytes().starts_with(&problem.path));
            assert!(!is_newest || is_doubtful, "seed {seed}: {path} was never there");
        }
    }
    println!("{right} right, {other} other, {missing} missing, newest in {newest} of 40, {refused} refused");
    assert!(refused < 5, "{refused} of 40 were refused");
    // Which files a destroyed block takes along depends on the leaf that it held: one damage may take most of them.
    assert!(5 * right > 4 * (right + other + missing), "{right} of {}", right + other + missing);
    assert!(other > 10 && missing > 0 && newest > 12, "{other} {missing} {newest}");
}
