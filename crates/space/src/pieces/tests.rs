use super::*;

/// Collecting by hand moves what belongs together side by side, as much as there is room for; then reading takes hardly
/// more commands than of a file that was written alone, and what is left of the pieces can be put together.
#[test]
fn a_file_written_in_pieces_comes_together() {
    let shape = Shape::new(24, 4 << 20);
    let seen = Pieces { shape, pieces: 300, others: 15, deleted: 8, seed: 1 }.run().unwrap();
    assert_eq!(seen.before.fragments, 300, "{seen:?}");
    assert!(seen.moved_bytes > 0 && seen.collected.fragments * 4 < seen.before.fragments, "{seen:?}");
    assert!(seen.collected.reads * 10 <= seen.alone.reads * 11, "{seen:?}");
    assert!(seen.put_together.reads * 10 <= seen.alone.reads * 11, "{seen:?}");
}
