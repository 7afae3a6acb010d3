//! A tree of everything that a POSIX file system can contain, and a snapshot of a tree for comparison.
//!
//! Kinds: files (empty, small enough for inline data, larger than an extent, sparse), directories, symbolic links
//! (dangling, and longer than usual for a record), pipes, sockets, devices. Hard links within and between
//! directories, also of pipes and symbolic links. Names that shells and terminals do not like. Owners, set-id bits,
//! times before 1970 and to the nanosecond, extended attributes of every namespace that root may write, access lists
//! and default ones.
//! namespace that root may write, access lists and default ones.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat, lgetxattr, linkat,
    llistxattr, lsetxattr, makedev, mknodat, utimensat,
};
use support::shell::Line;

/// The size of sparse files, and how much of each is written.
const SPARSE_BYTES: u64 = 16 << 20;
const SPARSE_PIECES: u64 = 5;

/// Creates the tree; `files` is the number of ordinary files.
pub(super) fn make(root: &Path, files: u64, random: &mut fastrand::Rng) -> Result<()> {
    fs::create_dir(root).with_context(|| format!("cannot make {}", root.display()))?;
    let made = make_files(root, files, random)?;
    let names = make_names(root)?;
    make_links(root, &made)?;
    make_special(root)?;
    make_sparse(root, random)?;
    for path in made.iter().chain(&names) {
        decorate(path, random).with_context(|| format!("cannot decorate {}", path.display()))?;
    }
    make_lists(root, &made)?;
    // Last, because creating anything in a directory changes its time.
    set_times(root, random)
}

fn make_files(root: &Path, files: u64, random: &mut fastrand::Rng) -> Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    let mut directory = root.to_owned();
    for number in 0..files {
        if number % 17 == 0 {
            let above = if random.u8(..4) == 0 { root.to_owned() } else { directory };
            directory = above.join(format!("directory-{number}"));
            fs::create_dir(&directory)?;
            if directory.components().count() > root.components().count() + 12 {
                directory = root.to_owned();
            }
        }
        let length = match random.u8(..20) {
            0 => 0,
            1..=9 => random.usize(1..2048),
            10..=18 => random.usize(2048..60_000),
            _ => random.usize(1 << 20..3 << 20),
        };
        let path = directory.join(format!("file-{number}"));
        fs::write(&path, random_bytes(length, random))?;
        made.push(path);
    }
    Ok(made)
}

fn random_bytes(length: usize, random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes
}

/// Every byte that a name can have, and names of the maximum length.
fn make_names(root: &Path) -> Result<Vec<PathBuf>> {
    let below = root.join("names");
    fs::create_dir(&below)?;
    let mut names: Vec<Vec<u8>> =
        (1..=255u8).filter(|&byte| byte != b'/').map(|byte| vec![b'_', byte]).collect();
    let words =
        ["-rf", " ", "  two  ", "*", "?[a-z]", "a\nb", "~", "$(exit 1)", "'\"`", "\\", "...", ".hidden"];
    names.extend(words.iter().map(|word| word.as_bytes().to_vec()));
    names.extend([vec![b'x'; 255], vec![0xff; 255], "\u{6f22}".repeat(85).into_bytes()]);
    let mut made = Vec::new();
    for name in names {
        let path = below.join(OsString::from_vec(name));
        fs::write(&path, path.as_os_str().as_bytes())?;
        made.push(path);
    }
    Ok(made)
}

fn make_links(root: &Path, made: &[PathBuf]) -> Result<()> {
    let below = root.join("links");
    fs::create_dir(&below)?;
    for (number, path) in made.iter().step_by(7).enumerate() {
        for copy in 0..=number % 3 {
            fs::hard_link(path, below.join(format!("hard-{number}-{copy}")))?;
        }
    }
    let long = "to/nothing/".repeat(370);
    for (name, target) in [("gone", "no such file"), ("above", ".."), ("self", "self"), ("long", &long)] {
        symlink(target, below.join(name))?;
    }
    hard_link_itself(&below.join("gone"), &below.join("gone-too"))
}

/// A hard link to a symbolic link or a pipe itself, which is not followed.
fn hard_link_itself(from: &Path, to: &Path) -> Result<()> {
    Ok(linkat(CWD, from, CWD, to, AtFlags::empty())?)
}

fn make_special(root: &Path) -> Result<()> {
    let below = root.join("special");
    fs::create_dir(&below)?;
    let mode = Mode::from_raw_mode(0o640);
    let nodes = [
        ("pipe", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("null", FileType::CharacterDevice, makedev(1, 3)),
        ("far", FileType::CharacterDevice, makedev(4095, 1_048_575)),
        ("loop", FileType::BlockDevice, makedev(7, 250)),
    ];
    for (name, kind, device) in nodes {
        mknodat(CWD, below.join(name), kind, mode, device).with_context(|| format!("cannot make {name}"))?;
    }
    hard_link_itself(&below.join("pipe"), &below.join("pipe-too"))?;
    for (name, mode) in [("set-user", 0o4755), ("set-group", 0o2755), ("nobody-reads", 0o000)] {
        let path = below.join(name);
        fs::write(&path, name)?;
        set_mode(&path, mode)?;
    }
    for (name, mode) in [("sticky", 0o1777), ("handed-down", 0o2775)] {
        fs::create_dir(below.join(name))?;
        set_mode(&below.join(name), mode)?;
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

fn make_sparse(root: &Path, random: &mut fastrand::Rng) -> Result<()> {
    for number in 0..3 {
        let file = File::create(root.join(format!("sparse-{number}")))?;
        file.set_len(SPARSE_BYTES)?;
        for _ in 0..SPARSE_PIECES {
            let length = random.usize(1..20_000);
            let offset = random.u64(..SPARSE_BYTES - 20_000);
            file.write_all_at(&random_bytes(length, random), offset)?;
        }
    }
    File::create(root.join("hole"))?.set_len(SPARSE_BYTES)?;
    Ok(())
}

/// Sets an owner, and attributes where they are allowed.
fn decorate(path: &Path, random: &mut fastrand::Rng) -> Result<()> {
    if random.u8(..3) == 0 {
        let (user, group) = (random.u32(..70_000), random.u32(..70_000));
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        chownat(CWD, path, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    for namespace in ["user", "trusted", "security"] {
        if random.u8(..4) == 0 {
            let length = random.usize(..900);
            let name = format!("{namespace}.odd {}", random.u16(..));
            lsetxattr(path, name, &random_bytes(length, random), XattrFlags::empty())?;
        }
    }
    Ok(())
}

/// Access lists, and default ones of directories.
fn make_lists(root: &Path, made: &[PathBuf]) -> Result<()> {
    let some: Vec<&PathBuf> = made.iter().step_by(5).collect();
    ensure!(!some.is_empty(), "there is no file to give an access list");
    let set = |words: &str, paths: &[&PathBuf]| {
        paths.iter().fold(Line::new(words).arg("--"), |line, path| line.arg(path)).run()
    };
    set("setfacl --modify user:1234:rwx,group:99:r--,mask::rw-", &some)?;
    let below = root.join("lists");
    fs::create_dir(&below)?;
    set("setfacl --modify user:77:--x,default:user:78:rwx,default:group::r-x", &[&below])?;
    // Entries created below inherit the default list if the file system supports that.
    fs::create_dir(below.join("inner"))?;
    Ok(fs::write(below.join("inner/file"), "x")?)
}

/// Sets the times of everything, deepest first.
fn set_times(path: &Path, random: &mut fastrand::Rng) -> Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_dir() {
        let below: Result<Vec<_>, _> =
            fs::read_dir(path)?.map(|entry| Ok::<_, std::io::Error>(entry?.path())).collect();
        let mut below = below?;
        below.sort();
        below.iter().try_for_each(|path| set_times(path, random))?;
    }
    let time =
        Timespec { tv_sec: random.i64(-1_000_000_000..4_000_000_000), tv_nsec: random.i64(0..1_000_000_000) };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        .with_context(|| format!("cannot set the time of {}", path.display()))
}

/// The properties of one path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    mode: u32,
    owner: (u32, u32),
    /// 0 for directories, because file systems count their links differently.
    links: u64,
    device: u64,
    length: u64,
    modified: (i64, i64),
    sum: u64,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path, in order, of the same inode.
    same_as: PathBuf,
}

/// A whole tree, by relative path.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    entries: BTreeMap<PathBuf, Entry>,
    pub(super) bytes: u64,
}

impl Snapshot {
    pub(super) fn of(root: &Path) -> Result<Self> {
        let mut paths = Vec::new();
        list(root, &mut paths)?;
        paths.sort();
        let mut snapshot = Snapshot::default();
        let mut inodes = BTreeMap::new();
        for path in paths {
            let metadata = fs::symlink_metadata(&path)?;
            let relative = path.strip_prefix(root).expect("it was found below").to_owned();
            let same_as = inodes.entry(metadata.ino()).or_insert_with(|| relative.clone()).clone();
            let entry = Entry::of(&path, &metadata, same_as)
                .with_context(|| format!("cannot look at {}", path.display()))?;
            snapshot.bytes += entry.length;
            snapshot.entries.insert(relative, entry);
        }
        Ok(snapshot)
    }

    pub(super) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Checks that both have the same paths with the same properties.
    pub(super) fn judge(&self, found: &Snapshot) -> Result<()> {
        for (path, entry) in &self.entries {
            let there = found.entries.get(path).with_context(|| format!("{path:?} is missing"))?;
            ensure!(there == entry, "{path:?} is {there:?}, not {entry:?}");
        }
        let added = found.entries.keys().find(|path| !self.entries.contains_key(*path));
        ensure!(added.is_none(), "{added:?} was never put there");
        Ok(())
    }
}

fn list(directory: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    paths.push(directory.to_owned());
    for entry in fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list(&entry.path(), paths)?;
        } else {
            paths.push(entry.path());
        }
    }
    Ok(())
}

impl Entry {
    fn of(path: &Path, metadata: &Metadata, same_as: PathBuf) -> Result<Self> {
        let (sum, length) = contents(path, metadata)?;
        Ok(Entry {
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            links: if metadata.is_dir() { 0 } else { metadata.nlink() },
            device: metadata.rdev(),
            length,
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            sum,
            attributes: attributes(path)?,
            same_as,
        })
    }
}

/// Checksum and length of the readable contents.
fn contents(path: &Path, metadata: &Metadata) -> Result<(u64, u64)> {
    if metadata.is_symlink() {
        let target = fs::read_link(path)?;
        return Ok((sum(target.as_os_str().as_bytes()), target.as_os_str().len() as u64));
    }
    if !metadata.is_file() {
        return Ok((0, 0));
    }
    let bytes = fs::read(path)?;
    ensure!(bytes.len() as u64 == metadata.len(), "it is not as long as it says");
    Ok((sum(&bytes), bytes.len() as u64))
}

fn attributes(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0; 64 << 10];
    let length = llistxattr(path, &mut names)?;
    let mut found = BTreeMap::new();
    for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        let length = lgetxattr(path, OsStr::from_bytes(name), &mut value)?;
        value.truncate(length);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}

/// A checksum of 64 bits that depends on every bit and its place.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    bytes.chunks(8).fold(bytes.len() as u64, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let mixed = (sum ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
        mixed ^ (mixed >> 29)
    })
}

#[cfg(test)]
mod tests;
