//! `polder info`: the properties of a volume.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fs::{Fs, Reserve};
use serde::{Deserialize, Serialize};
use zone::{CopyState, MetadataCopy};

use crate::bytes;
use crate::control::Request;
use crate::name::AnyPath;
use crate::output::{Table, line};
use crate::sets::SetInfo;
use crate::volume::{LastMount, Volume};

/// The state of a damaged copy.
const DAMAGED: &str = "damaged";

/// Show the properties of a volume, mounted or not.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file, block device or URL, or the directory that it is mounted on.
    path: PathBuf,
    /// Write the result as JSON.
    #[arg(long)]
    json: bool,
}

/// The properties of a volume. Also the answer to the control request `info`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Info {
    pub(crate) id: String,
    pub(crate) label: String,
    pub(crate) path: AnyPath,
    /// The mount point, if the volume is mounted.
    pub(crate) mounted_on: Option<AnyPath>,
    /// The process of the daemon that holds the volume.
    pub(crate) pid: Option<u32>,
    /// Whether the mount has ended, so that the daemon only has to close the volume.
    #[serde(default)]
    pub(crate) closing: bool,
    /// Whether the mount is read-only. Nothing if the volume is not mounted.
    pub(crate) read_only: Option<bool>,
    /// The mount options in force, in the form for `-o`. Nothing if the volume is not mounted.
    #[serde(default)]
    pub(crate) options: Option<String>,
    /// Memory for metadata (`cache=`).
    #[serde(default)]
    pub(crate) cache_bytes: Option<u64>,
    /// The time after which a change is durable without an fsync (`commit=`).
    #[serde(default)]
    pub(crate) commit_seconds: Option<u64>,
    /// The address of the status page (`--status`), if the mount has one.
    #[serde(default)]
    pub(crate) status: Option<String>,
    /// The state in which the last mount left the volume. Nothing if the daemon is of an earlier release without this field.
    #[serde(default)]
    pub(crate) last_mount: Option<LastMount>,
    /// The error that has shut the volume down, if there was one.
    pub(crate) shutdown_reason: Option<String>,
    /// The time of creation in nanoseconds since 1970.
    pub(crate) created_ns: i64,
    pub(crate) format_version: u32,
    pub(crate) block_size: u32,
    /// The capacity of the largest zone.
    pub(crate) zone_bytes: u64,
    pub(crate) zones: u32,
    pub(crate) open_zones_max: u32,
    pub(crate) active_zones_max: u32,
    pub(crate) page_size: u32,
    pub(crate) groups: u16,
    /// The reserve in percent of all blocks, if the user has chosen it.
    pub(crate) reserve_percent: Option<f64>,
    /// The bytes that all files together can have.
    pub(crate) total_bytes: u64,
    /// The bytes that are available to files when the volume is mounted for writing.
    pub(crate) available_bytes: Option<u64>,
    /// The available bytes of the host file system that contains the volume's file. Nothing if the volume is on a device.
    #[serde(default)]
    pub(crate) host_available_bytes: Option<u64>,
    /// The bytes that the volume's file may still allocate on the host.
    #[serde(default)]
    pub(crate) host_needed_bytes: Option<u64>,
    /// The sets of a volume on several devices.
    #[serde(default)]
    pub(crate) sets: Vec<SetInfo>,
    /// The copies of the device's own metadata, in the state in which they were opened or last verified.
    #[serde(default)]
    pub(crate) copies: Vec<Copied>,
}

/// A copy of the header or a table of zone states.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Copied {
    /// `first_header`, `second_header`, `end_header`, `first_zone_table`, `second_zone_table`.
    record: String,
    /// `whole`, `damaged` or `absent`.
    state: String,
    /// The reason if the copy is not whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The damage in human-readable form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

impl Copied {
    fn new(copy: &MetadataCopy) -> Copied {
        let (state, reason) = match &copy.state {
            CopyState::Whole => ("whole", None),
            CopyState::Damaged(reason) => (DAMAGED, Some(reason.clone())),
            CopyState::Absent(reason) => ("absent", Some((*reason).to_owned())),
        };
        Copied {
            record: copy.record.key().to_owned(),
            state: state.to_owned(),
            reason,
            description: copy.damage(),
        }
    }
}

/// The facts about a volume that are not stored in it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) mounted_on: Option<PathBuf>,
    /// Nothing if the volume is not mounted.
    pub(crate) mount: Option<MountInForce>,
    pub(crate) closing: bool,
    pub(crate) last_mount: LastMount,
    /// The address of the status page.
    pub(crate) status: Option<String>,
    /// The sets of a volume on several devices.
    pub(crate) sets: Vec<SetInfo>,
}

/// The current mount of a volume.
#[derive(Clone, Debug)]
pub(crate) struct MountInForce {
    pub(crate) read_only: bool,
    pub(crate) options: String,
    pub(crate) cache_bytes: u64,
    pub(crate) commit_seconds: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let info = Info::about(&arguments.path)?;
    if arguments.json {
        return line!("{}", serde_json::to_string_pretty(&info)?);
    }
    info.table().print()
}

/// The message about a host with less space than the volume may still need.
pub(crate) fn short_host(available: u64, needed: u64) -> String {
    let (available, needed) = (bytes::show(available), bytes::show(needed));
    format!(
        "the file system that contains the volume has only {available} available, and the volume may allocate {needed} more"
    )
}

impl Info {
    /// The properties of the volume at a path, from its daemon or from the volume.
    pub(crate) fn about(path: &Path) -> Result<Info> {
        match Volume::find(path)? {
            Volume::Served(mut client) => client.ask(&Request::Info),
            Volume::Opened(opened) => {
                let place = Place {
                    path: opened.path.clone(),
                    mounted_on: None,
                    mount: None,
                    closing: false,
                    last_mount: LastMount::of(&opened.recovery),
                    status: None,
                    sets: opened.members.iter().flat_map(|members| SetInfo::of(members)).collect(),
                };
                Ok(Info { pid: None, ..Info::of(&opened.fs, &place)? })
            }
        }
    }

    pub(crate) fn of(fs: &Fs, place: &Place) -> Result<Info> {
        let volume = fs.store().info();
        let geometry = fs.store().device().geometry();
        let space = fs.statfs().context("the space cannot be counted")?;
        let block_bytes = u64::from(space.block_size);
        let mount = place.mount.as_ref();
        let host = fs.store().device().host_space();
        Ok(Info {
            id: volume.fs_id.to_string(),
            label: volume.label.text(),
            path: AnyPath(place.path.clone()),
            mounted_on: place.mounted_on.clone().map(AnyPath),
            pid: Some(std::process::id()),
            closing: place.closing,
            read_only: mount.map(|mount| mount.read_only),
            options: mount.map(|mount| mount.options.clone()),
            cache_bytes: mount.map(|mount| mount.cache_bytes),
            commit_seconds: mount.map(|mount| mount.commit_seconds),
            status: place.status.clone(),
            last_mount: Some(place.last_mount),
            shutdown_reason: fs.store().shutdown_reason().map(|error| error.to_string()),
            created_ns: volume.created_ns,
            format_version: fs.volume_info().format_version,
            block_size: geometry.block_size,
            zone_bytes: u64::from(geometry.zone_blocks) * u64::from(geometry.block_size),
            zones: geometry.zones,
            open_zones_max: geometry.max_open,
            active_zones_max: geometry.max_active,
            page_size: volume.page_size,
            groups: volume.groups,
            reserve_percent: (volume.reserve != Reserve::default())
                .then(|| f64::from(volume.reserve.0) / 100.0),
            total_bytes: space.blocks * block_bytes,
            available_bytes: Some(space.available * block_bytes),
            host_available_bytes: host.map(|host| host.available),
            host_needed_bytes: host.map(|host| host.unallocated),
            sets: place.sets.clone(),
            copies: fs.store().device().device_metadata_copies().iter().map(Copied::new).collect(),
        })
    }

    /// The number of damaged copies of the header and the zone tables.
    pub(crate) fn damaged_copies(&self) -> usize {
        self.copies.iter().filter(|copy| copy.state == DAMAGED).count()
    }

    fn table(&self) -> Table {
        let mut table = Table::default();
        table.line("volume", &self.id);
        if !self.label.is_empty() {
            table.line("label", &self.label);
        }
        table.line("path", &self.path);
        table.line("mounted", self.state());
        for set in &self.sets {
            table.line("devices", set.summary());
        }
        for problem in self.sets.iter().filter_map(|set| set.problem.as_deref()) {
            table.line("degraded", problem);
        }
        if let Some(options) = &self.options {
            table.line("options", options);
        }
        if let Some(status) = &self.status {
            table.line("status page", status);
        }
        if let Some(unclean) = self.last_mount.and_then(|last| last.warning(self.options.is_some())) {
            table.line("unclean", unclean);
        }
        if let Some(reason) = &self.shutdown_reason {
            table.line("shut down", format_args!("read-only until it is mounted again: {reason}"));
        }
        table.line("format", format_args!("version {}", self.format_version));
        table.line("zones", format_args!("{} of {}", self.zones, bytes::show(self.zone_bytes)));
        table
            .line("open, active", format_args!("at most {}, {}", self.open_zones_max, self.active_zones_max));
        table.line("block, page", format_args!("{}, {}", self.block_size, self.page_size));
        table.line("groups", self.groups);
        if let Some(reserve) = self.reserve_percent {
            table.line("reserve", format_args!("at least {reserve} %"));
        }
        table.line("size", bytes::show(self.total_bytes));
        if let Some(available) = self.available_bytes {
            table.line("available", bytes::show(available));
        }
        if let (Some(available), Some(needed)) = (self.host_available_bytes, self.host_needed_bytes)
            && available < needed
        {
            table.line("host", short_host(available, needed));
        }
        self.add_copies(&mut table);
        table
    }

    /// Adds lines about damaged copies of the header and the zone tables.
    fn add_copies(&self, table: &mut Table) {
        for copy in &self.copies {
            match (&copy.description, &copy.reason) {
                (Some(damage), _) => {
                    table.line(
                        "damaged",
                        format_args!("{damage}; a mount for writing or `polder check --repair` repairs it"),
                    );
                }
                (None, Some(reason)) => {
                    table.line("header", format_args!("two copies at the start, none at the end: {reason}"));
                }
                (None, None) => {}
            }
        }
    }

    fn state(&self) -> String {
        let writing = if self.read_only == Some(true) { "read-only" } else { "read-write" };
        match (&self.mounted_on, self.pid) {
            (Some(directory), Some(pid)) => format!("on {}, {writing}, by process {pid}", directory),
            (None, Some(pid)) if self.closing => format!("no longer; process {pid} closes the volume"),
            (None, Some(pid)) => {
                format!("lazily unmounted, {writing}, by process {pid}; in use")
            }
            (_, None) => "no".to_owned(),
        }
    }
}
