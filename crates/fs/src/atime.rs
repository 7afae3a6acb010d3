//! Access times, for mounts that request them. Reading does not set them by itself, because each would be a
//! transaction.

use crate::change::Change;
use crate::errno::Result;
use crate::inodes::Locked;
use crate::types::InodeNo;
use crate::volume::Fs;

impl Fs {
    /// Sets the access time of an inode to now. Does nothing on a volume that is read-only.
    pub fn update_atime(&self, inode: InodeNo) -> Result<()> {
        let _background_change = self.background_changes.read();
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
