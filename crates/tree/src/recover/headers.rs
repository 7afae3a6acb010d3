//! Which of the first zones are log zones, by their headers.
//!
//! Only headers are read here. If they do not show whether there is a volume, which volume it is, or whether one of
//! its log zones is missing, the error says what to do.

use pool::LOG_ZONES_WITHIN;
use zone::format::{HeaderError, ZoneIdentity};
use zone::{Device, DeviceError, Role, ZoneId, ZoneInfo, ZoneState};

use super::missing::{Unread, Why};
use crate::scan::read_header;
use crate::types::{Result, StoreError};

/// Number of zones whose headers are searched for the volume's identity if its log is gone.
const SEARCHED_ZONES: usize = 4096;
const NOTHING_HERE: &str = "no zone has data of a Polder volume";

/// A log zone's header and state.
pub(super) type LogHeader = (ZoneIdentity, ZoneInfo);

pub(super) fn no_volume(what: impl Into<String>) -> StoreError {
    StoreError::NoVolume(what.into())
}

/// The log zones among the first zones, by their headers, and the zones whose headers cannot be read. `missing.rs`
/// finds out what the latter may have been.
pub(super) fn log_zones(device: &dyn Device, report: &[ZoneInfo]) -> Result<(Vec<LogHeader>, Vec<Unread>)> {
    let geometry = device.geometry();
    let mut zones: Vec<LogHeader> = Vec::new();
    let mut of_others = None;
    let mut unread: Vec<Unread> = Vec::new();
    for (index, info) in report.iter().enumerate().take(LOG_ZONES_WITHIN as usize) {
        let mut pass_over = |why| unread.push(Unread { zone: ZoneId(index as u32), info: *info, why });
        match info.state {
            ZoneState::Empty => continue,
            ZoneState::Offline => {
                pass_over(Why::Device(DeviceError::Offline(ZoneId(index as u32))));
                continue;
            }
            _ => {}
        }
        // A zone that cannot be written may belong to an earlier volume on this device, which could not remove it.
        let mut refuse = |why: StoreError| match info.state {
            ZoneState::ReadOnly => {
                of_others = Some(why);
                Ok(())
            }
            _ => Err(why),
        };
        let header = match read_header(device, ZoneId(index as u32)) {
            Ok(header) => header,
            Err(error @ (DeviceError::PowerLost | DeviceError::Unusable(_))) => return Err(error.into()),
            Err(error) => {
                tracing::error!(zone = index, %error, "the header of a possible log zone cannot be read");
                pass_over(Why::Device(error));
                continue;
            }
        };
        match header {
            Ok((identity, header)) if identity.zone.0 as usize == index && identity.role == Role::Log => {
                if header.block_size.get() != geometry.block_size || header.zones.get() != geometry.zones {
                    let why = "the volume was made on a device with other zones: open it on that device";
                    refuse(no_volume(why))?;
                    continue;
                }
                zones.push((identity, *info));
            }
            Err(error @ HeaderError::Newer { .. }) => refuse(no_volume(error.to_string()))?,
            Err(HeaderError::Damaged) => pass_over(Why::Damaged),
            Ok(_) | Err(HeaderError::Foreign) => {}
        }
    }
    let is_writable = |info: &ZoneInfo| info.state != ZoneState::ReadOnly;
    if let Some(fs_id) = zones.iter().find(|(_, info)| is_writable(info)).map(|(identity, _)| identity.fs_id)
    {
        zones.retain(|(identity, info)| is_writable(info) || identity.fs_id == fs_id);
    }
    if let Some(error) = of_others.filter(|_| zones.is_empty()) {
        return Err(error);
    }
    if zones.is_empty() && unread.is_empty() {
        return Err(no_log(device, report));
    }
    check_same_volume(&zones, &unread)?;
    Ok((zones, unread))
}

/// The error if no part of a log was found and every zone could be read. A volume whose log zones alone were emptied
/// must not be taken for none.
fn no_log(device: &dyn Device, report: &[ZoneInfo]) -> StoreError {
    let has_pages = |info: &ZoneInfo| !matches!(info.state, ZoneState::Empty | ZoneState::Offline);
    let written = (0..).map(ZoneId).zip(report).filter(|(_, info)| has_pages(info));
    let volume = written
        .take(SEARCHED_ZONES)
        .find_map(|(zone, _)| Some(read_header(device, zone).ok()?.ok()?.0.fs_id));
    no_volume(match volume {
        Some(fs_id) => format!(
            "the log of the volume {fs_id} is lost, so it cannot be mounted, but other zones have its data: save the files \
             with `polder salvage`"
        ),
        None => NOTHING_HERE.to_owned(),
    })
}

/// Checks that there are log zones, and that they belong to one volume. Unreadable zones explain why there are none.
fn check_same_volume(zones: &[LogHeader], unread: &[Unread]) -> Result<()> {
    match zones.first() {
        None if unread.iter().any(|unread| matches!(unread.why, Why::Damaged)) => Err(no_volume(
            "the headers of the log zones are damaged: restore the whole volume from a copy, or save the files with \
                 `polder salvage`",
        )),
        None => Err(no_volume(match unread.iter().rev().find_map(Unread::device_error) {
            Some(error) => format!(
                "no Polder volume is found, and a possible log zone cannot be read ({error}): if there was a volume, save \
                 the files with `polder salvage`"
            ),
            None => NOTHING_HERE.to_owned(),
        })),
        Some((first, _)) if zones.iter().any(|(other, _)| other.fs_id != first.fs_id) => Err(no_volume(
            "the log zones belong to different volumes: `polder salvage` saves the files of the volume with most zones",
        )),
        Some(_) => Ok(()),
    }
}
