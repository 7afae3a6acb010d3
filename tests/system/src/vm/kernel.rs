//! The guest's kernel: a package of the distribution's backports, unpacked and never installed.
//!
//! Only the kernel and the few modules that the guest loads are kept.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use support::busybox;
use support::packages::{Source, only_entry, renew};
use support::shell::Line;

/// The suite with the newest packaged kernel that runs stable user space.
const SUITE: &str = "trixie-backports";

/// The kept modules: folders and files below `kernel`.
const MODULES: [&str; 18] = [
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
    "fs/xfs",
    "fs/f2fs",
    "fs/btrfs",
    "lib/crc",
    "lib/crypto",
    "lib/lz4",
    "lib/raid",
    "crypto",
];

/// Those of them that only suites with the kernel's own file systems need.
const FILE_SYSTEMS: [&str; 3] = ["fs/xfs", "fs/f2fs", "fs/btrfs"];

/// The folder of a kernel contains the kernel itself, the root of a tree with its modules, and the list of requested
/// modules.
const IMAGE: &str = "vmlinuz";
const ROOT: &str = "root";
const LIST: &str = "modules";

/// A kernel that can be booted.
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    /// The root of a tree with `lib/modules/VERSION`.
    modules: PathBuf,
}

impl Kernel {
    /// Puts the modules that a suite may load into a tree.
    pub(super) fn put_modules(&self, tree: &Path, peers: bool) -> Result<()> {
        Line::new("cp -a").arg(self.modules.join("lib")).arg(tree).run()?;
        let modules = tree.join("lib/modules");
        let modules = modules.join(only_entry(&modules)?).join("kernel");
        let left_out = FILE_SYSTEMS.iter().filter(|_| !peers);
        left_out.map(|folder| modules.join(folder)).try_for_each(|folder| Ok(fs::remove_dir_all(folder)?))
    }
}

/// The kernel. Fetched now if it does not exist.
pub(super) fn fetch(home: &Path) -> Result<Kernel> {
    let kept = home.join("kernel");
    if !is_kept(&kept) {
        let busybox = busybox::fetch(home)?;
        renew(home, &kept, |work, made| gather(&unpack(work)?, made, &busybox))?;
    }
    Ok(Kernel { image: kept.join(IMAGE), modules: kept.join(ROOT) })
}

/// Whether a kernel exists with all modules that are requested now.
fn is_kept(kept: &Path) -> bool {
    fs::read_to_string(kept.join(LIST)).is_ok_and(|kept| kept == MODULES.join("\n"))
}

/// Takes the needed files out of unpacked packages.
fn gather(unpacked: &Path, into: &Path, busybox: &Path) -> Result<()> {
    let version = only_entry(&unpacked.join("usr/lib/modules"))?;
    println!("The guest's kernel is {version}.");
    let from = unpacked.join("usr/lib/modules").join(&version);
    let root = into.join(ROOT);
    let to = root.join("lib/modules").join(&version);
    for module in MODULES {
        keep(&from.join("kernel").join(module), &to.join("kernel").join(module), busybox)?;
    }
    busybox::line(busybox, "depmod -b").arg(&root).arg(&version).run()?;
    fs::rename(from.join("vmlinuz"), into.join(IMAGE)).context("the package has no kernel")?;
    Ok(fs::write(into.join(LIST), MODULES.join("\n"))?)
}

/// Fetches and unpacks the packages.
fn unpack(work: &Path) -> Result<PathBuf> {
    let source = Source::of(SUITE, work)?;
    let image = source.depends("linux-image-amd64", "linux-image-")?;
    let binary = source.depends(&image, "linux-binary-")?;
    let modules = source.depends(&image, "linux-modules-")?;
    source.unpack(&[&binary, &modules])
}

/// Copies a module, or all of a folder, unpacked. Built-in modules do not exist as files.
fn keep(from: &Path, to: &Path, busybox: &Path) -> Result<()> {
    if from.is_dir() {
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            keep(&from.join(&name), &to.join(&name), busybox)?;
        }
        return Ok(());
    }
    if !from.exists() {
        return Ok(());
    }
    fs::create_dir_all(to.parent().context("a module lies in a folder")?)?;
    fs::copy(from, to)?;
    if to.extension().is_some_and(|extension| extension == "xz") {
        busybox::line(busybox, "unxz").arg(to).run()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
