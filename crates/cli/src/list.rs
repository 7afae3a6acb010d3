//! `polder list`: the volumes that this machine has mounted, and those on its block devices.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fuse::MountEntry;
use polder::device::{Medium, is_stored, volumes_at};
use serde::Serialize;
use zone::file::{FileContents, FileError, other_signature};

use crate::bytes;
use crate::control::Request;
use crate::info::Info;
use crate::misuse::Misuse;
use crate::name::AnyPath;
use crate::output::{error_line, line, say};
use crate::volume::daemon_of;

/// The block devices of the system. The volume files of unmounted volumes are not known to anybody.
const BLOCK_DEVICES: &str = "/sys/class/block";

/// List all mounted volumes, and those on block devices that are not mounted.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// List the volumes in an object store instead: those at this URL, and directly below it.
    url: Option<PathBuf>,
    /// Write the result as JSON.
    #[arg(long)]
    json: bool,
}

/// A volume. Properties that could not be read are missing. `problem` has the error.
#[derive(Debug, Default, Serialize)]
struct Row {
    id: Option<String>,
    label: Option<String>,
    path: AnyPath,
    mounted_on: Vec<AnyPath>,
    read_only: Option<bool>,
    total_bytes: Option<u64>,
    available_bytes: Option<u64>,
    problem: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let rows = match &arguments.url {
        Some(url) => stored(url)?,
        None => of_machine()?,
    };
    if arguments.json {
        return line!("{}", serde_json::to_string_pretty(&rows)?);
    }
    say(table(&rows))
}

fn of_machine() -> Result<Vec<Row>> {
    let mut rows = mounted()?;
    let are_hidden = add_unmounted(&mut rows)?;
    if are_hidden {
        let advice = match rustix::process::geteuid().is_root() {
            true => "this container may not open them; permit them to see all volumes",
            false => "run this as root to see all volumes",
        };
        error_line!("polder: some block devices cannot be read: {advice}");
    }
    Ok(rows)
}

/// The volumes in an object store, mounted or not.
fn stored(url: &Path) -> Result<Vec<Row>> {
    if !is_stored(url) {
        let shown = url.display();
        return Err(Misuse::error(format!("{shown}: is no URL; write s3://bucket or file:///directory")));
    }
    Ok(volumes_at(url)?.into_iter().map(of_path).collect())
}

/// The row of a volume that can be looked at by its path.
fn of_path(path: PathBuf) -> Row {
    match Info::about(&path) {
        Ok(info) => Row::of(info),
        Err(error) => Row { path: AnyPath(path), problem: Some(format!("{error:#}")), ..Row::default() },
    }
}

/// One row for each mount, however many directories it has.
fn mounted() -> Result<Vec<Row>> {
    let mut entries = fuse::mount::table().context("the mount table cannot be read")?;
    entries.retain(|entry| entry.is_ours() || entry.is_of_library());
    let mut seen = BTreeSet::new();
    let firsts = entries.iter().filter(|entry| seen.insert(entry.device.clone()));
    Ok(firsts.map(|first| mount_row(first, &entries)).collect())
}

fn mount_row(first: &MountEntry, entries: &[MountEntry]) -> Row {
    let places = entries.iter().filter(|entry| entry.device == first.device);
    let mounted_on = places.map(|place| AnyPath(place.directory.clone())).collect();
    let source = AnyPath(first.source.clone());
    if first.is_of_library() {
        let problem = Some("a program uses it by the library".to_owned());
        return Row { path: source, mounted_on, problem, ..Row::default() };
    }
    match daemon_of(first).and_then(|mut daemon| daemon.ask::<Info>(&Request::Info)) {
        Ok(info) => Row { mounted_on, ..Row::of(info) },
        Err(error) => Row { path: source, mounted_on, problem: Some(format!("{error:#}")), ..Row::default() },
    }
}

/// Adds the volumes on block devices. Returns whether some devices could not be read.
fn add_unmounted(rows: &mut Vec<Row>) -> Result<bool> {
    let mut are_hidden = false;
    for path in block_devices()? {
        let fs_id = match Medium::probe(&path) {
            // A former volume whose device has another file system now.
            Ok(FileContents::Volume { .. } | FileContents::Member(_) | FileContents::Damaged { .. })
                if other_signature(&path).is_some() =>
            {
                continue;
            }
            Ok(FileContents::Volume { fs_id, .. }) => Some(fs_id.to_string()),
            // All its members are one volume.
            Ok(FileContents::Member(label)) => {
                let fs_id = Some(label.fs_id().to_string());
                if rows.iter().any(|row| row.id == fs_id) {
                    continue;
                }
                fs_id
            }
            Ok(FileContents::Damaged { .. }) => None,
            Err(FileError::NoAccess(_) | FileError::Forbidden { .. }) => {
                are_hidden = true;
                continue;
            }
            // Something else, an empty drive, or a device that has just gone.
            _ => continue,
        };
        if fs_id.is_some() && rows.iter().any(|row| row.id == fs_id && !row.mounted_on.is_empty()) {
            continue;
        }
        let row = of_path(path);
        rows.push(Row { id: row.id.or(fs_id), ..row });
    }
    Ok(are_hidden)
}

fn block_devices() -> Result<Vec<PathBuf>> {
    let Ok(names) = fs::read_dir(BLOCK_DEVICES) else { return Ok(Vec::new()) };
    let mut paths = Vec::new();
    for name in names {
        let name = name.context(BLOCK_DEVICES)?.file_name();
        // A slash in the name of a device is an exclamation mark there.
        let path = Path::new("/dev").join(name.to_string_lossy().replace('!', "/"));
        if path.exists() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

impl Row {
    fn of(info: Info) -> Row {
        Row {
            id: Some(info.id),
            label: (!info.label.is_empty()).then_some(info.label),
            path: info.path,
            mounted_on: info.mounted_on.into_iter().collect(),
            read_only: info.read_only,
            total_bytes: Some(info.total_bytes),
            available_bytes: info.available_bytes,
            problem: info.shutdown_reason,
        }
    }

    fn mounted(&self) -> String {
        let places: Vec<String> = self.mounted_on.iter().map(ToString::to_string).collect();
        let read_only = if self.read_only == Some(true) { " (read-only)" } else { "" };
        if places.is_empty() { "-".to_owned() } else { places.join(", ") + read_only }
    }
}

const HEADS: [&str; 6] = ["PATH", "MOUNTED ON", "SIZE", "AVAILABLE", "LABEL", "ID"];

/// Columns as wide as their longest cell. A problem has a line of its own.
fn table(rows: &[Row]) -> String {
    let size = |bytes: Option<u64>| bytes.map_or("-".to_owned(), bytes::show);
    let cells = |row: &Row| {
        let text = |text: &Option<String>| text.clone().unwrap_or("-".to_owned());
        let (size, available) = (size(row.total_bytes), size(row.available_bytes));
        [row.path.to_string(), row.mounted(), size, available, text(&row.label), text(&row.id)]
    };
    let heads = HEADS.map(str::to_owned);
    let all: Vec<[String; 6]> = [heads].into_iter().chain(rows.iter().map(cells)).collect();
    let width = |column: usize| all.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut output = String::new();
    for (number, cells) in all.iter().enumerate() {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        output += padded.collect::<Vec<_>>().join("  ").trim_end();
        output.push('\n');
        if let Some(problem) = number.checked_sub(1).and_then(|row| rows[row].problem.as_deref()) {
            output += &format!("    {problem}\n");
        }
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells_and_problems_have_lines() {
        let known = Row {
            id: Some("1234".into()),
            path: AnyPath("/dev/sda".into()),
            mounted_on: vec![AnyPath("/srv".into()), AnyPath("/copy".into())],
            read_only: Some(true),
            total_bytes: Some(1 << 30),
            ..Row::default()
        };
        let broken = Row { path: AnyPath("/v".into()), problem: Some("damaged".into()), ..Row::default() };
        let shown = table(&[known, broken]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 4, "{shown}");
        let column = |line: &str, word: &str| line.find(word);
        assert_eq!(column(lines[0], "MOUNTED"), column(lines[1], "/srv, /copy (read-only)"));
        assert_eq!(column(lines[0], "ID"), column(lines[1], "1234"));
        assert_eq!(lines[3], "    damaged");
    }
}
