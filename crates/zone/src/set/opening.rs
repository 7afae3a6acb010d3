//! What happens to the zones of a set before it is used.

use crate::{Blocks, DeviceError, Geometry, ZoneId, ZoneInfo, ZoneState};

use super::agreement::{Agreement, Means};
use super::error::SetError;
use super::layout::Layout;
use super::member::most_written;
use super::rebuild;
use super::repair;
use super::roster::Roster;

/// Makes the members agree about every superzone: the zones, and those that a member lacks.
pub(super) fn agreed_zones(
    roster: &Roster,
    geometry: &Geometry,
) -> Result<(Vec<ZoneInfo>, Vec<ZoneId>), SetError> {
    let layout = roster.layout();
    if let Some(member) = roster.rebuilt()
        && let Err(error) = rebuild::free_slots(member, geometry.zones)
    {
        roster.exclude(&[member.position], &error)?;
    }
    let not_copied = match layout {
        Layout::Mirror => repair::copy_missing_zones(roster, geometry.zones)?,
        Layout::Stripe { .. } => Vec::new(),
    };
    // A device that cannot report its zones is of no use, whatever the error is of.
    let unusable = |error: DeviceError| DeviceError::Unusable(format!("no report of its zones: {error}"));
    let reports = roster.ask(|member| member.report(geometry.zones).map_err(unusable))?;
    let agreed = |zone: u32| {
        let (zone, means, member_blocks_max) = (ZoneId(zone), Means::Any, Blocks::MAX);
        let agreement = Agreement { roster, layout, zone, means, member_blocks_max };
        let infos: Vec<ZoneInfo> = reports.iter().map(|report| report[zone.0 as usize]).collect();
        agreement.without_io(&infos).map_or_else(|| agreement.reach(), Ok)
    };
    let mut zones = (0..geometry.zones).map(agreed).collect::<Result<Vec<ZoneInfo>, _>>()?;
    finish_excess(roster, geometry, &mut zones)?;
    // What was padded, copied and reset must not be undone once its pointers are reported.
    roster.flush()?;
    roster.set_repair(None)?;
    Ok((zones, not_copied))
}

/// Finishes superzones until the limits are kept. The members may have more active zones together than each of them.
fn finish_excess(roster: &Roster, geometry: &Geometry, zones: &mut [ZoneInfo]) -> Result<(), DeviceError> {
    let count = |is: fn(ZoneState) -> bool| zones.iter().filter(|info| is(info.state)).count() as u32;
    let over_open = count(|state| state == ZoneState::Open).saturating_sub(geometry.max_open);
    let over_active = count(ZoneState::is_active).saturating_sub(geometry.max_active);
    for zone in most_written(zones, 0, over_open, over_active) {
        let finished = roster.ask(|member| member.finish(zone));
        roster.check()?;
        if let Err(error) = &finished {
            tracing::warn!(zone = zone.0, %error, "a zone beyond the limits was not finished");
        }
        let state = if finished.is_ok() { ZoneState::Full } else { ZoneState::ReadOnly };
        zones[zone.0 as usize].state = state;
    }
    Ok(())
}
