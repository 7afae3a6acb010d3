//! The rows of the library: `polder-sim turns` measures it beside a plain file, ext4 and XFS in one process.

use std::path::Path;

use anyhow::Result;
use support::shell::Line;

use super::figures::{Key, RATE};
use super::place::Set;
use super::rows::{LIBRARY, ROWS};
use super::runner::Runner;
use super::scale::Scale;
use crate::accept::volume::Volume;

/// Measures the library in a volume of its own, and the others in the places of a set.
pub(super) fn run(runner: &mut Runner, scale: &Scale, set: &Set, host: &Path) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("bench-raw-").tempdir_in(host)?;
    let volume = Volume::make(&["--size", &scale.bytes.to_string()], &[])?;
    let option = |line: Line, kind: &str, name: &str, path: &Path| {
        line.arg(kind).arg(format!("{name}={}", path.display()))
    };
    let mut line = runner.client.simulator("turns").args(scale.turns);
    line = line.args(["--rounds", &runner.rounds.to_string()]);
    line = option(line, "--raw", "raw", folder.path());
    line = option(line, "--library", "library", &volume.file());
    for place in set.in_turn(0).filter(|place| !place.is_ours()) {
        line = option(line, "--directory", place.name, &place.dir());
    }
    println!("{line}");
    let mut printed = Vec::new();
    line.run_watched(|line| printed.extend(parse(line)))?;
    let mut seen: Vec<Key> = Vec::new();
    for (key, rate) in printed {
        let round = seen.iter().filter(|other| **other == key).count() as u64;
        runner.figures.add(&key, round, RATE, rate);
        seen.push(key);
    }
    volume.check()
}

/// `measured library create: 12.5`, as the row of this operation.
fn parse(line: &str) -> Option<(Key, f64)> {
    let (what, rate) = line.strip_prefix("measured ")?.rsplit_once(": ")?;
    let (place, operation) = what.split_once(' ')?;
    let row = ROWS.iter().find(|row| row.group == LIBRARY && row.title == operation)?;
    Some((Key::of(row.id, place, false), rate.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_library_is_an_operation_of_the_simulator() {
        let source = support::workspace::root().join("crates/sim/src/speed/data.rs");
        let source = std::fs::read_to_string(source).unwrap();
        for row in ROWS.iter().filter(|row| row.group == LIBRARY) {
            assert!(source.contains(&format!("(\"{}\", ", row.title)), "nothing measures {}", row.title);
            let (key, rate) = parse(&format!("measured ext4 {}: 2.5", row.title)).unwrap();
            assert_eq!((key, rate), (Key::of(row.id, "ext4", false), 2.5));
        }
        assert_eq!(parse("measured library mkdir: 2.5"), None);
    }
}
