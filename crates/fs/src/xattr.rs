//! Extended attributes.
//!
//! The key of an attribute is (inode, hash of its name, collision number). A value that does not fit in one row
//! continues in further parts. The inode counts its attributes, so a request for an attribute costs nothing if there
//! are none (the kernel makes one at every write). One attribute has no row: the lifetime is a field of the inode's
//! record (`lifetime.rs`).

use std::sync::atomic::Ordering;

use tree::{Entry, Group};

use crate::acl::{ACL_ACCESS, ACL_DEFAULT, Inherited, check_list};
use crate::change::Change;
use crate::errno::{FsError, Result};
use crate::format::{
    Damaged, NAME_MAX, Record, VERSION, XATTR, XattrHead, XattrHeader, decode_xattr_key, inode_key, xattr_key,
};
use crate::inodes::Node;
use crate::lifetime::LIFETIME_ATTRIBUTE;
use crate::names::hash_name;
use crate::permissions::{READ, SET_GID, STICKY, WRITE, check_owner, check_root};
use crate::types::{Caller, InodeNo, Kind};
use crate::volume::Fs;

/// Bytes of the longest value.
pub const XATTR_VALUE_MAX: usize = 64 << 10;
/// The largest number of attributes of an inode.
const XATTRS_MAX: u32 = 4096;
/// Bytes of all names of one inode, each with a NUL. The kernel lists no more. The name of the lifetime always fits
/// in addition.
const XATTR_NAMES_MAX: usize = (64 << 10) - LIFETIME_ATTRIBUTE.len() - 1;
const COLLISIONS: usize = 256;

/// The prefix of Polder's own attributes.
const OWN: &[u8] = b"user.polder.";
/// Attributes of a view of zones, for a zone's state, role and life. They mean nothing here, but files may be copied
/// out of a view with them.
pub const ATTRIBUTES_OF_VIEWS: [&[u8]; 3] = [b"user.polder.state", b"user.polder.role", b"user.polder.life"];

/// The prefix of attributes for root only.
const TRUSTED: &[u8] = b"trusted.";

/// The capabilities of the program in a file (`setcap`). They apply to every user that runs it.
const CAPABILITIES: &[u8] = b"security.capability";

/// Whether an attribute is an access control list, which only the owner may change.
pub fn is_access_list(name: &[u8]) -> bool {
    name == ACL_ACCESS || name == ACL_DEFAULT
}

/// The place of an attribute.
struct Place {
    hash: u64,
    collision: u8,
    /// The number of rows. 0: the attribute does not exist, and this is its place.
    parts: u8,
    value: Vec<u8>,
}

impl Fs {
    /// The value of an attribute.
    pub fn get_xattr(&self, caller: &Caller, inode: InodeNo, name: &[u8]) -> Result<Vec<u8>> {
        let node = self.node(inode)?;
        let state = node.state.read();
        let record = state.record_with_attributes()?;
        self.check_xattr(caller, inode, record, name, READ)?;
        let value = match name {
            LIFETIME_ATTRIBUTE => record.lifetime_attribute(),
            ACL_ACCESS => self.access_list(inode, record)?.map(|list| list.encode()),
            _ => self.stored_xattr(inode, record, name)?,
        };
        value.ok_or(FsError::NoAttribute)
    }

    /// The value of an attribute that has rows.
    pub(crate) fn stored_xattr(
        &self,
        inode: InodeNo,
        record: &Record,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        if record.xattrs == 0 {
            return Ok(None);
        }
        let place = self.find_xattr(inode, name)?;
        Ok((place.parts > 0).then_some(place.value))
    }

    /// Sets an attribute. With `create` it must not exist, with `replace` it must.
    pub fn set_xattr(
        &self,
        caller: &Caller,
        inode: InodeNo,
        name: &[u8],
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Result<()> {
        if value.len() > XATTR_VALUE_MAX {
            return Err(FsError::ArgumentTooLong);
        }
        if name == LIFETIME_ATTRIBUTE {
            return self.change_lifetime_attribute(caller, inode, Some(value), create, replace);
        }
        // A misspelt name would be stored without any effect.
        if name.starts_with(OWN) && !ATTRIBUTES_OF_VIEWS.contains(&name) {
            return Err(FsError::Invalid);
        }
        // Freeing space would not help, so nothing is deleted for it.
        if value.len() > self.xattr_value_max() {
            return Err(FsError::NoSpace);
        }
        self.with_space(|| {
            self.begin_growing()?;
            let node = self.node(inode)?;
            let mut locked = self.lock_one(&node);
            let mut record = locked.record(inode)?.clone();
            self.check_xattr(caller, inode, &record, name, WRITE)?;
            let list = is_access_list(name).then(|| check_list(&record, name, value)).transpose()?;
            let place = self.find_xattr(inode, name)?;
            match place.parts {
                0 if replace => return Err(FsError::NoAttribute),
                1.. if create => return Err(FsError::Exists),
                _ => {}
            }
            let access = list.filter(|_| name == ACL_ACCESS);
            if let Some(list) = &access {
                record.permissions = permissions_after(caller, &record, list.bits());
            }
            record.changed = self.clock.now();
            let mut change = Change::new();
            match access.is_some_and(|list| list.is_minimal()) {
                true => self.take_xattr(&mut change, inode, &mut record, &place),
                false => self.put_one(&mut change, &node, &mut record, &place, (name, value))?,
            }
            let before = node.name_bytes.load(Ordering::Relaxed);
            let is_new = record.xattrs > locked.record(inode)?.xattrs;
            change.save(inode, record);
            self.commit(change, &mut locked)?;
            if is_new && before > 0 {
                node.name_bytes.store(before + listed(name), Ordering::Relaxed);
            }
            Ok(())
        })
    }

    /// Bytes of the longest value on this volume. One transaction holds all of it, and small zones limit
    /// transactions. The rest of the transaction is for the heads of rows, for the inode's record with its contents,
    /// and for the removal of the rows of a longer value.
    pub(crate) fn xattr_value_max(&self) -> usize {
        XATTR_VALUE_MAX.min(self.store.tx_bytes_max() / 4 * 3)
    }

    /// The names of all attributes that the caller may see, in no order.
    pub fn list_xattrs(&self, caller: &Caller, inode: InodeNo) -> Result<Vec<Vec<u8>>> {
        let node = self.node(inode)?;
        let state = node.state.read();
        let record = state.record_with_attributes()?;
        let of_lifetime = record.lifetime_attribute().map(|_| LIFETIME_ATTRIBUTE.to_vec());
        let mut names = Vec::from_iter(of_lifetime);
        if record.xattrs == 0 {
            return Ok(names);
        }
        // A kernel that checks callers leaves this check to us.
        let is_shown = |name: &Vec<u8>| caller.is_root() || !name.starts_with(TRUSTED);
        names.extend(self.names_of(inode)?.into_iter().filter(is_shown));
        Ok(names)
    }

    /// Whether any inode has attributes with rows, access lists among them.
    pub fn has_xattrs(&self) -> Result<bool> {
        for group in (0..self.store.info().groups).map(Group) {
            if !self.store.range(group, XATTR, &[], &[], 1)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Inserts an attribute, or replaces it.
    fn put_one(
        &self,
        change: &mut Change,
        node: &Node,
        record: &mut Record,
        place: &Place,
        (name, value): (&[u8], &[u8]),
    ) -> Result<()> {
        if place.parts == 0 {
            if record.xattrs >= XATTRS_MAX || !self.name_fits(node, record, name)? {
                return Err(FsError::NoSpace);
            }
            record.xattrs += 1;
        }
        self.put_xattr(change, node.inode, place, name, value);
        Ok(())
    }

    /// Inserts the lists of a new inode, which has no attributes yet.
    pub(crate) fn put_lists(
        &self,
        change: &mut Change,
        inode: InodeNo,
        record: &mut Record,
        lists: &Inherited,
    ) {
        let mut taken = None;
        for (name, list) in [(ACL_ACCESS, &lists.access), (ACL_DEFAULT, &lists.default)] {
            let Some(list) = list else { continue };
            let hash = hash_name(&self.store.info().secret, name);
            let collision = u8::from(taken == Some(hash));
            let place = Place { hash, collision, parts: 0, value: Vec::new() };
            self.put_xattr(change, inode, &place, name, &list.encode());
            record.xattrs += 1;
            taken = Some(hash);
        }
    }

    /// Whether all names can still be listed with another one. If there are many, their bytes are counted once and
    /// then kept in memory: counting all of them for each new one would take quadratic time.
    fn name_fits(&self, node: &Node, record: &Record, name: &[u8]) -> Result<bool> {
        if (record.xattrs as usize + 1) * (NAME_MAX + 1) <= XATTR_NAMES_MAX {
            return Ok(true);
        }
        if node.name_bytes.load(Ordering::Relaxed) == 0 {
            let bytes = self.names_of(node.inode)?.iter().map(|name| listed(name)).sum();
            node.name_bytes.store(bytes, Ordering::Relaxed);
        }
        Ok(node.name_bytes.load(Ordering::Relaxed) as usize + name.len() < XATTR_NAMES_MAX)
    }

    /// The names of the attributes that have rows.
    fn names_of(&self, inode: InodeNo) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        let (from, to) = (xattr_key(inode, 0, 0, 0), inode_key(InodeNo(inode.0 + 1)));
        for (key, value) in self.store.range(self.group(inode), XATTR, &from, &to, usize::MAX)? {
            if decode_xattr_key(&key)?.3 == 0 {
                names.push(XattrHead::decode(&value)?.name);
            }
        }
        Ok(names)
    }

    /// Removes an attribute. Removing a list that does not exist succeeds, because every inode has a minimal list.
    pub fn remove_xattr(&self, caller: &Caller, inode: InodeNo, name: &[u8]) -> Result<()> {
        if name == LIFETIME_ATTRIBUTE {
            return self.change_lifetime_attribute(caller, inode, None, false, true);
        }
        self.begin()?;
        let node = self.node(inode)?;
        let mut locked = self.lock_one(&node);
        let mut record = locked.record(inode)?.clone();
        self.check_xattr(caller, inode, &record, name, WRITE)?;
        let place = self.find_xattr(inode, name)?;
        if place.parts == 0 && is_access_list(name) {
            return Ok(());
        }
        if place.parts == 0 {
            return Err(FsError::NoAttribute);
        }
        record.changed = self.clock.now();
        let mut change = Change::reclaiming();
        self.take_xattr(&mut change, inode, &mut record, &place);
        let before = node.name_bytes.load(Ordering::Relaxed);
        change.save(inode, record);
        self.commit(change, &mut locked)?;
        node.name_bytes.store(before.saturating_sub(listed(name)), Ordering::Relaxed);
        Ok(())
    }

    /// Removes the capabilities of a program when any user changes its contents or its owner.
    pub(crate) fn drop_capabilities(
        &self,
        change: &mut Change,
        inode: InodeNo,
        record: &mut Record,
    ) -> Result<()> {
        if record.xattrs > 0 {
            let place = self.find_xattr(inode, CAPABILITIES)?;
            self.take_xattr(change, inode, record, &place);
        }
        Ok(())
    }

    /// Removes an attribute that may exist.
    fn take_xattr(&self, change: &mut Change, inode: InodeNo, record: &mut Record, place: &Place) {
        for part in 0..place.parts {
            let key = xattr_key(inode, place.hash, place.collision, part);
            change.tx.delete(self.group(inode), XATTR, key);
        }
        record.xattrs = record.xattrs.saturating_sub(u32::from(place.parts > 0));
    }

    /// Checks that the caller may read or write attributes of a namespace.
    pub(crate) fn check_xattr(
        &self,
        caller: &Caller,
        inode: InodeNo,
        record: &Record,
        name: &[u8],
        access: u16,
    ) -> Result<()> {
        if name.is_empty() || name.len() > NAME_MAX || name.contains(&0) {
            return Err(FsError::Range);
        }
        let is_read = access == READ;
        if name.starts_with(b"user.") {
            self.check_user_xattr(caller, (inode, record), name, access)
        } else if name.starts_with(TRUSTED) {
            check_root(caller).map_err(|refused| if is_read { FsError::NoAttribute } else { refused })
        } else if name.starts_with(b"security.") {
            if is_read { Ok(()) } else { check_root(caller) }
        } else if is_access_list(name) && record.kind != Kind::Symlink {
            if is_read { Ok(()) } else { check_owner(caller, record) }
        } else {
            Err(FsError::NotSupported)
        }
    }

    /// Only files and directories have user attributes, because permission bits protect only these. In a sticky
    /// directory only the owner may set them.
    fn check_user_xattr(
        &self,
        caller: &Caller,
        (inode, record): (InodeNo, &Record),
        name: &[u8],
        access: u16,
    ) -> Result<()> {
        if name.len() == b"user.".len() {
            return Err(FsError::Invalid);
        }
        if !matches!(record.kind, Kind::File | Kind::Directory) {
            return Err(if access == READ { FsError::NoAttribute } else { FsError::NotPermitted });
        }
        if access == WRITE && record.kind == Kind::Directory && record.permissions & STICKY != 0 {
            check_owner(caller, record)?;
        }
        self.check_access(caller, inode, record, access)
    }

    fn find_xattr(&self, inode: InodeNo, name: &[u8]) -> Result<Place> {
        let hash = hash_name(&self.store.info().secret, name);
        let from = xattr_key(inode, hash, 0, 0);
        let to = match hash.checked_add(1) {
            Some(next) => xattr_key(inode, next, 0, 0),
            None => xattr_key(InodeNo(inode.0 + 1), 0, 0, 0),
        };
        let rows = self.store.range(self.group(inode), XATTR, &from, &to, usize::MAX)?;
        let mut free = 0;
        let mut rows = rows.as_slice();
        while let Some((key, value)) = rows.first() {
            let (_, _, collision, _) = decode_xattr_key(key)?;
            let head = XattrHead::decode(value)?;
            let parts = usize::from(head.parts).min(rows.len());
            if head.name == name {
                let value = join(&head, &rows[1..parts])?;
                return Ok(Place { hash, collision, parts: head.parts, value });
            }
            if usize::from(collision) == free {
                free += 1;
            }
            rows = &rows[parts..];
        }
        if free == COLLISIONS {
            return Err(FsError::NoSpace);
        }
        Ok(Place { hash, collision: free as u8, parts: 0, value: Vec::new() })
    }

    fn put_xattr(&self, change: &mut Change, inode: InodeNo, place: &Place, name: &[u8], value: &[u8]) {
        let row_max = self.store.value_max();
        let in_head = value.len().min(row_max - size_of::<XattrHeader>() - name.len());
        let (head, rest) = value.split_at(in_head);
        let parts = 1 + rest.chunks(row_max - 1).len();
        let head = XattrHead {
            parts: u8::try_from(parts).expect("64 KiB are fewer than 256 rows of any page size"),
            value_length: u32::try_from(value.len()).expect("values are at most 64 KiB"),
            name: name.to_vec(),
            bytes: head.to_vec(),
        };
        let group = self.group(inode);
        let key = |part: usize| xattr_key(inode, place.hash, place.collision, part as u8);
        change.tx.put(group, XATTR, key(0), head.encode());
        for (part, bytes) in (1..).zip(rest.chunks(row_max - 1)) {
            change.tx.put(group, XATTR, key(part), [&[VERSION], bytes].concat());
        }
        let left = if rt::is_planted("break-xattr-parts") { 0 } else { usize::from(place.parts) };
        for part in parts..left {
            change.tx.delete(group, XATTR, key(part));
        }
    }
}

/// The bytes of a name in the list of all names.
fn listed(name: &[u8]) -> u32 {
    name.len() as u32 + 1
}

fn join(head: &XattrHead, rest: &[Entry]) -> Result<Vec<u8>> {
    let mut value = head.bytes.clone();
    for (_, part) in rest {
        match part.split_first() {
            Some((&VERSION, bytes)) => value.extend_from_slice(bytes),
            _ => return Err(Damaged("a part of an extended attribute has an unknown version").into()),
        }
    }
    let complete = rest.len() + 1 == usize::from(head.parts) && value.len() == head.value_length as usize;
    if complete { Ok(value) } else { Err(Damaged("an extended attribute is not complete").into()) }
}

/// The permissions of an inode after its access list has set these bits. As with `chmod`, a caller that is not in the
/// group does not make the file run as that group.
fn permissions_after(caller: &Caller, record: &Record, bits: u16) -> u16 {
    let keeps_group = caller.checked || caller.is_root() || caller.in_group(record.gid);
    let special = if keeps_group { 0o7000 } else { 0o7000 & !SET_GID };
    record.permissions & special | bits
}
