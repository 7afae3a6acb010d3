use rt::SystemClock;

use super::*;
use crate::speed::tests::Scratch;

fn work(folder: &Scratch, operations: u64) -> Work {
    Work { directory: folder.0.clone(), operations, threads: 1, bytes: 700, seed: 1 }
}

fn done(call: Call, work: &Work) -> Result<Done> {
    run(call, work, Arc::new(SystemClock::new()), &mut || {})
}

#[test]
fn each_operation_on_names_is_counted() {
    let folder = Scratch::new();
    for call in [Call::Create, Call::Stat, Call::OpenRead, Call::Chmod, Call::Unlink] {
        let done = done(call, &work(&folder, 50)).unwrap();
        assert_eq!(done.latencies.operations(), 50, "{call:?}");
        assert!(done.rate() > 0.0 && done.latencies.quantile_ns(0.5) <= done.took_ns);
    }
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
}

#[test]
fn files_that_changed_are_noticed() {
    let folder = Scratch::new();
    done(Call::Create, &work(&folder, 3)).unwrap();
    std::fs::write(folder.0.join("f1"), [0; 700]).unwrap();
    assert!(done(Call::OpenRead, &work(&folder, 3)).is_err());
    std::fs::write(folder.0.join("f2"), "short").unwrap();
    assert!(done(Call::Stat, &work(&folder, 3)).is_err());
    assert!(done(Call::Unlink, &work(&folder, 4)).is_err(), "there is no fourth file");
}

#[test]
fn churn_keeps_the_number_and_the_sizes_of_files() {
    let folder = Scratch::new();
    done(Call::Fill, &work(&folder, 12)).unwrap();
    let bytes = || {
        let sizes =
            std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
        sizes.sum::<u64>()
    };
    let filled = bytes();
    assert!((12 * CHURNED_BYTES.0..12 * CHURNED_BYTES.1).contains(&filled));
    assert_eq!(done(Call::Churn, &work(&folder, 30)).unwrap().latencies.operations(), 30);
    assert_eq!(bytes(), filled);
    assert_eq!(done(Call::ReadAll, &work(&folder, 0)).unwrap().latencies.operations(), 12);
}

#[test]
fn bytes_through_the_cache_are_compared() {
    let folder = Scratch::new();
    let pieces = Work { bytes: 3 << 20, ..work(&folder, 0) };
    assert_eq!(done(Call::BufferedWrite, &pieces).unwrap().latencies.operations(), 3);
    done(Call::BufferedRead, &pieces).unwrap();
    assert!(done(Call::BufferedRead, &Work { seed: 2, ..pieces }).is_err());
}
