//! A volume on an emulated device: made, mounted, and looked at after a crash.

use std::sync::Arc;

use emulated::Emulated;
use fs::{FormatOptions, Fs, FsError, MountOptions};
use rt::{Clock, ManualClock, Timestamp};
use zone::{Device, FsId};

use super::observe::{self, View};
use crate::allowed::{FilesState, under_way};
use crate::caught::Wrong;
use crate::history::State;
use crate::model::Snapshot;

/// The clock of every simulated volume begins here.
const BEGINNING: Timestamp = Timestamp(1_600_000_000_000_000_000);

/// What the secret of every simulated volume follows from.
const SECRET: u64 = 1;

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
        self.format_as(device, FsId([7; 16]))
    }

    /// Makes it with this identity.
    pub fn format_as(&self, device: &Arc<Emulated>, fs_id: FsId) -> Result<(), Wrong> {
        let options = FormatOptions {
            label: "sim".to_owned(),
            fs_id,
            uid: 0,
            gid: 0,
            page_size: Some(self.page_size),
            groups: Some(self.groups),
            reserve: fs::Reserve::default(),
        };
        let device: Arc<dyn Device> = Arc::clone(device) as _;
        // One secret for all, so that there are names of which it is known that they have the same hash.
        let next = u64::from_le_bytes(rt::random::secret());
        rt::random::repeat_from(SECRET);
        let made = Fs::format(&device, &options, Self::clock().as_ref());
        rt::random::repeat_from(next);
        made.map_err(|error| Wrong::at("format", error))
    }

    /// Mounts it; no thread is started.
    pub fn mount(&self, device: &Arc<Emulated>, clock: Arc<dyn Clock>) -> Result<Arc<Fs>, Wrong> {
        self.try_mount(device, clock).map_err(|error| Wrong::at("mount", error))
    }

    /// The same, where the mount may be refused.
    pub fn try_mount(&self, device: &Arc<Emulated>, clock: Arc<dyn Clock>) -> Result<Arc<Fs>, FsError> {
        device.reopen();
        let options = MountOptions {
            cache_bytes: self.cache_bytes,
            read_only: false,
            commit_interval_ns: 5_000_000_000,
            clock,
        };
        Fs::mount(Arc::clone(device) as _, options).map(|(fs, _)| fs)
    }
}

/// What is found on a volume that was recovered: the checker must find nothing, and the state must be one of
/// these.
pub fn judge(fs: &Fs, allowed: &[Arc<FilesState>]) -> Result<FilesState, Wrong> {
    let found = FilesState::found(clean(fs)?, fs.extents().block_size() as usize);
    among(allowed, &found)?;
    Ok(found)
}

/// All that can be seen of a volume in which the checker finds nothing.
pub fn clean(fs: &Fs) -> Result<Snapshot, Wrong> {
    let findings = fs.check().map_err(|error| Wrong::at("check", error))?;
    if !findings.is_empty() {
        let lines: Vec<String> = findings.iter().map(|finding| format!("{finding:?}")).collect();
        return Err(Wrong(format!("the checker finds:\n{}", lines.join("\n"))));
    }
    observe::snapshot(fs)
}

/// What was found is one of these.
pub fn among(allowed: &[Arc<FilesState>], found: &FilesState) -> Result<(), Wrong> {
    if FilesState::find(allowed, found).is_none() {
        let wrong = FilesState::explain(allowed, found);
        return Err(Wrong(format!("none of the {} states that may be found:\n{wrong}", allowed.len())));
    }
    Ok(())
}

/// All that the checkers find, with every block of data read.
pub fn findings(fs: &Fs) -> Result<Vec<String>, FsError> {
    let mut told: Vec<String> = fs.check()?.iter().map(ToString::to_string).collect();
    let data = fs.extents().check_data(true).map_err(FsError::from)?;
    told.extend(data.into_iter().map(|finding| finding.what));
    Ok(told)
}

/// Whether all that is given is as in one of these states; the paths of which something is not given.
pub fn compare(view: &View, allowed: &[Arc<FilesState>]) -> Result<Vec<String>, Wrong> {
    let lost: Vec<String> = view.lost.iter().map(|(path, error)| format!("/{path} ({error})")).collect();
    let agrees = allowed.iter().rev().any(|state| view.agrees(&state.snapshot));
    let between = || {
        let by_block = view.lost.keys().all(|path| view.unreadable.contains_key(path));
        by_block && under_way(allowed, &view.snapshot, &view.unreadable).is_some()
    };
    if agrees || between() {
        return Ok(lost);
    }
    let differences = allowed.iter().rev().filter_map(|state| view.difference(&state.snapshot));
    let list: Vec<String> = differences.take(3).collect();
    Err(Wrong(format!("none of {} states: {}; lost: {lost:?}", allowed.len(), list.join(" / "))))
}
