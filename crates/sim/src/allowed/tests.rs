//! Each wrong state, constructed by the test, is distinguished from the right ones.

use super::*;
use crate::history::History;
use crate::model::{File, Operation};

const BLOCK: usize = 512;

/// A model with its past states, as the driver notes them.
struct Story {
    model: Model,
    history: History<FilesState>,
    commands: u64,
}

impl Story {
    fn new() -> Self {
        let model = Model::new(BLOCK);
        let history = History::from(FilesState::new(model.clone()));
        Story { model, history, commands: 0 }
    }

    fn then(mut self, operation: Operation) -> Self {
        self.model.apply(&operation).expect("these operations are possible");
        self.history.begin(self.commands, FilesState::after(&operation, self.model.clone()));
        self.commands += 1;
        if let Operation::Fsync { file, .. } = &operation {
            self.model.settle(file);
            self.history.begin(self.commands, FilesState::new(self.model.clone()));
            self.history.promise(self.commands, self.history.last());
        }
        self
    }

    fn create(self, path: &str) -> Self {
        self.then(Operation::Create { path: path.to_owned() })
    }

    fn write(self, path: &str, offset: u64, length: usize, tag: u64) -> Self {
        self.then(Operation::Write { file: file(path), offset, length, tag })
    }

    fn fsync(self, path: &str) -> Self {
        self.then(Operation::Fsync { file: file(path), data_only: false })
    }

    fn rename(self, from: &str, to: &str) -> Self {
        self.then(Operation::Rename { from: from.to_owned(), to: to.to_owned() })
    }

    /// The last state, damaged.
    fn wrong(&self, damage: impl Fn(&mut Model)) -> Snapshot {
        let mut model = self.model.clone();
        damage(&mut model);
        model.snapshot()
    }

    fn strong(&self, found: &Snapshot) -> bool {
        let found = FilesState::found(found.clone(), BLOCK);
        FilesState::find(self.history.allowed(self.commands), &found).is_some()
    }

    fn contract(&self, found: &Snapshot) -> bool {
        contract(self.history.allowed(self.commands), found).is_ok()
    }

    fn refuses(&self, found: &Snapshot) -> bool {
        !self.strong(found) && !self.contract(found)
    }
}

fn file(path: &str) -> File {
    File::Path(path.to_owned())
}

fn apply(model: &mut Model, operation: Operation) {
    model.apply(&operation).expect("damage is possible");
}

fn put(model: &mut Model, path: &str, offset: u64, length: usize, tag: u64) {
    apply(model, Operation::Write { file: file(path), offset, length, tag });
}

/// Two versions of four blocks; the first is synced.
fn two_versions() -> Story {
    Story::new().create("a").write("a", 0, 4 * BLOCK, 1).fsync("a").write("a", 0, 4 * BLOCK, 2)
}

#[test]
fn every_prefix_since_the_last_fsync_may_be_found() {
    let story = two_versions().create("b").write("b", 0, 9, 3);
    let states = story.history.allowed(story.commands);
    assert_eq!(states.len(), 4, "synced, second version, b, b with bytes");
    for state in states {
        assert!(story.strong(&state.snapshot) && story.contract(&state.snapshot));
    }
}

#[test]
fn an_acknowledged_change_is_not_missing() {
    let story = two_versions();
    let missing = story.wrong(|model| apply(model, Operation::Unlink { path: "a".to_owned() }));
    assert!(story.refuses(&missing));
    let empty = story.wrong(|model| apply(model, Operation::Truncate { file: file("a"), size: 0 }));
    assert!(story.refuses(&empty));
}

#[test]
fn a_block_older_than_the_last_fsync_is_refused() {
    let story = two_versions().fsync("a");
    let old = story.wrong(|model| put(model, "a", BLOCK as u64, BLOCK, 1));
    assert!(story.refuses(&old), "the first version of a block, which was synced over");
}

#[test]
fn a_block_that_mixes_two_versions_is_refused() {
    let story = two_versions();
    let torn = story.wrong(|model| put(model, "a", 0, 100, 1));
    assert!(story.refuses(&torn));
}

#[test]
fn a_write_under_way_may_be_there_in_part_by_whole_blocks() {
    let story = two_versions();
    let first = crate::model::operation_bytes(1, 4 * BLOCK);
    let mut content = story.model.content(&file("a")).expect("it is there").clone();
    content.write(BLOCK as u64, &first[BLOCK..2 * BLOCK]);
    let mut part = story.model.snapshot();
    part.items.get_mut("a").expect("it is there").content = Arc::new(content);
    assert!(story.strong(&part) && story.contract(&part));
    let later = story.create("b");
    assert!(!later.strong(&later.wrong(|model| put_content(model, &part))), "b came after the whole write");
}

/// Faults destroyed a block of one file while a write to another was in progress, and half of that write was found.
/// The state was called wrong, because states between two others were not considered where something was lost.
#[test]
fn a_write_under_way_is_known_where_a_block_of_another_file_is_lost() {
    let story = Story::new().create("b").write("b", 0, 2 * BLOCK, 9).create("a").write("a", 0, 4 * BLOCK, 1);
    let story = story.fsync("a").write("a", 0, 4 * BLOCK, 2);
    let half_and_lost = story.wrong(|model| {
        put(model, "a", 2 * BLOCK as u64, BLOCK, 77);
        put(model, "b", 0, BLOCK, 78);
    });
    let lost = |blocks: &[(&str, u64)]| -> Unreadable {
        blocks.iter().map(|(path, block)| ((*path).to_owned(), BTreeSet::from([*block]))).collect()
    };
    let is_found = |lost| under_way(story.history.allowed(story.commands), &half_and_lost, &lost).is_some();
    assert!(is_found(lost(&[("a", 2), ("b", 0)])), "the readable blocks are from two states");
    assert!(!is_found(lost(&[("a", 2)])), "a block of the other file is given, and wrong");
    assert!(!is_found(lost(&[("b", 0)])), "a block of the file is given, and is neither version");
}

/// Gives `a` the bytes that it has in `part`.
fn put_content(model: &mut Model, part: &Snapshot) {
    let mut snapshot = model.snapshot();
    snapshot.items.get_mut("a").expect("it is there").content = part.items["a"].content.clone();
    *model = Model::of(&snapshot, BLOCK);
}

#[test]
fn blocks_that_were_never_written_are_refused() {
    let story = two_versions();
    let forged = story.wrong(|model| put(model, "a", 2 * BLOCK as u64, BLOCK, 77));
    assert!(story.refuses(&forged));
    let longer = story.wrong(|model| put(model, "a", 4 * BLOCK as u64, BLOCK, 77));
    assert!(story.refuses(&longer), "the size covers bytes that were never written");
}

#[test]
fn names_are_a_prefix_and_not_a_selection() {
    let story = Story::new().create("a").create("b").rename("a", "c");
    let selection = story.wrong(|model| {
        apply(model, Operation::Unlink { path: "b".to_owned() });
    });
    assert!(story.refuses(&selection), "the rename without the create before it");
    let both =
        story.wrong(|model| apply(model, Operation::Link { from: "c".to_owned(), to: "a".to_owned() }));
    assert!(story.refuses(&both), "a rename that is half done");
}

#[test]
fn attributes_and_links_are_compared() {
    let story = Story::new().create("a").create("b");
    let mode = Operation::SetPermissions { file: File::Path("a".to_owned()), permissions: 0o777 };
    assert!(story.refuses(&story.wrong(|model| apply(model, mode.clone()))));
    let mut count = story.model.snapshot();
    count.items.get_mut("a").expect("it is there").links = 2;
    assert!(story.refuses(&count), "a link count without the name");
    let mut same = story.model.snapshot();
    same.items.get_mut("b").expect("it is there").same_as = "a".to_owned();
    assert!(story.refuses(&same), "two files that have become one");
}

#[test]
fn the_order_of_two_files_is_strong_but_not_contract() {
    let story =
        Story::new().create("a").create("b").fsync("b").write("a", 0, BLOCK, 1).write("b", 0, BLOCK, 2);
    let second_only = story.wrong(|model| apply(model, Operation::Truncate { file: file("a"), size: 0 }));
    assert!(!story.strong(&second_only), "b was written after a");
    assert!(story.contract(&second_only), "each block by itself is a version of its file");
}

#[test]
fn a_replacing_rename_does_not_come_before_its_data() {
    let story = Story::new().create("old").write("old", 0, 99, 1).fsync("old");
    let story = story.create("new").write("new", 0, 99, 2).rename("new", "old");
    let empty = story.wrong(|model| apply(model, Operation::Truncate { file: file("old"), size: 0 }));
    assert!(!story.strong(&empty), "the name, and none of the bytes");
}

#[test]
fn a_range_that_is_half_taken_out_is_wrong() {
    let (block, size) = (BLOCK as u64, BLOCK);
    let four = (0..4).fold(Story::new().create("f"), |story, n| story.write("f", n * block, size, n));
    let collapse = Operation::Collapse { file: file("f"), offset: 0, length: block };
    let story = four.fsync("f").then(collapse);
    assert!(story.strong(&story.model.snapshot()));
    // The first block is already the second one, and no other block has moved: each block is one of its two versions.
    let half = story.wrong(|model| {
        for (at, tag) in [(1, 1), (2, 2)] {
            let write = Operation::Write { file: file("f"), offset: at * block, length: size, tag };
            model.apply(&write).expect("it can be written");
        }
    });
    assert!(!story.strong(&half), "it is taken out as a whole or not at all");
}
