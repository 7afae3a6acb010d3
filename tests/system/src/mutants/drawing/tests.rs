use super::*;

fn mutant(name: &str) -> Mutant {
    let diff = format!("--- a.rs\n+++ {name}\n@@ -1,2 +1,2 @@\n-one\n+two\n");
    let (package, file) = ("polder-tree".to_owned(), "a.rs".to_owned());
    Mutant { name: name.to_owned(), package, file, diff, ..Mutant::default() }
}

fn names(mutants: &[Mutant]) -> Vec<&str> {
    mutants.iter().map(|mutant| mutant.name.as_str()).collect()
}

fn hundred() -> Vec<Mutant> {
    (0..100).map(|number| mutant(&format!("a.rs:{number}:1: replace"))).collect()
}

#[test]
fn a_seed_draws_every_mutant_once_and_always_in_the_same_order() {
    let drawn = draw(7, hundred());
    assert_eq!(names(&drawn), names(&draw(7, hundred())));
    let mut sorted = names(&drawn);
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), 100);
    assert_ne!(names(&drawn), names(&draw(8, hundred())));
    assert_ne!(names(&drawn), names(&hundred()));
}

#[test]
fn other_mutants_do_not_change_the_order() {
    let backwards: Vec<Mutant> = hundred().into_iter().rev().collect();
    assert_eq!(names(&draw(7, backwards)), names(&draw(7, hundred())));
    let fewer: Vec<Mutant> = hundred().into_iter().step_by(2).collect();
    let drawn = draw(7, hundred());
    let left: Vec<&str> = names(&drawn).into_iter().filter(|name| names(&fewer).contains(name)).collect();
    assert_eq!(names(&draw(7, fewer.clone())), left);
}

#[test]
fn lots_do_not_follow_the_order_of_the_sources() {
    // Among the first ten of a hundred, the mean of the places is near the middle for most seeds.
    let near = (0..100).filter(|&seed| {
        let first: usize = draw(seed, hundred())[..10]
            .iter()
            .map(|one| hundred().iter().position(|other| other == one).unwrap())
            .sum();
        (300..700).contains(&first)
    });
    assert!(near.count() > 90);
}

#[test]
fn a_mutant_is_the_same_on_another_line_and_not_in_other_surroundings() {
    let mut moved = mutant("a.rs:1:1: replace");
    moved.diff = moved.diff.replace("@@ -1,2 +1,2 @@", "@@ -9,2 +9,2 @@");
    assert_eq!(moved.identity(), mutant("a.rs:1:1: replace").identity());
    moved.diff = moved.diff.replace("-one", "-other");
    assert_ne!(moved.identity(), mutant("a.rs:1:1: replace").identity());
}

#[test]
fn the_list_of_cargo_mutants_is_read() {
    let listed = r#"[{"diff": "--- crates/tree/src/log.rs\n", "file": "crates/tree/src/log.rs", "function": null,
        "genre": "BinaryOperator", "name": "crates/tree/src/log.rs:114:64: replace == with !=",
        "package": "polder-tree", "replacement": "!=", "span": {"end": {"column": 66, "line": 114},
        "start": {"column": 64, "line": 114}}}]"#;
    let mutants = read(listed).unwrap();
    assert_eq!(mutants[0].package, "polder-tree");
    assert_eq!(mutants[0].place, Place { number: 0, of: 1 });
    assert!(read("[]").is_err());
    assert!(read("nothing").is_err());
}
