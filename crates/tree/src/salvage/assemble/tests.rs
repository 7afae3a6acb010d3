use emulated::Spec;
use zone::{Life, ZoneId};

use super::*;
use crate::tests::{Contents, formatted, open, options, random_tx};

/// Bytes of a page's header.
const HEADER: usize = 64;
/// Bytes of a place in a chunk of the MAT, with delta records and without.
const ENTRY_BYTES: [usize; 2] = [16, 8];

/// What is left of the tables may name a place that has been written anew since. Were what stands there now taken for what
/// stood there, somebody would be given the rows of others as his own.
#[test]
fn a_page_is_the_one_that_was_named_or_none() {
    let device = formatted(Spec::new(4096, 64, 64), &options());
    let (store, _) = open(&device).unwrap();
    let (mut rng, mut model) = (fastrand::Rng::with_seed(1), Contents::new());
    for _ in 0..50 {
        store.commit(random_tx(&mut rng, &mut model, 900, 300)).unwrap();
    }
    store.checkpoint().unwrap();
    let scan = Scan::new(&*device, &mut |_, _| ()).unwrap();
    let loader = Loader::new(device, &scan);
    let (&id, copies) = scan.nodes.iter().next().unwrap();
    let at = copies[0].at;
    let life = store.zones().entry(at.zone()).life;
    let next_life = Address::new(at.zone(), at.block(), Life(life.0 + 1));
    let found = |at, kind, id| loader.page(at, kind, id).unwrap().is_some();
    assert!(found(at, PageKind::Node, id));
    assert!(!found(at, PageKind::Node, id + 1), "another node");
    assert!(!found(at, PageKind::MatChunk, id), "something else of the same number");
    assert!(!found(next_life, PageKind::Node, id), "what the zone held before it was reset");
}

/// Whether places in the MAT have one address or two, the log would say, and it is gone. By the places of any
/// chunk that lead to their nodes it is told all the same, for volumes from before leaves were written as
/// changes too: read the other way, the MAT would name hardly a node, and nothing would be certain.
#[test]
fn how_the_mat_is_to_be_read_is_told_by_where_it_leads() {
    let mats = [true, false].map(|deltas| MatLayout::new(4096, deltas));
    for (written, number) in [(0, 0), (0, 3), (1, 0), (1, 3)] {
        let (mat, mut chunk) = (&mats[written], vec![0; 4096]);
        let mut scan = Scan::default();
        for index in 1..mat.per_chunk() {
            let at = Address::new(ZoneId(7), index as u32, Life(1));
            let entry = HEADER + index as usize * ENTRY_BYTES[written];
            chunk[entry..entry + 8].copy_from_slice(&at.bits().to_le_bytes());
            let copy = Copy { at, epoch: 1, lsn: 1, group: 0, level: 0, base: 0 };
            scan.nodes.insert(number * mat.per_chunk() + index, vec![copy]);
        }
        let hits = |mat| scan.hits(mat, number, Some(&chunk)) as u64;
        assert_eq!(hits(mat), mat.per_chunk() - 1, "every place leads to its node");
        assert!(hits(&mats[1 - written]) < hits(mat) / 4, "{} of {}", hits(&mats[1 - written]), hits(mat));
    }
}
