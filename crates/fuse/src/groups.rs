//! The groups of a thread that made a request, and whether it may keep set-id bits.
//!
//! A request names one of the groups. Where the others decide, they are looked up while the thread waits for its
//! answer; who is not to be found (a process of another namespace has no number here) has no others.

/// `CAP_FSETID`, as a bit of a set of capabilities.
const FSETID: u64 = 1 << 4;

/// The supplementary groups of a thread.
pub(crate) fn of_thread(thread: u32) -> Vec<u32> {
    groups_in(&status(thread))
}

/// Whether a thread of root may keep the set-id bits of what it changes. Root may, unless the thread is known to
/// have given the capability up. Of other users this does not tell: theirs may count in a namespace of theirs alone.
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
    fn groups_are_found_in_what_the_kernel_shows_of_a_thread() {
        let status = "Name:\tGroups: 7\nGid:\t5\t5\t5\t5\nFDSize:\t64\nGroups:\t4 27 65534 \nNStgid:\t9\n";
        assert_eq!(groups_in(status), [4, 27, 65534]);
        assert_eq!(groups_in("Groups:\t \n"), [0; 0]);
        assert_eq!(of_thread(0), [0; 0]);
    }

    #[test]
    fn root_keeps_set_id_unless_the_kernel_shows_that_it_may_not() {
        assert_eq!(capabilities_in("CapPrm:\t0\nCapEff:\t000001ffffffffef\n"), Some(0x1ff_ffff_ffef));
        assert_eq!(capabilities_in("CapEff:\tno number\n"), None);
        assert!(root_keeps_set_id(0), "a thread that is not to be found");
    }
}
