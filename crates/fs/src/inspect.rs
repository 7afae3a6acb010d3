//! Inspection: the stored record of an inode, and verification of a volume in use.

use extent::format::{EXTENT, Extent, INLINE_BLOCK, REFCOUNT, decode_refcount};
use tree::{Group, StoreError, Table};

use crate::check::{Finding, NameFinding};
use crate::errno::Result;
use crate::format::{
    COUNTER, DIRENT, Damaged, Dirent, INODE, INTENT, ORPHAN, Record, SHADOW, XATTR, decode_counter,
    decode_dirent_key, decode_inode_key, decode_shadow, decode_xattr_key, inode_key,
};
use crate::types::InodeNo;
use crate::volume::Fs;

/// Rows that are read at a time.
const BATCH: usize = 256;

/// The result of verifying a volume in use.
#[derive(Clone, Debug, Default)]
pub struct Readable {
    /// The number of rows of all tables that were read.
    pub rows: u64,
    /// The findings.
    pub findings: Vec<Finding>,
}

impl Fs {
    /// The stored record of an inode. `None` if there is none.
    pub fn view_inode(&self, inode: InodeNo) -> Result<Option<Record>> {
        let stored = self.store.get(self.group(inode), INODE, &inode_key(inode))?;
        Ok(stored.map(|bytes| Record::decode(&bytes)).transpose()?)
    }

    /// Reads every row while the volume is in use. Every page and every row is verified by itself. Counts and links
    /// between rows are not, because they may change meanwhile.
    pub fn check_readable(&self) -> Result<Readable> {
        let mut found = Readable::default();
        for group in (0..self.store.info().groups).map(Group) {
            for table in
                [EXTENT, INLINE_BLOCK, REFCOUNT, INODE, DIRENT, XATTR, ORPHAN, INTENT, SHADOW, COUNTER]
            {
                self.read_table(group, table, &mut found)?;
            }
        }
        Ok(found)
    }

    fn read_table(&self, group: Group, table: Table, found: &mut Readable) -> Result<()> {
        let mut from = Vec::new();
        loop {
            let rows = match self.store.range(group, table, &from, &[], BATCH) {
                Err(StoreError::Corrupt(what)) => {
                    found.findings.push(Finding::Store(tree::Finding::unreadable(what)));
                    return Ok(());
                }
                rows => rows?,
            };
            found.rows += rows.len() as u64;
            for (key, value) in &rows {
                found.findings.extend(self.wrong_row(group, table, key, value).map(Finding::Names));
            }
            match rows.last() {
                Some((last, _)) if rows.len() == BATCH => from = [last.as_slice(), &[0]].concat(),
                _ => return Ok(()),
            }
        }
    }

    /// The finding about a row by itself.
    fn wrong_row(&self, group: Group, table: Table, key: &[u8], value: &[u8]) -> Option<NameFinding> {
        let damaged = |why| Some(NameFinding::Damaged { table: table.0, why });
        let no_key = Damaged("a key of data has a wrong length");
        let owner = match table {
            EXTENT | INLINE_BLOCK | REFCOUNT => {
                extent::format::decode_key(key).map(|(object, _)| InodeNo(object.0)).ok_or(no_key)
            }
            DIRENT => decode_dirent_key(key).map(|(inode, _)| inode),
            XATTR => decode_xattr_key(key).map(|(inode, ..)| inode),
            INODE | ORPHAN | INTENT | SHADOW => decode_inode_key(key),
            _ => return decode_counter(value).err().and_then(damaged),
        };
        let inode = match owner {
            Ok(inode) => inode,
            Err(why) => return damaged(why),
        };
        if self.group(inode) != group {
            return Some(NameFinding::Misplaced { table: table.0, inode });
        }
        let wrong = match table {
            EXTENT if Extent::decode(value).is_none() => Err(Damaged("an extent cannot be decoded")),
            REFCOUNT if decode_refcount(value).is_none() => {
                Err(Damaged("a reference count cannot be decoded"))
            }
            INODE => Record::decode(value).map(drop),
            SHADOW => decode_shadow(value).map(drop),
            DIRENT => Dirent::decode(value).map(drop),
            _ => Ok(()),
        };
        wrong.err().and_then(damaged)
    }
}
