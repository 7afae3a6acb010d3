//! The tables in `docs/format.md` agree with the structs.

use std::mem::offset_of;

use crate::zone::file::format::FileHeader;
use crate::zone::format::ZoneHeader;

const FORMAT: &str = include_str!("../../../../docs/format.md");

/// The rows of the first table behind a heading: offset, size, field.
fn rows(heading: &str) -> Vec<(usize, usize, &'static str)> {
    let at = FORMAT.find(heading).unwrap_or_else(|| panic!("docs/format.md has `{heading}`"));
    let lines = FORMAT[at..].lines().skip_while(|line| !line.starts_with('|'));
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        Some((cells[0].parse().ok()?, cells[1].parse().ok()?, cells[2]))
    };
    lines.take_while(|line| line.starts_with('|')).filter_map(row).collect()
}

fn agree(heading: &str, fields: &[(usize, &str)], size: usize) {
    let mut end = 0;
    for (offset, length, name) in rows(heading) {
        assert_eq!(offset, end, "{heading}: {name} follows the previous field");
        end = offset + length;
    }
    assert_eq!(end, size, "{heading}: the table is as long as the struct");
    for (offset, words) in fields {
        let found = rows(heading).iter().any(|(at, _, name)| at == offset && name.contains(words));
        assert!(found, "{heading}: `{words}` at {offset}");
    }
}

#[test]
fn the_tables_agree_with_the_structs() {
    agree(
        "## Zone header",
        &[
            (offset_of!(ZoneHeader, checksum), "checksum"),
            (offset_of!(ZoneHeader, zone), "zone"),
            (offset_of!(ZoneHeader, block_size), "block size"),
            (offset_of!(ZoneHeader, capacity), "capacity"),
            (offset_of!(ZoneHeader, zone_blocks), "any zone of the volume takes"),
            (offset_of!(ZoneHeader, max_open), "open"),
            (offset_of!(ZoneHeader, max_active), "active"),
        ],
        size_of::<ZoneHeader>(),
    );
    agree(
        "## Volume in a file",
        &[
            (offset_of!(FileHeader, checksum), "checksum"),
            (offset_of!(FileHeader, features_compatible), "compatible features"),
            (offset_of!(FileHeader, zone_blocks), "every zone but the last"),
            (offset_of!(FileHeader, zone_capacity), "the most blocks"),
            (offset_of!(FileHeader, end_copy), "where the end copy begins"),
        ],
        size_of::<FileHeader>(),
    );
}
