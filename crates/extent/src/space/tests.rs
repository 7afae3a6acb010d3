use super::*;
use crate::place::tests::extents;

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
                for _ in 0..5000 {
                    let blocks = rng.i64(1..most / 2);
                    let Ok(reservation) = extents.reserve(blocks as u64) else {
                        refused.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    let now = promised.fetch_add(blocks, Ordering::AcqRel) + blocks;
                    assert!(now <= most, "{now} of {most} blocks are promised");
                    promised.fetch_sub(blocks, Ordering::AcqRel);
                    drop(reservation);
                }
            });
        }
    });
    assert!(refused.load(Ordering::Relaxed) > 0, "the writers were in each other's way");
    assert_eq!(extents.census().available(), most);
}
