use super::*;

const REPORT: &str = "SF:/somewhere/crates/tree/src/log.rs\nFN:1,name\nDA:1,3\nDA:2,0\nDA:3,0\nDA:7,0\n\
    BRDA:2,0,0,5\nBRDA:2,0,1,0\nBRDA:3,0,0,-\nLF:4\nLH:1\nend_of_record\n";

#[test]
fn lines_and_branches_are_counted() {
    let files = read(REPORT).unwrap();
    let file = &files["crates/tree/src/log.rs"];
    assert_eq!(file.lines(), Count { run: 1, of: 4 });
    assert_eq!(file.branches(), Count { run: 1, of: 3 });
    assert_eq!(file.not_run(), [2, 3, 7]);
    assert_eq!(file.lines().to_string(), "25.0 %");
}

#[test]
fn sections_of_one_file_are_put_together() {
    let twice = format!("{REPORT}SF:/somewhere/crates/tree/src/log.rs\nDA:2,1\nDA:8,1\nBRDA:3,0,0,1\n");
    let files = read(&twice).unwrap();
    assert_eq!(files.len(), 1);
    assert_eq!(files["crates/tree/src/log.rs"].not_run(), [3, 7]);
    assert_eq!(files["crates/tree/src/log.rs"].branches(), Count { run: 2, of: 3 });
}

#[test]
fn an_invalid_report_is_refused() {
    assert!(read("").is_err());
    assert!(read("SF:a.rs\nDA:one,2\n").is_err());
    assert!(read("SF:a.rs\nDA:1\n").is_err());
}

#[test]
fn numbers_that_follow_each_other_are_put_together() {
    assert_eq!(ranges(&[]), "");
    assert_eq!(ranges(&[1, 3, 4, 5, 9, 10]), "1, 3-5, 9-10");
}
