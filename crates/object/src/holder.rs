//! The process that owns a volume, and whether it is gone.

use std::collections::BTreeSet;
use std::path::Path;

use rt::sync::Mutex;

use crate::format::Holder as Stored;

/// The owners of this process, by nonce.
static OWNERS: Mutex<BTreeSet<[u8; 16]>> = Mutex::new(BTreeSet::new());

/// Notes that this process has become an owner.
pub(crate) fn remember(nonce: [u8; 16]) {
    OWNERS.lock().insert(nonce);
}

/// Notes that an owner of this process has ended.
pub(crate) fn forget(nonce: &[u8; 16]) {
    OWNERS.lock().remove(nonce);
}

/// A process on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder(pub(crate) Stored);

impl Holder {
    /// This process.
    pub fn this_process() -> Holder {
        let process = std::process::id();
        Holder(Stored {
            machine: id_in("/etc/machine-id"),
            boot: id_in("/proc/sys/kernel/random/boot_id"),
            process_namespace: namespace(),
            process,
            process_started: started(process).unwrap_or(0),
            host: text("/proc/sys/kernel/hostname"),
        })
    }

    /// A process on a machine of its own, for tests.
    pub fn elsewhere(process: u32) -> Holder {
        let machine = u128::MAX - u128::from(process);
        Holder(Stored {
            machine: machine.to_be_bytes(),
            boot: [0; 16],
            process_namespace: 0,
            process,
            process_started: 0,
            host: "elsewhere".to_owned(),
        })
    }

    /// Whether `holder` is known to be gone: it was on this machine, and the machine was started again, or the process
    /// has ended.
    pub(crate) fn knows_is_gone(&self, holder: &Stored, nonce: &[u8; 16]) -> bool {
        let is_this = self.0 == *holder;
        (is_this && !OWNERS.lock().contains(nonce)) || self.knows_is_gone_if(holder, started)
    }

    /// Whether `holder` is a process that this one can see, so that it is known to be alive unless it is gone.
    pub(crate) fn can_see(&self, holder: &Stored) -> bool {
        let this = &self.0;
        this.machine != [0; 16]
            && (this.machine, this.boot, this.process_namespace)
                == (holder.machine, holder.boot, holder.process_namespace)
    }

    fn knows_is_gone_if(&self, holder: &Stored, started: impl Fn(u32) -> Option<u64>) -> bool {
        let this = &self.0;
        if this.machine == [0; 16] || this.machine != holder.machine {
            return false;
        }
        if this.boot != holder.boot {
            // In a container, other containers of the same machine have the same boot id.
            return true;
        }
        this.process_namespace == holder.process_namespace
            && started(holder.process).is_none_or(|now| now != holder.process_started)
    }
}

fn text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The id in a file; zeros if there is none.
fn id_in(path: &str) -> [u8; 16] {
    let digits: String = text(path).chars().filter(|digit| *digit != '-').collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

fn namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino())
}

/// When a process was started, in ticks since the machine was. `None` if there is no such process.
fn started(process: u32) -> Option<u64> {
    started_in(&std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat")).ok()?)
}

/// The same from its line of `stat`. A process that has ended stays until its parent has read its status, but does
/// nothing any more.
fn started_in(line: &str) -> Option<u64> {
    // The name of the program is in parentheses and may contain anything.
    let (_, rest) = line.rsplit_once(')')?;
    let mut words = rest.split_whitespace();
    let state = words.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    words.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_gone_only_if_this_machine_can_tell() {
        let this = Holder(Stored { machine: [7; 16], ..Holder::this_process().0 });
        let same = this.0.clone();
        let is_gone = |holder: &Stored, started: Option<u64>| this.knows_is_gone_if(holder, |_| started);
        assert!(!is_gone(&same, Some(same.process_started)), "it is alive");
        assert!(is_gone(&same, None));
        assert!(is_gone(&same, Some(same.process_started + 1)), "the number belongs to another process now");
        assert!(is_gone(&Stored { boot: [9; 16], ..same.clone() }, Some(same.process_started)));
        let other = Stored { process_namespace: same.process_namespace + 1, ..same.clone() };
        assert!(!is_gone(&other, None), "processes of another container are not visible");
        assert!(!is_gone(&Stored { machine: [8; 16], boot: [9; 16], ..same.clone() }, None));
        let unknown = Holder(Stored { machine: [0; 16], ..same.clone() });
        assert!(!unknown.knows_is_gone_if(&Stored { boot: [9; 16], ..unknown.0.clone() }, |_| None));
    }

    /// After `kill -9` of a daemon whose parent did not wait for it, the volume stayed in use.
    #[test]
    fn a_process_that_has_ended_and_was_not_waited_for_is_gone() {
        let line = |state| format!("7 (a) b) {state} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987 20 21");
        assert_eq!(started_in(&line("S")), Some(987));
        assert_eq!((started_in(&line("Z")), started_in(&line("X"))), (None, None));
    }

    #[test]
    fn this_process_is_alive() {
        let this = Holder::this_process();
        assert!(this.0.process_started > 0 && !this.knows_is_gone_if(&this.0, started));
    }
}
