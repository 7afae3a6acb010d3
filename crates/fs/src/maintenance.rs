//! Manual GC and defragmentation.
//!
//! Both run in small steps that lock no inode while they move data, so other operations continue. A caller may stop
//! after any step.

use extent::{Defragmented, Layout};

use crate::errno::Result;
use crate::types::{InodeNo, Kind};
use crate::volume::Fs;

impl Fs {
    /// One step of manual GC: first the backlog, then data zones, and when these gain nothing more, metadata zones.
    /// Returns false when there is nothing left to do.
    pub fn collect_garbage(&self) -> Result<bool> {
        let _background_change = self.background_changes.read();
        self.begin()?;
        if self.work_backlog()? || self.extents.collector().manual_gc()? {
            return Ok(true);
        }
        Ok(self.store.collect_garbage_if_worth_it()?)
    }

    /// Finishes the backlog of deletions and the like, as far as there is space.
    pub fn finish_backlog(&self) -> Result<()> {
        let _background_change = self.background_changes.read();
        self.begin()?;
        self.work_backlog()?;
        Ok(())
    }

    /// The largest number of zones that GC can make free if nothing is deleted. None while there is a backlog,
    /// because the space that it will free is not known.
    pub fn free_zones_max(&self) -> Option<u32> {
        self.backlog.is_done().then(|| extent::free_zones_max(self.extents.store().pool()))
    }

    /// How the contents of a file are spread over zones. Empty if they are inline in the record.
    pub fn layout(&self, inode: InodeNo) -> Result<Layout> {
        let node = self.node(inode)?;
        self.settle(&node)?;
        let record = node.state.read().record()?.clone();
        if record.kind != Kind::File {
            return Ok(Layout::default());
        }
        Ok(extent::layout(&self.extents, record.object(inode))?)
    }

    /// Defragments a part of a file that begins at block `from`, if that saves reads. The caller begins with 0 and
    /// goes on where the result says. Concurrent changes of the file are not undone.
    ///
    /// # Errors
    /// `NoSpace` if there is not even space for a second copy of a small part.
    pub fn defragment(&self, inode: InodeNo, from: u64) -> Result<Defragmented> {
        let _background_change = self.background_changes.read();
        self.with_space(|| {
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
            Ok(extent::defragment(&self.extents, object, hint, from)?)
        })
    }
}
