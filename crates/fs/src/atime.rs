//! Times of access, for who wants them kept. Reading does not note them by itself: each would be a
//! transaction.

use crate::change::Change;
use crate::errno::Result;
use crate::inodes::Locked;
use crate::types::InodeNo;
use crate::volume::Fs;

impl Fs {
    /// Notes that an inode was read just now. Where nothing can be changed nothing is noted.
    pub fn note_access(&self, inode: InodeNo) -> Result<()> {
        let _aside = self.aside.read();
        if self.is_read_only() {
            return Ok(());
        }
        let node = self.node(inode)?;
        let mut locked = Locked::one(&node);
        let mut record = locked.record(inode)?.clone();
        record.accessed = self.clock.now();
        let mut change = Change::reclaiming();
        change.save(inode, record);
        self.commit(change, &mut locked)?;
        Ok(())
    }
}
