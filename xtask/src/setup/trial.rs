//! `cargo xtask setup-test`: runs set-up in a root that has nothing, and in one with unsuitable programs.
//!
//! Set-up's packages are installed in roots of their own (`clean_root`). Compilers and cargo's tools are left out, and so is the kernel, which
//! a root has not of its own; for these, tests show programs that look right.

use std::fs;

use anyhow::{Context, Result, ensure};
use support::needs::require_root;
use support::workspace;

use crate::clean_root::Root;

/// Where this program lies in a root, and where it puts files that it fetches and does not install.
const PROGRAM: &str = "/usr/local/bin/xtask";
const FETCHED: &str = "/var/cache/fetched";
/// Programs that are found before those of packages, and do not do what is needed.
const UNSUITABLE: [(&str, &str); 2] =
    [("clang", "#!/bin/sh\nexit 0\n"), ("qemu-system-x86_64", "#!/bin/sh\necho nvme-ns without zones\n")];

pub(crate) fn run() -> Result<()> {
    require_root("make a root")?;
    let home = workspace::target_dir()?.join("setup-test");
    fs::create_dir_all(&home)?;
    let clean = Root::make(&home, "clean")?;
    prepare(&clean)?;
    passes(&clean)?;
    let other = Root::make(&home, "unsuitable")?;
    prepare(&other)?;
    other.run("apt-get install --yes --no-install-recommends busybox")?;
    for (name, text) in UNSUITABLE {
        other.write(&format!("usr/local/bin/{name}"), text)?;
    }
    for (name, _) in UNSUITABLE {
        is_refused_for(&other, &format!("/usr/local/bin/{name}"))?;
        fs::remove_file(other.place().join("usr/local/bin").join(name))?;
    }
    passes(&other)?;
    other.run("dpkg --status busybox").context("set-up replaced the machine's busybox")?;
    println!("setup-test: 2 roots, {} unsuitable programs refused by name", UNSUITABLE.len());
    Ok(())
}

/// Copies this program there.
fn prepare(root: &Root) -> Result<()> {
    let own = std::env::current_exe().context("cannot find this program")?;
    fs::copy(own, root.place().join(PROGRAM.trim_start_matches('/')))?;
    Ok(())
}

fn set_up(root: &Root) -> Result<(bool, String)> {
    let (passed, said) = root.line(&format!("{PROGRAM} setup --packages {FETCHED}")).verdict()?;
    let own = ["Missing: ", "Nothing ", "Installing: ", "error: "];
    let lines = said.lines().filter(|line| own.iter().any(|begin| line.starts_with(begin)));
    lines.for_each(|line| println!("    {line}"));
    Ok((passed, said))
}

/// Set-up installs what is missing, and finds nothing missing when it runs again.
fn passes(root: &Root) -> Result<()> {
    let (passed, said) = set_up(root)?;
    ensure!(passed, "set-up failed in {}: {said}", root.place().display());
    let (passed, said) = set_up(root)?;
    ensure!(passed && said.contains("Nothing to install"), "set-up has not done all of it: {said}");
    Ok(())
}

/// Set-up says which program is in the way.
fn is_refused_for(root: &Root, program: &str) -> Result<()> {
    let (passed, said) = set_up(root)?;
    let error = said.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    ensure!(!passed && error.contains(program), "{program} is in the way, and set-up says: {error}");
    Ok(())
}
