//! `docs/format.md` agrees with the structs.

use std::mem::offset_of;

use crate::format::{
    BatchHeader, CheckpointHeader, DeltaHeader, LogFrame, PageHeader, RecordHeader, Seal, ZitEntry,
};

const FORMAT: &str = include_str!("../../../../docs/format.md");

/// The rows of the first table behind a heading.
fn rows(heading: &str) -> Vec<(usize, usize, String)> {
    let at = FORMAT.find(heading).unwrap_or_else(|| panic!("docs/format.md has `{heading}`"));
    let table = FORMAT[at..]
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        Some((cells[0].parse().ok()?, cells[1].parse().ok()?, cells[2].to_owned()))
    };
    table.filter_map(row).collect()
}

fn agree(heading: &str, fields: &[(usize, &str)], size: usize) {
    let rows = rows(heading);
    let mut end = 0;
    for (offset, length, name) in &rows {
        assert_eq!(*offset, end, "{heading}: {name} follows what is before it");
        end = offset + length;
    }
    assert_eq!(end, size, "{heading}: the table is as long as the struct");
    for (offset, word) in fields {
        let row = rows.iter().find(|(_, _, name)| name.starts_with(word));
        let row = row.unwrap_or_else(|| panic!("{heading} has `{word}`"));
        assert_eq!(row.0, *offset, "{heading}: {word}");
    }
}

#[test]
fn the_tables_agree_with_the_structs() {
    agree(
        "## Log block frame",
        &[
            (offset_of!(LogFrame, checksum), "checksum"),
            (offset_of!(LogFrame, sequence), "sequence"),
            (offset_of!(LogFrame, epoch), "epoch"),
            (offset_of!(LogFrame, index), "index"),
            (offset_of!(LogFrame, payload), "payload"),
            (offset_of!(LogFrame, kind), "kind"),
        ],
        size_of::<LogFrame>(),
    );
    agree(
        "begins with `BatchHeader`",
        &[
            (offset_of!(BatchHeader, first), "first LSN"),
            (offset_of!(BatchHeader, known_durable), "known-durable"),
            (offset_of!(BatchHeader, checkpoint), "address of the newest"),
        ],
        size_of::<BatchHeader>(),
    );
    agree(
        "`CheckpointHeader`",
        &[
            (offset_of!(CheckpointHeader, cut), "cut LSN"),
            (offset_of!(CheckpointHeader, replay_from), "replay from"),
            (offset_of!(CheckpointHeader, secret), "secret"),
            (offset_of!(CheckpointHeader, patches), "zone patches"),
            (offset_of!(CheckpointHeader, counters), "counters"),
            (offset_of!(CheckpointHeader, reserve), "reserve"),
        ],
        size_of::<CheckpointHeader>(),
    );
    agree(
        "## Page header",
        &[
            (offset_of!(PageHeader, lsn), "LSN"),
            (offset_of!(PageHeader, kind), "kind"),
            (offset_of!(PageHeader, cells), "start of the cells"),
        ],
        size_of::<PageHeader>(),
    );
    agree(
        "## Changes of a leaf",
        &[
            (offset_of!(DeltaHeader, node), "node id"),
            (offset_of!(DeltaHeader, base), "LSN of the base"),
            (offset_of!(DeltaHeader, entries), "entries"),
            (offset_of!(DeltaHeader, bytes), "bytes of the entries"),
        ],
        size_of::<DeltaHeader>(),
    );
    agree(
        "## `ZitEntry`",
        &[
            (offset_of!(ZitEntry, live), "live"),
            (offset_of!(ZitEntry, deltas), "leaves whose"),
            (offset_of!(ZitEntry, user), "user"),
        ],
        size_of::<ZitEntry>(),
    );
    assert_eq!((size_of::<RecordHeader>(), size_of::<Seal>()), (16, 16));
}
