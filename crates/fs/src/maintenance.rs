//! What people have done to a volume's zones by hand: collecting garbage, and putting files together.
//!
//! Both go in small pieces that lock no inode while they move data, so others use the volume as ever, and both
//! may stop after any of them.

use extent::{Defragmented, Layout};

use crate::errno::Result;
use crate::types::{InodeNo, Kind};
use crate::volume::Fs;

impl Fs {
    /// One piece of garbage collection that somebody asks for: of what waits to be deleted, then of data, and
    /// when that has nothing more to win of metadata. False when there is nothing left to do.
    pub fn collect_garbage(&self) -> Result<bool> {
        let _aside = self.aside.read();
        self.begin()?;
        if self.work_backlog()? || self.extents.compact()? {
            return Ok(true);
        }
        Ok(self.store.clean_if_worth_it()?)
    }

    /// Deletes what waits for it, as far as there is room.
    pub fn delete_what_waits(&self) -> Result<()> {
        let _aside = self.aside.read();
        self.begin()?;
        self.work_backlog()?;
        Ok(())
    }

    /// How many zones garbage collection can make free, at most, as long as nobody deletes anything. Nothing when there
    /// is something that waits to be deleted: nobody knows yet how much that is.
    pub fn free_zones_most(&self) -> Option<u32> {
        self.backlog.is_done().then(|| self.extents.free_zones_most())
    }

    /// How the contents of a file lie in zones: not at all, when they lie in its record.
    pub fn layout(&self, inode: InodeNo) -> Result<Layout> {
        let node = self.node(inode)?;
        let record = node.state.read().record()?.clone();
        if record.kind != Kind::File {
            return Ok(Layout::default());
        }
        Ok(self.extents.layout(record.object(inode))?)
    }

    /// Puts together a part of a file that begins at block `from`, if that saves reads: call it, beginning with 0,
    /// until there is nothing to go on with. What others change meanwhile stays as they change it.
    ///
    /// # Errors
    /// `NoSpace` when there is no room even for a piece of it to be there twice.
    pub fn defragment(&self, inode: InodeNo, from: u64) -> Result<Defragmented> {
        let _aside = self.aside.read();
        self.with_room(|| {
            self.begin_growing()?;
            let node = self.node(inode)?;
            let (kind, hint, object) = {
                let state = node.state.read();
                let record = state.record()?;
                (record.kind, record.hint(), record.object(inode))
            };
            if kind != Kind::File {
                return Ok(Defragmented::default());
            }
            Ok(self.extents.defragment(object, hint, from)?)
        })
    }
}
