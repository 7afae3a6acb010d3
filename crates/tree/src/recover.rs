//! Recovery: from a device after a crash to a store that accepts transactions.
//!
//! The order is that of `docs/design.md`, section 3, "Recovery": flush; find the newest checkpoint; load its tables;
//! replay the records that count; **seal**; only then reset any zone. Until the seal is durable, no write of this
//! recovery counts. So after a crash at any moment of a recovery, the next one has the same work.
//!
//! Replay holds its dirty nodes in memory. Checkpoints are frequent enough that their number is bounded
//! (`Limits::epoch_nodes` of the mount that wrote).

mod chunks;
mod ends;
mod give_up;
mod headers;
mod missing;

use std::collections::BTreeMap;
use std::sync::Arc;

use pool::{LOG_ZONES, LOG_ZONES_WITHIN, Lsn, Usage, ZoneEntry};
use zerocopy::FromBytes;
use zone::format::{Reader, ZoneIdentity};
use zone::{Address, Device, DeviceError, Life, Role, ZoneId, ZoneInfo, ZoneState};

use crate::cache::Node;
use crate::core::{Core, assemble};
use crate::format::{
    BatchKind, CheckpointHeader, DirectoryEntry, FEATURES_READ_ONLY, PAGE_HEADER, PageKind, ZitEntry,
    ZonePatch, entries_per_page, is_ordinal, loaded, take,
};
use crate::log::{OldZone, Start};
use crate::mat::ChunkPlace;
use crate::record;
use crate::scan::{Found, LogZone, Seals, next_life, read_header};
use crate::types::{Epoch, Label, Op, Reserve, Result, StoreError, VolumeInfo};
use ends::ZoneEnd;
use headers::{LogHeader, log_zones, no_volume};
use missing::{Unread, Why};

/// The error for a log whose first seal names no checkpoint.
const UNFINISHED: &str = "the log has no checkpoint: the creation of the volume was interrupted (make it again), or the log \
                          is damaged (save the files with `polder salvage`)";

/// The error for a log whose volume is missing. The log may be of an earlier volume on this device.
const OR_UNFINISHED: &str = "the creation of the volume was interrupted (make it again), or it is damaged (save the files \
                             with `polder salvage`)";

/// Advice for a volume whose log has lost records. Writing would make the loss final, and reading the rest is allowed.
const ADVICE: &str = "mount the volume with -o ro and copy the files, or use `polder salvage`, which may find newer \
                     files; to continue without the lost part, use `polder check --repair --accept-loss`";

/// The largest jump of the epoch's number at a seal.
const EPOCH_JUMP: u64 = u32::MAX as u64;

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct Config {
    /// Memory for nodes and chunks.
    pub cache_bytes: u64,
    /// Replay in memory only, and write nothing.
    pub read_only: bool,
    /// Write although the newest part of the log is lost. This makes the loss final.
    pub accept_loss: bool,
}

/// The store's user during recovery.
pub trait Replay {
    /// The bytes that the client gave to the checkpoint from which recovery starts.
    fn checkpoint(&mut self, bytes: &[u8]) -> Result<()>;

    /// Whether the data that these writes name can be read and is valid, in zones of the right life. Called only for
    /// records that are not known to be durable.
    fn verify(&mut self, ops: &[Op]) -> Result<bool>;

    /// Called for writes that count and are being applied.
    fn apply(&mut self, ops: &[Op]);
}

/// The result of a recovery.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// Nothing had to be replayed.
    pub clean: bool,
    /// Records replayed.
    pub records: u64,
    /// Records in the log that do not count: beyond a gap, or without their data.
    pub discarded: u64,
    /// The last transaction that counts.
    pub last: Lsn,
    /// The lost part of the log, if acknowledged records may be lost.
    pub lost: Option<String>,
}

/// A bound on the delta records of a zone. It is more than fit into a zone, and low enough that sums do not overflow.
const DELTAS_MAX: u32 = 1 << 30;

/// A decoded checkpoint record.
pub(crate) struct Checkpoint {
    pub(crate) at: Address,
    pub(crate) epoch: u64,
    pub(crate) header: CheckpointHeader,
    pub(crate) mat_directories: Vec<Address>,
    pub(crate) zit_directories: Vec<Address>,
    pub(crate) patches: Vec<(ZoneId, ZoneEntry)>,
    pub(crate) user: Vec<u8>,
    pub(crate) bytes: usize,
}

/// The contents of the log.
struct LogContents {
    zones: Vec<LogHeader>,
    checkpoint: Checkpoint,
    batches: Vec<Found>,
    seals: Seals,
    /// The newest batch of each zone.
    ends: Vec<ZoneEnd>,
    /// The newest batch of all.
    newest: ZoneEnd,
    /// The error for blocks behind the newest batch that had been written and that the device refused to read.
    refused: Option<DeviceError>,
    /// The checkpoint that the newest batch names.
    named: Address,
    /// Where replay begins.
    replay_from: Address,
    epoch_max: u64,
    sequence_max: u64,
    lsn_max: u64,
}

impl LogContents {
    /// The greatest LSN that batches of these kinds state to be durable.
    fn known_durable(&self, says: impl Fn(BatchKind) -> bool) -> u64 {
        let known = self.batches.iter().filter(|found| says(found.kind)).map(|found| found.known_durable);
        known.max().unwrap_or(0).max(self.checkpoint.header.cut.get())
    }
}

/// Opens a volume.
pub(crate) fn recover(
    device: Arc<dyn Device>,
    config: &Config,
    replay: &mut dyn Replay,
) -> Result<(Core, Recovery)> {
    if !config.read_only && !rt::is_planted("break-recovery-flush") {
        device.flush()?;
    }
    let report = device.report()?;
    let (zones, mut unread) = log_zones(&*device, &report)?;
    let contents = read_log(&*device, zones, &mut unread)?;
    let epoch = Epoch(contents.epoch_max + 1 + rt_random(EPOCH_JUMP));
    let core = load(device, config, &contents, &report)?;
    let mut recovery = core.replay_log(&contents, epoch, replay)?;
    if recovery.lost.is_none() {
        recovery.lost = match incomplete(&contents, recovery.last) {
            None => missing::missing(&*core.volume.device, &contents, &unread, recovery.last)?,
            lost => lost,
        };
    }
    if let Some(lost) = &recovery.lost {
        if !config.read_only && !config.accept_loss {
            return Err(StoreError::Corrupt(format!("{lost}; {ADVICE}")));
        }
        tracing::error!(lost, "a part of the log is lost");
    }
    if !config.read_only {
        core.finish_recovery(&contents, epoch, recovery.last)?;
    }
    Ok((core, recovery))
}

/// Whether the log has lost records that it states to be durable. Then the device has not kept its promise.
///
/// A later epoch may state LSNs up to its first one, beyond those that its seal gave up.
fn incomplete(contents: &LogContents, last: Lsn) -> Option<String> {
    let known = contents.known_durable(|_| true);
    let is_lost = known >= contents.seals.next_after(last.0);
    is_lost.then(|| {
        let last = last.0;
        format!("the log is damaged: transactions up to {known} were durable, and those after {last} cannot be read")
    })
}

fn rt_random(below: u64) -> u64 {
    u64::from_le_bytes(rt::random::secret()) % below
}

/// Reads all parts of the log that recovery needs. Zones without a batch are skipped. If the device has refused to
/// read such a zone, it is added to `unread`.
fn read_log(device: &dyn Device, mut zones: Vec<LogHeader>, unread: &mut Vec<Unread>) -> Result<LogContents> {
    let open = |(identity, info): &LogHeader| {
        LogZone::new(device, identity.fs_id, identity.zone, identity.life, *info)
    };
    let mut opened: Vec<LogZone<'_>> = zones.iter().map(open).collect();
    let (mut newest, mut newest_refused): (Option<Found>, _) = (None, None);
    let (mut ends, mut empty) = (Vec::new(), Vec::new());
    for (header, zone) in zones.iter().zip(&opened) {
        let Some(last) = zone.last()? else {
            empty.push(header.0.zone);
            let refused = zone.refused(0).map(Why::Device);
            unread.extend(refused.map(|why| Unread { zone: header.0.zone, info: header.1, why }));
            continue;
        };
        ends.push(ZoneEnd::new(&last, header.1.state));
        let is_newer = |newest: &Found| (newest.epoch, newest.sequence) < (last.epoch, last.sequence);
        if newest.as_ref().is_none_or(is_newer) {
            newest_refused = zone.refused(last.at.block());
            newest = Some(last);
        }
    }
    zones.retain(|(identity, _)| !empty.contains(&identity.zone));
    opened.retain(|zone| !empty.contains(&zone.identity.zone));
    let newest = newest.ok_or_else(|| {
        no_volume(
            "the log has no readable checkpoint: restore the whole volume from a copy, or save the files with `polder \
             salvage`; if the creation of the volume was interrupted, make it again",
        )
    })?;
    let newest_end = ends.iter().copied().max_by_key(ZoneEnd::order).expect("the newest batch ends a zone");
    let hint = if newest.kind == BatchKind::Checkpoint { newest.at } else { newest.checkpoint };
    let named = find_checkpoint(device, &zones, hint)?;
    let replay_from = Address::from_bits(named.header.replay_from.get());
    // A newer checkpoint that replaces it has a later cut.
    let is_needed = |found: &Found| found.kind != BatchKind::Journal || found.last > named.header.cut.get();
    let mut batches = Vec::new();
    for (header, zone) in zones.iter().zip(&opened) {
        let from = if rt::is_planted("break-replay-from") && header.0.zone == named.at.zone() {
            named.at.block()
        } else if header.0.zone == replay_from.zone() && replay_from.is_of(header.0.life) {
            replay_from.block()
        } else {
            1
        };
        batches.extend(zone.batches_with(from, &is_needed)?.0);
    }
    let seals = Seals::of(&batches);
    let checkpoint = newest_checkpoint(&batches, &seals)
        .filter(|newer| newer.header.number.get() >= named.header.number.get());
    let lsn_max =
        batches.iter().map(|found| found.last.max(found.first.saturating_sub(1))).max().unwrap_or(0);
    Ok(LogContents {
        epoch_max: batches.iter().map(|found| found.epoch).max().unwrap_or(0).max(newest.epoch),
        sequence_max: batches.iter().map(|found| found.sequence).max().unwrap_or(0).max(newest.sequence),
        lsn_max: lsn_max.max(named.header.cut.get()),
        newest: newest_end,
        refused: newest_refused,
        ends,
        named: named.at,
        replay_from,
        checkpoint: checkpoint.unwrap_or(named),
        zones,
        batches,
        seals,
    })
}

/// The checkpoint that the log names.
fn find_checkpoint(device: &dyn Device, zones: &[LogHeader], at: Address) -> Result<Checkpoint> {
    if at == Address::NONE {
        return Err(no_volume(UNFINISHED));
    }
    let lost = || {
        StoreError::Corrupt(format!(
            "the checkpoint at {at}, to which the log refers, cannot be read: {OR_UNFINISHED}"
        ))
    };
    let named = zones.iter().find(|(identity, _)| identity.zone == at.zone() && at.is_of(identity.life));
    let (identity, info) = named.ok_or_else(lost)?;
    let zone = LogZone::new(device, identity.fs_id, identity.zone, identity.life, *info);
    let count = zone.count_at(at.block())?.ok_or_else(lost)?;
    let found = zone.batch_at(at.block(), count)?.filter(|found| found.kind == BatchKind::Checkpoint);
    decode_checkpoint(&found.ok_or_else(lost)?).ok_or_else(lost)
}

/// The newest checkpoint that counts. Of those before the newest seal, only the one that the seal names counts:
/// another one is of a branch that recovery did not take.
fn newest_checkpoint(batches: &[Found], seals: &Seals) -> Option<Checkpoint> {
    let seal = batches.iter().filter(|found| found.kind == BatchKind::Seal).max_by_key(|found| found.epoch);
    let taken =
        |found: &&Found| seal.is_none_or(|seal| found.epoch >= seal.epoch || found.at == seal.checkpoint);
    let whole = batches
        .iter()
        .filter(|found| found.kind == BatchKind::Checkpoint && found.last <= seals.limit(found.epoch));
    whole.filter(taken).filter_map(decode_checkpoint).max_by_key(|checkpoint| checkpoint.header.number.get())
}

pub(crate) fn decode_checkpoint(found: &Found) -> Option<Checkpoint> {
    let (header, mut rest) = take::<CheckpointHeader>(&found.body)?;
    if header.header_bytes.get() as usize != size_of::<CheckpointHeader>() {
        return None;
    }
    let mut addresses = |count: u32| {
        let (mine, other) = rest.split_at_checked((count as usize).checked_mul(8)?)?;
        rest = other;
        let words =
            mine.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("chunks of eight")));
        Some(words.map(Address::from_bits).collect::<Vec<_>>())
    };
    let mat_directories = addresses(header.mat_directories.get())?;
    let zit_directories = addresses(header.zit_directories.get())?;
    let (mine, user) =
        rest.split_at_checked((header.patches.get() as usize).checked_mul(size_of::<ZonePatch>())?)?;
    let patch = |bytes: &[u8]| {
        let patch = ZonePatch::read_from_bytes(bytes).ok()?;
        Some((ZoneId(patch.zone.get()), loaded(&patch.entry)?))
    };
    let patches = mine.chunks_exact(size_of::<ZonePatch>()).map(patch).collect::<Option<Vec<_>>>()?;
    let user = user.get(..header.user_bytes.get() as usize)?.to_vec();
    Some(Checkpoint {
        at: found.at,
        epoch: found.epoch,
        header,
        mat_directories,
        zit_directories,
        patches,
        user,
        bytes: found.body.len(),
    })
}

/// The properties of the volume and the tables of a checkpoint, before any replay.
fn load(
    device: Arc<dyn Device>,
    config: &Config,
    contents: &LogContents,
    report: &[ZoneInfo],
) -> Result<Core> {
    let header = &contents.checkpoint.header;
    check_header(header, &*device)?;
    if header.features_read_only.get() & !FEATURES_READ_ONLY != 0 && !config.read_only {
        return Err(no_volume(
            "the volume has features that this release can only read: mount it with -o ro",
        ));
    }
    let text = header.label.split(|&byte| byte == 0).next().unwrap_or_default();
    let info = VolumeInfo {
        fs_id: contents.zones[0].0.fs_id,
        label: Label::new(String::from_utf8_lossy(text).into_owned()),
        groups: header.groups.get() as u16,
        page_size: header.page_size.get(),
        created_ns: header.created_ns.get(),
        features: header.features_incompatible.get() | zone::format::FEATURES_DEFAULT,
        reserve: Reserve(header.reserve.get()),
        secret: header.secret,
    };
    let geometry = device.geometry().clone();
    let entries = vec![ZoneEntry::default(); geometry.zones as usize];
    let core = assemble(
        device,
        info,
        (config.cache_bytes, config.read_only),
        entries,
        report,
        header.next_node.get(),
    )?;
    core.load_tables(&contents.checkpoint).map_err(|error| match error {
        StoreError::Device(error @ DeviceError::Unwritten { .. }) => {
            StoreError::Corrupt(format!("the checkpoint's tables are missing ({error}): {OR_UNFINISHED}"))
        }
        error => error,
    })?;
    Ok(core)
}

fn check_header(header: &CheckpointHeader, device: &dyn Device) -> Result<()> {
    let (version, features) = (header.version.get(), header.features_incompatible.get());
    zone::format::check_version(version, features, Reader::default())
        .map_err(|error| no_volume(error.to_string()))?;
    let geometry = device.geometry();
    let (page, groups) = (header.page_size.get(), header.groups.get());
    let sound = header.block_size.get() == geometry.block_size
        && header.zones.get() == geometry.zones
        && page.is_power_of_two()
        && (4096..=65536).contains(&page)
        && page >= geometry.block_size
        && (1..=u32::from(u16::MAX)).contains(&groups)
        && header.reserve.get() <= Reserve::ALL.0
        && [header.cut, header.epoch, header.number].into_iter().all(is_ordinal)
        && header.next_node.get() < 1 << 40;
    if sound {
        Ok(())
    } else {
        Err(StoreError::Corrupt("the checkpoint record contradicts the device".into()))
    }
}

/// A step of the replay. If there is no memory for it, releases the prefetched nodes and repeats it.
fn with_memory<T>(prefetched: &mut Vec<Arc<Node>>, step: impl Fn() -> Result<T>) -> Result<T> {
    match step() {
        Err(StoreError::NoMemory(_)) if !prefetched.is_empty() => {
            prefetched.clear();
            step()
        }
        done => done,
    }
}

impl Core {
    /// Loads directories and the ZIT of a checkpoint.
    fn load_tables(&self, checkpoint: &Checkpoint) -> Result<()> {
        let header = &checkpoint.header;
        self.log.replayed(Lsn(header.cut.get()), 0);
        for (zone, entry) in &checkpoint.patches {
            // Patches are loaded first, so that the zones of the pages below have their lives, and once more at the
            // end.
            self.load_entry(*zone, *entry)?;
        }
        let mat_chunks = self.load_directory(PageKind::MatDirectory, &checkpoint.mat_directories)?;
        let zit_chunks = self.load_directory(PageKind::ZitDirectory, &checkpoint.zit_directories)?;
        let load = |number: usize, page: &[u8]| self.load_zit_chunk(number, page);
        self.each_chunk(PageKind::ZitChunk, &zit_chunks, load)?;
        for (zone, entry) in &checkpoint.patches {
            self.load_entry(*zone, *entry)?;
            self.volume.pool.patch(*zone, *entry);
        }
        let counters = header.counters.map(zerocopy::little_endian::I64::get);
        if counters.iter().any(|count| !(0..1 << 62).contains(count)) {
            return Err(StoreError::Corrupt("a counter in the checkpoint is impossible".into()));
        }
        self.volume.pool.load_counters(counters);
        self.count_pages(&mat_chunks, &zit_chunks, checkpoint)?;
        let nodes: u64 = mat_chunks.iter().map(|chunk| u64::from(chunk.used)).sum();
        let nodes = nodes.min(header.next_node.get());
        self.trees.load_counts(nodes, header.prepaid.get().min(nodes));
        self.nodes.mat.load(mat_chunks, self.volume.info.first_node());
        let mut saving = self.checkpoints.saving.lock();
        saving.number = header.number.get();
        saving.tables.load(zit_chunks, &checkpoint.mat_directories, &checkpoint.zit_directories);
        Ok(())
    }

    fn load_zit_chunk(&self, number: usize, page: &[u8]) -> Result<()> {
        let per_chunk = entries_per_page(self.volume.page_size(), size_of::<ZitEntry>());
        let stored = page[PAGE_HEADER..].chunks_exact(size_of::<ZitEntry>()).take(per_chunk);
        for (zone, bytes) in (number * per_chunk..self.volume.pool.count() as usize).zip(stored) {
            let entry = ZitEntry::read_from_bytes(bytes).ok().as_ref().and_then(loaded);
            let entry = entry
                .ok_or_else(|| StoreError::Corrupt(format!("the ZIT's entry of zone {zone} has no role")))?;
            self.load_entry(ZoneId(zone as u32), entry)?;
        }
        Ok(())
    }

    fn load_entry(&self, zone: ZoneId, entry: ZoneEntry) -> Result<()> {
        if zone.0 >= self.volume.pool.count() {
            return Err(StoreError::Corrupt(format!(
                "the checkpoint refers to zone {}, which does not exist",
                zone.0
            )));
        }
        let may_hold = entry.role.holds_data() || entry.role == Role::Metadata;
        let may_hold_deltas = entry.role == Role::Metadata && self.nodes.mat.has_deltas();
        if entry.live > Address::BLOCKS_MAX
            || (entry.live > 0 && !may_hold)
            || entry.deltas > DELTAS_MAX
            || (entry.deltas > 0 && !may_hold_deltas)
        {
            return Err(StoreError::Corrupt(format!(
                "zone {} ({:?}) cannot have {} live blocks and {} delta records",
                zone.0, entry.role, entry.live, entry.deltas
            )));
        }
        self.volume.pool.load(zone, entry);
        Ok(())
    }

    fn load_directory(&self, kind: PageKind, directories: &[Address]) -> Result<Vec<ChunkPlace>> {
        let mut chunks = Vec::new();
        let per_page = entries_per_page(self.volume.page_size(), size_of::<DirectoryEntry>());
        for (number, &at) in directories.iter().enumerate() {
            let bytes = match at.is_none() {
                true => self.nodes.zeroed_page()?,
                false => {
                    self.check_zone(at)?;
                    self.nodes.read_page(self.nodes.page()?, at, kind, number as u64)?
                }
            };
            let stored = bytes[PAGE_HEADER..].chunks_exact(size_of::<DirectoryEntry>()).take(per_page);
            chunks.extend(stored.map(|bytes| {
                let entry = DirectoryEntry::read_from_bytes(bytes).expect("chunks of the entry's size");
                ChunkPlace { address: Address::from_bits(entry.address.get()), used: entry.used.get() }
            }));
        }
        while chunks.last().is_some_and(|place| place.address.is_none()) {
            chunks.pop();
        }
        chunks
            .iter()
            .filter(|place| !place.address.is_none())
            .try_for_each(|place| self.check_zone(place.address))?;
        Ok(chunks)
    }

    fn check_zone(&self, at: Address) -> Result<()> {
        if at.zone().0 < self.volume.pool.count() {
            return Ok(());
        }
        Err(StoreError::Corrupt(format!("{at} is in a zone that does not exist")))
    }

    /// Counts chunks and directory pages in their zones.
    fn count_pages(&self, mat: &[ChunkPlace], zit: &[ChunkPlace], checkpoint: &Checkpoint) -> Result<()> {
        let chunks = mat.iter().chain(zit).map(|place| place.address);
        let directories = checkpoint.mat_directories.iter().chain(&checkpoint.zit_directories).copied();
        for at in chunks.chain(directories).filter(|at| !at.is_none()) {
            self.check_zone(at)?;
            self.volume.pool.add_page(at.zone());
        }
        Ok(())
    }

    /// Replays the records that count, in order, up to the first gap.
    fn replay_log(&self, contents: &LogContents, epoch: Epoch, replay: &mut dyn Replay) -> Result<Recovery> {
        let checkpoint = &contents.checkpoint;
        replay.checkpoint(&checkpoint.user)?;
        let cut = checkpoint.header.cut.get();
        let known = contents.known_durable(|_| true);
        let records = records_after(contents, cut)?;
        let mut recovery = Recovery { clean: records.is_empty(), last: Lsn(cut), ..Recovery::default() };
        let total = records.len() as u64;
        // Prefetched nodes are held until their records have been replayed: a small cache would evict nodes that are
        // not dirty.
        let (mut ahead, mut held) = (0, Vec::new());
        for (index, (lsn, ops)) in records.iter().enumerate() {
            if index == ahead {
                held.clear();
                ahead += self.trees.read_for_replay(&records[index..], &mut held);
                assert!(ahead > index, "nodes are prefetched for a record at least");
            }
            let lsn = *lsn;
            if !contents.seals.follows(recovery.last.0, lsn.0) && !rt::is_planted("break-gap") {
                break;
            }
            if !self.trees.sizes_are_right(ops) {
                return Err(StoreError::Corrupt(format!("record {} has impossible writes", lsn.0)));
            }
            // Patches change no extents, so this comes before them: a record that does not count is never looked up.
            if lsn.0 > known && !self.data_exists(ops, replay)? {
                break;
            }
            let Some(writes) = with_memory(&mut held, || self.transactions.without_patches(ops))? else {
                recovery.lost = Some(format!(
                    "the log is damaged: record {} changes a value that is not in the tables",
                    lsn.0
                ));
                break;
            };
            if !self.volume.pool.accepts(writes.iter().filter_map(Op::zone_change)) {
                return Err(StoreError::Corrupt(format!("record {} contradicts the zone table", lsn.0)));
            }
            with_memory(&mut held, || self.transactions.replay(&writes, lsn, epoch))?;
            replay.apply(&writes);
            self.log.replayed(lsn, record::encoded_bytes(&writes) as u64);
            recovery.records += 1;
            recovery.last = lsn;
        }
        recovery.discarded = total - recovery.records;
        Ok(recovery)
    }

    /// Whether the data and zones exist that a record names. Called for records that may not be durable.
    fn data_exists(&self, ops: &[Op], replay: &mut dyn Replay) -> Result<bool> {
        if rt::is_planted("break-verify-tail") {
            return Ok(true);
        }
        for op in ops {
            if let Op::ZoneOpened { zone, life, role } = op
                && zone.0 < self.volume.pool.count()
                && self.volume.pool.entry(*zone).life < *life
                && !self.has_header(*zone, *life, *role)
            {
                return Ok(false);
            }
        }
        replay.verify(ops)
    }

    /// Whether a zone's header has this life and role. An offline zone has no readable header: the record counts, and
    /// reads of its data will fail.
    fn has_header(&self, zone: ZoneId, life: Life, role: Role) -> bool {
        if self.volume.pool.info(zone).state == ZoneState::Offline {
            return true;
        }
        let wanted = ZoneIdentity { fs_id: self.volume.info.fs_id, zone, life, role };
        match read_header(&*self.volume.device, zone) {
            Ok(header) => header.is_ok_and(|(found, _)| found == wanted),
            Err(error) => matches!(error, DeviceError::Offline(_)),
        }
    }

    // ---- after the replay ---------------------------------------------------------------------

    /// Gives all zones a use, seals the log, and resets unused active zones.
    fn finish_recovery(&self, contents: &LogContents, epoch: Epoch, last: Lsn) -> Result<()> {
        assert!(!self.volume.is_read_only(), "a mount without the right to write seals nothing");
        self.sort_zones(contents)?;
        let next = contents.seals.next_after(last.0).max(contents.lsn_max + 1);
        let (lease, mut previous) = self.log_leases(contents);
        let going_on_nowhere = lease.is_none();
        let needs_one = going_on_nowhere && !self.log_has_a_free_zone();
        let given_up = if needs_one { contents.to_give_up() } else { Vec::new() };
        // The last resort of the log is taken before a zone with a mark: while the mark is rewritten, the death of
        // another zone would remain unnoticed.
        let has_last_resort = self.is_any_free(LOG_ZONES..LOG_ZONES_WITHIN);
        let waits = has_last_resort && given_up.iter().all(|&zone| contents.is_marked(zone));
        if !waits {
            previous.retain(|left| !given_up.contains(&left.zone));
            given_up.iter().for_each(|&zone| self.volume.pool.give_back(zone, false));
        }
        let is_marked = contents.are_marked(&previous);
        let is_silent = !is_marked && previous.iter().any(|left| !left.is_marked);
        let place = previous.iter().position(|left| waits && given_up.contains(&left.zone));
        let witness = place.map(|place| previous.remove(place).zone);
        self.log.attach(Start {
            lease,
            previous,
            witness,
            is_marked,
            sequence: contents.sequence_max + 1,
            next: Lsn(next),
            epoch,
            durable: last,
            checkpoint: contents.checkpoint.at,
            checkpoint_bytes: contents.checkpoint.bytes,
        });
        if going_on_nowhere {
            self.free_a_slot()?;
        }
        if !rt::is_planted("break-seal") {
            self.log.seal(last)?;
        }
        let full = !self.log_has_a_free_zone();
        // The checkpoint makes a feature visible to releases that do not know it, before it is used.
        let header = &contents.checkpoint.header;
        let older = header.features_incompatible.get() != self.volume.info.features
            || header.features_read_only.get() != FEATURES_READ_ONLY;
        let long = self.running.epoch_is_longer_than_one();
        // No mark shows that the log continues behind a silent zone. So nothing is acknowledged before that zone
        // is reset.
        if (full || long || is_silent) && !rt::is_planted("break-checkpoint-first") || older {
            self.log.checkpoint_first();
        }
        self.reset_active_dead_zones()?;
        self.resume_metadata_zone()?;
        if long {
            let tables = self.headroom.table_blocks(&self.checkpoints.saving.lock(), 0);
            self.headroom.reserve_for_checkpoint(self.running.dirty_pages(), tables);
        }
        Ok(())
    }

    /// Whether one of the zones that only the log may use is free.
    fn log_has_a_free_zone(&self) -> bool {
        self.is_any_free(0..LOG_ZONES)
    }

    fn is_any_free(&self, mut zones: std::ops::Range<u32>) -> bool {
        zones.any(|zone| self.volume.pool.is_free(ZoneId(zone)))
    }

    /// Gives each zone its use.
    ///
    /// A zone may have died in a record that only this seal makes durable. It waits for its reset like any dead zone,
    /// because without the seal the next recovery would ask for its contents once more.
    fn sort_zones(&self, contents: &LogContents) -> Result<()> {
        let known = Lsn(contents.known_durable(|kind| kind != BatchKind::Seal));
        // A mount that did not reach a checkpoint may have begun lives that the ZIT does not know. If such a life were
        // begun again, old batches of it could be taken for new ones.
        for (identity, info) in &contents.zones {
            let entry = self.volume.pool.entry(identity.zone);
            if entry.holds_anything() {
                let (zone, live, changes) = (identity.zone.0, entry.live, entry.deltas);
                let what = format!(
                    "zone {zone} is a log zone, but the ZIT counts {live} live blocks and {changes} delta records there"
                );
                return Err(StoreError::Corrupt(what));
            }
            if entry.life < identity.life {
                self.volume.pool.open_for_store(identity.zone, identity.life, Role::Log, info.capacity);
            }
        }
        for index in 0..self.volume.pool.count() {
            let zone = ZoneId(index);
            let (entry, info) = (self.volume.pool.entry(zone), self.volume.pool.info(zone));
            let in_log = contents.zones.iter().any(|(identity, _)| identity.zone == zone);
            let waits = entry.role.holds_data() && self.volume.pool.changed_by(zone) > known;
            let holds = entry.holds_anything() || self.volume.pool.named_copies(zone) > 0 || waits;
            let usage = match info.state {
                _ if in_log => Usage::Open,
                ZoneState::Offline => Usage::Retired,
                ZoneState::ReadOnly if !holds => Usage::Retired,
                _ if holds => Usage::Closed,
                state => Usage::Free { empty: state == ZoneState::Empty },
            };
            if matches!(usage, Usage::Free { .. }) && entry.role != Role::Free {
                self.volume.pool.forget_role(zone);
            }
            self.volume.pool.recovered(zone, usage);
        }
        Ok(())
    }

    /// The lease on the log zone to continue in, if that zone accepts writes, and the log zones that the next
    /// checkpoint frees.
    fn log_leases(&self, contents: &LogContents) -> (Option<zone::Lease>, Vec<OldZone>) {
        let mut going_on = None;
        let mut previous = Vec::new();
        for (identity, _) in &contents.zones {
            let lease = self.volume.leases.resume(identity.zone, identity.life, Role::Log).ok();
            match lease {
                Some(lease) if identity.zone == contents.newest.zone && lease.free_blocks() > 0 => {
                    going_on = Some(lease)
                }
                lease => {
                    // Nothing is appended to it any more, so its slot is worth more than its free blocks.
                    let finished = lease.map(zone::Lease::finish);
                    if let Some(Err(error)) = finished {
                        tracing::warn!(zone = identity.zone.0, %error, "a log zone cannot be finished");
                    }
                    let zone = identity.zone;
                    previous.push(OldZone { zone, is_marked: contents.is_marked(zone) });
                }
            }
        }
        // In the order in which they were left.
        previous.sort_by_key(|left| contents.order_of(left.zone));
        (going_on, previous)
    }

    /// The seal needs a new log zone. If all slots of the device are taken, finishes a zone, which loses none of its
    /// contents (a reset would have to wait for the seal). Prefers a dead zone, then a data zone, then a metadata
    /// zone. If one cannot be finished, tries the next.
    fn free_a_slot(&self) -> Result<()> {
        let zones = (0..self.volume.pool.count()).map(ZoneId);
        let active: Vec<ZoneId> =
            zones.filter(|&zone| self.volume.pool.info(zone).state.is_active()).collect();
        if active.len() < self.volume.device.geometry().max_active as usize {
            return Ok(());
        }
        let rank = |zone: &ZoneId| match self.volume.pool.usage(*zone) {
            Usage::Free { .. } => Some(0),
            Usage::Closed if self.volume.pool.entry(*zone).role.holds_data() => Some(1),
            Usage::Closed => Some(2),
            _ => None,
        };
        let mut candidates: Vec<_> = active.iter().filter_map(|zone| Some((rank(zone)?, *zone))).collect();
        candidates.sort_unstable();
        for (_, zone) in candidates {
            let finished = self.volume.device.finish(zone);
            let info = self.volume.device.report_zone(zone)?;
            self.volume.pool.set_info(zone, info);
            match finished {
                Err(error) if error.ends_zone() => {
                    tracing::warn!(zone = zone.0, %error, "a zone cannot be finished");
                }
                finished => finished?,
            }
            // The cause of the failure may have freed the slot as well.
            if !info.state.is_active() {
                break;
            }
        }
        Ok(())
    }

    /// Resets dead zones that count as active, because the device should have its slots back soon. Other dead zones
    /// are reset when they are needed.
    fn reset_active_dead_zones(&self) -> Result<()> {
        for index in 0..self.volume.pool.count() {
            let zone = ZoneId(index);
            let junk = matches!(self.volume.pool.usage(zone), Usage::Free { empty: false });
            if !junk || !self.volume.pool.info(zone).state.is_active() {
                continue;
            }
            // Its next life follows the one in its header.
            let life = next_life(&*self.volume.device, self.volume.info.fs_id, &self.volume.pool, zone)?;
            if self.zones.reset_zone(zone)? {
                self.volume.pool.set_life(zone, life);
            }
        }
        Ok(())
    }

    /// Continues in the open metadata zone, if its pointer is at the end of a page.
    fn resume_metadata_zone(&self) -> Result<()> {
        let page_blocks = self.volume.pool.page_blocks();
        let mut saving = self.checkpoints.saving.lock();
        for zone in self.volume.pool.in_role(Role::Metadata) {
            let info = self.volume.pool.info(zone);
            if self.volume.pool.usage(zone) != Usage::Closed || !info.state.is_active() {
                continue;
            }
            let aligned = info.pointer > 0 && (info.pointer - 1).is_multiple_of(page_blocks);
            let life = self.volume.pool.entry(zone).life;
            if saving.zone.id().is_none() && aligned && self.has_header(zone, life, Role::Metadata) {
                saving.zone.resume(self.volume.leases.resume(zone, life, Role::Metadata)?);
            } else if let Err(error) = self.volume.device.finish(zone) {
                tracing::warn!(zone = zone.0, %error, "a metadata zone cannot be finished");
            }
        }
        Ok(())
    }
}

/// The records beyond the cut that count after all seals, in order, each once.
fn records_after(contents: &LogContents, cut: u64) -> Result<Vec<(Lsn, Vec<Op>)>> {
    let mut records: BTreeMap<Lsn, Vec<Op>> = BTreeMap::new();
    let is_behind = |found: &&Found| found.kind == BatchKind::Journal && found.last > cut;
    for found in contents.batches.iter().filter(is_behind) {
        let limit = contents.seals.limit(found.epoch);
        let all = record::decode_all(&found.body).ok_or_else(|| {
            StoreError::Corrupt(format!("the journal batch at {} has no valid records", found.at))
        })?;
        for (lsn, ops) in all.into_iter().filter(|(lsn, _)| lsn.0 > cut && lsn.0 <= limit) {
            records.entry(lsn).or_insert(ops);
        }
    }
    Ok(records.into_iter().collect())
}
