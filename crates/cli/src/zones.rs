//! `polder zones`: the state and the contents of each zone of a volume.

mod mount;
mod view;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use fs::{Fs, Lifetime};
use polder::stats::{BAD, role_name, shown_role};
use serde::{Deserialize, Serialize};
use tree::Usage;
use zone::{Role, ZoneId, ZoneState};

use crate::control::Request;
use crate::output;
use crate::volume::Volume;

/// Zones in a line of the map.
const LINE: usize = 16;

/// Show the state of each zone of a volume, or mount a view of the contents of its zones.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file, block device or URL, or the directory that it is mounted on.
    path: PathBuf,
    /// Print one line for each zone, with numbers of blocks.
    #[arg(long)]
    list: bool,
    /// Write the result as JSON.
    #[arg(long)]
    json: bool,
    /// Mount a read-only view on this directory. It has a file with the written part of each zone. The volume must
    /// not be mounted for writing. `polder umount` ends the view.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["list", "json"])]
    mount: Option<PathBuf>,
    /// Serve the view from this process, until the view is unmounted or a signal ends it.
    #[arg(long, requires = "mount")]
    foreground: bool,
    /// Write log lines to this file. By default, a daemon writes to the system's log.
    #[arg(long, value_name = "FILE", requires = "mount")]
    log: Option<PathBuf>,
    /// Become a daemon, and report that on standard output.
    #[arg(long, hide = true, requires = "foreground")]
    detach: bool,
}

impl Arguments {
    /// Whether the command serves a view until it is unmounted.
    pub(crate) fn is_mount(&self) -> bool {
        self.mount.is_some()
    }
}

/// A zone. Also an element of the answer to the control request `zones`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Zone {
    zone: u32,
    /// `free`, `log`, `metadata`, `data`, `gc`; see [`shown_role`].
    role: String,
    /// The use in this mount: `free`, `open`, `closed`, `resetting`, `bad`.
    #[serde(rename = "use")]
    usage: String,
    /// The state on the device: `empty`, `open`, `closed`, `full`, `read-only`, `offline`.
    state: String,
    /// The number of resets.
    life: u32,
    /// Blocks before the device's write pointer.
    written_blocks: u32,
    live_blocks: u32,
    capacity_blocks: u32,
    /// Whether the zone is conventional. Polder keeps its write pointer, and only while the volume is in use.
    #[serde(default)]
    conventional: bool,
    /// The lifetime class of the data in a zone that is open for user writes.
    lifetime: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let Some(directory) = &arguments.mount {
        return mount::run(arguments, directory);
    }
    let zones: Vec<Zone> = match Volume::find(&arguments.path)? {
        Volume::Served(mut client) => client.ask(&Request::Zones)?,
        Volume::Opened(opened) => all(&opened.fs)?,
    };
    output::say(match (arguments.json, arguments.list) {
        (true, _) => serde_json::to_string_pretty(&zones)? + "\n",
        (false, true) => list(&zones),
        (false, false) => map(&zones),
    })
}

pub(crate) fn all(fs: &Fs) -> Result<Vec<Zone>> {
    let pool = fs.store().pool();
    let classes: BTreeMap<ZoneId, Lifetime> = fs.extents().open_zones().into_iter().collect();
    let report = fs.store().device().report().context("the zones cannot be listed")?;
    let geometry = fs.store().device().geometry();
    let one = |(number, info): (usize, &zone::ZoneInfo)| {
        let zone = ZoneId(number as u32);
        let entry = pool.entry(zone);
        Zone {
            zone: zone.0,
            role: role_name(shown_role(pool, zone)).to_owned(),
            usage: use_name(entry.role, pool.usage(zone)).to_owned(),
            state: state_name(info.state).to_owned(),
            life: entry.life.0,
            written_blocks: info.pointer,
            live_blocks: entry.live,
            capacity_blocks: info.capacity,
            conventional: geometry.is_conventional(zone),
            lifetime: classes.get(&zone).map(|lifetime| lifetime.name().to_owned()),
        }
    };
    Ok(report.iter().enumerate().map(one).collect())
}

/// The map: a letter for the role and a digit for the share of live blocks.
fn map(zones: &[Zone]) -> String {
    let mut text = String::new();
    for (index, line) in zones.chunks(LINE).enumerate() {
        let cells: Vec<String> = line.iter().map(Zone::cell).collect();
        text += &format!("{:>7}  {}\n", index * LINE, cells.join(" "));
    }
    if let Some(first) = zones.iter().find(|zone| zone.conventional) {
        text += &format!("  from {} on: conventional zones\n", first.zone);
    }
    text + "  L log (L. unused)  M metadata  D data  G moved by garbage collection  .. free  XX cannot be written\n  \
            0-9 tenths of the blocks that are live (log: written)  * nearly all  + being written\n"
}

fn list(zones: &[Zone]) -> String {
    let line = |words: [&str; 10]| {
        let [zone, role, usage, state, life, written, live, capacity, kind, lifetime] = words;
        let line = format!(
            "{zone:>7}  {role:<8}  {usage:<9}  {state:<9}  {life:>6}  {written:>8}  {live:>8}  {capacity:>8}  {kind:<12}  {lifetime}"
        );
        line.trim_end().to_owned() + "\n"
    };
    let heads = ["zone", "role", "use", "state", "life", "written", "live", "capacity", "kind", "lifetime"];
    let mut text = line(heads);
    for zone in zones {
        let numbers = [zone.zone, zone.life, zone.written_blocks, zone.live_blocks, zone.capacity_blocks];
        let [number, life, written, live, capacity] = &numbers.map(|number| number.to_string());
        let lifetime = zone.lifetime.as_deref().unwrap_or_default();
        let kind = if zone.conventional { "conventional" } else { "sequential" };
        text += &line([
            number,
            &zone.role,
            &zone.usage,
            &zone.state,
            life,
            written,
            live,
            capacity,
            kind,
            lifetime,
        ]);
    }
    text
}

impl Zone {
    fn cell(&self) -> String {
        let letter = match (self.usage.as_str(), self.role.as_str()) {
            (BAD, _) => return "XX".to_owned(),
            ("free", "log") => return "L.".to_owned(),
            (_, "log") => 'L',
            (_, "metadata") => 'M',
            (_, "data") => 'D',
            (_, "gc") => 'G',
            _ => return "..".to_owned(),
        };
        let counted = if letter == 'L' { self.written_blocks } else { self.live_blocks };
        let tenths = u64::from(counted) * 10 / u64::from(self.capacity_blocks.max(1));
        match tenths {
            _ if self.usage == "open" => format!("{letter}+"),
            10.. => format!("{letter}*"),
            tenths => format!("{letter}{tenths}"),
        }
    }
}

/// The name of a use. A command that opens a volume for reading opens no zones, so free zones are closed there.
fn use_name(role: Role, usage: Usage) -> &'static str {
    match usage {
        Usage::Closed if role == Role::Free => "free",
        Usage::Free { .. } => "free",
        Usage::Open => "open",
        Usage::Closed => "closed",
        Usage::Resetting => "resetting",
        Usage::Retired => BAD,
    }
}

pub(crate) fn state_name(state: ZoneState) -> &'static str {
    match state {
        ZoneState::Empty => "empty",
        ZoneState::Open => "open",
        ZoneState::Closed => "closed",
        ZoneState::Full => "full",
        ZoneState::ReadOnly => "read-only",
        ZoneState::Offline => "offline",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(number: u32, role: &str, usage: &str, written_blocks: u32, live_blocks: u32) -> Zone {
        Zone {
            zone: number,
            role: role.to_owned(),
            usage: usage.to_owned(),
            state: "closed".to_owned(),
            life: 1,
            written_blocks,
            live_blocks,
            capacity_blocks: 100,
            conventional: false,
            lifetime: None,
        }
    }

    #[test]
    fn a_map_has_a_letter_and_a_digit_for_each_zone() {
        let mut zones = vec![
            zone(0, "log", "closed", 31, 0),
            zone(1, "log", "free", 0, 0),
            zone(2, "metadata", "open", 50, 9),
            zone(3, "data", "closed", 100, 79),
            zone(4, "gc", "closed", 100, 100),
            zone(5, "data", "bad", 100, 5),
        ];
        zones.extend((6..17).map(|number| zone(number, "free", "free", 0, 0)));
        let map = map(&zones);
        let lines: Vec<&str> = map.lines().collect();
        assert_eq!(lines[0], format!("      0  L3 L. M+ D7 G* XX{}", " ..".repeat(10)));
        assert_eq!(lines[1], "     16  ..");
        assert!(lines[2].starts_with("  L log"));
    }

    #[test]
    fn conventional_zones_are_marked() {
        let mut zones: Vec<Zone> = (0..3).map(|number| zone(number, "data", "closed", 100, 50)).collect();
        zones[2].conventional = true;
        let map = map(&zones);
        assert_eq!(map.lines().nth(1), Some("  from 2 on: conventional zones"));
        let kinds: Vec<String> = list(&zones)
            .lines()
            .filter_map(|line| line.split_whitespace().nth(8))
            .map(str::to_owned)
            .collect();
        assert_eq!(kinds, ["kind", "sequential", "sequential", "conventional"]);
    }
}
