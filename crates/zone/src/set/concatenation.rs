//! Devices one behind the other.

use std::sync::Arc;

use crate::{
    Blocks, Command, Device, DeviceError, FsId, Geometry, MetadataCopy, Output, Role, ZoneId, ZoneInfo,
};

use super::error::SetError;
use super::format::Part;
use super::member::of_superzone;

/// A device with the zones of several devices, in their order.
///
/// Conventional zones are not used: they are the last of a device, and here zones of the next one follow. At most as
/// many zones may be open as each of the devices permits, because they may all be on one of them.
pub struct Concatenation {
    devices: Vec<Arc<dyn Device>>,
    /// For each device the number of the first zone behind it.
    ends: Vec<u32>,
    geometry: Geometry,
}

impl Concatenation {
    /// Refuses devices that do not fit together.
    pub fn new(devices: Vec<Arc<dyn Device>>) -> Result<Concatenation, SetError> {
        let geometries: Vec<&Geometry> = devices.iter().map(|device| device.geometry()).collect();
        let geometry = Concatenation::geometry_of(&geometries)?;
        let ends = geometries.iter().scan(0, |end, one| {
            *end += one.sequential();
            Some(*end)
        });
        let ends = ends.collect();
        Ok(Concatenation { devices, ends, geometry })
    }

    /// The shape of a concatenation of devices of these shapes.
    ///
    /// # Errors
    /// The devices do not fit together.
    pub fn geometry_of(devices: &[&Geometry]) -> Result<Geometry, SetError> {
        geometry_of(devices)
    }

    /// The device with a zone, and the number of the zone there.
    fn find(&self, zone: ZoneId) -> Result<(&dyn Device, ZoneId), DeviceError> {
        let index = self.ends.partition_point(|&end| end <= zone.0);
        let device =
            self.devices.get(index).ok_or(DeviceError::Invalid { zone, why: "there is no such zone" })?;
        let first = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Ok((&**device, ZoneId(zone.0 - first)))
    }

    /// Executes a command on the device with the zone.
    fn on<T>(
        &self,
        zone: ZoneId,
        command: impl FnOnce(&dyn Device, ZoneId) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let (device, there) = self.find(zone)?;
        command(device, there).map_err(|error| of_superzone(zone, error))
    }
}

/// Checks that these are all sets of one volume, each once. They are in the order of their numbers.
pub(super) fn check_parts(parts: &[(FsId, Part)]) -> Result<(), SetError> {
    let refuse = |why: String| Err(SetError::NotOneVolume(why));
    let Some(&(volume, Part { count, .. })) = parts.first() else {
        return refuse("no set is given".to_owned());
    };
    for (number, (other, part)) in (0..).zip(parts) {
        if *other != volume {
            return refuse(format!("one is of volume {volume}, and one of {other}"));
        }
        if part.count != count {
            return refuse(format!("one says that there are {count} sets, and one {}", part.count));
        }
        if part.number < number {
            return refuse(format!("set {} is given twice", part.number));
        }
        if part.number > number {
            return refuse(format!("set {number} is missing: give its devices as well"));
        }
    }
    if parts.len() < usize::from(count) {
        let given = parts.len();
        return refuse(format!("{given} of {count} sets are given: give the devices of the others as well"));
    }
    Ok(())
}

fn geometry_of(devices: &[&Geometry]) -> Result<Geometry, SetError> {
    let Some(first) = devices.first() else {
        return Err(SetError::Unsuitable("no device is given".to_owned()));
    };
    let min = |of: &dyn Fn(&Geometry) -> u32| devices.iter().map(|one| of(one)).min().unwrap_or(0);
    let max = |of: &dyn Fn(&Geometry) -> u32| devices.iter().map(|one| of(one)).max().unwrap_or(0);
    if max(&|one| one.block_size) != min(&|one| one.block_size) {
        return Err(SetError::Unsuitable("the devices have blocks of several sizes".to_owned()));
    }
    let zones: u64 = devices.iter().map(|one| u64::from(one.sequential())).sum();
    if zones == 0 || zones > u64::from(crate::Address::ZONES_MAX) {
        return Err(SetError::Unsuitable(format!("they have {zones} zones together")));
    }
    Ok(Geometry {
        block_size: first.block_size,
        zones: zones as u32,
        zone_blocks: max(&|one| one.zone_blocks),
        max_open: min(&|one| one.max_open),
        max_active: min(&|one| one.max_active),
        max_append: min(&|one| one.max_append),
        conventional: 0,
        seek_bytes: max(&|one| one.seek_bytes),
    })
}

impl Device for Concatenation {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self) -> Result<Vec<ZoneInfo>, DeviceError> {
        let mut zones = Vec::with_capacity(self.geometry.zones as usize);
        for device in &self.devices {
            let mut report = device.report()?;
            report.truncate(device.geometry().sequential() as usize);
            zones.append(&mut report);
        }
        Ok(zones)
    }

    fn report_zone(&self, zone: ZoneId) -> Result<ZoneInfo, DeviceError> {
        self.on(zone, |device, there| device.report_zone(there))
    }

    fn read(&self, zone: ZoneId, block: Blocks, into: &mut [u8]) -> Result<(), DeviceError> {
        self.on(zone, |device, there| device.read(there, block, into))
    }

    fn copies(&self, zone: ZoneId, block: Blocks) -> u32 {
        self.find(zone).map_or(1, |(device, there)| device.copies(there, block))
    }

    fn read_copy(&self, zone: ZoneId, block: Blocks, copy: u32, into: &mut [u8]) -> Result<(), DeviceError> {
        self.on(zone, |device, there| device.read_copy(there, block, copy, into))
    }

    fn copy_name(&self, zone: ZoneId, copy: u32) -> String {
        self.find(zone).map_or_else(|_| String::new(), |(device, there)| device.copy_name(there, copy))
    }

    fn end_recovery(&self) {
        self.devices.iter().for_each(|device| device.end_recovery());
    }

    fn append(&self, zone: ZoneId, from: &[u8]) -> Result<Blocks, DeviceError> {
        self.on(zone, |device, there| {
            let bytes = self.geometry.max_append as usize * self.geometry.block_size as usize;
            match from.len() > bytes {
                true => Err(DeviceError::Invalid { zone, why: "the append is larger than the device takes" }),
                false => device.append(there, from),
            }
        })
    }

    /// Each device executes its part of the batch, one device after the other.
    fn run(&self, batch: &mut [Command<'_>]) -> Vec<Output> {
        let mut outputs: Vec<Option<Output>> = batch.iter().map(|_| None).collect();
        let mut parts: Vec<(Vec<usize>, Vec<Command<'_>>)> = Vec::new();
        parts.resize_with(self.devices.len(), Default::default);
        for (index, command) in batch.iter_mut().enumerate() {
            let (Command::Read { zone, .. } | Command::Append { zone, .. }) = command;
            let at = self.ends.partition_point(|end| end <= &zone.0);
            let Ok((_, there)) = self.find(*zone) else {
                outputs[index] =
                    Some(Err(DeviceError::Invalid { zone: *zone, why: "there is no such zone" }));
                continue;
            };
            parts[at].0.push(index);
            parts[at].1.push(match command {
                Command::Read { block, into, .. } => Command::Read { zone: there, block: *block, into },
                Command::Append { from, .. } => Command::Append { zone: there, from },
            });
        }
        let zones = |outputs: Vec<Output>, first: u32, part: &[Command<'_>]| {
            let named = outputs.into_iter().zip(part).map(|(output, command)| {
                let (Command::Read { zone, .. } | Command::Append { zone, .. }) = command;
                output.map_err(|error| of_superzone(ZoneId(first + zone.0), error))
            });
            named.collect::<Vec<Output>>()
        };
        for (at, (places, mut part)) in
            parts.into_iter().enumerate().filter(|(_, (_, part))| !part.is_empty())
        {
            let first = at.checked_sub(1).map_or(0, |before| self.ends[before]);
            let done = self.devices[at].run(&mut part);
            for (index, output) in places.into_iter().zip(zones(done, first, &part)) {
                outputs[index] = Some(output);
            }
        }
        outputs
            .into_iter()
            .map(|output| output.expect("each command belongs to a device, or was refused"))
            .collect()
    }

    fn finish(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.on(zone, |device, there| device.finish(there))
    }

    fn reset(&self, zone: ZoneId) -> Result<(), DeviceError> {
        self.on(zone, |device, there| device.reset(there))
    }

    /// Flushes all devices, also if one of them fails.
    fn flush(&self) -> Result<(), DeviceError> {
        let flushed: Vec<Result<(), DeviceError>> =
            self.devices.iter().map(|device| device.flush()).collect();
        flushed.into_iter().collect()
    }

    fn discard_one_zone(&self) -> bool {
        self.devices.iter().any(|device| device.discard_one_zone())
    }

    fn set_placement(&self, zone: ZoneId, role: Role, class: u8) {
        if let Ok((device, there)) = self.find(zone) {
            device.set_placement(there, role, class);
        }
    }

    fn has_space_for(&self, zones: u64) -> bool {
        self.devices.iter().all(|device| device.has_space_for(zones))
    }

    fn device_metadata_copies(&self) -> Vec<MetadataCopy> {
        self.devices.iter().flat_map(|device| device.device_metadata_copies()).collect()
    }

    fn verify_device_metadata(&self) -> Vec<MetadataCopy> {
        self.devices.iter().flat_map(|device| device.verify_device_metadata()).collect()
    }

    fn device_metadata_bytes_written(&self) -> u64 {
        self.devices.iter().map(|device| device.device_metadata_bytes_written()).sum()
    }
}
