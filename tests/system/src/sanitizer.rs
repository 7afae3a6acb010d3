//! `cargo system sanitizer`: ThreadSanitizer on the tests of a package (docs/testing.md).
//!
//! It detects unsynchronised access of two threads to one piece of memory, in the orders that happen. Tests run one
//! at a time: memory for pages comes from the system and not from the C library. If one volume returns an address and
//! another gets it in the same process, that looks like a race.

use anyhow::Result;
use support::needs;
use support::shell::Line;

/// `cargo system sanitizer --package NAME [TEST...]`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The package to test.
    #[arg(long, default_value = "polder-fs")]
    package: String,
    /// Only tests with one of these in their names.
    tests: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    needs::require_nightly()?;
    // The standard library is rebuilt.
    needs::require_nightly_component("rust-src")?;
    Line::new(
        "cargo +nightly test -Zbuild-std --target x86_64-unknown-linux-gnu --target-dir target/sanitized",
    )
    .args(["--locked", "--package", &args.package, "--lib", "--tests", "--", "--test-threads=1"])
    .args(&args.tests)
    .env("RUSTFLAGS", "-Zsanitizer=thread")
    .run()
}
