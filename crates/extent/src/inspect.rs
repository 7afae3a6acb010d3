//! For inspection: the rows of an object's map, and a zone's reverse map. Changes nothing.

use tree::Table;
use zone::ZoneId;

use crate::format::{self, EXTENT, Entry, Extent, INLINE_BLOCK, ZoneUser};
use crate::{Extents, Object, Result, reverse};

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

impl Extents {
    /// All rows of an object with their first blocks, in order.
    pub fn view_object(&self, object: Object) -> Result<Vec<(u64, MapRow)>> {
        let mut found = Vec::new();
        for table in [EXTENT, INLINE_BLOCK] {
            self.view_table(object, table, &mut found)?;
        }
        found.sort_by_key(|(block, _)| *block);
        Ok(found)
    }

    fn view_table(&self, object: Object, table: Table, found: &mut Vec<(u64, MapRow)>) -> Result<()> {
        let group = self.store.group_of(object.0);
        let (mut from, to) =
            (format::key(object, 0).to_vec(), format::key(Object(object.0.saturating_add(1)), 0));
        loop {
            let rows = self.store.range(group, table, &from, &to, BATCH)?;
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

    /// The entries of a data zone's reverse map, oldest first. `None` if there is no whole one.
    pub fn view_zone(&self, zone: ZoneId) -> Option<Vec<Entry>> {
        let name = reverse::name_of(&self.store, zone);
        let user = ZoneUser::decode(&self.store.pool().entry(zone).user);
        let Some(open) = self.reverse.find(zone, name.life) else {
            return reverse::read_all(&self.store, &name, user);
        };
        let (summaries, unsummarised) = open.lock().parts();
        let mut entries = reverse::read_summaries(&self.store, &name, &summaries)?;
        entries.extend(unsummarised);
        Some(entries)
    }
}

fn decode_row(table: Table, value: &[u8]) -> MapRow {
    if table == INLINE_BLOCK {
        return MapRow::Inline(value.len());
    }
    Extent::decode(value).map_or(MapRow::Damaged, MapRow::Extent)
}
