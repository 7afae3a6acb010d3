//! `cargo xtask try`: from a checkout to a mounted volume in one command.
//!
//! Builds the command `polder`, makes a volume in a sparse file, mounts it and says what to do
//! next. A volume that is there already is kept and mounted again, so that what was put into it can
//! be found again. It leaves the mount behind: that is the point of it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use support::mounts::is_mounted;
use support::needs;
use support::shell::Line;
use support::workspace;

/// The size of the volume that is made.
const SIZE: &str = "1G";

/// `cargo xtask try [DIR]`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to mount it (default: target/try/mnt).
    dir: Option<PathBuf>,
    /// The file that holds the volume; made if it is not there (default: target/try/volume).
    #[arg(long)]
    volume: Option<PathBuf>,
}

/// Makes, mounts and explains.
pub(crate) fn run(args: &Args) -> Result<()> {
    needs::require(&needs::MOUNT)?;
    let home = workspace::target_dir()?.join("try");
    let dir = absolute(args.dir.clone().unwrap_or_else(|| home.join("mnt")))?;
    let volume = absolute(args.volume.clone().unwrap_or_else(|| home.join("volume")))?;
    let polder = workspace::build_polder()?;
    prepare(&dir, &volume)?;
    if !volume.exists() {
        show_and_run(&mkfs_line(&polder, &volume))?;
        ensure!(volume.exists(), "`polder mkfs` ended well but made no {}", volume.display());
    }
    if is_mounted(&dir)? {
        println!("{} is mounted already.", dir.display());
    } else {
        show_and_run(&mount_line(&polder, &volume, &dir))?;
        ensure!(is_mounted(&dir)?, "`polder mount` ended well but {} is no mount", dir.display());
    }
    explain(&polder, &volume, &dir, &again(args));
    Ok(())
}

/// Makes the folders; a mount point that holds files would hide them.
fn prepare(dir: &Path, volume: &Path) -> Result<()> {
    let folder = volume.parent().context("the volume's file must lie in a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    if is_mounted(dir)? {
        return Ok(());
    }
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let is_empty = std::fs::read_dir(dir)?.next().is_none();
    ensure!(is_empty, "{} is not empty: name an empty folder to mount on", dir.display());
    Ok(())
}

fn mkfs_line(polder: &Path, volume: &Path) -> Line {
    Line::program(polder).arg("mkfs").arg(volume).args(["--size", SIZE])
}

fn mount_line(polder: &Path, volume: &Path, dir: &Path) -> Line {
    Line::program(polder).arg("mount").arg(volume).arg(dir)
}

fn show_and_run(line: &Line) -> Result<()> {
    println!("$ {line}");
    line.run()
}

/// What mounts the same volume on the same folder again.
fn again(args: &Args) -> Line {
    let line = Line::new("cargo xtask try");
    let line = args.dir.iter().fold(line, Line::arg);
    args.volume.iter().fold(line, |line, volume| line.arg("--volume").arg(volume))
}

fn explain(polder: &Path, volume: &Path, dir: &Path, again: &Line) {
    let (dir, file) = (dir.display(), volume.display());
    let tool = polder.display();
    println!("\nA Polder volume is mounted on {dir}; its bytes are in {file} (sparse, {SIZE}).\n");
    println!("Look at it:   ls -la {dir}; df -h {dir}");
    println!("Try:          cp -r crates {dir}/ && du -sh {dir}/crates");
    println!("              git clone . {dir}/clone && git -C {dir}/clone fsck");
    println!("See inside:   {tool} info {file}");
    println!("              {tool} stats {file}");
    println!("Unmount:      {tool} umount {dir}");
    println!("Check:        {tool} check {file}");
    println!("Mount again:  {again}   (what you wrote is still there)");
    println!("Start afresh: remove {file} after unmounting");
}

fn absolute(path: PathBuf) -> Result<PathBuf> {
    std::path::absolute(&path).with_context(|| format!("cannot tell where {} is", path.display()))
}

#[cfg(test)]
mod tests;
