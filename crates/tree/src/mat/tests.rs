use zone::{Life, ZoneId};

use super::*;

const PAGE: usize = 4096;
const NEXT: u64 = 10;
const UNUSED: [u64; 2] = [3, 5];

/// A table that has used the ids below [`NEXT`], and its chunk, which has nodes for all but two of them.
fn with_unused() -> (Mat, Vec<u8>) {
    let (mat, mut chunk) = (Mat::new(PAGE, true, NEXT), vec![0; PAGE]);
    for id in (1..NEXT).filter(|id| !UNUSED.contains(id)) {
        let place = Place::whole(Address::new(ZoneId(7), id as u32, Life(1)));
        mat.set_in(&mut chunk, id as usize, place);
    }
    (mat, chunk)
}

/// Ids for four new nodes, in order.
fn allocated(mat: &Mat) -> Vec<u64> {
    let mut ids: Vec<u64> = (0..4).map(|_| mat.allocate().0).collect();
    ids.sort_unstable();
    ids
}

/// A thread that reads a chunk to find unused ids may be delayed. A node created meanwhile is not in that chunk. If
/// its id were taken for unused, another node would get it as well, and one of the two would be lost.
#[test]
fn an_id_is_used_once_after_any_change_since_the_chunk_was_read() {
    let (mat, chunk) = with_unused();
    mat.harvest(0, &chunk);
    assert_eq!(allocated(&mat), [3, 5, 10, 11], "no change");

    let (mat, chunk) = with_unused();
    mat.harvest(0, &chunk);
    mat.harvest(0, &chunk);
    assert_eq!(allocated(&mat), [3, 5, 10, 11], "another thread searched the chunk");

    let (mat, chunk) = with_unused();
    assert_eq!(mat.allocate(), NodeId(10));
    mat.harvest(0, &chunk);
    assert_eq!(allocated(&mat), [11, 12, 13, 14], "a node was created");

    let (mat, chunk) = with_unused();
    assert_eq!(mat.allocate(), NodeId(10));
    mat.cut();
    mat.harvest(0, &chunk);
    assert_eq!(allocated(&mat), [11, 12, 13, 14], "one was created, and is being saved");
}
