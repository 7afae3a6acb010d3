//! `cargo system sanitizer`: ThreadSanitizer on the tests of a package (docs/testing.md).
//!
//! It sees two threads at one piece of memory without a lock between them, in the orders that happen. One test runs at
//! a time: memory for pages is taken from the system past the C library, and where one volume returns an address and
//! another gets it, in one process at once, that looks like a race.

use anyhow::Result;
use support::needs;
use support::shell::Line;

/// `cargo system sanitizer --package NAME [TEST...]`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Whose tests.
    #[arg(long, default_value = "polder-fs")]
    package: String,
    /// Only tests with one of these in their names.
    tests: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    needs::require_nightly()?;
    // The standard library is built anew.
    needs::require_nightly_component("rust-src")?;
    Line::new(
        "cargo +nightly test -Zbuild-std --target x86_64-unknown-linux-gnu --target-dir target/sanitized",
    )
    .args(["--locked", "--package", &args.package, "--lib", "--tests", "--", "--test-threads=1"])
    .args(&args.tests)
    .env("RUSTFLAGS", "-Zsanitizer=thread")
    .run()
}
