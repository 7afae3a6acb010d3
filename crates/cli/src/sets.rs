//! The sets of a volume on several devices, as commands report them.

use serde::{Deserialize, Serialize};
use zone::medium::{MemberCondition, MemberReport, Members, SetReport};
use zone::set::Layout;

use crate::name::AnyPath;

/// A set of a volume, and its members.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SetInfo {
    pub(crate) number: u32,
    /// `stripe`, `mirror`, or `single` for a volume on one device.
    pub(crate) layout: String,
    /// Consecutive blocks on one member of a stripe.
    chunk_blocks: Option<u32>,
    /// The zones of the set.
    zones: u32,
    /// `ok`, `degraded`, or `unusable` if too many members are missing.
    pub(crate) state: String,
    pub(crate) members: Vec<MemberInfo>,
    /// Which members are not used, and why. Nothing if all are.
    pub(crate) problem: Option<String>,
    /// What to do about that.
    pub(crate) remedy: Option<String>,
}

/// A member of a set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MemberInfo {
    pub(crate) position: usize,
    /// The identity of its membership. Nothing for a volume on one device.
    pub(crate) id: Option<String>,
    pub(crate) path: Option<AnyPath>,
    /// `ok`, `missing`, `failed`, `stale` or `rebuilding`.
    pub(crate) state: String,
    /// Of a member that is being rebuilt in a mounted volume: the zones that it has.
    #[serde(default)]
    zones_rebuilt: Option<u32>,
}

impl SetInfo {
    /// The sets of an open volume, in their present states.
    pub(crate) fn of(members: &Members) -> Vec<SetInfo> {
        let mut sets: Vec<SetInfo> =
            members.report().iter().map(|report| SetInfo::new(report, true)).collect();
        for rebuild in members.rebuilds() {
            let set = sets.iter_mut().find(|set| set.number == rebuild.set);
            if let Some(member) = set.and_then(|set| set.members.get_mut(rebuild.state.position)) {
                member.zones_rebuilt = Some(rebuild.state.zones_done);
            }
        }
        sets
    }

    pub(crate) fn new(report: &SetReport, is_open: bool) -> SetInfo {
        let chunk_blocks = match report.layout {
            Layout::Stripe { chunk } => Some(chunk),
            Layout::Mirror => None,
        };
        let state = match (report.unused(), report.is_usable()) {
            (0, _) => "ok",
            (_, true) => "degraded",
            (_, false) => "unusable",
        };
        let problem = report.problem();
        let remedy = problem.as_ref().map(|_| match is_open {
            true if report.is_whole() => "until that has ended, the data on this set has fewer copies",
            true => {
                "the data on this set has lost copies: give it a new member (`polder device replace`); one that returns \
                 is not used again"
            }
            false => report.advice(),
        });
        SetInfo {
            number: report.number,
            layout: report.layout.name().to_owned(),
            chunk_blocks,
            zones: report.zones,
            state: state.to_owned(),
            members: report.members.iter().enumerate().map(MemberInfo::new).collect(),
            problem,
            remedy: remedy.map(str::to_owned),
        }
    }

    /// The volume on one device, as a set of one.
    pub(crate) fn single(path: AnyPath, zones: u32) -> SetInfo {
        let state = "ok".to_owned();
        let member = MemberInfo { position: 0, id: None, path: Some(path), state, zones_rebuilt: None };
        SetInfo {
            number: 0,
            layout: "single".to_owned(),
            chunk_blocks: None,
            zones,
            state: "ok".to_owned(),
            members: vec![member],
            problem: None,
            remedy: None,
        }
    }

    /// The set in a few words.
    pub(crate) fn summary(&self) -> String {
        let members = self.members.len();
        let used = self.members.iter().filter(|member| member.state == "ok").count();
        let state = if used == members { String::new() } else { format!(", of which {used} are used") };
        format!("set {}: {} of {members}{state}", self.number, self.layout)
    }

    /// How bad the state is.
    pub(crate) fn badness(&self) -> usize {
        ["ok", "degraded", "unusable"].iter().position(|state| *state == self.state).unwrap_or(0)
    }
}

impl MemberInfo {
    fn new((position, member): (usize, &MemberReport)) -> MemberInfo {
        let state = match member.condition {
            MemberCondition::Ok => "ok",
            MemberCondition::Missing => "missing",
            MemberCondition::Failed => "failed",
            MemberCondition::Stale => "stale",
            MemberCondition::Rebuilding => "rebuilding",
        };
        MemberInfo {
            position,
            id: Some(member.id.to_string()),
            path: member.path.clone().map(AnyPath),
            state: state.to_owned(),
            zones_rebuilt: None,
        }
    }

    /// The state, with how much was rebuilt.
    pub(crate) fn shown_state(&self, set: &SetInfo) -> String {
        match self.zones_rebuilt {
            Some(done) => format!("{} {}%", self.state, u64::from(done) * 100 / u64::from(set.zones.max(1))),
            None => self.state.clone(),
        }
    }
}
