//! File handles: an NFS server keeps them for its clients, over mounts and without names.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use support::shell::Line;
use tempfile::TempDir;

use crate::accept::volume::Volume;

const PROGRAM: &str = include_str!("handles.c");
/// The program's message for a handle of a deleted file.
const STALE: &str = "open_by_handle_at: errno 116";
const FILES: u64 = 20;

/// Returns how often a file was found by its handle.
pub(super) fn run() -> Result<u64> {
    let volume = Volume::make(&["--size", "64M"], &[])?;
    volume.keep_if_failed("handles", prove(&volume))
}

fn prove(volume: &Volume) -> Result<u64> {
    let handles = Handles::build(volume)?;
    volume.mount()?;
    let directory = volume.dir().join("a/directory");
    std::fs::create_dir_all(&directory)?;
    for number in 0..FILES {
        let path = directory.join(format!("file-{number}"));
        std::fs::write(&path, contents(number))?;
        handles.save(&path, number)?;
    }
    handles.all_found(0)?;
    handles.forget()?;
    handles.all_found(0)?;
    std::fs::rename(directory.join("file-1"), volume.dir().join("elsewhere"))?;
    std::fs::remove_file(directory.join("file-0"))?;
    handles.forget()?;
    handles.all_found(1)?;
    volume.unmount()?;
    volume.mount()?;
    handles.all_found(1)?;
    volume.kill()?;
    volume.mount()?;
    handles.all_found(1)?;
    volume.unmount()?;
    volume.check()?;
    Ok(2 * FILES + 3 * (FILES - 1))
}

fn contents(number: u64) -> String {
    format!("what file {number} holds")
}

/// The program, and a handle in a file for each number.
struct Handles<'a> {
    volume: &'a Volume,
    folder: TempDir,
}

impl<'a> Handles<'a> {
    fn build(volume: &'a Volume) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let handles = Handles { volume, folder };
        let source = handles.folder.path().join("handles.c");
        std::fs::write(&source, PROGRAM)?;
        Line::new("clang -Wall -Werror -o").arg(handles.program()).arg(source).run()?;
        Ok(handles)
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("handles")
    }

    fn stored(&self, number: u64) -> PathBuf {
        self.folder.path().join(format!("handle-{number}"))
    }

    fn save(&self, path: &std::path::Path, number: u64) -> Result<()> {
        Line::program(self.program()).arg("save").arg(path).arg(self.stored(number)).run()
    }

    /// Makes the kernel forget all names and inodes that are not in use.
    fn forget(&self) -> Result<()> {
        Line::new("sync").run()?;
        std::fs::write("/proc/sys/vm/drop_caches", "2").context("the kernel keeps its cache of names")
    }

    /// The files from number `from` on are found. Those before are gone permanently.
    fn all_found(&self, from: u64) -> Result<()> {
        for number in 0..FILES {
            let line = Line::program(self.program()).arg("show").arg(self.volume.dir());
            let (_, printed) = line.arg(self.stored(number)).verdict()?;
            let expected = if number < from { STALE.to_owned() } else { contents(number) };
            ensure!(printed.trim() == expected, "the handle of file {number} gives: {printed}");
        }
        Ok(())
    }
}
