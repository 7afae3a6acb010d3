use super::*;

use polder_extent::{FoundObject, SalvagedData};
use tree::Salvaged;

/// All that is found of an object, block by block.
fn found(data: &SalvagedData, object: u64) -> (FoundObject, BTreeMap<u64, Vec<u8>>) {
    let mut blocks = BTreeMap::new();
    let found = data.read(Object(object), &mut |block, bytes| drop(blocks.insert(block, bytes.to_vec())));
    (found.unwrap(), blocks)
}

/// Of a volume that is whole nothing is uncertain, and every block is given out: those in zones, small ones that the
/// metadata store has, and lost ones are told. (By what zones say of themselves alone everything would be uncertain.)
#[test]
fn what_the_tables_name_is_certain() {
    let (volume, mut model) = (Volume::new(Spec::power_of_two()), Model::new());
    let size = volume.block_size() as usize;
    let mut rng = Rng::with_seed(3);
    write(&volume, &mut model, 1, 0, &noise(&mut rng, 300 * size)).unwrap();
    write(&volume, &mut model, 1, 7 * size, &noise(&mut rng, 2 * size)).unwrap();
    write(&volume, &mut model, 2, 5 * size + 100, b"a few bytes").unwrap();
    let mut tx = Tx::new();
    let lost = volume.extents.lose_block(&mut tx, Object(1), 40).unwrap();
    volume.store.commit(tx).unwrap();
    drop(lost);
    volume.store.checkpoint().unwrap();
    let data = SalvagedData::new(Arc::new(Salvaged::scan(volume.device.clone(), &mut |_, _| ()).unwrap()));
    let (told, blocks) = found(&data, 1);
    assert_eq!((told.lost, told.blocks, blocks.len()), (std::iter::once(40..41).collect(), 299, 299));
    assert!(told.uncertain.is_empty() && told.unknown.is_empty());
    for (block, bytes) in blocks {
        assert!(bytes == model[&1][block as usize * size..][..size], "block {block}");
    }
    let (told, blocks) = found(&data, 2);
    assert_eq!(told, FoundObject { blocks: 1, ..FoundObject::default() });
    assert_eq!(blocks.keys().collect::<Vec<_>>(), [&5]);
    assert!(
        blocks[&5]
            == model[&2][5 * size..]
                .iter()
                .copied()
                .chain(std::iter::repeat(0))
                .take(size)
                .collect::<Vec<_>>()
    );
}

/// Zones that are full say themselves what they hold. Where nothing is left of the tables that is all there
/// is to find files by.
#[test]
fn full_zones_tell_of_what_they_hold() {
    let (volume, mut model) = (Volume::new(Spec::power_of_two()), Model::new());
    let size = volume.block_size() as usize;
    let mut rng = Rng::with_seed(4);
    for object in 1..=8 {
        write(&volume, &mut model, object, 0, &noise(&mut rng, 150 * size)).unwrap();
    }
    volume.store.checkpoint().unwrap();
    let data = SalvagedData::new(Arc::new(Salvaged::scan(volume.device.clone(), &mut |_, _| ()).unwrap()));
    let strays: Vec<u64> = data.strays().unwrap().iter().map(|stray| stray.object.0).collect();
    // Of the last ones more or less is in zones that are not full.
    assert!(strays.len() >= 5, "{strays:?}");
    let mut all = 0;
    for object in strays {
        let told = data.read_stray(Object(object), &mut |block, bytes| {
            assert!(*bytes == model[&object][block as usize * size..][..size], "{object}: block {block}");
            all += 1;
        });
        let told = told.unwrap();
        assert!(told.blocks > 0 && told.lost.is_empty() && !told.uncertain.is_empty(), "{told:?}");
    }
    assert!(all > 5 * 150, "{all} blocks are found");
}
