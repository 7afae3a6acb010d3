use polder_extent::WriteCall;
use zone::{Cause, ZoneId};

use super::*;

#[test]
fn written_data_is_read() {
    let volume = Volume::new(Spec::power_of_two());
    let mut model = Model::new();
    let data = noise(&mut Rng::with_seed(1), 100_000);
    write(&volume, &mut model, 1, 0, &data).unwrap();
    write(&volume, &mut model, 1, 5_000, &data[..10]).unwrap();
    write(&volume, &mut model, 1, 99_999, &data[..10_000]).unwrap();
    write(&volume, &mut model, 2, 70_000, &data[..1]).unwrap();
    volume.verify(&model);
}

/// Data is appended before its file is locked. If the file has another object when it is locked, or if the write is for
/// other blocks, the data is appended once more, and the blocks of the early append are dead.
#[test]
fn an_early_append_is_used_only_for_the_same_blocks_of_the_same_object() {
    let volume = Volume::new(Spec::power_of_two());
    let size = volume.block_size();
    let data = |byte| vec![byte; 2 * size as usize];
    let (first, second, third) = (data(1), data(2), data(3));
    fn call(object: u64, offset: u64, data: &[u8]) -> WriteCall<'_> {
        let object = Object(object);
        WriteCall { object, hint: Hint::default(), offset, data, valid: 0, may_refer: false }
    }
    let appended = || volume.store.traffic().bytes_written(Cause::Data) / size;
    let write = |early: WriteCall<'_>, call: WriteCall<'_>| {
        let before = appended();
        let early = volume.extents.begin_write(0, Some(&early)).unwrap();
        assert!(early.is_some(), "there is space for an early append");
        let mut tx = Tx::new();
        let (lock, length) = volume.extents.write(&mut tx, &call, early).unwrap();
        assert_eq!(length, call.data.len());
        volume.store.commit(tx).unwrap();
        drop(lock);
        appended() - before
    };
    assert_eq!(write(call(1, 0, &first), call(1, 0, &first)), 2, "the early append is used");
    assert_eq!(write(call(1, 0, &second), call(2, 0, &second)), 4, "another object");
    assert_eq!(write(call(1, 0, &third), call(1, 4 * size, &third)), 4, "other blocks");
    assert_eq!(volume.extents.budget().space().pending, 0, "no block is left pending");
    let object = [first, data(0), third].concat();
    volume.verify(&Model::from([(1, object), (2, second)]));
}

#[test]
fn data_and_holes_are_found() {
    let volume = Volume::new(Spec::power_of_two());
    let size = volume.block_size();
    volume.write(1, 2 * size, &vec![1; 3 * size as usize], 0).unwrap();
    volume.write(1, 5 * size + 10, b"inline!!", 5 * size).unwrap();
    volume.write(1, 9 * size, &vec![1; size as usize], 5 * size).unwrap();
    let data = |at| volume.extents.maps().next_data(Object(1), at).unwrap();
    let hole = |at| volume.extents.maps().next_hole(Object(1), at).unwrap();
    assert_eq!((data(0), data(2 * size + 7)), (Some(2 * size), Some(2 * size + 7)));
    assert_eq!((hole(5), hole(2 * size)), (5, 6 * size));
    assert_eq!((data(6 * size), hole(9 * size + 1), data(10 * size)), (Some(9 * size), 10 * size, None));
}

/// Every offset of every object of a few blocks. Each block is data, small data, preallocated, or a hole.
#[test]
fn the_end_of_the_data_before_an_offset_is_found() {
    let volume = Volume::new(Spec::power_of_two());
    let size = volume.block_size();
    for number in 0..4_u64.pow(4) {
        let object = number + 2;
        let kinds: Vec<u64> = (0..4).map(|block| number / 4_u64.pow(block) % 4).collect();
        for (block, kind) in (0..).zip(&kinds) {
            match kind {
                1 => drop(volume.write(object, block * size, &vec![1; size as usize], u64::MAX).unwrap()),
                2 => drop(volume.write(object, block * size + 9, b"small", u64::MAX).unwrap()),
                3 => volume.preallocate(object, block..block + 1).unwrap(),
                _ => {}
            }
        }
        for at in 0..6 {
            let is_data = |block: &u64| matches!(kinds.get(*block as usize), Some(1 | 2));
            let end = (0..at).rev().find(is_data).map(|block| (block + 1) * size);
            let found = volume.extents.maps().data_end_before(Object(object), at * size).unwrap();
            assert_eq!(found, end, "{kinds:?}, {at}");
        }
    }
}

#[test]
fn bytes_beyond_the_end_do_not_come_back() {
    let volume = Volume::new(Spec::power_of_two());
    let size = volume.block_size() as usize;
    volume.write(1, 0, &vec![7; 2 * size], 0).unwrap();
    // The file was truncated to 100 bytes meanwhile, and the rest of the block is still there.
    volume.write(1, 200, b"more", 100).unwrap();
    let mut found = vec![1; size];
    volume.extents.maps().read(Object(1), 0, &mut found).unwrap();
    let mut expected = vec![0; size];
    expected[..100].fill(7);
    expected[200..204].copy_from_slice(b"more");
    assert_eq!(found, expected);
}

#[test]
fn small_writes_stay_in_the_store_until_there_are_many() {
    let volume = Volume::new(Spec::power_of_two());
    let mut model = Model::new();
    let size = volume.block_size() as usize;
    for index in 0..40 {
        write(&volume, &mut model, 1, index * size + 5, b"small").unwrap();
    }
    assert_eq!(volume.extents.budget().space().live, 0);
    volume.step(100);
    assert!(
        volume.extents.budget().space().live >= 30 * size as u64,
        "{:?}",
        volume.extents.budget().space()
    );
    volume.verify(&model);
}

#[test]
fn small_writes_from_before_a_mount_move_with_later_ones() {
    let volume = Volume::new(Spec::power_of_two());
    let (mut model, size) = (Model::new(), volume.block_size() as usize);
    for index in 0..300 {
        write(&volume, &mut model, 1, index * size + 5, b"small").unwrap();
    }
    volume.sync();
    let Volume { device, store, extents, .. } = volume;
    drop((extents, store));
    let volume = Volume::open(device);
    volume.step(100);
    assert_eq!(volume.extents.budget().space().live, 0, "a mount does not look for inline blocks");
    for index in 300..320 {
        write(&volume, &mut model, 1, index * size + 5, b"small").unwrap();
    }
    volume.step(100);
    assert!(
        volume.extents.budget().space().live >= 320 * size as u64,
        "{:?}",
        volume.extents.budget().space()
    );
    volume.verify(&model);
}

/// Random writes and truncations of a few objects, as many as fit. GC moves all blocks many times.
fn churn(name: &str, spec: Spec, rounds: usize) {
    let volume = Volume::new(spec);
    let mut rng = Rng::with_seed(5);
    let mut model = Model::new();
    let size = volume.block_size() as usize;
    let space = volume.extents.budget().space().available as usize;
    let file = (space / 2 / 4).min(512 * size);
    for round in 0..rounds {
        let object = rng.u64(1..5);
        let length = if rng.bool() { rng.usize(1..3 * size) } else { rng.usize(1..file / 4) };
        let offset = rng.usize(0..file - length);
        let (offset, length) = match rng.u8(0..3) {
            0 => (offset / size * size, length.next_multiple_of(size)),
            _ => (offset, length),
        };
        let data = noise(&mut rng, length);
        write(&volume, &mut model, object, offset, &data).unwrap_or_else(|error| {
            panic!("{name}: round {round}: {error}: {:?}", volume.extents.budget().space())
        });
        if rng.u8(0..20) == 0 {
            truncate(&volume, &mut model, object, rng.u64(0..(file / size) as u64));
        }
        if rng.u8(0..4) == 0 {
            volume.step(1);
        }
        if round % (rounds / 8) == 0 {
            volume.verify(&model);
        }
    }
    volume.verify(&model);
    let moved = volume.store.traffic().bytes_written(zone::Cause::Gc);
    let space = volume.extents.budget().space();
    println!("{name}: {} MiB moved, {space:?}", moved >> 20);
    volume.store.close().unwrap();
    drop(volume.extents);
    drop(volume.store);
    Volume::open(volume.device).verify(&model);
}

#[test]
fn churn_on_powers_of_two() {
    churn("power of two", Spec::power_of_two(), 600);
}

#[test]
fn churn_on_odd_zones() {
    churn("odd", Spec::odd(), 600);
}

#[test]
fn churn_on_blocks_of_512() {
    churn("blocks of 512", Spec::blocks_of_512(), 600);
}

#[test]
fn churn_on_blocks_of_64k() {
    churn("blocks of 64 KiB", Spec::blocks_of_64k(), 400);
}

#[test]
fn churn_on_six_active_zones() {
    churn("six active", Spec::six_active(), 600);
}

#[test]
fn churn_on_16_zones_of_which_6_are_active() {
    churn("16 zones", Spec::new(4096, 16, 256).limits(6, 6), 600);
}

#[test]
fn churn_on_tiny_zones() {
    churn("tiny", Spec::tiny(), 600);
}

#[test]
fn readers_and_writers_do_not_disturb_each_other() {
    let volume = Arc::new(Volume::new(Spec::power_of_two()));
    let size = volume.block_size() as usize;
    let blocks = 256;
    for object in 1..5 {
        volume.write(object, 0, &vec![object as u8; blocks * size], 0).unwrap();
    }
    let writers = (1..5u64).map(|object| {
        let volume = Arc::clone(&volume);
        let body = move || {
            let mut rng = Rng::with_seed(object);
            for round in 0..150 {
                let from = rng.usize(0..blocks - 20);
                let data = vec![object as u8 + 10 * (round % 20); rng.usize(1..20) * size];
                let valid = (blocks * size) as u64;
                volume.write(object, (from * size) as u64, &data, valid).unwrap();
            }
        };
        rt::thread::spawn("writer", body).unwrap()
    });
    let readers = (1..5u64).map(|object| {
        let volume = Arc::clone(&volume);
        let body = move || {
            let mut rng = Rng::with_seed(object);
            for _ in 0..300 {
                let mut found = vec![0; rng.usize(1..30) * size];
                volume
                    .extents
                    .maps()
                    .read(Object(object), (rng.usize(0..blocks - 30) * size) as u64, &mut found)
                    .unwrap();
                assert!(found.iter().all(|&byte| byte % 10 == object as u8), "object {object}");
                assert!(found.chunks(size).all(|block| block.iter().all(|&byte| byte == block[0])));
                volume.step(1);
            }
        };
        rt::thread::spawn("reader", body).unwrap()
    });
    let threads: Vec<_> = writers.chain(readers).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    volume.check();
}

/// GC looked up the live blocks of a zone without the object's lock, in several steps. Changes by other threads between
/// the steps looked like damage, and a writer that ran GC got this error.
#[test]
fn a_map_that_changes_is_not_taken_for_damage() {
    let volume = Arc::new(Volume::new(Spec::new(4096, 40, 256)));
    let size = volume.block_size();
    let blocks = volume.extents.budget().space().available / size * 8 / 10;
    let piece = vec![1; 64 * size as usize];
    for at in (0..blocks - 64).step_by(64) {
        volume.write(1, at * size, &piece, blocks * size).unwrap();
    }
    let writers = (0..4u64).map(|seed| {
        let volume = Arc::clone(&volume);
        let body = move || {
            let mut rng = Rng::with_seed(seed);
            for _ in 0..1500 {
                let length = rng.u64(1..40);
                let data = vec![seed as u8; (length * size) as usize];
                volume.write(1, rng.u64(0..blocks - length) * size, &data, blocks * size).unwrap();
            }
        };
        rt::thread::spawn("writer", body).unwrap()
    });
    let threads: Vec<_> = writers.collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(volume.extents.collector().stats().blocks_moved > 0, "GC moved blocks");
    volume.check();
}

/// An extent is read and verified at once: it has a mebibyte at most, also if a device takes larger appends.
#[test]
fn an_extent_has_a_mebibyte_at_most_whatever_the_device_takes_at_once() {
    let (volume, mut model) = (Volume::new(Spec::blocks_of_64k().max_append(32)), Model::new());
    let size = volume.block_size();
    write(&volume, &mut model, 1, 0, &noise(&mut Rng::with_seed(6), 32 * size as usize)).unwrap();
    let pieces = extent::view_object(volume.extents.maps(), Object(1)).unwrap();
    let bytes = |piece: &extent::MapRow| match piece {
        extent::MapRow::Extent(extent) => u64::from(extent.blocks) * size,
        other => panic!("{other:?}"),
    };
    let bytes: Vec<u64> = pieces.iter().map(|(_, piece)| bytes(piece)).collect();
    assert_eq!(bytes.iter().sum::<u64>(), 32 * size);
    assert!(bytes.iter().all(|&bytes| bytes <= 1 << 20), "{bytes:?}");
    volume.verify(&model);
}

/// The last summary of a zone can be longer than the device takes at once. Without it, the zone had no footer, nor had the
/// zone to which GC moved its blocks, so GC never ended.
#[test]
fn zones_have_footers_where_an_append_is_a_block() {
    use polder_extent::format::ZoneUser;
    for zone_blocks in 536..556 {
        let volume = Volume::new(Spec::new(512, 40, zone_blocks).max_append(1));
        for at in (0..3 * u64::from(zone_blocks)).step_by(16).map(|block| block * 512) {
            volume.write(1, at, &[5; 16 * 512], at).unwrap();
        }
        let pool = volume.store.pool();
        let users = (0..pool.count()).map(ZoneId).filter(|&zone| pool.entry(zone).role.holds_data());
        let closed: Vec<ZoneUser> =
            users.map(|zone| ZoneUser::decode(&pool.entry(zone).user)).filter(|user| user.closed).collect();
        assert!(closed.len() >= 2, "zones of {zone_blocks} blocks were filled");
        assert!(closed.iter().all(|user| user.footer > 0), "{zone_blocks} blocks: {closed:?}");
        volume.check();
    }
}
