use std::sync::Arc;

use emulated::{Emulated, Spec};
use fs::{FormatOptions, Fs, Reserve};
use rt::{ManualClock, Timestamp};
use zone::{Device, FsId, Life, ZoneId};

use super::*;

/// Bytes of a page's header.
const HEADER: usize = 64;
/// Bytes of a place in a chunk of the MAT, with delta records and without.
const ENTRY_BYTES: [usize; 2] = [16, 8];

/// The MAT may name a place that has been written again since. If the page that is there now were used, a user could get
/// the rows of another.
#[test]
fn a_page_is_used_only_if_it_is_the_one_that_was_named() {
    let device: Arc<dyn Device> = Arc::new(Emulated::new(Spec::new(4096, 64, 64)));
    let (label, fs_id, reserve) = ("test".into(), FsId([7; 16]), Reserve::default());
    let options = FormatOptions { label, fs_id, uid: 0, gid: 0, page_size: None, groups: None, reserve };
    Fs::format(&device, &options, &ManualClock::at(Timestamp(1))).unwrap();
    let scan = Scan::new(&*device, &mut |_, _| ()).unwrap();
    let loader = Loader::new(device, &scan);
    let (&id, copies) = scan.nodes.iter().next().unwrap();
    let at = copies[0].at;
    let life = scan.zones[at.zone().0 as usize].identity.unwrap().life;
    let next_life = Address::new(at.zone(), at.block(), Life(life.0 + 1));
    let found = |at, kind, id| loader.page(at, kind, id).unwrap().is_some();
    assert!(found(at, PageKind::Node, id));
    assert!(!found(at, PageKind::Node, id + 1), "another node");
    assert!(!found(at, PageKind::MatChunk, id), "a page of another kind with the same number");
    assert!(!found(next_life, PageKind::Node, id), "a page from before the zone was reset");
}

/// Only the log tells whether places in the MAT have one address or two, and it is lost. The places in any chunk that lead
/// to their nodes tell it too, also in volumes from before delta records. With the wrong layout, the MAT would name hardly
/// any node, and no row would be certain.
#[test]
fn the_layout_of_the_mat_is_found_by_the_nodes_to_which_its_places_lead() {
    let layouts = [true, false].map(|deltas| MatLayout::new(4096, deltas));
    for (written, number) in [(0, 0), (0, 3), (1, 0), (1, 3)] {
        let (layout, mut chunk) = (&layouts[written], vec![0; 4096]);
        let mut scan = Scan::default();
        for index in 1..layout.per_chunk() {
            let at = Address::new(ZoneId(7), index as u32, Life(1));
            let entry = HEADER + index as usize * ENTRY_BYTES[written];
            chunk[entry..entry + 8].copy_from_slice(&at.bits().to_le_bytes());
            let copy = PageCopy { at, epoch: 1, lsn: 1, group: 0, level: 0, base: 0 };
            scan.nodes.insert(number * layout.per_chunk() + index, vec![copy]);
        }
        let hits = |layout| scan.hits(layout, number, Some(&chunk)) as u64;
        assert_eq!(hits(layout), layout.per_chunk() - 1, "every place leads to its node");
        assert!(
            hits(&layouts[1 - written]) < hits(layout) / 4,
            "{} of {}",
            hits(&layouts[1 - written]),
            hits(layout)
        );
    }
}
