use std::mem::offset_of;

use super::*;
use crate::set::hostile;

const USED: Used =
    Used { block_size: 4096, zones: 9, member_blocks: 100, max_open: 6, max_active: 13, max_append: 64 };

#[test]
fn a_label_is_decoded_as_it_was_encoded() {
    let state = |id: u8| match id.is_multiple_of(3) {
        true => StandingState::Failed,
        false => StandingState::Counts,
    };
    let standing = |id: u8| Standing { id: MemberId([id; 16]), state: state(id) };
    for (layout, width) in [(Layout::Mirror, 2), (Layout::STRIPE, 1), (Layout::Stripe { chunk: 5 }, 24)] {
        let members = (1..=width).map(standing).collect();
        let label = Label {
            fs_id: FsId([7; 16]),
            part: Part { number: 3, count: 4 },
            layout,
            generation: GENERATIONS_MAX - 1,
            used: USED,
            repair: (layout == Layout::Mirror).then_some(Repair { member: 1, zone: ZoneId(8) }),
            members,
        };
        let mut block = encode_label(&label, usize::from(width) - 1).to_vec();
        block.resize(4096, 0);
        assert_eq!(decode_label(&block), Ok((label, usize::from(width) - 1)));
    }
}

#[test]
fn no_label_with_a_wrong_bit_is_accepted() {
    let seed = hostile::seed();
    for bit in 0..seed.len() * 8 {
        let mut label = seed.clone();
        label[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decode_label(&label), Err(NoLabel::Damaged), "bit {bit}");
        hostile::label(&label);
    }
    for length in 0..seed.len() {
        assert_eq!(decode_label(&seed[..length]), Err(NoLabel::Damaged));
    }
}

fn with_states(states: [StandingState; 3]) -> Label {
    let members = (1..=3).zip(states).map(|(id, state)| Standing { id: MemberId([id; 16]), state });
    let (seed, _) = decode_label(&hostile::seed()).unwrap();
    Label { members: members.collect(), ..seed }
}

/// The label of a member that is being rebuilt has a feature, so that an earlier release refuses it.
#[test]
fn labels_of_members_that_are_rebuilt_have_a_feature() {
    use StandingState::{Counts, Failed, Joining, Rebuilding};
    for (states, features) in [
        ([Counts, Failed, Counts], 0),
        ([Counts, Failed, Rebuilding], FEATURE_REBUILDING),
        ([Counts, Joining, Counts], FEATURE_REBUILDING),
    ] {
        let label = with_states(states);
        let encoded = encode_label(&label, 1);
        assert_eq!(u64::from(encoded[offset_of!(StoredLabel, features_incompatible)]), features);
        assert_eq!(decode_label(&encoded), Ok((label, 1)));
    }
    for (states, position) in [
        ([Rebuilding, Counts, Rebuilding], 0),
        // Only the label of the member itself says that it has not joined.
        ([Counts, Joining, Counts], 0),
    ] {
        let refused = decode_label(&encode_label(&with_states(states), position));
        assert!(matches!(refused, Err(NoLabel::Unknown(_))), "{refused:?}");
    }
    // The feature and the states agree.
    let mut encoded = encode_label(&with_states([Counts, Failed, Rebuilding]), 0);
    encoded[offset_of!(StoredLabel, features_incompatible)] = 0;
    encoded[8..12].fill(0);
    let sum = checksum(&[&encoded]);
    encoded[8..12].copy_from_slice(&sum.to_le_bytes());
    assert!(matches!(decode_label(&encoded), Err(NoLabel::Unknown(_))));
}

/// With the right checksum, but of a later release, or with values that no set has.
#[test]
fn a_label_that_is_not_understood_is_not_taken_for_none() {
    for (at, value, words) in [
        (offset_of!(StoredLabel, version), 2, "format version 2"),
        (offset_of!(StoredLabel, features_incompatible), 4, "features 0x4"),
        (offset_of!(StoredLabel, layout), 3, "not possible"),
        (offset_of!(StoredLabel, width), 25, "not possible"),
        (offset_of!(StoredLabel, generation) + 7, 0x40, "not possible"),
        (offset_of!(StoredLabel, states), 3, "not possible"),
        (offset_of!(StoredLabel, max_open), 5, "not possible"),
        (offset_of!(StoredLabel, zones), 0, "not possible"),
        (offset_of!(StoredLabel, set), 3, "not possible"),
        (offset_of!(StoredLabel, repaired_member), 4, "not possible"),
        (offset_of!(StoredLabel, repaired_member), 0, "not possible"),
        (offset_of!(StoredLabel, repaired_zone), 5, "not possible"),
    ] {
        let mut label = hostile::seed();
        label[at] = value;
        label[8..12].fill(0);
        let sum = checksum(&[&label]);
        label[8..12].copy_from_slice(&sum.to_le_bytes());
        let Err(NoLabel::Unknown(why)) = decode_label(&label) else { panic!("{words}: it is accepted") };
        assert!(why.contains(words), "{why}");
    }
}

/// The table in `docs/format.md` and the struct say the same twice.
#[test]
fn the_table_agrees_with_the_struct() {
    let format = include_str!("../../../../../docs/format.md");
    let at = format.find("## Label of a member of a set").expect("there is a section about labels");
    let lines = format[at..].lines().skip_while(|line| !line.starts_with('|')).skip(2);
    let mut end = 0;
    let rows = lines.take_while(|line| line.starts_with('|')).map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let (offset, length): (usize, usize) = (cells[0].parse().unwrap(), cells[1].parse().unwrap());
        assert_eq!(offset, end, "{line}");
        end = offset + length;
        (offset, cells[2])
    });
    let rows: Vec<(usize, &str)> = rows.collect();
    assert_eq!(end, LABEL_BYTES);
    for (offset, words) in [
        (offset_of!(StoredLabel, checksum), "checksum"),
        (offset_of!(StoredLabel, fs_id), "fs id"),
        (offset_of!(StoredLabel, generation), "generation"),
        (offset_of!(StoredLabel, features_incompatible), "features"),
        (offset_of!(StoredLabel, reader), "oldest release"),
        (offset_of!(StoredLabel, set), "the number of the set"),
        (offset_of!(StoredLabel, sets), "sets of the volume"),
        (offset_of!(StoredLabel, chunk), "chunk"),
        (offset_of!(StoredLabel, layout), "layout"),
        (offset_of!(StoredLabel, position), "position"),
        (offset_of!(StoredLabel, repaired_member), "member that lacks"),
        (offset_of!(StoredLabel, repaired_zone), "zone of the set that it lacks"),
        (offset_of!(StoredLabel, states), "state of each member"),
        (offset_of!(StoredLabel, ids), "id of each member"),
        (offset_of!(StoredLabel, block_size), "bytes of a block"),
        (offset_of!(StoredLabel, zones), "zones of the set"),
        (offset_of!(StoredLabel, member_blocks), "blocks of a zone"),
        (offset_of!(StoredLabel, max_open), "open zones"),
        (offset_of!(StoredLabel, max_active), "active zones"),
        (offset_of!(StoredLabel, max_append), "largest append"),
    ] {
        assert!(rows.iter().any(|(at, field)| *at == offset && field.contains(words)), "{words} at {offset}");
    }
}
