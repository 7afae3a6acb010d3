//! libFuzzer on one target of `polder_sim::fuzz`, which the environment names: one build serves them all.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use polder_sim::fuzz::{self, Target};

/// Names the target.
const CHOICE: &str = "POLDER_FUZZ_TARGET";

fuzz_target!(|bytes: &[u8]| {
    static TARGET: OnceLock<Target> = OnceLock::new();
    (TARGET.get_or_init(chosen).offer)(bytes);
});

fn chosen() -> Target {
    let name = std::env::var(CHOICE).unwrap_or_default();
    let targets = fuzz::all();
    let known: Vec<&str> = targets.iter().map(|target| target.name).collect();
    let chosen = targets.iter().find(|target| target.name == name);
    *chosen.unwrap_or_else(|| panic!("set {CHOICE} to one of: {}", known.join(", ")))
}
