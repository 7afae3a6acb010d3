use super::*;

/// Values of up to 80 bytes that differ in a few ranges, and in their length.
fn pair(rng: &mut fastrand::Rng) -> (Vec<u8>, Vec<u8>) {
    let old: Vec<u8> = (0..rng.usize(0..80)).map(|_| rng.u8(0..3)).collect();
    let mut new = old.clone();
    for _ in 0..rng.u8(0..4) {
        let from = rng.usize(0..=new.len());
        let to = rng.usize(from..=new.len());
        new[from..to].fill(rng.u8(0..3));
    }
    new.resize(rng.usize(0..80), rng.u8(0..3));
    (old, new)
}

#[test]
fn a_patch_turns_the_old_value_into_the_new_one() {
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..20_000 {
        let (old, new) = pair(&mut rng);
        let patch = Patch::between(&old, &new);
        assert_eq!(patch.apply(&old).as_ref(), Some(&new), "{old:?} {patch:?}");
        assert!(patch.is_sound(), "{patch:?}");
        assert!(patch.encoded_bytes() <= new.len() + PIECE_HEADER, "{old:?} {new:?} {patch:?}");
    }
}

#[test]
fn a_patch_contains_only_what_differs() {
    let old = vec![1; 900];
    let mut new = old.clone();
    (new[2], new[72], new[79]) = (7, 8, 9);
    new.extend_from_slice(&[0, 0, 5]);
    let patch = Patch::between(&old, &new);
    let expected = [(2, &[7][..]), (72, &[8]), (79, &[9]), (902, &[5])];
    assert_eq!(patch.pieces, expected.map(|(at, bytes)| (at, bytes.to_vec())));
    new[76] = 3;
    assert_eq!(Patch::between(&old, &new).pieces[1], (72, vec![8, 1, 1, 1, 3, 1, 1, 9]));
    assert_eq!(Patch::between(&old, &old).pieces, []);
}

#[test]
fn a_patch_for_another_value_is_refused() {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut refused = 0;
    for _ in 0..2000 {
        let ((old, new), (other, _)) = (pair(&mut rng), pair(&mut rng));
        let made = Patch::between(&old, &new).apply(&other);
        assert!(made.is_none_or(|made| made == new), "{old:?} {new:?} {other:?}");
        refused += u32::from(Patch::between(&old, &new).apply(&other).is_none());
    }
    assert!(refused > 1000, "{refused}");
}

#[test]
fn pieces_that_overlap_or_leave_the_value_are_unsound() {
    let patch = |pieces: &[(u16, usize)]| {
        let pieces = pieces.iter().map(|&(at, length)| (at, vec![1; length])).collect();
        Patch { length: 10, checksum: 0, pieces }
    };
    for sound in [&[][..], &[(0, 10)], &[(0, 5), (5, 5)], &[(9, 1)]] {
        assert!(patch(sound).is_sound(), "{sound:?}");
    }
    for unsound in
        [&[(0, 0)][..], &[(0, 11)], &[(0, 5), (4, 2)], &[(5, 2), (0, 2)], &[(10, 1)], &[(65_535, 9)]]
    {
        let patch = patch(unsound);
        assert!(!patch.is_sound(), "{unsound:?}");
        assert!(patch.apply(&[0; 10]).is_none(), "nor can it be applied");
    }
}
