//! Damage of rows: each kind makes one row contradict others, or makes it invalid.

use extent::format::{EXTENT, REFCOUNT, encode_refcount};
use fs::format::{
    DIRENT, Direction, Dirent, FLAG_SHIFTING, FLAG_TRUNCATING, INODE, INTENT, ORPHAN, Record, SHADOW, Shift,
    XATTR, decode_dirent_key, decode_inode_key, dirent_key, inode_key, marker, number_key,
};
use fs::{InodeNo, Kind};
use rt::random::Rng;
use tree::{Group, Key, Table, Tx};

use crate::support::Volume;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Damage {
    EntryGone,
    EntryOfWrongKind,
    EntryOfNobody,
    EntryUnderAnotherHash,
    Orphan,
    Intent,
    IntentToMove,
    Links,
    AttributeCount,
    EntryCount,
    Parent,
    Truncating,
    Shifting,
    InodeGone,
    InodeTwice,
    /// A row of any table is in another group than its inode.
    Elsewhere(Table),
    Gone(Table),
    Nonsense(Table),
    ReferenceCount,
    LiveCount,
}

use Damage::*;

impl Damage {
    pub(super) const ALL: [Damage; 32] = [
        EntryGone,
        EntryOfWrongKind,
        EntryOfNobody,
        EntryUnderAnotherHash,
        Orphan,
        Intent,
        IntentToMove,
        Links,
        AttributeCount,
        EntryCount,
        Parent,
        Truncating,
        Shifting,
        InodeGone,
        InodeTwice,
        Elsewhere(INODE),
        Elsewhere(DIRENT),
        Elsewhere(XATTR),
        Elsewhere(ORPHAN),
        Elsewhere(INTENT),
        Elsewhere(EXTENT),
        Gone(EXTENT),
        Gone(REFCOUNT),
        Gone(XATTR),
        Nonsense(INODE),
        Nonsense(DIRENT),
        Nonsense(XATTR),
        Nonsense(EXTENT),
        Nonsense(REFCOUNT),
        Nonsense(SHADOW),
        ReferenceCount,
        LiveCount,
    ];

    /// Damages a random row of some group. Returns false if there is none.
    pub(super) fn apply(self, volume: &Volume, rng: &mut Rng) -> bool {
        let mut tx = Tx::new();
        let done = self.put(volume, rng, &mut tx).is_some();
        volume.fs.store().commit(tx).unwrap();
        done
    }

    fn put(self, volume: &Volume, rng: &mut Rng, tx: &mut Tx) -> Option<()> {
        match self {
            EntryGone | EntryOfWrongKind | EntryOfNobody | EntryUnderAnotherHash => {
                let (group, key, value) = pick(volume, DIRENT, rng)?;
                self.put_entry(tx, group, key, &Dirent::decode(&value).ok()?)
            }
            Gone(table) => pick(volume, table, rng).map(|(group, key, _)| tx.delete(group, table, key)),
            Nonsense(table) => {
                let (group, key, mut value) = match table {
                    SHADOW => (Group(0), number_key(InodeNo(400))[..].into(), vec![0]),
                    _ => pick(volume, table, rng)?,
                };
                value[0] ^= 0x7f;
                value.truncate(value.len().max(4) - 3);
                put(tx, group, table, key, value)
            }
            Elsewhere(table) => self.put_elsewhere(volume, rng, tx, table),
            ReferenceCount => {
                let (group, key, _) = pick(volume, REFCOUNT, rng)?;
                put(tx, group, REFCOUNT, key, encode_refcount(1, rng.u32(2..9)).to_vec())
            }
            LiveCount => {
                let zone = volume.fs.store().pool().in_role(zone::Role::Data).first().copied()?;
                tx.zone_live(zone, 3);
                Some(())
            }
            _ => {
                let (group, key, value) = pick(volume, INODE, rng)?;
                let (inode, record) = (decode_inode_key(&key).ok()?, Record::decode(&value).ok()?);
                self.put_inode(tx, group, (inode, record), rng)
            }
        }
    }

    fn put_entry(self, tx: &mut Tx, group: Group, key: impl AsRef<[u8]>, entry: &Dirent<'_>) -> Option<()> {
        let (parent, cookie) = decode_dirent_key(key.as_ref()).ok()?;
        match self {
            EntryOfWrongKind => tx.put(group, DIRENT, key, Dirent { kind: Kind::Socket, ..*entry }.encode()),
            EntryOfNobody => {
                let other = Dirent { inode: InodeNo(entry.inode.0 + 4 * 1000), name: b"other", ..*entry };
                tx.put(group, DIRENT, dirent_key(parent, 1 << 50), other.encode());
            }
            EntryUnderAnotherHash => {
                tx.delete(group, DIRENT, key);
                tx.put(group, DIRENT, dirent_key(parent, cookie ^ 1 << 40), entry.encode());
            }
            _ => tx.delete(group, DIRENT, key),
        }
        Some(())
    }

    /// A row with another number of links, or the only one with its number.
    fn put_elsewhere(self, volume: &Volume, rng: &mut Rng, tx: &mut Tx, table: Table) -> Option<()> {
        if table == ORPHAN || table == INTENT {
            let (inode, group) = (InodeNo(4 * rng.u64(1..200)), Group(1));
            return put(tx, group, table, number_key(inode), marker());
        }
        let (group, key, value) = pick(volume, table, rng)?;
        if rng.bool() && key[..] != inode_key(InodeNo::ROOT) {
            tx.delete(group, table, key.clone());
        }
        put(tx, Group((group.0 + rng.u16(1..4)) % 4), table, key, value)
    }

    fn put_inode(self, tx: &mut Tx, group: Group, of: (InodeNo, Record), rng: &mut Rng) -> Option<()> {
        let (inode, mut record) = of;
        let is_directory = record.kind == Kind::Directory;
        match self {
            Orphan => return put(tx, group, ORPHAN, number_key(inode), marker()),
            Intent => return put(tx, group, INTENT, number_key(inode), marker()),
            IntentToMove => {
                let shift = Shift { direction: Direction::Down, at: 4096, length: 4096, moved: 8192 };
                return put(tx, group, INTENT, number_key(inode), shift.encode());
            }
            InodeGone if inode != InodeNo::ROOT => return delete(tx, group, inode),
            InodeTwice => {
                record.links += 7;
                let elsewhere = Group((group.0 + rng.u16(1..4)) % 4);
                return put(tx, elsewhere, INODE, inode_key(inode), record.encode());
            }
            Links => record.links = [1, 40][rng.usize(0..2)],
            AttributeCount => record.xattrs = 40,
            EntryCount if is_directory => record.size += 3,
            Parent if is_directory && inode != InodeNo::ROOT => record.parent = InodeNo(777),
            Truncating => record.flags |= FLAG_TRUNCATING,
            Shifting if !is_directory => record.flags |= FLAG_SHIFTING,
            _ => return None,
        }
        put(tx, group, INODE, inode_key(inode), record.encode())
    }
}

/// A row of a table, from all groups.
fn pick(volume: &Volume, table: Table, rng: &mut Rng) -> Option<(Group, Key, Vec<u8>)> {
    let store = volume.fs.store();
    let rows = (0..store.info().groups).map(Group).flat_map(|group| {
        let rows = store.range(group, table, &[], &[], usize::MAX).unwrap();
        rows.into_iter().map(move |(key, value)| (group, key, value))
    });
    let mut rows: Vec<_> = rows.collect();
    (!rows.is_empty()).then(|| rows.swap_remove(rng.usize(0..rows.len())))
}

fn put(tx: &mut Tx, group: Group, table: Table, key: impl AsRef<[u8]>, value: Vec<u8>) -> Option<()> {
    tx.put(group, table, key, value);
    Some(())
}

fn delete(tx: &mut Tx, group: Group, inode: InodeNo) -> Option<()> {
    tx.delete(group, INODE, inode_key(inode));
    Some(())
}
