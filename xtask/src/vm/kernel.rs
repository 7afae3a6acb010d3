//! The guest's kernel: a package of the distribution's backports, unpacked and never installed.
//!
//! It is fetched with a list of sources of its own, so that nothing of the machine's package management
//! changes, and from the mirror that the machine uses. What is kept is the kernel and the few modules that the
//! guest loads.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::shell::Line;

/// The suite with the newest packaged kernel that runs stable user space.
const SUITE: &str = "trixie-backports";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// What is kept of the modules: folders and files below `kernel`.
const MODULES: [&str; 12] = [
    "drivers/nvme/host",
    "drivers/nvme/common",
    "drivers/nvme/target",
    "drivers/block/null_blk",
    "drivers/block/ublk_drv.ko.xz",
    "drivers/scsi/scsi_common.ko.xz",
    "drivers/scsi/scsi_mod.ko.xz",
    "drivers/scsi/sd_mod.ko.xz",
    "drivers/scsi/scsi_debug.ko.xz",
    "fs/configfs",
    "lib/crc",
    "crypto",
];

/// What is in the folder of a kernel: itself, the root of a tree with its modules, and which modules were wanted.
const IMAGE: &str = "vmlinuz";
const ROOT: &str = "root";
const LIST: &str = "modules";

/// A kernel that can be booted.
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    /// The root of a tree with `lib/modules/VERSION`.
    pub(super) modules: PathBuf,
}

/// The kernel; fetched now where it is not there yet.
pub(super) fn fetch(home: &Path) -> Result<Kernel> {
    let kept = home.join("kernel");
    if !is_kept(&kept) {
        renew(home, &kept, |work| gather(&unpack(work)?, &work.join("kernel")))?;
    }
    Ok(Kernel { image: kept.join(IMAGE), modules: kept.join(ROOT) })
}

/// Whether a kernel is there with all modules that are wanted now.
fn is_kept(kept: &Path) -> bool {
    fs::read_to_string(kept.join(LIST)).is_ok_and(|kept| kept == MODULES.join("\n"))
}

/// Has a kernel made in the folder `kernel` of a folder to work in, and puts it where the one before is: what is kept
/// is at any time a whole kernel or none, and none only where there was none before.
fn renew(home: &Path, kept: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let work = home.join("fetch");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work)?;
    make(&work)?;
    let made = work.join("kernel");
    match renameat_with(CWD, &made, CWD, kept, RenameFlags::EXCHANGE) {
        Err(Errno::NOENT) => fs::rename(&made, kept)?,
        exchanged => exchanged.with_context(|| format!("{} cannot be replaced", kept.display()))?,
    }
    fs::remove_dir_all(&work)?;
    Ok(())
}

/// Takes what is kept out of unpacked packages.
fn gather(unpacked: &Path, into: &Path) -> Result<()> {
    let version = only_entry(&unpacked.join("usr/lib/modules"))?;
    println!("The guest's kernel is {version}.");
    let from = unpacked.join("usr/lib/modules").join(&version);
    let root = into.join(ROOT);
    let to = root.join("lib/modules").join(&version);
    for module in MODULES {
        keep(&from.join("kernel").join(module), &to.join("kernel").join(module))?;
    }
    Line::new("busybox depmod -b").arg(&root).arg(&version).run()?;
    fs::rename(from.join("vmlinuz"), into.join(IMAGE)).context("the package has no kernel")?;
    Ok(fs::write(into.join(LIST), MODULES.join("\n"))?)
}

/// Fetches and unpacks the packages.
fn unpack(work: &Path) -> Result<PathBuf> {
    for folder in ["lists/partial", "cache/archives/partial", "packages", "unpacked"] {
        fs::create_dir_all(work.join(folder))?;
    }
    let source = format!("deb [signed-by={KEYRING}] {} {SUITE} main\n", mirror()?);
    fs::write(work.join("sources.list"), source)?;
    apt(work, "apt-get", "update").run()?;
    let image = depends(work, "linux-image-amd64", "linux-image-")?;
    let binary = depends(work, &image, "linux-binary-")?;
    let modules = depends(work, &image, "linux-modules-")?;
    apt(work, "apt-get", "download").args([binary, modules]).in_dir(&work.join("packages")).run()?;
    let unpacked = work.join("unpacked");
    for package in fs::read_dir(work.join("packages"))? {
        Line::new("dpkg-deb -x").arg(package?.path()).arg(&unpacked).run()?;
    }
    Ok(unpacked)
}

/// A command of the package manager that knows nothing but our source.
fn apt(work: &Path, program: &str, command: &str) -> Line {
    let option = |name: &str, value: &str| format!("{name}={}", work.join(value).display());
    Line::new(program)
        .args(["-o", &option("Dir::Etc::sourcelist", "sources.list"), "-o", "Dir::Etc::sourceparts=-"])
        .args(["-o", &option("Dir::State::lists", "lists"), "-o", &option("Dir::Cache", "cache")])
        .args(["-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"])
        .arg(command)
}

/// The mirror that this machine's packages come from.
fn mirror() -> Result<String> {
    let sites = Line::new("apt-get indextargets --format").args(["$(SITE)", "Created-By: Packages"]).output();
    let sites = sites.context("the guest's kernel comes as a Debian package: run this on Debian")?;
    match sites.lines().find(|site| site.trim_end_matches('/').ends_with("/debian")) {
        Some(site) => Ok(site.to_owned()),
        None => bail!("no Debian mirror is among this machine's package sources"),
    }
}

/// The package with this beginning that a package depends on.
fn depends(work: &Path, package: &str, prefix: &str) -> Result<String> {
    let said = apt(work, "apt-cache", "depends").arg(package).output()?;
    let found = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with(prefix));
    found.map(str::to_owned).with_context(|| format!("{package} depends on no {prefix}"))
}

fn only_entry(folder: &Path) -> Result<String> {
    let mut entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let entry = entries.next().with_context(|| format!("{} is empty", folder.display()))??;
    Ok(entry.file_name().to_string_lossy().into_owned())
}

/// Copies a module, or all of a folder, unpacked; modules that are built in are not there.
fn keep(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            keep(&from.join(&name), &to.join(&name))?;
        }
        return Ok(());
    }
    if !from.exists() {
        return Ok(());
    }
    fs::create_dir_all(to.parent().context("a module lies in a folder")?)?;
    fs::copy(from, to)?;
    if to.extension().is_some_and(|extension| extension == "xz") {
        Line::new("busybox unxz").arg(to).run()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
