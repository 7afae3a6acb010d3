//! Every kind of finding, each with its damage.

use std::collections::BTreeSet;

use extent::FindingKind;
use extent::format::{EXTENT, Extent, Origin, REFCOUNT, UNWRITTEN_BLOCKS, encode_refcount, key};
use tree::Table;

use super::*;

/// An object with ten blocks, and one without own blocks.
const OWNER: Object = Object(1);
const USER: Object = Object(5);

fn put(volume: &Volume, table: Table, (object, block): (Object, u64), value: Vec<u8>) {
    let mut tx = Tx::new();
    tx.put(volume.store.group_of(object.0), table, key(object, block), value);
    volume.store.commit(tx).unwrap();
}

fn stored(volume: &Volume) -> Extent {
    let row = volume.store.get(volume.store.group_of(OWNER.0), EXTENT, &key(OWNER, 0)).unwrap();
    Extent::decode(&row.unwrap()).unwrap()
}

/// Makes the damage for a kind of finding. A new kind without an arm here does not compile.
fn plant(volume: &Volume, kind: FindingKind) {
    let reference = |block| Extent::reference(2, Origin { object: OWNER, block }).encode();
    match kind {
        FindingKind::Record => put(volume, EXTENT, (OWNER, 30), vec![1; 7]),
        FindingKind::Overlap | FindingKind::Shared => {
            put(volume, EXTENT, (OWNER, 3), stored(volume).encode());
        }
        FindingKind::Place => {
            let mut far = stored(volume).encode();
            far[7] = 0xff;
            put(volume, EXTENT, (OWNER, 30), far);
        }
        FindingKind::LiveCount => {
            let mut tx = Tx::new();
            tx.zone_live(stored(volume).address.zone(), 1);
            volume.store.commit(tx).unwrap();
        }
        FindingKind::Unwritten => {
            let mut tx = Tx::new();
            tx.counter(UNWRITTEN_BLOCKS, 3);
            volume.store.commit(tx).unwrap();
        }
        FindingKind::Reference => put(volume, EXTENT, (USER, 0), reference(600)),
        FindingKind::Unreferenced => put(volume, EXTENT, (USER, 0), reference(4)),
        FindingKind::Refcount => put(volume, REFCOUNT, (OWNER, 2), encode_refcount(1, 5).to_vec()),
        FindingKind::Data => {
            let at = stored(volume).address;
            volume.device.corrupt(at.zone(), at.block() + 2, 9, 1);
        }
        FindingKind::Lost => put(volume, EXTENT, (OWNER, 40), Extent::lost(2).encode()),
    }
}

/// All findings in a volume, of all checkers.
fn found(volume: &Volume) -> BTreeSet<FindingKind> {
    let mut findings = extent::check_data(&volume.extents, true).unwrap();
    findings.extend(extent::check_references(volume.extents.maps(), &BTreeSet::new()).unwrap().findings);
    findings.extend(extent::lost(volume.extents.maps()).unwrap());
    findings.into_iter().map(|finding| finding.kind).collect()
}

/// The names of the variants of an enum in a source.
fn variants(source: &str, name: &str) -> BTreeSet<String> {
    let body = source.split(&format!("pub enum {name} {{")).nth(1).unwrap().split("\n}").next().unwrap();
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let names = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
    names.map(|line| line.split([' ', ',']).next().unwrap().to_owned()).collect()
}

#[test]
fn every_kind_of_finding_is_planted() {
    use FindingKind::*;
    let kinds =
        [Record, Overlap, Place, Shared, LiveCount, Unwritten, Reference, Unreferenced, Refcount, Data, Lost];
    for kind in kinds {
        let volume = Volume::new(Spec::power_of_two());
        volume.write(OWNER.0, 0, &vec![5; 10 * 4096], 0).unwrap();
        assert_eq!(found(&volume), BTreeSet::new());
        plant(&volume, kind);
        assert!(found(&volume).contains(&kind), "{kind:?}: {:?}", found(&volume));
    }
    let names: BTreeSet<_> = kinds.iter().map(|kind| format!("{kind:?}")).collect();
    assert_eq!(names, variants(include_str!("../../src/finding.rs"), "FindingKind"));
}
