use super::*;

fn file(path: &str) -> File {
    File::Path(path.to_owned())
}

fn model(operations: &[Operation]) -> Model {
    let mut model = Model::new(512);
    operations.iter().for_each(|operation| model.apply(operation).expect("these operations are possible"));
    model
}

fn create(path: &str) -> Operation {
    Operation::Create { path: path.to_owned() }
}

fn make_directory(path: &str) -> Operation {
    Operation::MakeDirectory { path: path.to_owned() }
}

fn rename(from: &str, to: &str) -> Operation {
    Operation::Rename { from: from.to_owned(), to: to.to_owned() }
}

fn link(from: &str, to: &str) -> Operation {
    Operation::Link { from: from.to_owned(), to: to.to_owned() }
}

#[test]
fn bytes_are_written_cut_and_punched_as_in_a_plain_vector() {
    let (mut content, mut plain) = (Content::new(512), Vec::new());
    let mut rng = rt::random::Rng::with_seed(5);
    for tag in 0..300 {
        let (at, length) = (rng.usize(0..4000), rng.usize(0..2000));
        match rng.u32(0..6) {
            4 => {
                let (from, to) = (at / 512 * 512, (at + length) / 512 * 512);
                let taken = content.collapse(from as u64, (to - from) as u64);
                assert_eq!(taken.is_ok(), from < to && to < plain.len());
                if taken.is_ok() {
                    plain.drain(from..to);
                }
            }
            5 => {
                let (at, length) = (at / 512 * 512, length / 512 * 512);
                let put = content.insert(at as u64, length as u64);
                assert_eq!(put.is_ok(), length > 0 && at < plain.len());
                if put.is_ok() {
                    plain.splice(at..at, vec![0; length]);
                }
            }
            0 => {
                content.truncate(at as u64);
                plain.resize(at, 0);
            }
            1 => {
                content.punch(at as u64, length as u64);
                let end = (at + length).min(plain.len());
                plain[at.min(end)..end].fill(0);
            }
            _ => {
                content.write(at as u64, &operation_bytes(tag, length));
                if length > 0 {
                    plain.resize(plain.len().max(at + length), 0);
                    plain[at..at + length].copy_from_slice(&operation_bytes(tag, length));
                }
            }
        }
        assert_eq!(content.bytes(), plain, "after step {tag}");
        assert_eq!(content, Content::of(512, &plain), "holes and zeros are the same");
    }
}

#[test]
fn refusals_are_those_of_posix() {
    let mut model = model(&[make_directory("d"), create("d/f"), create("f"), make_directory("e")]);
    let mut gives = |operation| model.apply(&operation).expect_err("it is refused");
    assert_eq!(gives(create("f")), FsError::Exists);
    assert_eq!(gives(create("x/y")), FsError::NotFound);
    assert_eq!(gives(create("f/y")), FsError::NotDirectory);
    assert_eq!(gives(Operation::Unlink { path: "d".to_owned() }), FsError::IsDirectory);
    assert_eq!(gives(Operation::RemoveDirectory { path: "d".to_owned() }), FsError::NotEmpty);
    assert_eq!(gives(Operation::RemoveDirectory { path: "f".to_owned() }), FsError::NotDirectory);
    assert_eq!(gives(rename("d", "d/x")), FsError::Invalid);
    assert_eq!(gives(rename("d", "f")), FsError::NotDirectory);
    assert_eq!(gives(rename("f", "d")), FsError::IsDirectory);
    assert_eq!(gives(rename("e", "d")), FsError::NotEmpty);
    assert_eq!(gives(rename("x", "f")), FsError::NotFound);
    assert_eq!(gives(link("d", "x")), FsError::NotPermitted);
}

#[test]
fn links_are_counted_and_rename_over_a_link_of_itself_does_nothing() {
    let mut model = model(&[create("a"), link("a", "b")]);
    model.apply(&rename("a", "b")).expect("two names of one file");
    let snapshot = model.snapshot();
    assert_eq!((snapshot.items["a"].links, snapshot.items["b"].same_as.as_str()), (2, "a"));
}

/// Like FICLONERANGE and pwrite of Linux. The model let a clone of an empty file extend its target up to the offset
/// of the clone, and three operations of a small workload found this.
#[test]
fn an_operation_without_bytes_changes_nothing() {
    let mut model = model(&[create("empty"), create("f")]);
    model.apply(&Operation::Write { file: file("f"), offset: 0, length: 300, tag: 1 }).expect("it is there");
    let before = model.snapshot();
    let clone = Operation::Clone { from: file("empty"), offset: 0, file: file("f"), at: 4096, length: 0 };
    model.apply(&clone).expect("there is nothing to refuse");
    model.apply(&Operation::Write { file: file("f"), offset: 4096, length: 0, tag: 2 }).expect("it is there");
    assert_eq!(model.snapshot().items["f"].content, before.items["f"].content);
}

#[test]
fn an_unlinked_file_lives_while_it_is_held() {
    let mut model = model(&[create("a"), Operation::Hold { path: "a".to_owned(), handle: 1 }]);
    model.apply(&Operation::Unlink { path: "a".to_owned() }).expect("it is there");
    model.apply(&Operation::Append { file: File::Held(1), length: 9, tag: 1 }).expect("it is held");
    assert_eq!(model.content(&File::Held(1)).expect("it is held").size(), 9);
    assert_eq!(model.snapshot().items.len(), 1, "only the root can be seen");
    model.apply(&Operation::Release { handle: 1 }).expect("it is held");
    assert!(model.content(&File::Held(1)).is_err());
}

#[test]
fn a_model_of_a_snapshot_has_the_same_snapshot() {
    let mut model = model(&[make_directory("d"), create("d/f"), link("d/f", "g"), make_directory("d/e")]);
    let long = Operation::Write { file: file("g"), offset: 700, length: 2000, tag: 3 };
    model.apply(&long).expect("it is there");
    let xattr = Operation::SetXattr { file: file("d"), name: "user.x".to_owned(), value: vec![1] };
    model.apply(&xattr).expect("it is there");
    let snapshot = model.snapshot();
    let again = Model::of(&snapshot, 512);
    assert_eq!(again.snapshot(), snapshot);
    assert_eq!(again.snapshot().digest(), snapshot.digest());
}

#[test]
fn a_shorter_write_is_the_beginning_of_the_longer_one() {
    let whole = Operation::Append { file: file("a"), length: 1003, tag: 9 };
    assert!(whole.shortened(1003).is_none());
    for length in [1, 7, 8, 501, 1001] {
        assert_eq!(operation_bytes(9, length), operation_bytes(9, 1003)[..length]);
    }
}
