use zone::Pages;

use super::*;
use crate::types::Group;

const PAGE: usize = 4096;

fn key(number: u32) -> Bytes {
    format!("\u{1}key {number:06}").into_bytes()
}

fn length_in(page: &Page, key: &[u8]) -> Option<usize> {
    page.search(key).ok().map(|index| page.value(index).len())
}

/// A leaf before and after random changes, and the changes.
fn story(rng: &mut fastrand::Rng) -> (Page, Page, Changes) {
    let mut base = Page::new(&Pages::new(PAGE), NodeId(9), Group(2), 0);
    base.set_lsn(Lsn(100));
    let mut changes = Changes::default();
    let put = |page: &mut Page, number: u32, value: &[u8]| {
        let found = page.search(&key(number));
        if let Ok(index) = found {
            page.remove(index);
        }
        let (Ok(index) | Err(index)) = found;
        if page.fits(key(number).len(), value.len()) {
            page.insert(index, &key(number), value);
        }
    };
    for _ in 0..rng.usize(0..80) {
        put(&mut base, rng.u32(0..60), &vec![rng.u8(..); rng.usize(0..90)]);
    }
    let mut now = base.clone();
    for _ in 0..rng.usize(0..20) {
        let number = rng.u32(0..60);
        match now.search(&key(number)) {
            Ok(index) if rng.bool() => now.remove(index),
            _ => put(&mut now, number, &vec![rng.u8(..); rng.usize(0..90)]),
        }
        changes.note(&key(number), length_in(&now, &key(number)), PAGE);
    }
    now.set_lsn(Lsn(200 + rng.u64(0..50)));
    (base, now, changes)
}

fn entries(page: &Page) -> Vec<(Bytes, Bytes)> {
    (0..page.count()).map(|index| (page.key(index).to_vec(), page.value(index).to_vec())).collect()
}

#[test]
fn a_base_with_its_changes_is_the_leaf() {
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut small, mut large) = (0, 0);
    for round in 0..2000 {
        let (base, now, changes) = story(&mut rng);
        let Some(bytes) = changes.encode(&now, Lsn(100)) else {
            large += 1;
            continue;
        };
        small += 1;
        let mut packed = Packed::new(PAGE);
        packed.add(&bytes, Lsn(200), ());
        let (pages, _) = packed.take();
        let delta = find(&pages[0], NodeId(9)).unwrap();
        assert!(delta.is_to(&base), "round {round}");
        let mut found = base.clone();
        let keys = delta.apply(&mut found).unwrap_or_else(|| panic!("round {round}"));
        assert_eq!(entries(&found), entries(&now), "round {round}");
        assert_eq!(found.header().lsn, now.header().lsn);
        // The read record can be written again as changes to the same base page.
        assert_eq!(keys.encode(&found, Lsn(100)), Some(bytes), "round {round}");
    }
    assert!(small > 500 && large > 50, "{small} small and {large} large changes");
}

#[test]
fn a_delta_record_for_another_page_is_refused() {
    let mut rng = fastrand::Rng::with_seed(2);
    let (base, now, _) = story(&mut rng);
    let mut changes = Changes::default();
    changes.note(&key(1), length_in(&now, &key(1)), PAGE);
    let bytes = changes.encode(&now, Lsn(99)).unwrap();
    let mut packed = Packed::new(PAGE);
    packed.add(&bytes, Lsn(200), ());
    let (pages, _) = packed.take();
    assert!(!find(&pages[0], NodeId(9)).unwrap().is_to(&base), "the base has LSN 100");
    assert!(find(&pages[0], NodeId(8)).is_none());
}

/// The page and the noted changes must agree whether a key exists.
#[test]
fn changes_that_name_a_key_twice_are_refused() {
    let mut leaf = Page::new(&Pages::new(PAGE), NodeId(9), Group(2), 0);
    leaf.insert(0, &key(1), &[7; 20]);
    let mut changes = Changes::default();
    changes.note(&key(1), Some(20), PAGE);
    changes.note(&key(2), None, PAGE);
    let mut bytes = changes.encode(&leaf, Lsn(0)).unwrap();
    let parse = |bytes: &[u8]| {
        let mut packed = Packed::new(PAGE);
        packed.add(bytes, Lsn(1), ());
        let (pages, _) = packed.take();
        all(&pages[0]).unwrap()[0].apply(&mut leaf.clone()).is_some()
    };
    assert!(parse(&bytes));
    let last = bytes.len() - 1;
    bytes[last] = b'1';
    assert!(!parse(&bytes));
}

#[test]
fn pages_are_filled_in_turn_and_hold_everything() {
    let mut rng = fastrand::Rng::with_seed(3);
    let (mut packed, mut added) = (Packed::new(PAGE), Vec::new());
    for number in 0..200 {
        let (_, now, changes) = story(&mut rng);
        if let Some(bytes) = changes.encode(&now, Lsn(100)) {
            packed.add(&bytes, Lsn(number), number);
            added.push((number, bytes));
        }
    }
    let count = packed.len();
    let (pages, numbers) = packed.take();
    assert_eq!((pages.len(), numbers.len()), (count, count));
    let found: Vec<(u64, Bytes)> = (pages.iter().zip(&numbers))
        .flat_map(|(page, numbers)| {
            let deltas = all(page).unwrap();
            assert_eq!(deltas.len(), numbers.len());
            numbers
                .iter()
                .copied()
                .zip(deltas.into_iter().map(|delta| delta.bytes.to_vec()))
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(found, added);
    let full =
        pages.iter().take(count - 1).all(|page| page[PAGE - PAGE / SHARE..].iter().any(|&byte| byte != 0));
    assert!(full, "a page is begun only if the one before is full");
}

/// I-TREE-2: decoders accept any bytes.
#[test]
fn damaged_delta_records_are_refused_or_make_a_valid_page() {
    let mut rng = fastrand::Rng::with_seed(4);
    for _ in 0..3000 {
        let (base, now, changes) = story(&mut rng);
        let Some(bytes) = changes.encode(&now, Lsn(100)) else { continue };
        let mut packed = Packed::new(PAGE);
        packed.add(&bytes, Lsn(200), ());
        let (mut pages, _) = packed.take();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(PAGE_HEADER - 8..PAGE_HEADER + bytes.len());
            pages[0][at] = rng.u8(..);
        }
        for delta in all(&pages[0]).unwrap_or_default() {
            let mut page = base.clone();
            if delta.apply(&mut page).is_some() {
                assert!(
                    Page::load(Pages::new(PAGE).with_bytes(page.bytes())).is_some(),
                    "the page is well formed"
                );
            }
        }
    }
}

/// Delta records counted as half of their size: a full zone looked half dead and was moved again and again, with the
/// checkpoint lock held.
#[test]
fn no_delta_records_take_more_pages_than_gc_counts() {
    for page_size in [4096, 16384, 65536] {
        let mut packed = Packed::new(page_size);
        (0..1000).for_each(|_| packed.add(&vec![1; page_size / SHARE], Lsn(1), ()));
        assert!(packed.len() as u64 <= 1000_u64.div_ceil(IN_PAGE_AT_LEAST), "{page_size}");
    }
}
