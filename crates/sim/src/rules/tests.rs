use super::*;

#[test]
fn verdicts_are_read_as_they_are_written() {
    let lines = ["begin a", &verdict("a", false), "begin b", &verdict("b", true), "begin c"].join("\n");
    let verdicts = read_verdicts(&lines);
    assert_eq!(noticed(&verdicts), ["b", "c"], "the process ended in c");
}

/// Every feature of this crate is tried, and every rule that the design names has one.
#[test]
fn every_rule_of_the_design_is_tried() {
    let (features, design) = (include_str!("../../Cargo.toml"), include_str!("../../../../docs/design.md"));
    let words = |text: &'static str| {
        text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
            .filter(|word| word.starts_with("break-"))
    };
    for rule in words(features) {
        assert!(RULES.contains(&rule), "{rule} is a feature and is not tried");
    }
    for rule in words(design).filter(|rule| *rule != "break-") {
        assert!(RULES.contains(&rule), "{rule} is in the design and is not tried");
    }
}
