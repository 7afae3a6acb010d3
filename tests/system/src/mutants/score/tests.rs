use super::*;

fn mutant(file: &str) -> Mutant {
    let (name, diff) = (format!("{file}:1:1: replace"), String::new());
    Mutant { name, package: "polder-tree".to_owned(), file: file.to_owned(), diff, ..Mutant::default() }
}

fn caught(by: &str) -> Outcome {
    Outcome::Caught { by: by.to_owned() }
}

#[test]
fn the_score_is_the_share_of_noticed_mutants_that_compile() {
    let (log, page) = (mutant("log.rs"), mutant("page.rs"));
    let outcomes = [
        caught("polder-tree"),
        caught("polder-fs"),
        Outcome::TimedOut { by: "polder-tree".to_owned() },
        Outcome::Missed,
        Outcome::Unviable,
    ];
    let mut found: Vec<(&Mutant, &Outcome)> = outcomes.iter().map(|outcome| (&log, outcome)).collect();
    found.push((&page, &outcomes[4]));
    let text = report(&found);
    assert!(text.contains("| polder-tree | 1 | 1 | 1 | 1 | 75 % | 2 |"), "{text}");
    assert!(text.contains("| log.rs | 1 | 1 | 1 | 1 | 75 % | 1 |"), "{text}");
    assert!(text.contains("| page.rs | 0 | 0 | 0 | 0 | - | 1 |"), "{text}");
    assert!(text.contains("| all | 1 | 1 | 1 | 1 | 75 % | 2 |"), "{text}");
    assert!(text.ends_with("missed: log.rs:1:1: replace"), "{text}");
}
