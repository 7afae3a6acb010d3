//! `polder device replace`: replaces a member of a mirror, and shows how everything is copied to the new one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use indicatif::ProgressBar;
use polder::device::{Medium, MediumOptions};
use rt::thread::Stop;
use zone::file::{FileContents, OpenMode};
use zone::medium::{Degraded, MemberCondition, Members, OldMember, SetOptions, SetReport, survey};
use zone::set::RebuildStep;

use crate::client::Client;
use crate::control::Request;
use crate::info::Info;
use crate::interrupt::Interrupt;
use crate::name::AnyPath;
use crate::output::line;
use crate::rebuilds::{Rebuild, Replacement, old_member};
use crate::{progress, volume, way};

/// The time between two questions about the progress.
const PAUSE: Duration = Duration::from_millis(200);

/// The number of steps between two looks at the progress.
const STEPS: usize = 16;

const GOES_ON: &str = "it goes on when the volume is mounted, or when this command is repeated";

/// The command.
pub(crate) fn run(named: &Path, old: &Path, new: &Path, force: bool, no_wait: bool) -> Result<()> {
    let interrupt = Interrupt::watch()?;
    way::refuse_silent(new)?;
    let absolute = |path: &Path| std::path::absolute(path).with_context(|| path.display().to_string());
    let old = match old_member(old) {
        OldMember::Path(path) => absolute(&path)?,
        _ => old.to_owned(),
    };
    let replacement = Replacement { old: AnyPath(old), new: AnyPath(absolute(new)?), force };
    match volume::daemon_for(named)? {
        Some(mut daemon) => {
            let begun: Rebuild = daemon.ask(&Request::Replace(replacement.clone()))?;
            match no_wait {
                true => line!("{}: being rebuilt; `polder device status` shows the progress", new.display()),
                false => wait(&mut daemon, &begun, named, &replacement.new, &interrupt),
            }
        }
        None => {
            let path = volume::resolve(named)?;
            rebuild_here(&path, &replacement, no_wait, &interrupt)
        }
    }
}

fn bar(rebuild: &Rebuild) -> ProgressBar {
    let bar = progress::parts(rebuild.zones.into(), "zones rebuilt");
    bar.set_position(rebuild.zones_done.into());
    bar
}

/// Shows the progress of a rebuild that a daemon executes, until it has ended.
fn wait(daemon: &mut Client, begun: &Rebuild, named: &Path, new: &Path, interrupt: &Interrupt) -> Result<()> {
    let (bar, stop) = (bar(begun), Stop::default());
    let ended = loop {
        let rebuilds: Vec<Rebuild> = match daemon.ask(&Request::Rebuilds) {
            Ok(rebuilds) => rebuilds,
            Err(error) => {
                break Err(
                    error.context("the rebuild was not watched to its end; it goes on at the next mount")
                );
            }
        };
        match rebuilds.into_iter().find(|rebuild| rebuild.is_same(begun)) {
            None => break Ok(()),
            Some(_) if interrupt.has_arrived() => {
                break Err(anyhow!("interrupted; the mounted volume goes on with the rebuild"));
            }
            Some(rebuild) if rebuild.zones_unreadable > 0 => break Err(unreadable(rebuild.zones_unreadable)),
            Some(rebuild) => bar.set_position(rebuild.zones_done.into()),
        }
        stop.wait(PAUSE);
    };
    bar.finish_and_clear();
    ended?;
    let info: Info = daemon.ask(&Request::Info)?;
    let member = info.sets.iter().find(|set| set.number == begun.set);
    let member = member.and_then(|set| set.members.get(begun.position));
    let is_used = member.is_some_and(|member| member.state == "ok" && member.path.as_deref() == Some(new));
    if !is_used {
        bail!(
            "{}: the new member has failed, and was given up; the log of the daemon and `polder device status {}` tell more",
            new.display(),
            named.display()
        );
    }
    line!("{}: rebuilt, and in use", new.display())
}

fn unreadable(zones: u32) -> anyhow::Error {
    anyhow!(
        "{zones} zones have blocks that no member can read, so the new member is not used yet; mount the volume, find the \
         files (`polder scrub`), and restore or delete them: the rebuild ends by itself when these zones are empty"
    )
}

/// Replaces a member of a volume that is not mounted.
fn rebuild_here(path: &Path, replacement: &Replacement, no_wait: bool, interrupt: &Interrupt) -> Result<()> {
    let FileContents::Member(label) = Medium::probe(path)? else {
        bail!("{}: is a volume on one device; only a member of a mirror can be replaced", path.display());
    };
    let reports = survey(path, *label, &SetOptions::default())?;
    let degraded = permitted(&reports, &old_member(&replacement.old));
    let sets = SetOptions { degraded, ..SetOptions::default() };
    let options = MediumOptions { sets, ..MediumOptions::default() };
    let medium = volume::open_device(path, OpenMode::ReadWrite, &options)?;
    let members = medium.members().map(Arc::clone).context("it has several devices")?;
    // Members that are not used are no longer held by this.
    let _device = medium.into_device();
    let rebuild = replacement.begin(&members)?;
    let new = replacement.new.display();
    if no_wait {
        return line!("{new}: is a member; {GOES_ON}");
    }
    let bar = bar(&Rebuild::of(&rebuild, 0));
    let step = loop {
        match steps(&members) {
            Ok(RebuildStep::More) if interrupt.has_arrived() => break Ok(RebuildStep::More),
            Ok(RebuildStep::More) => {}
            ended => break ended,
        }
        if let Some(now) = members.rebuilds().iter().find(|now| now.set == rebuild.set) {
            bar.set_position(now.state.zones_done.into());
        }
    };
    bar.finish_and_clear();
    match step.with_context(|| path.display().to_string())? {
        RebuildStep::Complete => line!("{new}: rebuilt, and in use"),
        RebuildStep::More => bail!("interrupted; the rebuild is not complete: {GOES_ON}"),
        RebuildStep::Blocked(zones) => Err(unreadable(zones)),
        RebuildStep::GivenUp(why) => bail!("{new}: the new member has failed: {why}; name another one"),
        RebuildStep::Idle => bail!("{new}: the new member has failed; name another one"),
    }
}

fn steps(members: &Members) -> Result<RebuildStep> {
    for _ in 0..STEPS {
        match members.rebuild_step()? {
            (_, RebuildStep::More) => {}
            (_, ended) => return Ok(ended),
        }
    }
    Ok(RebuildStep::More)
}

/// A member that is missing is left out if it is the one that is replaced, and the only one.
fn permitted(reports: &[SetReport], old: &OldMember) -> Degraded {
    let all = || {
        let of = |report: &'_ SetReport| {
            let members = report.members.iter().enumerate();
            members.map(|(at, member)| (report.number, at, member.condition)).collect::<Vec<_>>()
        };
        reports.iter().flat_map(of)
    };
    let missing: Vec<(u32, usize)> = all()
        .filter(|(.., condition)| *condition == MemberCondition::Missing)
        .map(|(set, at, _)| (set, at))
        .collect();
    let is_old = |(number, at): (u32, usize)| match old {
        OldMember::Missing => true,
        OldMember::Position { set, position } => set.is_none_or(|set| set == number) && *position == at,
        OldMember::Path(_) => false,
    };
    match missing[..] {
        [one] if is_old(one) => Degraded::Permitted,
        _ => Degraded::IfExcluded,
    }
}
