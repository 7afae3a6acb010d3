use super::*;

/// Manual GC moves the blocks of a file side by side, as far as there is free space. Then reading takes hardly more
/// commands than for a file that was written alone, and the remaining fragments can be defragmented.
#[test]
fn gc_and_defragmentation_join_a_file_written_in_pieces() {
    let shape = Shape::new(24, 4 << 20);
    let seen = Pieces { shape, pieces: 300, others: 15, deleted: 8, seed: 1 }.run().unwrap();
    assert_eq!(seen.before.fragments, 300, "{seen:?}");
    assert!(seen.moved_bytes > 0 && seen.collected.fragments * 4 < seen.before.fragments, "{seen:?}");
    assert!(seen.collected.reads * 10 <= seen.alone.reads * 11, "{seen:?}");
    assert!(seen.put_together.reads * 10 <= seen.alone.reads * 11, "{seen:?}");
}
