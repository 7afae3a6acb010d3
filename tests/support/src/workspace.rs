//! Where things are in this workspace.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell::Line;

/// The root of the checkout that this program was built from.
pub fn root() -> PathBuf {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest_dir.ancestors().nth(2).expect("this crate lies two folders below the root").to_owned()
}

/// What `cargo metadata` says of the packages of the workspace (not of their dependencies).
pub fn metadata() -> Result<Value> {
    let text = Line::new("cargo metadata --no-deps --offline --format-version 1").output()?;
    serde_json::from_str(&text).context("cargo metadata printed something that is not JSON")
}

/// The folder that cargo builds into, wherever the user has put it.
pub fn target_dir() -> Result<PathBuf> {
    let metadata = metadata()?;
    let dir = metadata["target_directory"].as_str().context("cargo metadata names no target folder")?;
    Ok(PathBuf::from(dir))
}

/// The version of all packages of the workspace.
pub fn version() -> Result<String> {
    let metadata = metadata()?;
    Ok(metadata["packages"][0]["version"].as_str().context("cargo metadata names no version")?.to_owned())
}

/// All tests that need no more than a machine.
pub const TESTS: &str = "cargo test --workspace --locked";

/// What builds the `polder` command for use.
pub fn polder_line() -> Line {
    Line::new("cargo build --release --locked --package polder-cli --bin polder")
}

/// Builds the `polder` command for use and returns where it is.
pub fn build_polder() -> Result<PathBuf> {
    polder_line().run()?;
    Ok(target_dir()?.join("release/polder"))
}

/// The commit that is checked out, as 40 hexadecimal digits.
pub fn head_commit() -> Result<String> {
    Ok(Line::new("git rev-parse HEAD").output()?.trim().to_owned())
}

/// The same, and whether what is built differs from it.
pub fn head_commit_and_changes() -> Result<String> {
    let changed = Line::new("git status --porcelain -- crates Cargo.toml Cargo.lock").output()?;
    Ok(head_commit()? + if changed.trim().is_empty() { "" } else { CHANGED })
}

/// What follows a commit if there are changes.
pub const CHANGED: &str = " with changes";
