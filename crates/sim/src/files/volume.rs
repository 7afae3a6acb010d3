//! A volume on an emulated device: format, mount, and checks after a crash.

use std::sync::Arc;

use emulated::Emulated;
use fs::{FormatOptions, Fs, FsError, MountOptions};
use rt::{Clock, ManualClock, Timestamp};
use zone::{Device, FsId};

use super::observe::{self, View};
use crate::allowed::{FilesState, contract, under_way};
use crate::caught::Wrong;
use crate::history::State;
use crate::model::Snapshot;

/// The clock of every simulated volume begins here.
const BEGINNING: Timestamp = Timestamp(1_600_000_000_000_000_000);

/// The seed of the secret of every simulated volume.
const SECRET: u64 = 1;

/// The options of a volume and of its mounts.
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

    /// Creates the volume.
    pub fn format(&self, device: &Arc<Emulated>) -> Result<(), Wrong> {
        self.format_as(device, FsId([7; 16]))
    }

    /// Creates the volume with this identity.
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
        // All volumes have the same secret, so that there are names that are known to have the same hash.
        let next = u64::from_le_bytes(rt::random::secret());
        rt::random::repeat_from(SECRET);
        let made = Fs::format(&device, &options, Self::clock().as_ref());
        rt::random::repeat_from(next);
        made.map_err(|error| Wrong::at("format", error))
    }

    /// Mounts the volume without starting threads.
    pub fn mount(&self, device: &Arc<Emulated>, clock: Arc<dyn Clock>) -> Result<Arc<Fs>, Wrong> {
        self.try_mount(device, clock).map_err(|error| Wrong::at("mount", error))
    }

    /// The same, if the mount may be refused.
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

/// Checks a recovered volume. The checker must find nothing, and the state must be one of these.
pub fn judge(fs: &Fs, allowed: &[Arc<FilesState>]) -> Result<FilesState, Wrong> {
    let found = FilesState::found(clean(fs)?, fs.extents().block_size() as usize);
    among(allowed, &found)?;
    Ok(found)
}

/// The same, but only the crash contract must hold.
pub(super) fn judge_by_contract(fs: &Fs, allowed: &[Arc<FilesState>]) -> Result<FilesState, Wrong> {
    let found = clean(fs)?;
    contract(allowed, &found).map_err(|why| Wrong(format!("the crash contract is broken: {why}")))?;
    Ok(FilesState::found(found, fs.extents().block_size() as usize))
}

/// Everything visible on a volume. The checker must find nothing.
pub fn clean(fs: &Fs) -> Result<Snapshot, Wrong> {
    let findings = fs.check().map_err(|error| Wrong::at("check", error))?;
    if !findings.is_empty() {
        let lines: Vec<String> = findings.iter().map(|finding| format!("{finding:?}")).collect();
        return Err(Wrong(format!("the checker finds:\n{}", lines.join("\n"))));
    }
    observe::snapshot(fs)
}

/// Checks that the found state is one of these.
pub fn among(allowed: &[Arc<FilesState>], found: &FilesState) -> Result<(), Wrong> {
    if FilesState::find(allowed, found).is_none() {
        let wrong = FilesState::explain(allowed, found);
        return Err(Wrong(format!("none of the {} states that may be found:\n{wrong}", allowed.len())));
    }
    Ok(())
}

/// All findings of the checkers, with every block of data read.
pub fn findings(fs: &Fs) -> Result<Vec<String>, FsError> {
    let mut reported: Vec<String> = fs.check()?.iter().map(ToString::to_string).collect();
    let data = extent::check_data(fs.extents(), true).map_err(FsError::from)?;
    reported.extend(data.into_iter().map(|finding| finding.what));
    Ok(reported)
}

/// Checks that everything that can be read agrees with one of these states. Returns the paths that cannot be read
/// completely.
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
