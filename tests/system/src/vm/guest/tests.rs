use super::*;

#[test]
fn the_verdict_is_the_guests() {
    let mut heard = Heard::default();
    assert!(matches!(heard.hear("vm: step 1").unwrap(), Next::GoOn));
    assert!(matches!(heard.hear("not for us: vm: passed").unwrap(), Next::GoOn));
    assert!(matches!(heard.hear("vm: passed").unwrap(), Next::End));
    let error = heard.hear("vm: failed: no device").err().unwrap();
    assert_eq!(error.to_string(), "no device");
}

/// The gate failed when the emulator let a processor execute code that the other one was changing.
#[test]
fn a_kernel_that_ends_before_polder_is_at_work_is_booted_again() {
    const PANIC: &str = "[ 1.0] Kernel panic - not syncing: gone";
    let mut heard = Heard::default();
    assert!(matches!(heard.hear(PANIC).unwrap(), Next::Reset));
    assert!(matches!(
        heard.hear("[ 1.1] ---[ end Kernel panic - not syncing: gone ]---").unwrap(),
        Next::GoOn
    ));
    heard.hear("vm: begun").unwrap();
    assert!(heard.hear(PANIC).is_err());
    heard.hear("vm: reset").unwrap();
    for _ in 1..LOST_BOOTS_MAX {
        assert!(matches!(heard.hear(PANIC).unwrap(), Next::Reset));
    }
    assert!(heard.hear(PANIC).is_err(), "it never comes up");
}

#[test]
fn less_than_was_acknowledged_is_a_failure() {
    let mut heard = Heard::default();
    heard.hear("vm: acknowledged 7").unwrap();
    assert!(matches!(heard.hear("vm: reset").unwrap(), Next::Reset));
    heard.hear("vm: found 8").unwrap();
    heard.hear("vm: found 7").unwrap();
    let error = heard.hear("vm: found 6").err().unwrap();
    assert_eq!(error.to_string(), "7 were acknowledged and 6 are there");
}

#[test]
fn questions_name_a_namespace() {
    let mut heard = Heard::default();
    assert!(matches!(heard.hear("vm: ask traffic 2").unwrap(), Next::Answer(Question::Traffic(2))));
    assert!(matches!(heard.hear("vm: ask commands 1").unwrap(), Next::Answer(Question::Commands(1))));
    assert!(heard.hear("vm: ask commands").is_err());
    assert!(heard.hear("vm: ask the time").is_err());
}

#[test]
fn figures_have_a_row_a_column_and_words() {
    let mut heard = Heard::default();
    heard.hear("vm: figure 64 zones, btrfs|usable|95.3 %").unwrap();
    assert_eq!(heard.figures, [["64 zones, btrfs", "usable", "95.3 %"].map(str::to_owned)]);
    assert!(heard.hear("vm: figure usable 95.3 %").is_err());
}
