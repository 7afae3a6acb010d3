use super::*;

/// Each command that was killed left the disks of its machine and its archive behind, for ever.
#[test]
fn what_killed_commands_have_left_is_removed_when_nobody_is_at_work() {
    let home = tempfile::tempdir().unwrap();
    let fill = || {
        for folder in ["run-a", "image-b", "kernel"] {
            std::fs::create_dir_all(home.path().join(folder)).unwrap();
            std::fs::write(home.path().join(folder).join("file"), "").unwrap();
        }
        for file in ["image-b.names", "c.cpio", "vmlinux"] {
            std::fs::write(home.path().join(file), "").unwrap();
        }
    };
    let names = || {
        let entries = std::fs::read_dir(home.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    fill();
    let first = sweep(home.path()).unwrap();
    assert_eq!(names(), ["kernel", "lock", "vmlinux"]);
    fill();
    let second = sweep(home.path()).unwrap();
    assert_eq!(names().len(), 7, "the first is still at work");
    drop((first, second));
    drop(sweep(home.path()).unwrap());
    assert_eq!(names(), ["kernel", "lock", "vmlinux"]);
}

/// A suite runs for hours before it writes its table.
#[test]
fn suites_with_figures_have_a_place_in_the_page() {
    let has_figures = |suite: &&Suite| suite.script.contains("vm: figure ");
    let suites: Vec<_> = SUITES.iter().filter(has_figures).collect();
    assert!(!suites.is_empty(), "there are suites with figures");
    for suite in suites {
        marked::check(marked::PERFORMANCE, &format!("vm {}", suite.name)).unwrap();
    }
}
