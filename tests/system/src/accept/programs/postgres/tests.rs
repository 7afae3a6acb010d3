use super::*;

#[test]
fn the_output_of_pgbench_is_parsed() {
    let printed = "progress: 1.0 s, 0.0 tps, lat 0.000 ms stddev 0.000, 0 failed\n";
    assert!(!has_progress(printed));
    assert!(has_progress(&format!(
        "{printed}progress: 2.0 s, 312.0 tps, lat 12.7 ms stddev 3.1, 0 failed\n"
    )));
    let summary = "number of transactions actually processed: 4711\nnumber of failed transactions: 0\n";
    assert_eq!(processed(summary).unwrap(), 4711);
    assert_eq!(processed("number of transactions actually processed: 7/100\n").unwrap(), 7);
    assert!(processed("pgbench: error: connection refused").is_err());
}
