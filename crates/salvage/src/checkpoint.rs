//! The newest checkpoint that was written completely.
//!
//! A checkpoint writes the directory of the MAT last, so the newest directory stands for it. Changes that only the
//! journal had are lost. Chunks that are newer than their directory come from a checkpoint that a crash interrupted,
//! unless their directory is among the damaged pages.

use std::collections::BTreeMap;

use tree::Lsn;
use tree::decode::{PageKind, chunks_per_directory};

use crate::scan::{PageCopy, Scan};

/// The checkpoint from which the tables are rebuilt.
pub(crate) struct FoundCheckpoint {
    pub(crate) cut: Lsn,
    pub(crate) epoch: u64,
    /// No later checkpoint can be among the damaged pages.
    pub(crate) is_newest: bool,
    /// The newest copy of each page of the MAT's directory.
    pub(crate) directories: BTreeMap<u64, PageCopy>,
    /// The newest directories are lost: chunks are chosen by age.
    pub(crate) by_age: bool,
}

impl FoundCheckpoint {
    /// Chooses the checkpoint among the pages that were found.
    pub(crate) fn newest(scan: &Scan) -> FoundCheckpoint {
        let mut directories: BTreeMap<u64, PageCopy> = BTreeMap::new();
        for (number, copy) in scan.all(PageKind::MatDirectory) {
            let newest = directories.entry(number).or_insert(*copy);
            if copy.age() > newest.age() {
                *newest = *copy;
            }
        }
        let newest = directories.values().max_by_key(|copy| copy.age()).copied();
        let all_there = directories.keys().copied().eq(0..directories.len() as u64);
        let per_page = chunks_per_directory(scan.page_size);
        let is_older = |number: u64, chunk: &PageCopy| {
            directories.get(&(number / per_page)).is_none_or(|directory| directory.epoch < chunk.epoch)
        };
        let later: Vec<PageCopy> = scan
            .all(PageKind::MatChunk)
            .filter(|(number, chunk)| is_older(*number, chunk))
            .map(|(_, c)| *c)
            .collect();
        let hidden = later.iter().any(|chunk| scan.may_hide_later(chunk));
        match newest {
            Some(newest) if all_there && !hidden => FoundCheckpoint {
                cut: Lsn(newest.lsn),
                epoch: newest.epoch,
                is_newest: !scan.may_hide_later(&newest),
                directories,
                by_age: false,
            },
            _ => {
                let tables =
                    [PageKind::MatChunk, PageKind::MatDirectory, PageKind::ZitChunk, PageKind::ZitDirectory];
                let all = tables.into_iter().flat_map(|kind| scan.all(kind)).map(|(_, copy)| *copy);
                let newest = all.max_by_key(PageCopy::age);
                FoundCheckpoint {
                    cut: Lsn(newest.map_or(0, |copy| copy.lsn)),
                    epoch: newest.map_or(u64::MAX, |copy| copy.epoch),
                    is_newest: false,
                    directories,
                    by_age: true,
                }
            }
        }
    }
}
