//! A volume on an emulated device: made, mounted, and looked at after a crash.

use std::sync::Arc;

use fs::{FormatOptions, Fs, MountOptions};
use rt::{Clock, ManualClock, Timestamp};
use zone::emulated::Emulated;
use zone::{Device, FsId};

use super::observe;
use crate::allowed::FilesState;
use crate::caught::Wrong;
use crate::history::State;

/// The clock of every simulated volume begins here.
const BEGINNING: Timestamp = Timestamp(1_600_000_000_000_000_000);

/// What a volume is made and mounted with.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    /// Bytes of a page.
    pub page_size: u32,
    /// Groups.
    pub groups: u16,
    /// Memory for nodes.
    pub cache_bytes: u64,
}

impl Volume {
    /// A clock that stands at the beginning.
    pub fn clock() -> Arc<ManualClock> {
        Arc::new(ManualClock::at(BEGINNING))
    }

    /// Makes it.
    pub fn format(&self, device: &Arc<Emulated>) -> Result<(), Wrong> {
        let options = FormatOptions {
            label: "sim".to_owned(),
            fs_id: FsId([7; 16]),
            uid: 0,
            gid: 0,
            page_size: Some(self.page_size),
            groups: Some(self.groups),
        };
        let device: Arc<dyn Device> = Arc::clone(device) as _;
        Fs::format(&device, &options, Self::clock().as_ref()).map_err(|error| Wrong::at("format", error))
    }

    /// Mounts it; no thread is started.
    pub fn mount(&self, device: &Arc<Emulated>, clock: Arc<dyn Clock>) -> Result<Arc<Fs>, Wrong> {
        let options = MountOptions {
            cache_bytes: self.cache_bytes,
            read_only: false,
            commit_interval_ns: 5_000_000_000,
            clock,
        };
        let mounted = Fs::mount(Arc::clone(device) as _, options);
        mounted.map(|(fs, _)| fs).map_err(|error| Wrong::at("mount", error))
    }
}

/// What is found on a volume that was recovered: the checker must find nothing, and the state must be one of
/// these.
pub fn judge(fs: &Fs, allowed: &[Arc<FilesState>]) -> Result<FilesState, Wrong> {
    let findings = fs.check().map_err(|error| Wrong::at("check", error))?;
    if !findings.is_empty() {
        let lines: Vec<String> = findings.iter().map(|finding| format!("{finding:?}")).collect();
        return Err(Wrong(format!("the checker finds:\n{}", lines.join("\n"))));
    }
    let found = FilesState::found(observe::snapshot(fs)?, fs.extents().block_size() as usize);
    if FilesState::find(allowed, &found).is_none() {
        let wrong = FilesState::explain(allowed, &found);
        return Err(Wrong(format!("none of the {} states that may be found:\n{wrong}", allowed.len())));
    }
    Ok(found)
}
