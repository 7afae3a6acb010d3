//! Tables and objects of a volume, and from the rows of its tables: inodes, entries of directories, extended attributes.

use std::collections::BTreeMap;
use std::sync::Arc;

use fs::format::{
    DIRENT, Dirent, INODE, Record, VERSION, XATTR, XattrHead, decode_xattr_key, dirent_key, inode_key,
    number_key, xattr_key,
};
use fs::{InodeNo, Kind, Result};
use tree::{Group, Table};
use zone::Device;

use crate::objects::Objects;
use crate::tables::Tables;

/// The entries of a directory by name: inode, kind, and whether the entry is certain.
pub(crate) type Entries = BTreeMap<Vec<u8>, (InodeNo, Kind, bool)>;

/// Receives rows: key, value, whether the row is certain.
type EachRow<'a> = dyn FnMut(&[u8], &[u8], bool) + 'a;

/// Rows: key, value, whether the row is certain.
pub(crate) type Rows = Vec<(Vec<u8>, Vec<u8>, bool)>;

/// A volume that is read without its log.
pub struct Salvage {
    pub(crate) tables: Arc<Tables>,
    pub(crate) objects: Objects,
}

impl Salvage {
    /// Reads all metadata. `progress` is called with the number of zones that were read, and that of all metadata zones.
    ///
    /// # Errors
    /// If there is no volume, or no page of metadata.
    pub fn open(device: Arc<dyn Device>, progress: &mut dyn FnMut(u64, u64)) -> Result<Salvage> {
        let tables = Arc::new(Tables::scan(device, progress)?);
        Ok(Salvage { objects: Objects::new(Arc::clone(&tables)), tables })
    }

    /// The tables.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The rows of a table in the group of an inode, from one key up to another.
    pub(crate) fn rows_of(&self, inode: InodeNo, table: Table, from: &[u8], to: &[u8]) -> Result<Rows> {
        let mut rows = Rows::new();
        self.tables.rows(self.tables.group_of(inode.0), table, (from, to), &mut |(
            key,
            value,
            certain,
        )| {
            rows.push((key.to_vec(), value.to_vec(), certain));
            true
        })?;
        Ok(rows)
    }

    /// The record of an inode, and whether it is certain.
    pub(crate) fn record(&self, inode: InodeNo) -> Result<Option<(Record, bool)>> {
        let key = inode_key(inode);
        let rows = self.rows_of(inode, INODE, &key, &[&key[..], &[0]].concat())?;
        let row = rows.into_iter().next();
        Ok(row.and_then(|(_, value, certain)| Some((Record::decode(&value).ok()?, certain))))
    }

    /// The entries of a directory. If a name has two rows, the certain one counts.
    pub(crate) fn entries(&self, directory: InodeNo) -> Result<Entries> {
        let rows = self.rows_of(directory, DIRENT, &dirent_key(directory, 0), &after(directory))?;
        let mut entries = Entries::new();
        for (_, value, certain) in rows {
            let Ok(entry) = Dirent::decode(&value) else { continue };
            let known = entries.get(entry.name).map(|(.., certain)| *certain);
            if known.is_none_or(|known| !known && certain) {
                entries.insert(entry.name.to_vec(), (entry.inode, entry.kind, certain));
            }
        }
        Ok(entries)
    }

    /// The complete attributes of an inode, and whether all of them are certain.
    #[allow(clippy::type_complexity, reason = "names and values, used once")]
    pub(crate) fn xattrs(&self, inode: InodeNo) -> Result<(Vec<(Vec<u8>, Vec<u8>)>, bool)> {
        let rows = self.rows_of(inode, XATTR, &xattr_key(inode, 0, 0, 0), &after(inode))?;
        let (mut found, mut all_certain) = (Vec::new(), true);
        let mut rest = rows.iter().peekable();
        while let Some((key, value, certain)) = rest.next() {
            let (Ok((_, hash, collision, 0)), Ok(head)) = (decode_xattr_key(key), XattrHead::decode(value))
            else {
                continue;
            };
            let (mut bytes, mut parts) = (head.bytes.clone(), 1);
            all_certain &= certain;
            while let Some((key, value, certain)) = rest.peek()
                && decode_xattr_key(key).is_ok_and(|(_, h, c, part)| (h, c, part) == (hash, collision, parts))
                && value.first() == Some(&VERSION)
            {
                bytes.extend_from_slice(&value[1..]);
                all_certain &= certain;
                parts += 1;
                rest.next();
            }
            if parts == head.parts && bytes.len() == head.value_length as usize {
                found.push((head.name, bytes));
            }
        }
        Ok((found, all_certain))
    }

    /// Whether rows of an inode in a table may be missing.
    pub(crate) fn may_miss(&self, inode: InodeNo, table: Table) -> bool {
        let group = self.tables.group_of(inode.0);
        let prefix = inode.0.to_be_bytes();
        self.tables.lost_near(group, table, &prefix).next().is_some()
    }

    /// Calls `each` for every row of a table in all groups.
    pub(crate) fn for_each(&self, table: Table, each: &mut EachRow<'_>) -> Result<()> {
        for group in (0..self.tables.groups()).map(Group) {
            self.tables.rows(group, table, (&[], &[]), &mut |(key, value, certain)| {
                each(key, value, certain);
                true
            })?;
        }
        Ok(())
    }
}

/// The end of the keys that begin with an inode's number.
fn after(inode: InodeNo) -> Vec<u8> {
    inode.0.checked_add(1).map_or(Vec::new(), |next| number_key(InodeNo(next)).to_vec())
}
