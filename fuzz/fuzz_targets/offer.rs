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

/// Targets that do harm: who fuzzes finds them, or would find nothing.
const CANARIES: [Target; 2] = [
    Target { name: "canary-panic", offer: |bytes| assert!(bytes.len() < 3, "three bytes"), cost: 1 },
    Target { name: "canary-memory", offer: ask_for_much, cost: 1 },
];

/// A decoder that believes a length: its first byte, in units of 4 MiB.
fn ask_for_much(bytes: &[u8]) {
    let length = usize::from(bytes.first().copied().unwrap_or(0)) << 22;
    std::hint::black_box(Vec::<u8>::with_capacity(length));
}

fn chosen() -> Target {
    let name = std::env::var(CHOICE).unwrap_or_default();
    let targets = [fuzz::all(), CANARIES.to_vec()].concat();
    let known: Vec<&str> = targets.iter().map(|target| target.name).collect();
    let chosen = targets.iter().find(|target| target.name == name);
    *chosen.unwrap_or_else(|| panic!("set {CHOICE} to one of: {}", known.join(", ")))
}
