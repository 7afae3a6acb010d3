use super::*;
use crate::place::tests::extents;

/// The test's own sum goes down before the reservation does.
fn give_back(promised: &AtomicI64, held: Option<(i64, Reservation)>) {
    let Some((blocks, reservation)) = held else { return };
    promised.fetch_sub(blocks, Ordering::AcqRel);
    drop(reservation);
}

#[test]
fn no_more_is_promised_than_there_is() {
    let extents = extents();
    let most = extents.census().available();
    let promised = Arc::new(AtomicI64::new(0));
    let refused = Arc::new(AtomicI64::new(0));
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (extents, promised, refused) = (&extents, &promised, &refused);
            scope.spawn(move || {
                let mut rng = rt::random::Rng::with_seed(seed);
                let mut held = Vec::new();
                for _ in 0..5000 {
                    if held.len() == 4 {
                        give_back(promised, held.pop());
                    }
                    let blocks = rng.i64(1..most / 2);
                    let Ok(reservation) = extents.reserve(blocks as u64) else {
                        refused.fetch_add(1, Ordering::Relaxed);
                        give_back(promised, held.pop());
                        continue;
                    };
                    let now = promised.fetch_add(blocks, Ordering::AcqRel) + blocks;
                    assert!(now <= most, "{now} of {most} blocks are promised");
                    held.push((blocks, reservation));
                }
                held.into_iter().for_each(|held| give_back(promised, Some(held)));
            });
        }
    });
    assert!(refused.load(Ordering::Relaxed) > 0, "the writers were in each other's way");
    assert_eq!(extents.census().available(), most);
}
