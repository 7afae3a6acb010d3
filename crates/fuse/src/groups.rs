//! The groups of a thread that made a request, and whether it may keep set-id bits.
//!
//! A request contains one of the groups. If the others matter, they are read from `/proc` while the thread waits for
//! its answer. A thread that is not found there (a process of another namespace has no number here) has no other
//! groups.

/// `CAP_FSETID`, as a bit of a set of capabilities.
const FSETID: u64 = 1 << 4;

/// The supplementary groups of a thread.
pub(crate) fn of_thread(thread: u32) -> Vec<u32> {
    groups_in(&status(thread))
}

/// Whether a thread of root may keep the set-id bits of a file that it changes. It may, unless the thread is known to
/// have dropped the capability. For other users this says nothing: their capability may apply in a namespace of
/// theirs only.
pub(crate) fn root_keeps_set_id(thread: u32) -> bool {
    capabilities_in(&status(thread)).is_none_or(|capabilities| capabilities & FSETID != 0)
}

fn status(thread: u32) -> String {
    std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default()
}

fn groups_in(status: &str) -> Vec<u32> {
    let groups = field(status, "Groups:").unwrap_or_default();
    groups.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

fn capabilities_in(status: &str) -> Option<u64> {
    u64::from_str_radix(field(status, "CapEff:")?.trim(), 16).ok()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_from_the_status_of_a_thread() {
        let status = "Name:\tGroups: 7\nGid:\t5\t5\t5\t5\nFDSize:\t64\nGroups:\t4 27 65534 \nNStgid:\t9\n";
        assert_eq!(groups_in(status), [4, 27, 65534]);
        assert_eq!(groups_in("Groups:\t \n"), [0; 0]);
        assert_eq!(of_thread(0), [0; 0]);
    }

    #[test]
    fn root_keeps_set_id_unless_its_thread_lacks_the_capability() {
        assert_eq!(capabilities_in("CapPrm:\t0\nCapEff:\t000001ffffffffef\n"), Some(0x1ff_ffff_ffef));
        assert_eq!(capabilities_in("CapEff:\tno number\n"), None);
        assert!(root_keeps_set_id(0), "a thread that is not to be found");
    }
}
