use super::*;

const ZONE: Blocks = 1000;
const BRIEF: FileClass = FileClass { particular: 7, general: 3 };
const LASTING: FileClass = FileClass { particular: 9, general: 4 };

/// Writes zone by zone, `share` percent of each in the brief class. A block dies when `lives` more blocks of its class have
/// been written.
fn run(zones: u64, share: u64, lives: [u64; 2]) -> (FileClassCounters, FileClassSums) {
    let (file_classes, mut sums) = (FileClassCounters::new(), FileClassSums::new());
    let mut written = [0_u64; 2];
    for _ in 0..zones {
        for (file_class, blocks) in [(0, ZONE as u64 * share / 100), (1, ZONE as u64 * (100 - share) / 100)] {
            let of = [BRIEF, LASTING][file_class];
            file_classes.wrote(of, blocks);
            let live_before = written[file_class].min(lives[file_class]);
            written[file_class] += blocks;
            let dead = (live_before + blocks).saturating_sub(lives[file_class]);
            file_classes.died(of, dead);
        }
        sums.scan(&file_classes, u64::from(ZONE), 64, ZONE);
    }
    (file_classes, sums)
}

#[test]
fn file_classes_are_distinguished_before_most_blocks_have_died() {
    let (file_classes, _) = run(40, 80, [2000, 30_000]);
    assert_eq!(file_classes.predict(BRIEF), Lifetime::Short);
    assert_eq!(file_classes.predict(LASTING), Lifetime::Long);
    let elsewhere = |file_class: FileClass| FileClass { particular: 99, ..file_class };
    assert_eq!(file_classes.predict(elsewhere(BRIEF)), Lifetime::Short, "the general class is used");
    assert_eq!(file_classes.predict(FileClass { particular: 5, general: 6 }), Lifetime::Unknown);
    assert_eq!(file_classes.predict(FileClass::default()), Lifetime::Unknown);
}

#[test]
fn equal_lifetimes_give_no_prediction() {
    let (file_classes, _) = run(200, 50, [20_000, 20_000]);
    assert_eq!([BRIEF, LASTING].map(|file_class| file_classes.predict(file_class)), [Lifetime::Unknown; 2]);
}

#[test]
fn without_deaths_there_is_no_prediction() {
    let (file_classes, _) = run(50, 80, [u64::MAX, u64::MAX]);
    assert_eq!([BRIEF, LASTING].map(|file_class| file_classes.predict(file_class)), [Lifetime::Unknown; 2]);
}

#[test]
fn loaded_sums_give_the_same_predictions() {
    let (_, sums) = run(40, 80, [2000, 30_000]);
    let before: Vec<(usize, ObservedClass)> = sums.slots().iter().copied().enumerate().collect();
    let (file_classes, mut sums) = (FileClassCounters::new(), FileClassSums::new());
    sums.load(&file_classes, &before);
    sums.scan(&file_classes, 0, 64, ZONE);
    assert_eq!(
        (file_classes.predict(BRIEF), file_classes.predict(LASTING)),
        (Lifetime::Short, Lifetime::Long)
    );
    sums.load(&file_classes, &[(1 << 20, ObservedClass::default())]);
}
