//! `cargo xtask setup`: gets everything that the gate needs (`support::needs`).
//!
//! This is the only step of the gate that uses the network.

pub(crate) mod trial;

use std::path::PathBuf;

use anyhow::Result;
use support::busybox;
use support::needs::{self, FSX, GATE, LOOP, MOUNT, PJDFSTEST, PROGRAMS};
use support::shell::Line;

/// `cargo xtask setup`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only packages of the distribution, for all commands; packages that are unpacked and not installed go into this
    /// folder.
    #[arg(long, value_name = "FOLDER")]
    packages: Option<PathBuf>,
}

pub(crate) fn run_command(args: &Args) -> Result<()> {
    let Some(folder) = &args.packages else { return run() };
    needs::require(needs::packages())?;
    println!("{} is static.", busybox::fetch(folder)?.display());
    Ok(())
}

/// Installs (or names) everything that the gate needs and fetches the crates it is built from.
pub(crate) fn run() -> Result<()> {
    needs::require(GATE.iter().chain(&PROGRAMS).chain(&MOUNT))?;
    // Others cannot use one, so only root needs it.
    if needs::is_root()? {
        needs::require(&[LOOP])?;
    }
    Line::new("cargo fetch --locked").run()?;
    if needs::provide_nightly()? {
        Line::new("cargo fetch --locked --manifest-path fuzz/Cargo.toml").run()?;
    }
    [PJDFSTEST, FSX].iter().try_for_each(|suite| suite.program().map(drop))?;
    // Without root the step that needs the guest says that it does not run.
    if needs::is_root()? { Line::new("cargo system vm --prepare").run() } else { Ok(()) }
}
