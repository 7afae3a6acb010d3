//! How long a file's data is expected to live: what programs say of it, for its placement.
//!
//! It is a field of the inode's record, so whoever writes has it at hand, and what is made in a directory
//! begins with that of the directory. Programs see it as an extended attribute, which is there unless
//! nothing is known.

use extent::{Hint, Lifetime};

use crate::change::Change;
use crate::errno::{FsError, Result};
use crate::format::Record;
use crate::inodes::Locked;
use crate::permissions::{WRITE, check_owner};
use crate::types::{Caller, InodeNo, Kind};
use crate::volume::Fs;
use crate::xattr::check_xattr;

/// The attribute that says how long the data is expected to live.
pub const LIFETIME_ATTRIBUTE: &[u8] = b"user.polder.lifetime";

impl Fs {
    /// Says how long the data of a file is expected to live, for its placement; a directory hands
    /// it down to what is made in it. What is in zones already stays where it is.
    pub fn set_lifetime(&self, who: &Caller, inode: InodeNo, lifetime: Lifetime) -> Result<()> {
        self.change_lifetime(inode, |record| {
            check_owner(who, record)?;
            Ok(lifetime)
        })
    }

    /// How long the data is expected to live.
    pub fn lifetime(&self, inode: InodeNo) -> Result<Lifetime> {
        Ok(self.node(inode)?.state.read().record()?.hint().lifetime)
    }

    /// Sets the attribute, or takes it away.
    pub(crate) fn change_lifetime_attribute(
        &self,
        who: &Caller,
        inode: InodeNo,
        value: Option<&[u8]>,
        create: bool,
        replace: bool,
    ) -> Result<()> {
        self.change_lifetime(inode, |record| {
            check_xattr(who, record, LIFETIME_ATTRIBUTE, WRITE)?;
            match record.lifetime {
                0 if replace => return Err(FsError::NoAttribute),
                1.. if create => return Err(FsError::Exists),
                _ => {}
            }
            match value {
                Some(value) => Lifetime::from_name(value).ok_or(FsError::Invalid),
                None => Ok(Lifetime::Unknown),
            }
        })
    }

    fn change_lifetime(
        &self,
        inode: InodeNo,
        choose: impl FnOnce(&Record) -> Result<Lifetime>,
    ) -> Result<()> {
        self.begin()?;
        let node = self.node(inode)?;
        let mut locked = Locked::one(&node);
        let mut record = locked.record(inode)?.clone();
        record.lifetime = choose(&record)?.number();
        record.changed = self.clock.now();
        let mut change = Change::reclaiming();
        change.save(inode, record);
        self.commit(change, &mut locked)?;
        Ok(())
    }
}

impl Record {
    /// What placement may know.
    pub(crate) fn hint(&self) -> Hint {
        Hint { lifetime: Lifetime::from_number(self.lifetime).unwrap_or_default() }
    }

    /// The value of the attribute, on what can have one.
    pub(crate) fn lifetime_attribute(&self) -> Option<Vec<u8>> {
        let has_attributes = matches!(self.kind, Kind::File | Kind::Directory);
        let lifetime = self.hint().lifetime;
        (has_attributes && lifetime != Lifetime::Unknown).then(|| lifetime.name().as_bytes().to_vec())
    }
}
