//! `polder device`: the devices of a volume, their states, and replacing one.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;
use zone::Medium;
use zone::file::FileContents;
use zone::medium::{SetOptions, survey};

use crate::control::Request;
use crate::info::Info;
use crate::misuse::Misuse;
use crate::name::AnyPath;
use crate::output::{line, say};
use crate::sets::{MemberInfo, SetInfo};
use crate::{replace, volume};

/// Show the devices of a volume, mounted or not, and their states; or replace a member of a mirror.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// `list` prints the devices. `status` also says in one line whether all are used, and what to do. `replace` gives a
    /// mirror a new member, and copies everything to it.
    #[arg(value_enum)]
    action: Action,
    /// The directory that the volume is mounted on, or any of its devices.
    path: PathBuf,
    /// For `replace`: the old member, by its path, its position, or `missing`.
    #[arg(required_if_eq("action", "replace"))]
    old: Option<PathBuf>,
    /// For `replace`: the new file or device. A file that does not exist is created.
    #[arg(required_if_eq("action", "replace"))]
    new: Option<PathBuf>,
    /// Write the result as JSON.
    #[arg(long)]
    json: bool,
    /// For `replace`: overwrite the present contents of the new device.
    #[arg(long, short)]
    force: bool,
    /// For `replace`: do not wait until everything is copied. A mounted volume copies it in the background.
    #[arg(long)]
    no_wait: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Action {
    List,
    Status,
    Replace,
}

/// The state of all devices.
#[derive(Serialize)]
struct Status<'a> {
    id: &'a str,
    mounted_on: Option<&'a AnyPath>,
    /// The worst state of a set.
    state: &'a str,
    /// What to do.
    remedy: Vec<&'a str>,
    sets: &'a [SetInfo],
}

/// The devices of a volume, and where they are from.
struct Devices {
    id: String,
    mounted_on: Option<AnyPath>,
    sets: Vec<SetInfo>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let (Action::Replace, Some(old), Some(new)) = (arguments.action, &arguments.old, &arguments.new) {
        return match arguments.json {
            true => Err(Misuse::error("--json: replace has no result to write; leave it out".to_owned())),
            false => replace::run(&arguments.path, old, new, arguments.force, arguments.no_wait),
        };
    }
    if let Some(word) = &arguments.old {
        let word = word.display();
        return Err(Misuse::error(format!("{word}: only replace takes more than one path; leave it out")));
    }
    if arguments.force || arguments.no_wait {
        return Err(Misuse::error("--force and --no-wait are for replace; leave them out".to_owned()));
    }
    let devices = Devices::of(&arguments.path)?;
    match (arguments.action, arguments.json) {
        (Action::List, true) => line!("{}", serde_json::to_string_pretty(&devices.sets)?),
        (Action::List, false) => say(table(&devices.sets)),
        (_, true) => line!("{}", serde_json::to_string_pretty(&devices.status())?),
        (_, false) => say(table(&devices.sets) + &devices.in_a_line()),
    }
}

impl Devices {
    /// A mounted volume is described by its daemon, another one by the labels of its members, which needs no lock.
    fn of(named: &Path) -> Result<Devices> {
        if let Some(mut daemon) = volume::daemon_for(named)? {
            let Info { id, mounted_on, sets, path, zones, .. } = daemon.ask(&Request::Info)?;
            let sets = if sets.is_empty() { vec![SetInfo::single(path, zones)] } else { sets };
            return Ok(Devices { id, mounted_on, sets });
        }
        let path = volume::resolve(named)?;
        if let FileContents::Member(label) = Medium::probe(&path)? {
            let id = label.fs_id().to_string();
            let reports = survey(&path, *label, &SetOptions::default())?;
            let sets = reports.iter().map(|report| SetInfo::new(report, false)).collect();
            return Ok(Devices { id, mounted_on: None, sets });
        }
        let Info { id, mounted_on, path, zones, .. } = Info::about(named)?;
        Ok(Devices { id, mounted_on, sets: vec![SetInfo::single(path, zones)] })
    }

    fn worst(&self) -> &str {
        self.sets.iter().max_by_key(|set| set.badness()).map_or("ok", |set| &set.state)
    }

    fn status(&self) -> Status<'_> {
        Status {
            id: &self.id,
            mounted_on: self.mounted_on.as_ref(),
            state: self.worst(),
            remedy: self.sets.iter().filter_map(|set| set.remedy.as_deref()).collect(),
            sets: &self.sets,
        }
    }

    fn in_a_line(&self) -> String {
        let troubled = self.sets.iter().filter_map(|set| Some((set.problem.as_ref()?, set.remedy.as_ref()?)));
        let all: Vec<String> = troubled.map(|(problem, remedy)| format!("{problem}; {remedy}")).collect();
        match all.is_empty() {
            true => "ok: all devices are used\n".to_owned(),
            false => format!("{}: {}\n", self.worst(), all.join("; ")),
        }
    }
}

const HEADS: [&str; 6] = ["SET", "LAYOUT", "POSITION", "STATE", "PATH", "ID"];

/// Columns as wide as their longest cell.
fn table(sets: &[SetInfo]) -> String {
    let cells = |set: &SetInfo, member: &MemberInfo| {
        let path = member.path.as_ref().map_or("-".to_owned(), ToString::to_string);
        let id = member.id.clone().unwrap_or("-".to_owned());
        let (number, position) = (set.number.to_string(), member.position.to_string());
        [number, set.layout.clone(), position, member.shown_state(set), path, id]
    };
    let rows = sets.iter().flat_map(|set| set.members.iter().map(move |member| cells(set, member)));
    let all: Vec<[String; 6]> = [HEADS.map(str::to_owned)].into_iter().chain(rows).collect();
    let width = |column: usize| all.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut output = String::new();
    for cells in &all {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        output += padded.collect::<Vec<_>>().join("  ").trim_end();
        output.push('\n');
    }
    output
}
