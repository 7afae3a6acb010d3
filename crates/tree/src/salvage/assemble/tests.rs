use zone::emulated::Spec;

use super::*;
use crate::tests::{Contents, formatted, open, options, random_tx};

/// What is left of the tables may name a place that has been written anew since. Were what stands there now taken for what
/// stood there, somebody would be given the rows of others as his own.
#[test]
fn a_page_is_the_one_that_was_named_or_none() {
    let device = formatted(Spec::new(4096, 64, 64), &options());
    let (store, _) = open(&device).unwrap();
    let (mut rng, mut model) = (fastrand::Rng::with_seed(1), Contents::new());
    for _ in 0..50 {
        store.commit(random_tx(&mut rng, &mut model, 900, 300)).unwrap();
    }
    store.checkpoint().unwrap();
    let scan = Scan::new(&*device, &mut |_, _| ()).unwrap();
    let loader = Loader::new(device, &scan);
    let (&id, copies) = scan.nodes.iter().next().unwrap();
    let at = copies[0].at;
    let life = store.zones().entry(at.zone()).life;
    let next_life = Address::new(at.zone(), at.block(), Life(life.0 + 1));
    let found = |at, kind, id| loader.page(at, kind, id).unwrap().is_some();
    assert!(found(at, PageKind::Node, id));
    assert!(!found(at, PageKind::Node, id + 1), "another node");
    assert!(!found(at, PageKind::MatChunk, id), "something else of the same number");
    assert!(!found(next_life, PageKind::Node, id), "what the zone held before it was reset");
}
