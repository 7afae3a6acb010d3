//! Looking inside: an inode's record as it is stored, and what can be verified while a volume is in use.

use extent::ExtentError;
use extent::format::{EXTENT, Extent, RESIDENT};
use tree::{Group, StoreError, Table};

use crate::errno::{FsError, Result};
use crate::format::{
    COUNTER, DIRENT, Dirent, INODE, INTENT, ORPHAN, Record, XATTR, decode_dirent_key, decode_inode_key,
    decode_xattr_key, inode_key,
};
use crate::types::{InodeNo, Kind};
use crate::volume::Fs;

/// Rows that are read at a time.
const BATCH: usize = 256;
/// Bytes of a file that are read at a time.
const PIECE: u64 = 1 << 20;

/// What was verified of a volume in use.
#[derive(Clone, Debug, Default)]
pub struct Readable {
    /// Rows of all tables that were read.
    pub rows: u64,
    /// Bytes of files that were read.
    pub bytes: u64,
    /// What is wrong, in words.
    pub findings: Vec<String>,
}

impl Fs {
    /// The stored record of an inode; `None` when there is none.
    pub fn view_inode(&self, inode: InodeNo) -> Result<Option<Record>> {
        let stored = self.store.get(self.group(inode), INODE, &inode_key(inode))?;
        Ok(stored.map(|bytes| Record::decode(&bytes)).transpose()?)
    }

    /// Reads everything that names lead to, and with `data` all files too, while others go on using the
    /// volume: every page, row and block that is read is verified by itself. Counts and links between rows
    /// are not: they may change meanwhile.
    pub fn check_readable(&self, data: bool) -> Result<Readable> {
        let mut found = Readable::default();
        for group in (0..self.store.info().groups).map(Group) {
            for table in [EXTENT, RESIDENT, INODE, DIRENT, XATTR, ORPHAN, INTENT, COUNTER] {
                self.read_table(group, table, data, &mut found)?;
            }
        }
        Ok(found)
    }

    fn read_table(&self, group: Group, table: Table, data: bool, found: &mut Readable) -> Result<()> {
        let mut from = Vec::new();
        loop {
            let rows = match self.store.range(group, table, &from, &[], BATCH) {
                Err(StoreError::Corrupt(what)) => {
                    found.findings.push(what);
                    return Ok(());
                }
                rows => rows?,
            };
            found.rows += rows.len() as u64;
            for (key, value) in &rows {
                if let Some(what) = self.wrong_row(group, table, key, value) {
                    found.findings.push(format!("a row of table {} in group {}: {what}", table.0, group.0));
                } else if data && table == INODE {
                    self.read_file(decode_inode_key(key)?, found)?;
                }
            }
            match rows.last() {
                Some((last, _)) if rows.len() == BATCH => from = [last.as_slice(), &[0]].concat(),
                _ => return Ok(()),
            }
        }
    }

    /// What is wrong with a row by itself.
    fn wrong_row(&self, group: Group, table: Table, key: &[u8], value: &[u8]) -> Option<String> {
        let owner = match table {
            EXTENT | RESIDENT => extent::format::decode_key(key).map(|(object, _)| object.0),
            DIRENT => decode_dirent_key(key).ok().map(|(inode, _)| inode.0),
            XATTR => decode_xattr_key(key).ok().map(|(inode, ..)| inode.0),
            INODE | ORPHAN | INTENT => decode_inode_key(key).ok().map(|inode| inode.0),
            _ => return None,
        };
        match owner {
            None => return Some("its key means nothing".to_owned()),
            Some(number) if self.store.group_of(number) != group => {
                return Some(format!("what belongs to inode {number} is in another group"));
            }
            Some(_) => {}
        }
        match table {
            EXTENT if Extent::decode(value).is_none() => Some("its extent means nothing".to_owned()),
            INODE => Record::decode(value).err().map(|why| why.to_string()),
            DIRENT => Dirent::decode(value).err().map(|why| why.to_string()),
            _ => None,
        }
    }

    /// Reads a file; one that has gone meanwhile has nothing to read.
    fn read_file(&self, inode: InodeNo, found: &mut Readable) -> Result<()> {
        let Ok(attributes) = self.attributes(inode) else { return Ok(()) };
        if attributes.kind != Kind::File {
            return Ok(());
        }
        let object = Self::object(inode);
        let mut offset = 0;
        while let Some(data) = self.extents.next_data(object, offset).map_err(FsError::from)? {
            if data >= attributes.size {
                break;
            }
            let length = PIECE.min(attributes.size - data);
            match self.extents.read(object, data, &mut vec![0; length as usize]) {
                Err(ExtentError::Lost { block, why, .. }) => {
                    found.findings.push(format!("inode {} block {block} cannot be read: {why}", inode.0));
                }
                read => read.map_err(FsError::from)?,
            }
            found.bytes += length;
            offset = data + length;
        }
        Ok(())
    }
}
