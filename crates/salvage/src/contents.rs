//! The bytes of a file: where the blocks of its object are in the file, and which bytes are lost or uncertain.

use std::ops::Range;

use fs::Result;
use fs::format::{FLAG_INLINE, FLAG_SHIFTING, INTENT, Shift, number_key};

use crate::items::{Item, Unsaved};
use crate::objects::ObjectReport;
use crate::records::Salvage;

impl Salvage {
    /// Returns the bytes of a file, not always in order, and none beyond its size. Bytes that are not returned are zeros.
    /// The result says what is wrong with them.
    pub fn contents(&self, item: &Item, each: &mut dyn FnMut(u64, &[u8])) -> Result<Vec<Unsaved>> {
        if item.record.has(FLAG_INLINE) {
            each(0, &item.record.content);
            return Ok(Vec::new());
        }
        let map = self.file_map(item)?;
        let (object, size) = (item.record.object(item.inode), self.objects.block_size() as u64);
        let mut give = |block: u64, bytes: &[u8]| {
            let from = block * size;
            for (file, range) in map.parts_of(from..from + size) {
                each(file, &bytes[(range.start - from) as usize..(range.end - from) as usize]);
            }
        };
        let mut found = self.objects.read(object, &mut give)?;
        if !item.has_record && found.blocks == 0 {
            found = self.objects.read_stray(object, &mut give)?;
        }
        Ok(self.judge(item, &found, &map))
    }

    /// What is wrong with the bytes of a file. The number of blocks in the inode's record tells whether blocks that may
    /// be missing are.
    fn judge(&self, item: &Item, found: &ObjectReport, map: &FileMap) -> Vec<Unsaved> {
        let complete = item.has_record && found.uncertain.is_empty() && found.blocks == item.record.blocks;
        let older = match self.tables.is_newest() {
            true => &found.uncertain[..],
            false => &[],
        };
        let unknown = if complete { &found.unknown_allocated } else { &found.unknown };
        let size = self.objects.block_size() as u64;
        let bytes = |blocks: &[Range<u64>]| -> Vec<Range<u64>> {
            let bytes = |range: &Range<u64>| range.start.saturating_mul(size)..range.end.saturating_mul(size);
            let of_file = |range| {
                let parts = map.parts_of(bytes(range)).into_iter();
                parts.map(|(file, range)| file..file.saturating_add(range.end - range.start))
            };
            blocks.iter().flat_map(of_file).collect()
        };
        let mut unsaved = Vec::new();
        for (ranges, what) in [
            (bytes(&found.lost), Unsaved::LostBytes as fn(Vec<Range<u64>>) -> Unsaved),
            (bytes(older), Unsaved::OlderBytes),
            (bytes(unknown), Unsaved::UnknownBytes),
        ] {
            if !ranges.is_empty() {
                unsaved.push(what(ranges));
            }
        }
        if map.is_unknown {
            unsaved.push(Unsaved::OlderBytes(std::iter::once(0..item.record.size).collect()));
        }
        unsaved
    }

    /// Where the bytes of an object are in its file.
    fn file_map(&self, item: &Item) -> Result<FileMap> {
        let size = if item.has_record { item.record.size } else { u64::MAX };
        let mut map = FileMap { spans: vec![(0..u64::MAX, Some(0))], size, is_unknown: false };
        if item.record.has(FLAG_SHIFTING) {
            let key = number_key(item.inode);
            let rows = self.rows_of(item.inode, INTENT, &key, &[&key[..], &[0]].concat())?;
            match rows.first().map(|(_, value, _)| Shift::decode(value)) {
                Some(Ok(shift)) => map.spans = shift.spans(),
                _ => map.is_unknown = true,
            }
        }
        Ok(map)
    }
}

/// Where the bytes of an object are in its file.
struct FileMap {
    spans: Vec<(Range<u64>, Option<u64>)>,
    size: u64,
    /// A range was being collapsed or inserted, and the record of that is lost.
    is_unknown: bool,
}

impl FileMap {
    /// For each part of a range of the object that is in the file: where it begins in the file, and the part.
    fn parts_of(&self, range: Range<u64>) -> Vec<(u64, Range<u64>)> {
        let part = |(file, object): &(Range<u64>, Option<u64>)| {
            let (object, end) = ((*object)?, file.end.min(self.size));
            let length = end.checked_sub(file.start)?;
            let from = range.start.max(object);
            let to = range.end.min(object.saturating_add(length));
            (from < to).then(|| (file.start + (from - object), from..to))
        };
        self.spans.iter().filter_map(part).collect()
    }
}
