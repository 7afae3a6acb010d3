use zone::ZoneState;

use super::*;

/// The checkpoint that a replay begins with may have been taken while a zone held metadata; the records
/// after it may have made it a zone of data. When its last live block died, the next checkpoint took it
/// for a dead zone of metadata and reset it, although writers had just appended to it: what they then
/// acknowledged was gone.
#[test]
fn a_zone_that_a_replay_makes_one_of_data_is_no_dead_metadata() {
    let (zone, life) = (ZoneId(0), Life(2));
    let held = ZoneEntry { life: Life(1), role: Role::Metadata, live: 0, deltas: 0, user: [0; 16] };
    let info = ZoneInfo { state: ZoneState::Full, capacity: 64, pointer: 64 };
    let kept = KeptForMetadata { blocks: 0, of_zone: 1 };
    let zones = ZoneTable::new(vec![ZoneEntry::default()], &[info], 1, 4, kept);
    zones.load(zone, held);
    zones.apply(&[Op::ZoneOpened { zone, life, role: Role::Data }], Lsn(7), &[]);
    zones.set_usage(zone, Use::Closed);
    assert_eq!(zones.closed_metadata(), []);
    assert_eq!(zones.claim_dead_metadata(), []);
}
