//! What the programs work on: a generated tree, the sources of this workspace, and scripts for SQLite. All of it lies
//! on the host and is the same in every run of one commit.
//!
//! The tree has many small folders, as a folder of packages of a build has: about two folders for three files. Every
//! folder has a file, because git keeps no empty ones.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use fastrand::Rng;
use support::shell::Line;
use tempfile::TempDir;

use super::scale::Scale;

const SEED: u64 = 1;
/// The folders of a tree, for each file.
const FOLDERS_PER_FILE: f64 = 7845.0 / 12_000.0;
/// Folders are at most this deep.
const DEPTH_MAX: usize = 12;
/// Sizes of files are 2 to the power of a number between these: 2.4 KiB on average.
const SIZE_POWERS: (f64, f64) = (7.0, 13.0);
/// `grep` looks for this word, which no file has (nor this source), so that it reads every file.
pub(super) const ABSENT: &str = concat!("zuider", "zeewerken");

/// The files on the host.
pub(super) struct Material {
    folder: TempDir,
    pub(super) files: u64,
    pub(super) folders: u64,
    /// Files and folders of the workspace.
    pub(super) sources: u64,
    pub(super) transactions: u64,
}

impl Material {
    /// Makes the scripts below a folder of the host, and the trees if they are needed.
    pub(super) fn make(host: &Path, scale: &Scale, with_trees: bool) -> Result<Material> {
        let (files, transactions) = (scale.tree_files, scale.transactions);
        let folder = tempfile::Builder::new().prefix("bench-material-").tempdir_in(host)?;
        let folders = (files as f64 * FOLDERS_PER_FILE) as u64;
        let mut material = Material { folder, files, folders, sources: 0, transactions };
        for journal in [Journal::Rollback, Journal::Wal] {
            std::fs::write(material.script(journal), journal.script(transactions))?;
        }
        if with_trees {
            material.make_trees(scale.sources)?;
            println!("the tree has {files} files in {folders} folders, the sources {}", material.sources);
        }
        Ok(material)
    }

    fn make_trees(&mut self, sources: &str) -> Result<()> {
        let tree = self.path("tree");
        make_tree(&tree, self.files, self.folders)?;
        Line::new("tar -cf").arg(self.archive()).arg("-C").arg(&tree).arg(".").run()?;
        self.make_repository(&tree)?;
        let archive = self.sources_archive();
        Line::new("git archive --format=tar -o").arg(&archive).args(["HEAD", sources]).run()?;
        self.sources = Line::new("tar -tf").arg(&archive).output()?.lines().count() as u64;
        Ok(())
    }

    /// The tree as a tar archive.
    pub(super) fn archive(&self) -> PathBuf {
        self.path("tree.tar")
    }

    pub(super) fn sources_archive(&self) -> PathBuf {
        self.path("sources.tar")
    }

    /// A git repository that has the tree in one commit and one pack.
    pub(super) fn repository(&self) -> PathBuf {
        self.path("repository.git")
    }

    /// A script that commits transactions one by one.
    pub(super) fn script(&self, journal: Journal) -> PathBuf {
        self.path(journal.name())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn make_repository(&self, tree: &Path) -> Result<()> {
        git("init --quiet").in_dir(tree).run()?;
        git("add --all").in_dir(tree).run()?;
        let author = "-c user.name=bench -c user.email=bench@localhost";
        git(&format!("{author} commit --quiet --message tree")).in_dir(tree).run()?;
        git("clone --quiet --bare").arg(tree).arg(self.repository()).run()?;
        git("gc --quiet").in_dir(&self.repository()).run()?;
        Ok(std::fs::remove_dir_all(tree)?)
    }
}

/// A command of git that no configuration of the user changes.
pub(super) fn git(words: &str) -> Line {
    let line =
        Line::new("git -c safe.directory=* -c gc.auto=0 -c init.defaultBranch=main").args(words.split(' '));
    line.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null")
}

/// The journal of a SQLite database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Journal {
    Rollback,
    Wal,
}

impl Journal {
    pub(super) fn name(self) -> &'static str {
        match self {
            Journal::Rollback => "rollback.sql",
            Journal::Wal => "wal.sql",
        }
    }

    fn script(self, transactions: u64) -> String {
        let mode = if self == Journal::Wal { "wal" } else { "delete" };
        let mut script = format!(".bail on\npragma journal_mode={mode};\npragma synchronous=full;\n");
        script.push_str("create table t(key integer primary key, value text);\n");
        for key in 0..transactions {
            writeln!(script, "insert into t values({key}, hex(zeroblob(100)));")
                .expect("a String takes everything");
        }
        script
    }
}

/// Makes the tree. Each folder gets one file, and the rest of the files are spread at random.
fn make_tree(tree: &Path, files: u64, folders: u64) -> Result<()> {
    let mut rng = Rng::with_seed(SEED);
    std::fs::create_dir(tree)?;
    let mut paths: Vec<(PathBuf, usize)> = vec![(tree.to_owned(), 0)];
    for number in 1..folders {
        let shallow = |rng: &mut Rng| loop {
            let (path, depth) = &paths[rng.usize(..paths.len())];
            if *depth < DEPTH_MAX {
                return (path.join(format!("folder-{number}")), depth + 1);
            }
        };
        let made = shallow(&mut rng);
        std::fs::create_dir(&made.0)?;
        paths.push(made);
    }
    for number in 0..files {
        let at = if number < folders { number as usize } else { rng.usize(..paths.len()) };
        std::fs::write(paths[at].0.join(format!("file-{number}.txt")), text(&mut rng))?;
    }
    Ok(())
}

/// Lines of words without a meaning.
fn text(rng: &mut Rng) -> String {
    let (least, most) = SIZE_POWERS;
    let bytes = 2_f64.powf(least + (most - least) * rng.f64()) as usize;
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        (0..rng.usize(2..9)).for_each(|_| text.push(rng.lowercase()));
        text.push(if rng.u8(..) < 32 { '\n' } else { ' ' });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_its_files_and_no_empty_folder() {
        let host = tempfile::tempdir().unwrap();
        let tree = host.path().join("tree");
        make_tree(&tree, 120, 78).unwrap();
        let listed = |kind: &str| {
            let found = Line::new("find").arg(&tree).args(["-type", kind]).output().unwrap();
            found.lines().count()
        };
        assert_eq!([listed("f"), listed("d")], [120, 78]);
        let empty = Line::new("find").arg(&tree).arg("-empty").output().unwrap();
        assert_eq!(empty, "");
        let found = Line::new("grep -r").arg(ABSENT).arg(&tree).outcome().unwrap();
        assert_eq!(found, (Some(1), String::new()));
    }
}
