use super::*;

const PAGE: usize = 4096;

fn empty(level: u8) -> Page {
    Page::new(&Pages::new(PAGE), NodeId(1), Group(0), level)
}

/// A key of one of a few forms, which share long or short prefixes. Some are prefixes of others.
fn random_key(rng: &mut fastrand::Rng) -> Vec<u8> {
    let number = u64::from(rng.u32(0..3) * 70_000 + rng.u32(0..200));
    let mut key = vec![rng.u8(1..4)];
    match rng.u8(0..4) {
        0 => key.extend_from_slice(&number.to_be_bytes()),
        1 => key.extend_from_slice(&(number << 48).to_be_bytes()),
        2 => key.extend(std::iter::repeat_n(0, number as usize % 5)),
        _ => key.extend_from_slice(format!("name {number}").as_bytes()),
    }
    key
}

/// The page finds the same as a binary search over its keys, for any key.
fn check(page: &Page, keys: &[Vec<u8>], rng: &mut fastrand::Rng) {
    assert_eq!(page.count(), keys.len());
    for _ in 0..20 {
        let key = random_key(rng);
        assert_eq!(page.search(&key), keys.binary_search(&key), "{key:?} among {keys:?}");
    }
    for (index, key) in keys.iter().enumerate() {
        assert_eq!((page.search(key), page.key(index)), (Ok(index), key.as_slice()));
    }
}

#[test]
fn a_leaf_finds_its_keys_with_any_common_prefix() {
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut page, mut keys) = (empty(0), Vec::new());
        for step in 0..300 {
            let key = random_key(&mut rng);
            let found = keys.binary_search(&key);
            match found {
                Ok(index) if rng.bool() => {
                    keys.remove(index);
                    page.remove(index);
                }
                Err(index) if page.fits(key.len(), 20) => {
                    keys.insert(index, key.clone());
                    page.put(Err(index), &key, &[step as u8; 20]);
                }
                _ => {}
            }
            if step % 10 == 0 {
                check(&page, &keys, &mut rng);
            }
        }
        let (mut right, at) = (empty(0), keys.len() / 3);
        page.move_entries(at, &mut right);
        check(&page, &keys[..at], &mut rng);
        check(&right, &keys[at..], &mut rng);
        let mut copy = empty(0);
        copy.copy_from(&right);
        check(&copy, &keys[at..], &mut rng);
        check(&Page::load(page.bytes.clone()).expect("the page is valid"), &keys[..at], &mut rng);
    }
}

#[test]
fn an_inner_node_leads_every_key_to_its_branch() {
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut page, mut keys) = (empty(1), vec![Vec::new()]);
        page.insert(0, &[], &0_u64.to_le_bytes());
        for id in 1..120_u64 {
            let key = random_key(&mut rng);
            if let Err(index) = keys.binary_search(&key) {
                keys.insert(index, key.clone());
                page.insert(index, &key, &id.to_le_bytes());
            }
            check(&page, &keys, &mut rng);
            assert_eq!(page.branch(&[]), 0);
        }
        check(&Page::load(page.bytes.clone()).expect("the page is valid"), &keys, &mut rng);
    }
}

/// A right checksum does not make a page valid: a value may look like a cell.
#[test]
fn a_page_whose_cells_overlap_is_refused() {
    let mut page = empty(0);
    page.insert(0, &[1, 1], &[7; 90]);
    page.insert(1, &[1, 2], &[0; 8]);
    let bytes = page.bytes.clone();
    assert!(Page::load(bytes.clone()).is_some());
    // The second cell begins inside the value of the first, or at the start of the first.
    for at in [page.slot(0) + 30, page.slot(0)] {
        let mut bytes = bytes.clone();
        let cell = page.slot(1);
        if at > page.slot(0) {
            bytes.copy_within(cell..cell + CELL_HEADER + 10, at);
        }
        bytes[PAGE_HEADER + SLOT..PAGE_HEADER + 2 * SLOT].copy_from_slice(&(at as u16).to_le_bytes());
        assert!(Page::load(bytes).is_none());
    }
}

/// A leaf with one entry that fills it could not be split for a second one.
#[test]
fn a_page_with_an_entry_that_is_too_long_is_refused() {
    let load = |key: usize, value: usize| {
        let mut page = empty(0);
        page.insert(0, &vec![1; key], &vec![7; value]);
        Page::load(page.bytes.clone()).is_some()
    };
    assert!(load(KEY_MAX, value_max(PAGE)));
    assert!(!load(KEY_MAX + 1, 0) && !load(1, value_max(PAGE) + 1));
}
