use super::*;

#[test]
fn no_input_of_a_decoder_or_a_mount_does_harm() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let offered = smoke(all(), &corpus, 6000, 1);
    let wrong: Vec<String> = offered
        .wrong
        .iter()
        .map(|(target, input, wrong)| format!("{target}: {wrong}\n  {input:02x?}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        offered.seeds > 150 && offered.mutations > 100_000,
        "{} and {}",
        offered.seeds,
        offered.mutations
    );
}

/// A target without seeds gets no further than its first check.
#[test]
fn every_target_has_seeds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for target in all() {
        let stored = stored(&corpus.join(target.name));
        assert!(stored.iter().all(|input| input.len() <= INPUT_MAX), "inputs are small");
        assert!(!stored.is_empty() || !seeds(target.name).is_empty(), "{} has no seeds", target.name);
    }
}

/// A target that panics is found.
#[test]
fn a_decoder_that_panics_is_found() {
    let target = Target { name: "keys", offer: |bytes| assert!(bytes.len() != 11, "eleven"), cost: 1 };
    let offered = smoke(vec![target], Path::new("nowhere"), 100_000, 1);
    let [(_, input, wrong)] = &offered.wrong[..] else { panic!("one input does it") };
    assert!(input.len() == 11 && wrong.0.contains("eleven"), "{wrong}");
}
