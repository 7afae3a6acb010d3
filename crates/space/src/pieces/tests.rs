use super::*;

/// Four zones of data, a fifth of them deleted and then collected: the file that is left lies together, and reading it
/// takes hardly more commands than one that was written alone.
#[test]
fn a_file_written_in_pieces_lies_together_when_garbage_was_collected() {
    let shape = Shape { zones: 24, zone_bytes: 4 << 20 };
    let seen = Pieces { shape, pieces: 300, others: 15, deleted: 8, seed: 1 }.run().unwrap();
    assert_eq!(seen.before.fragments, 300, "{seen:?}");
    assert!(seen.moved_bytes > 0 && seen.collected.fragments * 10 < seen.before.fragments, "{seen:?}");
    assert!(seen.put_together.reads * 10 <= seen.alone.reads * 11, "{seen:?}");
}
