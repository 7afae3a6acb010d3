use super::*;

#[test]
fn a_program_ends_when_it_is_killed_and_when_it_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    let line = Line::new("sleep 1000");
    let mut running = Running::start(&line, Stdio::null(), &output).unwrap();
    assert_eq!(running.ended().unwrap(), None);
    running.kill().unwrap();
    assert!(running.ended().unwrap().is_some_and(|status| !status.success()));
    let pid = Running::start(&line, Stdio::null(), &output).unwrap().pid();
    assert!(kill(pid, None).is_err(), "{pid} is left behind");
}

#[test]
fn children_are_found_by_their_parent() {
    let folder = tempfile::tempdir().unwrap();
    let line = Line::new("sleep 1000");
    let running = Running::start(&line, Stdio::null(), &folder.path().join("output")).unwrap();
    let own = Pid::from_raw(std::process::id() as i32);
    assert!(children(own).unwrap().contains(&running.pid()));
    assert_eq!(children(running.pid()).unwrap(), []);
}

#[test]
fn a_program_that_takes_too_long_is_ended() {
    assert_eq!(at_most(1, "sleep 1000").outcome().unwrap().0, Some(124));
}
