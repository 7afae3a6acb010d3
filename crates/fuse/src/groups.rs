//! The groups of a thread that made a request.
//!
//! A request names one of them. Where the others decide, they are looked up while the thread waits for its
//! answer; who is not to be found (a process of another namespace has no number here) has no others.

/// The supplementary groups of a thread.
pub(crate) fn of_thread(thread: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"));
    status.map_or(Vec::new(), |status| in_status(&status))
}

fn in_status(status: &str) -> Vec<u32> {
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_in_what_the_kernel_shows_of_a_thread() {
        let status = "Name:\tGroups: 7\nGid:\t5\t5\t5\t5\nFDSize:\t64\nGroups:\t4 27 65534 \nNStgid:\t9\n";
        assert_eq!(in_status(status), [4, 27, 65534]);
        assert_eq!(in_status("Groups:\t \n"), [0; 0]);
        assert_eq!(of_thread(0), [0; 0]);
    }
}
