//! Packages of other releases of the distribution than the one that this machine has: unpacked and never installed.
//!
//! They are fetched with a list of sources of its own, so that nothing of the machine's package management
//! changes, and from the mirror that the machine uses.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::shell::Line;

/// The keys that the distribution signs its lists with.
pub const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A suite of the distribution, and a folder to work in.
pub struct Source<'a> {
    suite: &'a str,
    work: &'a Path,
}

impl<'a> Source<'a> {
    /// Fetches the list of a suite's packages.
    pub fn of(suite: &'a str, work: &'a Path) -> Result<Source<'a>> {
        for folder in ["lists/partial", "cache/archives/partial", "packages", "unpacked"] {
            fs::create_dir_all(work.join(folder))?;
        }
        let line = format!("deb [signed-by={KEYRING}] {} {suite} main\n", mirror()?);
        fs::write(work.join("sources.list"), line)?;
        let source = Source { suite, work };
        source.apt("apt-get", "update").run()?;
        Ok(source)
    }

    /// The package with this beginning that a package depends on.
    pub fn depends(&self, package: &str, prefix: &str) -> Result<String> {
        let said = self.apt("apt-cache", "depends").arg(package).output()?;
        let found = said
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .find(|name| name.starts_with(prefix));
        found.map(str::to_owned).with_context(|| format!("{package} depends on no {prefix}"))
    }

    /// Fetches packages; the folder in which they are unpacked, one over the other.
    pub fn unpack(&self, packages: &[&str]) -> Result<PathBuf> {
        // The machine may have another version of them.
        let names = packages.iter().map(|package| format!("{package}/{}", self.suite));
        self.apt("apt-get", "download").args(names).in_dir(&self.work.join("packages")).run()?;
        let unpacked = self.work.join("unpacked");
        for package in fs::read_dir(self.work.join("packages"))? {
            Line::new("dpkg-deb -x").arg(package?.path()).arg(&unpacked).run()?;
        }
        Ok(unpacked)
    }

    /// A command of the package manager that knows nothing but this source.
    fn apt(&self, program: &str, command: &str) -> Line {
        let option = |name: &str, value: &str| format!("{name}={}", self.work.join(value).display());
        Line::new(program)
            .args(["-o", &option("Dir::Etc::sourcelist", "sources.list"), "-o", "Dir::Etc::sourceparts=-"])
            .args(["-o", &option("Dir::State::lists", "lists"), "-o", &option("Dir::Cache", "cache")])
            .args(["-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"])
            .arg(command)
    }
}

/// The mirror that this machine's packages come from.
pub fn mirror() -> Result<String> {
    let sites = Line::new("apt-get indextargets --format").args(["$(SITE)", "Created-By: Packages"]).output();
    let sites = sites.context("what is in the guest comes as Debian packages: run this on Debian")?;
    match sites.lines().find(|site| site.trim_end_matches('/').ends_with("/debian")) {
        Some(site) => Ok(site.to_owned()),
        None => bail!("no Debian mirror is among this machine's package sources"),
    }
}

/// Has something made in a folder, beside one to work in, and puts it where the one before is: what is kept is at any
/// time a whole one or none, and none only where there was none before.
pub fn renew(home: &Path, kept: &Path, make: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<()> {
    let work = home.join("fetch");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work)?;
    let made = work.join("made");
    make(&work, &made)?;
    match renameat_with(CWD, &made, CWD, kept, RenameFlags::EXCHANGE) {
        Err(Errno::NOENT) => fs::rename(&made, kept)?,
        exchanged => exchanged.with_context(|| format!("{} cannot be replaced", kept.display()))?,
    }
    fs::remove_dir_all(&work)?;
    Ok(())
}

/// The name of the one thing in a folder.
pub fn only_entry(folder: &Path) -> Result<String> {
    let mut entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let entry = entries.next().with_context(|| format!("{} is empty", folder.display()))??;
    Ok(entry.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;
