//! Members that are being rebuilt: the request to replace one, and the thread of a daemon that copies.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rt::sync::Mutex;
use rt::sync::atomic::{AtomicU32, Ordering};
use rt::thread::{JoinHandle, Signal};
use serde::{Deserialize, Serialize};
use zone::medium::{Members, OldMember, RebuildReport};
use zone::set::RebuildStep;

use crate::name::AnyPath;
use crate::{inherited, progress};

/// How long the thread waits for garbage collection to empty zones that cannot be read.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long it waits if there is nothing to rebuild. It is woken before.
const IDLE: Duration = Duration::from_secs(3600);

const MISSING: &str = "missing";

/// A request to replace a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Replacement {
    /// The path of the old member, its position, or `missing`.
    pub(crate) old: AnyPath,
    /// The new file or device; absolute.
    pub(crate) new: AnyPath,
    /// Whether contents of the new one may be overwritten.
    pub(crate) force: bool,
}

/// A member that is being rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rebuild {
    pub(crate) set: u32,
    pub(crate) position: usize,
    /// The zones that the member has.
    pub(crate) zones_done: u32,
    /// All zones.
    pub(crate) zones: u32,
    /// Zones with blocks that no member can read, which is why nothing is copied now.
    pub(crate) zones_unreadable: u32,
}

impl Rebuild {
    pub(crate) fn of(report: &RebuildReport, zones_unreadable: u32) -> Rebuild {
        let RebuildReport { set, state, .. } = *report;
        let (position, zones_done, zones) = (state.position, state.zones_done, state.zones);
        Rebuild { set, position, zones_done, zones, zones_unreadable }
    }

    pub(crate) fn is_same(&self, other: &Rebuild) -> bool {
        (self.set, self.position) == (other.set, other.position)
    }
}

impl Replacement {
    /// Replaces the member of an open volume. If the new one is being rebuilt already, that is continued.
    pub(crate) fn begin(&self, members: &Members) -> Result<RebuildReport> {
        if let Some(rebuild) = members.rebuild_of(&self.new) {
            return Ok(rebuild);
        }
        inherited::allow_volume(&self.new)?;
        let bar = progress::moving(0);
        let begun = members.replace(&old_member(&self.old), &self.new, self.force, &mut |done, all| {
            bar.set_length(all);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        Ok(begun?)
    }
}

/// The member that a word names.
pub(crate) fn old_member(word: &Path) -> OldMember {
    let Some(text) = word.to_str() else { return OldMember::Path(word.to_owned()) };
    if text == MISSING {
        return OldMember::Missing;
    }
    let (set, position) = match text.split_once(':') {
        Some((set, position)) => (set.parse().ok().map(Some), position),
        None => (Some(None), text),
    };
    match (set, position.parse()) {
        (Some(set), Ok(position)) => OldMember::Position { set, position },
        _ => OldMember::Path(word.to_owned()),
    }
}

/// Rebuilds members of a volume, in the background.
pub(crate) struct Rebuilds {
    members: Arc<Members>,
    state: Arc<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    changed: Signal,
    /// Zones that could not be read.
    zones_unreadable: AtomicU32,
}

impl Rebuilds {
    /// Starts the thread, which continues with what an earlier mount has begun.
    pub(crate) fn start(members: &Arc<Members>) -> Result<Rebuilds> {
        let (members, state) = (Arc::clone(members), Arc::new(State::default()));
        let (of_thread, its_state) = (Arc::clone(&members), Arc::clone(&state));
        let thread = rt::thread::spawn("polder-rebuilds", move || work(&of_thread, &its_state))?;
        Ok(Rebuilds { members, state, thread: Mutex::new(Some(thread)) })
    }

    /// Replaces a member.
    pub(crate) fn begin(&self, replacement: &Replacement) -> Result<Rebuild> {
        let begun = replacement.begin(&self.members)?;
        tracing::warn!(
            set = begun.set,
            position = begun.state.position,
            new = %replacement.new.display(),
            "a member was replaced, and the new one is being rebuilt"
        );
        self.state.zones_unreadable.store(0, Ordering::Relaxed);
        self.state.changed.wake();
        Ok(Rebuild::of(&begun, 0))
    }

    /// The members that are being rebuilt.
    pub(crate) fn all(&self) -> Vec<Rebuild> {
        let unreadable = self.state.zones_unreadable.load(Ordering::Relaxed);
        self.members.rebuilds().iter().map(|report| Rebuild::of(report, unreadable)).collect()
    }

    /// Ends the thread. The next mount for writing continues an unfinished rebuild.
    pub(crate) fn stop(&self) {
        self.state.changed.set_stopped(true);
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn work(members: &Members, state: &State) {
    let mut seen = 0;
    loop {
        let pause = match members.rebuild_step() {
            Ok((_, RebuildStep::More)) => Duration::ZERO,
            Ok((set, step)) => {
                report(set, &step);
                let unreadable = if let RebuildStep::Blocked(zones) = step { zones } else { 0 };
                state.zones_unreadable.store(unreadable, Ordering::Relaxed);
                match step {
                    RebuildStep::Blocked(_) => PATIENCE,
                    RebuildStep::Idle => IDLE,
                    _ => Duration::ZERO,
                }
            }
            Err(error) => {
                tracing::error!(%error, "members are not rebuilt any more");
                return;
            }
        };
        match state.changed.wait(seen, pause) {
            Some(now) => seen = now,
            None => return,
        }
    }
}

fn report(set: u32, step: &RebuildStep) {
    match step {
        RebuildStep::Complete => tracing::info!(set, "a member was rebuilt, and is in use"),
        RebuildStep::GivenUp(why) => tracing::error!(set, why, "a new member has failed"),
        RebuildStep::Blocked(zones) => {
            tracing::error!(set, zones, "zones cannot be copied: no member can read all of their blocks");
        }
        RebuildStep::More | RebuildStep::Idle => {}
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn the_old_member_is_a_path_a_position_or_missing() {
        let position = |set, position| OldMember::Position { set, position };
        for (word, old) in [
            ("missing", OldMember::Missing),
            ("./missing", OldMember::Path(PathBuf::from("./missing"))),
            ("0", position(None, 0)),
            ("12", position(None, 12)),
            ("1:0", position(Some(1), 0)),
            ("-1", OldMember::Path(PathBuf::from("-1"))),
            ("/dev/sda", OldMember::Path(PathBuf::from("/dev/sda"))),
            ("a:0", OldMember::Path(PathBuf::from("a:0"))),
        ] {
            assert_eq!(old_member(Path::new(word)), old, "{word}");
        }
    }
}
