//! Power cuts: after each, the names are those after some prefix of the operations, and everything that was
//! acknowledged as durable is there.

use std::sync::Arc;

use fs::{Caller, Changes, Fs, InodeNo, Kind, RenameFlags};
use rt::{ManualClock, Timestamp};

use crate::support::{Volume, mount, pattern};

const ROOT: InodeNo = InodeNo::ROOT;

/// The names in a directory, each with the contents of the file.
pub(crate) fn picture(fs: &Fs, inode: InodeNo) -> Vec<(String, Vec<u8>)> {
    let handle = fs.open(&Caller::root(), inode, crate::support::READ).unwrap();
    let mut names = Vec::new();
    fs.read_directory(&handle, 2, &mut |entry| {
        names.push((String::from_utf8(entry.name).unwrap(), entry.inode));
        true
    })
    .unwrap();
    names.sort();
    names.into_iter().map(|(name, inode)| (name, contents(fs, inode))).collect()
}

fn contents(fs: &Fs, inode: InodeNo) -> Vec<u8> {
    let attributes = fs.attributes(inode).unwrap();
    if attributes.kind == Kind::Directory {
        return Vec::new();
    }
    let handle = fs.open(&Caller::root(), inode, crate::support::READ).unwrap();
    let mut bytes = vec![0; attributes.size as usize];
    assert_eq!(fs.read(&handle, 0, &mut bytes), Ok(bytes.len()));
    bytes
}

/// A few operations of every kind. Calls `after` with the state after each.
pub(crate) fn scenario(volume: &Volume, after: &mut dyn FnMut(&Volume, bool)) {
    let root = Caller::root();
    let a = volume.file(ROOT, "a");
    after(volume, false);
    volume.write(&a, 0, &pattern(1, 1000));
    after(volume, false);
    volume.write(&a, 1000, &pattern(2, 20_000));
    after(volume, false);
    volume.fs.fsync(&a, false).unwrap();
    after(volume, true);
    let b = volume.file(ROOT, "b");
    after(volume, false);
    volume.write(&b, 0, &pattern(3, 9000));
    after(volume, false);
    volume.fs.rename(&root, ROOT, b"b", ROOT, b"a", RenameFlags::default()).unwrap();
    after(volume, false);
    let cut = Changes { size: Some(4500), ..Changes::default() };
    volume.fs.set_attributes(&root, b.inode(), &cut).unwrap();
    after(volume, false);
    volume.fs.make_directory(&root, ROOT, b"d", 0o755).unwrap();
    after(volume, false);
    volume.fs.sync().unwrap();
    after(volume, true);
    volume.unlink(ROOT, "a").unwrap();
    after(volume, false);
    drop((a, b));
    volume.fs.sync().unwrap();
    after(volume, true);
    volume.fs.remove_directory(&root, ROOT, b"d").unwrap();
    after(volume, false);
}

/// Small files lose their names while the kernel references them, and are used after that.
fn scenario_of_a_kernel(volume: &Volume, after: &mut dyn FnMut(&Volume, bool)) {
    let root = Caller::root();
    volume.fs.keep_unlinked();
    let files = ["read", "changed", "grown", "given an attribute"].map(|name| {
        let handle = volume.file(ROOT, name);
        volume.write(&handle, 0, &pattern(1, 700));
        after(volume, false);
        (name, handle.inode())
    });
    for (name, _) in files {
        volume.unlink(ROOT, name).unwrap();
        after(volume, false);
    }
    let [(_, read), (_, changed), (_, grown), (_, attribute)] = files;
    let truncated = Changes { size: Some(10), ..Changes::default() };
    volume.fs.set_attributes(&root, changed, &truncated).unwrap();
    let handle = volume.open(grown);
    volume.write(&handle, 700, &pattern(2, 20_000));
    after(volume, false);
    volume.fs.set_xattr(&root, attribute, b"user.a", b"1", false, false).unwrap();
    volume.fs.sync().unwrap();
    after(volume, true);
    for inode in [read, changed, grown, attribute] {
        volume.fs.forget(inode);
        after(volume, false);
    }
    drop(handle);
    after(volume, false);
}

#[test]
fn after_a_cut_at_any_command_the_names_are_a_prefix() {
    cut_at_any_command(scenario);
}

#[test]
fn after_a_cut_at_any_command_no_unlinked_file_is_left() {
    cut_at_any_command(scenario_of_a_kernel);
}

/// Performs operations. Calls back with the state after each, and with whether it is durable.
type Scenario = fn(&Volume, &mut dyn FnMut(&Volume, bool));

fn cut_at_any_command(scenario: Scenario) {
    let volume = Volume::new();
    volume.device.record();
    let (mut pictures, mut durable) = (vec![picture(&volume.fs, ROOT)], vec![(0, 0)]);
    let mut after = |volume: &Volume, is_durable: bool| {
        pictures.push(picture(&volume.fs, ROOT));
        if is_durable {
            durable.push((volume.device.commands(), pictures.len() - 1));
        }
    };
    scenario(&volume, &mut after);
    volume.settle();
    // Once more, with every step made durable: other batches, other states.
    scenario(&volume, &mut |volume, _| {
        volume.fs.sync().unwrap();
        after(volume, true);
    });
    let mut states = 0;
    for command in 0..=volume.device.commands() {
        let floor = durable.iter().rev().find(|(at, _)| *at <= command).map_or(0, |(_, floor)| *floor);
        for plan in volume.device.plans_at(command) {
            let device = Arc::new(volume.device.image_at(command, &plan));
            let clock = Arc::new(ManualClock::at(Timestamp(0)));
            let fs = mount(&device, &clock, false);
            let found = picture(&fs, ROOT);
            assert!(
                pictures[floor..].contains(&found),
                "command {command}, {plan:?}: no picture from {floor} on"
            );
            let crashed = Volume { device, clock, fs };
            crashed.settle_and_check();
            states += 1;
        }
    }
    assert!(states > 100, "{states} states were looked at");
}

/// A file with so many extents that truncating and deleting it takes several transactions. Wherever the power is
/// lost, the next mount continues, no byte comes back, and no block is lost. Of the many losses at one command, some are
/// tried.
#[test]
fn after_a_cut_in_a_long_deletion_the_next_mount_goes_on() {
    let volume = Volume::on(emulated::Spec::new(4096, 64, 512));
    let file = volume.file(ROOT, "f");
    (0..300).for_each(|n| volume.write(&file, n * 8192, &[0xaa; 4096]));
    volume.fs.sync().unwrap();
    volume.settle();
    volume.device.record();
    let cut = Changes { size: Some(5000), ..Changes::default() };
    volume.fs.set_attributes(&Caller::root(), file.inode(), &cut).unwrap();
    volume.fs.sync().unwrap();
    volume.write(&file, 100_000, b"grown again");
    volume.fs.sync().unwrap();
    (0..300).for_each(|n| volume.write(&file, n * 8192, &[0xbb; 4096]));
    volume.unlink(ROOT, "f").unwrap();
    drop(file);
    volume.fs.sync().unwrap();
    volume.settle();
    let (commands, plans_max) = (volume.device.commands(), 48);
    for command in
        (0..=commands).filter(|command| *command < 20 || command % 100 == 0 || *command + 20 > commands)
    {
        let plans = volume.device.plans_at(command);
        let apart = plans.len().div_ceil(plans_max).max(1);
        for plan in plans.into_iter().step_by(apart) {
            let device = Arc::new(volume.device.image_at(command, &plan));
            let clock = Arc::new(ManualClock::at(Timestamp(0)));
            let fs = mount(&device, &clock, false);
            let crashed = Volume { device, clock, fs };
            crashed.settle_and_check();
            match crashed.find(ROOT, "f") {
                Ok(inode) => {
                    let contents = contents(&crashed.fs, inode);
                    let grown = contents.ends_with(b"grown again");
                    assert!(!grown || contents[5000..100_000].iter().all(|byte| *byte != 0xaa));
                }
                Err(_) => assert_eq!(crashed.fs.space().live, 0, "command {command}, {plan:?}"),
            }
        }
    }
}
