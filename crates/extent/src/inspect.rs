//! For inspection: the rows of an object's map. Changes nothing.

use tree::Table;

use crate::format::{self, EXTENT, Extent, INLINE_BLOCK};
use crate::maps::ObjectMaps;
use crate::{Object, Result};

/// Rows that are read at a time.
const BATCH: usize = 256;

/// A row of an object's map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapRow {
    /// An extent.
    Extent(Extent),
    /// An inline block, and its bytes.
    Inline(usize),
    /// The row cannot be decoded.
    Damaged,
}

/// All rows of an object with their first blocks, in order.
pub fn view_object(maps: &ObjectMaps, object: Object) -> Result<Vec<(u64, MapRow)>> {
    let mut found = Vec::new();
    for table in [EXTENT, INLINE_BLOCK] {
        view_table(maps, object, table, &mut found)?;
    }
    found.sort_by_key(|(block, _)| *block);
    Ok(found)
}

fn view_table(maps: &ObjectMaps, object: Object, table: Table, found: &mut Vec<(u64, MapRow)>) -> Result<()> {
    let group = maps.store().group_of(object.0);
    let (mut from, to) =
        (format::key(object, 0).to_vec(), format::key(Object(object.0.saturating_add(1)), 0));
    loop {
        let rows = maps.store().range(group, table, &from, &to, BATCH)?;
        for (key, value) in &rows {
            let block = format::decode_key(key).map_or(0, |(_, block)| block);
            found.push((block, decode_row(table, value)));
        }
        match rows.last() {
            Some((last, _)) if rows.len() == BATCH => from = [last.as_slice(), &[0]].concat(),
            _ => return Ok(()),
        }
    }
}

fn decode_row(table: Table, value: &[u8]) -> MapRow {
    if table == INLINE_BLOCK {
        return MapRow::Inline(value.len());
    }
    Extent::decode(value).map_or(MapRow::Damaged, MapRow::Extent)
}
