//! The chain of bundles: opening it, becoming its owner, adding to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use rt::sync::atomic::{AtomicU64, Ordering};
use rt::sync::{Condvar, Mutex};
use zone::{FsId, Geometry, Life, Result, ZoneId};

use crate::device::{Mode, ObjectDevice, OpenOptions, PartId, State, VolumeShape};
use crate::error::ObjectError;
use crate::format::{
    self, Bundle, NO_CHUNK, Piece, Shape, Unreadable, ZoneEntry, decode_bundle, decode_chunk, encode_bundle,
    encode_chunk,
};
use crate::garbage::Garbage;
use crate::holder;
use crate::names::{Names, VOLUME};
use crate::store::{Created, Placed, Store, StoreError, wait_for};
use crate::table::{Table, tail_start};
use crate::tails::Tails;
use crate::writing::{replaced, unknown_chain};

/// How often the chain is read again because another process changed it meanwhile.
const ATTEMPTS: usize = 32;

/// The most bytes that are read of an object `volume`.
const VOLUME_BYTES_MAX: u64 = 64 << 10;

/// The end of the chain, as far as this process knows.
pub(crate) struct Chain {
    /// The number of the next bundle.
    pub(crate) next: u64,
    /// The last table bundle.
    pub(crate) table: u64,
    /// The numbers of the newest chunks, and how many this owner has written.
    pub(crate) chunks: Vec<u64>,
    pub(crate) chunks_written: u32,
    /// The numbers that the last table bundle has.
    pub(crate) named_chunks: Vec<u64>,
    /// Bundles that exist and may be no owner bundles.
    pub(crate) bundles: BTreeSet<u64>,
    /// The bytes of the bundles since the last table bundle.
    bytes_since_table: u64,
    /// The nonce of the last bundle.
    last_nonce: [u8; 16],
}

/// Everything that a bundle is to record, at one moment.
struct Snapshot {
    zones: Vec<(ZoneId, ZoneEntry)>,
    pieces: Vec<Piece>,
    payload: Vec<Bytes>,
    references: Vec<Piece>,
    /// The parts that must be in the store before.
    parts: Vec<PartId>,
    reset: BTreeSet<ZoneId>,
    /// The lives of the zones of `pieces`.
    lives: BTreeMap<ZoneId, Life>,
}

/// A chain that was read.
struct Loaded {
    table: Table,
    tails: Tails,
    last: Bundle,
    chunks: Vec<u64>,
    /// Zones that differ from the chunks.
    differing: BTreeSet<ZoneId>,
    bundles: BTreeSet<u64>,
    bytes_since_table: u64,
}

/// Why a chain could not be read.
enum LoadError {
    /// An object was deleted meanwhile, so there is a newer one.
    Gone(ObjectError),
    Other(ObjectError),
}

impl ObjectDevice {
    /// Creates a volume. Deletes one that is there already if `force` is set.
    pub fn create(
        store: &dyn Store,
        wanted: &VolumeShape,
        force: bool,
    ) -> std::result::Result<(), ObjectError> {
        let shape = wanted.shape()?;
        if let Some(earlier) = check_place(store, force)? {
            delete_volume(store, &earlier)?;
        }
        let created = create_empty(store, &shape);
        if created.is_err() {
            // The first error is the one that counts.
            let _ = ObjectDevice::discard(store, shape.fs_id);
        }
        created
    }

    /// Deletes what an unsuccessful attempt to make a volume has left: its objects, and what makes them a volume if that is
    /// not another one.
    pub fn discard(store: &dyn Store, fs_id: FsId) -> std::result::Result<(), ObjectError> {
        if read_volume(store).is_ok_and(|shape| shape.fs_id == fs_id) {
            store.delete(VOLUME).map_err(|error| failed(store, error))?;
        }
        delete_all(store, fs_id)
    }

    /// Checks what [`ObjectDevice::create`] would refuse before it changes anything. Returns the shape of the device.
    pub fn draft(
        store: &dyn Store,
        wanted: &VolumeShape,
        force: bool,
    ) -> std::result::Result<Geometry, ObjectError> {
        let shape = wanted.shape()?;
        check_place(store, force)?;
        Ok(shape.geometry)
    }
    /// The id of the volume in a store, if there is one.
    pub fn probe(store: &dyn Store) -> std::result::Result<Option<FsId>, ObjectError> {
        Ok(ObjectDevice::probe_shape(store)?.map(|(fs_id, _)| fs_id))
    }

    /// The same with the shape of the device.
    pub fn probe_shape(store: &dyn Store) -> std::result::Result<Option<(FsId, Geometry)>, ObjectError> {
        match read_volume(store) {
            Ok(shape) => Ok(Some((shape.fs_id, shape.geometry))),
            Err(ObjectError::NoVolume(_) | ObjectError::Foreign(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens a volume.
    pub fn open(
        store: Arc<dyn Store>,
        options: &OpenOptions,
    ) -> std::result::Result<ObjectDevice, ObjectError> {
        let shape = read_volume(&*store)?;
        let names = Names::of(shape.fs_id);
        let (loaded, owner, nonce) = match options.mode {
            Mode::ReadOnly => (load(&*store, &names, &shape)?, 0, [0; 16]),
            Mode::ReadWrite => {
                refuse_store_without_conditions(&*store, &names)?;
                become_owner(&*store, &names, &shape, options)?
            }
        };
        let other_owner = match options.mode {
            Mode::ReadOnly => owner_of(&*store, &loaded.last, &options.holder),
            Mode::ReadWrite => None,
        };
        let Loaded { table, tails, last, chunks, differing, bundles, bytes_since_table } = loaded;
        let garbage = Garbage::of_opened(&table, &shape, options.limits.grace_ns);
        Ok(ObjectDevice {
            mode: options.mode,
            owner,
            holder: options.holder.0.clone(),
            other_owner,
            nonce,
            clock: Arc::clone(&options.clock),
            limits: options.limits,
            chain: Mutex::new(Chain {
                next: last.sequence + 1,
                table: last.table,
                named_chunks: chunks.clone(),
                chunks,
                chunks_written: 0,
                bundles,
                bytes_since_table,
                last_nonce: last.nonce,
            }),
            flushes: AtomicU64::new(0),
            state: Mutex::new(State {
                table,
                tails,
                in_flight: BTreeMap::new(),
                changed: BTreeSet::new(),
                noted: BTreeSet::new(),
                reset: BTreeSet::new(),
                differing,
                in_new_chunk: BTreeSet::new(),
                broken: None,
            }),
            part_ended: Condvar::new(),
            garbage: Mutex::new(garbage),
            bytes_beside_zones: AtomicU64::new(0),
            store,
            names,
            shape,
        })
    }

    /// Makes everything durable that has completed.
    pub(crate) fn write_bundle(&self, chain: &mut Chain) -> Result<()> {
        let is_changed = {
            let state = self.state.lock();
            state.check()?;
            !state.changed.is_empty()
        };
        let is_due = chain.next - chain.table >= self.limits.table_bundles
            || chain.bytes_since_table > self.limits.table_bytes;
        match is_changed {
            true => self.add_bundle(chain, is_due, false),
            false => Ok(()),
        }
    }

    /// Writes the chunk of the table in which the most zones have changed, if it is worth it. The next table bundle
    /// has its number. Returns whether one was written.
    pub(crate) fn write_chunk(&self) -> Result<bool> {
        let Some((chunk, entries)) = self.capture_chunk() else { return Ok(false) };
        let number = {
            let mut chain = self.chain.lock();
            chain.chunks_written += 1;
            u64::from(self.owner) << 32 | u64::from(chain.chunks_written)
        };
        let name = self.names.chunk(chunk, number);
        let object = encode_chunk(&self.shape, chunk, number, &entries);
        let creation = self.store.create(&name, object.clone());
        let placed = wait_for(&*self.store, &name, &object, creation);
        // No bundle is being written: the next table bundle has either these zones or the new number.
        let mut chain = self.chain.lock();
        let zones = std::mem::take(&mut self.state.lock().in_new_chunk);
        let why = match placed {
            Ok(Placed::Ours) => {
                self.bytes_beside_zones.fetch_add(object.len() as u64, Ordering::Relaxed);
                chain.chunks[chunk as usize] = number;
                return Ok(true);
            }
            Ok(Placed::Other(_)) => "another program has created it".to_owned(),
            Err(error) => error.to_string(),
        };
        self.state.lock().differing.extend(zones);
        Err(zone::DeviceError::Unusable(format!("{name} could not be written: {why}")))
    }

    /// The entries of the chunk in which the most zones have changed, if it is worth it and no chunk is being written.
    fn capture_chunk(&self) -> Option<(u32, Vec<ZoneEntry>)> {
        let mut state = self.state.lock();
        let changed = |chunk: u32| {
            let zones = self.shape.zones_of_chunk(chunk);
            state.differing.range(ZoneId(zones.start)..ZoneId(zones.end)).copied()
        };
        let chunk = (0..self.shape.chunks() as u32).max_by_key(|&chunk| changed(chunk).count())?;
        let zones: BTreeSet<ZoneId> = changed(chunk).collect();
        if zones.len() < self.limits.chunk_changes || !state.in_new_chunk.is_empty() {
            return None;
        }
        state.differing.retain(|zone| !zones.contains(zone));
        state.in_new_chunk = zones;
        Some((chunk, state.table.entries(self.shape.zones_of_chunk(chunk))))
    }

    /// Ends the ownership. Nothing is written from then on.
    pub(crate) fn close(&self) -> Result<()> {
        let mut chain = self.chain.lock();
        self.state.lock().check()?;
        self.add_bundle(&mut chain, true, true)?;
        let why = "the volume was closed; open it again";
        self.state.lock().broken.get_or_insert_with(|| why.to_owned());
        Ok(())
    }

    fn empty_bundle(&self, chain: &Chain) -> Bundle {
        Bundle {
            sequence: chain.next,
            table: chain.table,
            swept: chain.bundles.first().copied().unwrap_or(chain.next),
            nonce: self.nonce,
            previous_nonce: chain.last_nonce,
            owner: self.owner,
            holder: self.holder.clone(),
            is_owner: false,
            is_closing: false,
            chunks: None,
            zones: Vec::new(),
            pieces: Vec::new(),
            references: Vec::new(),
        }
    }

    fn snapshot(&self, last_table: Option<u64>) -> Result<Snapshot> {
        let mut state = self.state.lock();
        // A part that failed is not in flight any more.
        state.check()?;
        let mut changed = std::mem::take(&mut state.changed);
        changed.append(&mut state.noted);
        if last_table.is_some() && !rt::is_planted("object-changes-of-table") {
            changed.extend(&state.differing);
            changed.extend(&state.in_new_chunk);
        }
        let (pieces, payload) = state.tails.to_record(&self.shape, last_table, self.limits.tail_pieces);
        let lives = pieces.iter().map(|piece| (piece.zone, state.table.life(piece.zone))).collect();
        Ok(Snapshot {
            zones: changed.into_iter().map(|zone| (zone, state.table.entry(zone))).collect(),
            references: last_table.map_or_else(Vec::new, |_| state.tails.references(&pieces)),
            pieces,
            payload,
            parts: state.in_flight.keys().copied().collect(),
            reset: std::mem::take(&mut state.reset),
            lives,
        })
    }

    /// Adds a bundle with everything that has changed to the chain.
    fn add_bundle(&self, chain: &mut Chain, is_table: bool, is_closing: bool) -> Result<()> {
        let Snapshot { zones, pieces, payload, references, parts, reset, lives } =
            self.snapshot(is_table.then_some(chain.table))?;
        if !rt::is_planted("object-parts-first") {
            self.wait_for_parts(&parts)?;
        }
        let mut bundle = Bundle { zones, pieces, references, is_closing, ..self.empty_bundle(chain) };
        if is_table {
            (bundle.table, bundle.chunks) = (bundle.sequence, Some(chain.chunks.clone()));
        }
        let object = encode_bundle(&self.shape, &mut bundle, &payload);
        drop(payload);
        let bytes = object.len() as u64;
        self.create_bundle(bundle.sequence, object)?;
        self.bytes_beside_zones.fetch_add(bytes, Ordering::Relaxed);
        (chain.next, chain.last_nonce) = (bundle.sequence + 1, self.nonce);
        chain.bundles.insert(bundle.sequence);
        chain.bytes_since_table += bytes;
        {
            let mut state = self.state.lock();
            let State { table, tails, .. } = &mut *state;
            tails.note(&bundle.pieces, |zone| lives.get(&zone) == Some(&table.life(zone)));
        }
        let now = self.clock.monotonic_ns();
        let emptied = bundle.zones.iter().filter(|(zone, _)| reset.contains(zone));
        let mut garbage = self.garbage.lock();
        emptied.for_each(|(zone, entry)| garbage.add_zone(now, *zone, entry.life));
        if is_table {
            (chain.table, chain.bytes_since_table) = (bundle.sequence, 0);
            chain.named_chunks.clone_from(&chain.chunks);
            let references = match rt::is_planted("object-tails-of-table") {
                true => &[],
                false => &bundle.references[..],
            };
            let needed: BTreeSet<u64> = references.iter().map(|piece| piece.bundle).collect();
            let unneeded = chain.bundles.range(..bundle.sequence).filter(|bundle| !needed.contains(bundle));
            unneeded.for_each(|&bundle| garbage.add_bundle(now, bundle));
            garbage.add_chunks(now, &chain.named_chunks);
        }
        Ok(())
    }

    /// Creates the next bundle of the chain. If that fails, nothing is written any more.
    fn create_bundle(&self, sequence: u64, object: Bytes) -> Result<()> {
        let name = self.names.bundle(sequence);
        let creation = self.store.create(&name, object.clone());
        match wait_for(&*self.store, &name, &object, creation) {
            Ok(Placed::Ours) => Ok(()),
            Ok(Placed::Other(_)) if rt::is_planted("object-trust-reply") => Ok(()),
            Ok(Placed::Other(found)) => {
                let holder = decode_bundle(&self.shape, sequence, &found).map(|bundle| bundle.holder).ok();
                let (host, process) =
                    holder.map_or(("another machine".to_owned(), 0), |holder| (holder.host, holder.process));
                Err(self.break_down(replaced(&host, process)))
            }
            Err(error) => Err(self.break_down(unknown_chain(&error))),
        }
    }
}

impl VolumeShape {
    /// The shape of the device, if it is possible.
    pub fn geometry(&self) -> std::result::Result<Geometry, ObjectError> {
        Ok(self.shape()?.geometry)
    }

    fn shape(&self) -> std::result::Result<Shape, ObjectError> {
        let refuse = |why| Err(ObjectError::Shape(why));
        let block_size = u64::from(self.block_size);
        if !self.block_size.is_power_of_two() || !(512..=65536).contains(&self.block_size) {
            return refuse("the size of a block must be a power of two from 512 bytes to 64 KiB");
        }
        let part_bytes = self.part_bytes.unwrap_or(crate::PART_BYTES).min(self.zone_bytes);
        if part_bytes < block_size
            || !part_bytes.is_multiple_of(block_size)
            || part_bytes > crate::PART_BYTES_MAX
        {
            return refuse("a part must have a whole number of blocks");
        }
        if !self.zone_bytes.is_multiple_of(block_size)
            || self.zone_bytes / block_size >= u64::from(zone::Address::BLOCKS_MAX)
        {
            return refuse("a zone must have a whole number of blocks, and fewer than 2^28");
        }
        if self.zones <= crate::ZONES_ACTIVE || self.zones > zone::Address::ZONES_MAX {
            return refuse("the number of zones must be between 9 and 16,777,215; choose another zone size");
        }
        let geometry = Geometry {
            block_size: self.block_size,
            zones: self.zones,
            zone_blocks: (self.zone_bytes / block_size) as u32,
            max_open: crate::ZONES_ACTIVE,
            max_active: crate::ZONES_ACTIVE,
            max_append: (part_bytes.min(u64::from(crate::SEEK_BYTES)) / block_size).max(1) as u32,
            conventional: 0,
            seek_bytes: crate::SEEK_BYTES,
        };
        Ok(Shape {
            fs_id: self.fs_id,
            geometry,
            part_blocks: (part_bytes / block_size) as u32,
            chunk_zones: self.chunk_zones.unwrap_or(crate::CHUNK_ZONES).max(1),
        })
    }
}

fn failed(store: &dyn Store, error: StoreError) -> ObjectError {
    ObjectError::Store { store: store.describe(), error }
}

fn damaged(store: &dyn Store, name: &str, why: impl ToString) -> ObjectError {
    ObjectError::Damaged { store: store.describe(), name: name.to_owned(), why: why.to_string() }
}

fn nonce() -> [u8; 16] {
    rt::random::secret()
}

/// Creates an object whose name no other process uses.
fn create_new(store: &dyn Store, name: &str, object: Bytes) -> std::result::Result<(), ObjectError> {
    let creation = store.create(name, object.clone());
    match wait_for(store, name, &object, creation) {
        Ok(Placed::Ours) => Ok(()),
        Ok(Placed::Other(_)) => Err(ObjectError::Exists(store.describe())),
        Err(error) => Err(failed(store, error)),
    }
}

/// Creates a volume without contents.
fn create_empty(store: &dyn Store, shape: &Shape) -> std::result::Result<(), ObjectError> {
    let names = Names::of(shape.fs_id);
    refuse_store_without_conditions(store, &names)?;
    let mut first = Bundle {
        sequence: 0,
        table: 0,
        swept: 0,
        nonce: nonce(),
        previous_nonce: [0; 16],
        owner: 0,
        holder: crate::Holder::this_process().0,
        is_owner: false,
        is_closing: true,
        chunks: Some(vec![NO_CHUNK; shape.chunks()]),
        zones: Vec::new(),
        pieces: Vec::new(),
        references: Vec::new(),
    };
    let object = encode_bundle(shape, &mut first, &[]);
    create_new(store, &names.bundle(0), object)?;
    create_new(store, VOLUME, format::encode_volume(shape))
}

/// Creates an object twice: a store that ignores the condition says that it was new both times.
fn refuse_store_without_conditions(store: &dyn Store, names: &Names) -> std::result::Result<(), ObjectError> {
    let name = names.probe(nonce());
    create_new(store, &name, Bytes::from_static(b"1"))?;
    let again = store.create(&name, Bytes::from_static(b"2")).wait();
    let deleted = store.delete(&name);
    match again {
        Ok(Created::New) => Err(ObjectError::IgnoresConditions(store.describe())),
        Ok(Created::Exists) => deleted.map_err(|error| failed(store, error)),
        Err(error) => Err(failed(store, error)),
    }
}

/// Fails if a new volume may not be made here. Returns what is to be deleted before: the volume that is there.
fn check_place(store: &dyn Store, force: bool) -> std::result::Result<Option<Bytes>, ObjectError> {
    let Some(earlier) = volume_object(store)? else { return Ok(None) };
    let shape = match format::decode_volume(&earlier) {
        Err(Unreadable::Foreign) => return Err(ObjectError::Foreign(store.describe())),
        _ if !force => return Err(ObjectError::Exists(store.describe())),
        shape => shape,
    };
    if let Ok(shape) = shape
        && let Some(last) = newest(store, &Names::of(shape.fs_id), &shape)?
        && let Some(refusal) = owner_of(store, &last, &crate::Holder::this_process())
    {
        return Err(refusal);
    }
    Ok(Some(earlier))
}

/// The object that makes a place a volume, if there is one. It may be of another program, so it is read only as far as
/// one of Polder's can be long.
fn volume_object(store: &dyn Store) -> std::result::Result<Option<Bytes>, ObjectError> {
    match store.read(VOLUME, Some(0..VOLUME_BYTES_MAX)) {
        Ok(object) => Ok(Some(object)),
        Err(StoreError::NotFound(_)) => Ok(None),
        Err(error) => Err(failed(store, error)),
    }
}

/// The newest bundle, which names the owner. `None` if it is damaged, or there is none.
fn newest(
    store: &dyn Store,
    names: &Names,
    shape: &Shape,
) -> std::result::Result<Option<Bundle>, ObjectError> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let listed = store.list(&names.bundles(), "").map_err(|error| failed(store, error))?;
        let Some(end) = listed.iter().filter_map(|name| names.sequence(name)).max() else { return Ok(None) };
        match read_bundle(store, names, shape, end) {
            Ok((bundle, _)) => return Ok(Some(bundle)),
            Err(LoadError::Gone(error)) => last = Some(error),
            Err(LoadError::Other(ObjectError::Damaged { .. })) => return Ok(None),
            Err(LoadError::Other(error)) => return Err(error),
        }
    }
    Err(last.expect("an attempt was made"))
}

/// The refusal for a volume whose owner may be alive.
fn owner_of(store: &dyn Store, last: &Bundle, this: &crate::Holder) -> Option<ObjectError> {
    if last.is_closing || this.knows_is_gone(&last.holder, &last.nonce) {
        return None;
    }
    let (host, process) = (last.holder.host.clone(), last.holder.process);
    Some(ObjectError::InUse { store: store.describe(), host, process, is_here: this.can_see(&last.holder) })
}

/// Deletes a volume: first what makes it one, unless that is another one by now.
fn delete_volume(store: &dyn Store, volume: &Bytes) -> std::result::Result<(), ObjectError> {
    if volume_object(store)?.as_ref() != Some(volume) {
        return Err(ObjectError::Exists(store.describe()));
    }
    store.delete(VOLUME).map_err(|error| failed(store, error))?;
    match format::decode_volume(volume) {
        Ok(shape) => delete_all(store, shape.fs_id),
        Err(_) => Ok(()),
    }
}

/// Deletes all objects that have this id in their names.
fn delete_all(store: &dyn Store, fs_id: FsId) -> std::result::Result<(), ObjectError> {
    let names = store.list(&Names::of(fs_id).all(), "").map_err(|error| failed(store, error))?;
    names.iter().try_for_each(|name| store.delete(name)).map_err(|error| failed(store, error))
}

fn read_volume(store: &dyn Store) -> std::result::Result<Shape, ObjectError> {
    let Some(object) = volume_object(store)? else {
        return Err(ObjectError::NoVolume(store.describe()));
    };
    format::decode_volume(&object).map_err(|error| match error {
        Unreadable::Foreign => ObjectError::Foreign(store.describe()),
        error => damaged(store, VOLUME, error),
    })
}

/// Adds the owner bundle of this process to the chain. Returns the chain, the number of the owner, and its nonce.
fn become_owner(
    store: &dyn Store,
    names: &Names,
    shape: &Shape,
    options: &OpenOptions,
) -> std::result::Result<(Loaded, u32, [u8; 16]), ObjectError> {
    let nonce = nonce();
    for _ in 0..ATTEMPTS {
        let mut loaded = load(store, names, shape)?;
        let last = &loaded.last;
        if let Some(refusal) = owner_of(store, last, &options.holder).filter(|_| !options.takes_over) {
            return Err(refusal);
        }
        let (sequence, owner) = (last.sequence + 1, last.owner + 1);
        let mut bundle = Bundle {
            sequence,
            nonce,
            previous_nonce: last.nonce,
            table: last.table,
            owner,
            holder: options.holder.0.clone(),
            is_owner: true,
            is_closing: false,
            chunks: None,
            zones: Vec::new(),
            pieces: Vec::new(),
            references: Vec::new(),
            ..last.clone()
        };
        let name = names.bundle(sequence);
        let object = encode_bundle(shape, &mut bundle, &[]);
        let creation = store.create(&name, object.clone());
        match wait_for(store, &name, &object, creation) {
            Ok(Placed::Ours) => {}
            Ok(Placed::Other(_)) => continue,
            Err(error) => return Err(failed(store, error)),
        }
        if owner_of(store, &loaded.last, &options.holder).is_some() {
            let (host, process) = (&loaded.last.holder.host, loaded.last.holder.process);
            tracing::warn!("{}: process {process} on {host} has lost its ownership", store.describe());
        }
        // The name may be that of a bundle that was deleted since the chain was read. Then there is a later one.
        // What was created stays: if there is a later bundle, it may be in the chain.
        let later = list_quickly(store, &names.bundles(), &name, options)?;
        if later.is_empty() || rt::is_planted("object-list-again") {
            loaded.last = bundle;
            holder::remember(nonce);
            return Ok((loaded, owner, nonce));
        }
    }
    Err(ObjectError::Replaced(store.describe()))
}

/// Lists the names after `after`, in less time than the grace period, so that no bundle that is newer than `after`
/// during the whole listing is deleted and replaced behind its back.
fn list_quickly(
    store: &dyn Store,
    prefix: &str,
    after: &str,
    options: &OpenOptions,
) -> std::result::Result<Vec<String>, ObjectError> {
    for _ in 0..ATTEMPTS {
        let began_ns = options.clock.monotonic_ns();
        let listed = store.list(prefix, after).map_err(|error| failed(store, error))?;
        if options.clock.monotonic_ns() - began_ns <= options.limits.grace_ns / 2 {
            return Ok(listed);
        }
    }
    Err(failed(store, StoreError::Failed("listings take too long".to_owned())))
}

/// Reads the chain to its end.
fn load(store: &dyn Store, names: &Names, shape: &Shape) -> std::result::Result<Loaded, ObjectError> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        match load_once(store, names, shape) {
            Ok(loaded) => return Ok(loaded),
            Err(LoadError::Gone(error)) => last = Some(error),
            Err(LoadError::Other(error)) => return Err(error),
        }
    }
    Err(last.expect("an attempt was made"))
}

fn load_once(store: &dyn Store, names: &Names, shape: &Shape) -> std::result::Result<Loaded, LoadError> {
    let listed = store.list(&names.bundles(), "").map_err(|error| LoadError::Other(failed(store, error)))?;
    let all: BTreeSet<u64> = listed.iter().filter_map(|name| names.sequence(name)).collect();
    let Some(&end) = all.last() else {
        return Err(LoadError::Other(damaged(store, &names.bundles(), "the volume has no bundles")));
    };
    let (last, _) = read_bundle(store, names, shape, end)?;
    let (table_bundle, _) = match last.chunks.is_some() {
        true => (last.clone(), Bytes::new()),
        false => read_bundle(store, names, shape, last.table)?,
    };
    let Some(chunks) = table_bundle.chunks.clone() else {
        let name = names.bundle(table_bundle.sequence);
        return Err(LoadError::Other(damaged(store, &name, "it has no table")));
    };
    let mut table = Table::new(shape);
    read_chunks(store, names, shape, &chunks, &mut table)?;
    let mut pieces: BTreeMap<ZoneId, Vec<Piece>> = BTreeMap::new();
    let mut bytes_since_table = 0;
    let mut differing = BTreeSet::new();
    let mut previous = table_bundle.nonce;
    apply(&mut table, &mut pieces, &table_bundle);
    differing.extend(table_bundle.zones.iter().map(|(zone, _)| *zone));
    for sequence in table_bundle.sequence + 1..=end {
        let (bundle, bytes) = match sequence == end {
            true => (last.clone(), 0),
            false => read_bundle(store, names, shape, sequence).map(|(bundle, o)| (bundle, o.len()))?,
        };
        if (bundle.table, bundle.previous_nonce) != (table_bundle.sequence, previous) {
            let why = "it does not follow the bundle before it";
            return Err(LoadError::Other(damaged(store, &names.bundle(sequence), why)));
        }
        previous = bundle.nonce;
        differing.extend(bundle.zones.iter().map(|(zone, _)| *zone));
        bytes_since_table += bytes as u64;
        apply(&mut table, &mut pieces, &bundle);
    }
    if table.active().len() > shape.geometry.max_active as usize {
        let why = "more zones are active than the volume may have";
        return Err(LoadError::Other(damaged(store, &names.bundle(end), why)));
    }
    let tails = read_tails(store, names, shape, &table, pieces)?;
    let bundles = all.range(last.swept.min(end)..).copied().collect();
    Ok(Loaded { table, tails, last, chunks, differing, bundles, bytes_since_table })
}

fn read(store: &dyn Store, name: &str) -> std::result::Result<Bytes, LoadError> {
    store.read(name, None).map_err(|error| unread(store, name, error))
}

fn unread(store: &dyn Store, name: &str, error: StoreError) -> LoadError {
    match error {
        StoreError::NotFound(_) => LoadError::Gone(damaged(store, name, "it is missing")),
        error => LoadError::Other(failed(store, error)),
    }
}

fn unreadable(store: &dyn Store, name: &str) -> impl Fn(Unreadable) -> LoadError {
    move |why| LoadError::Other(damaged(store, name, why))
}

fn read_bundle(
    store: &dyn Store,
    names: &Names,
    shape: &Shape,
    sequence: u64,
) -> std::result::Result<(Bundle, Bytes), LoadError> {
    let name = names.bundle(sequence);
    let object = read(store, &name)?;
    let bundle = decode_bundle(shape, sequence, &object).map_err(unreadable(store, &name))?;
    Ok((bundle, object))
}

fn read_chunks(
    store: &dyn Store,
    names: &Names,
    shape: &Shape,
    chunks: &[u64],
    table: &mut Table,
) -> std::result::Result<(), LoadError> {
    for (chunk, &number) in (0..).zip(chunks).filter(|(_, number)| **number != NO_CHUNK) {
        let name = names.chunk(chunk, number);
        let object = read(store, &name)?;
        let entries = decode_chunk(shape, chunk, number, &object).map_err(unreadable(store, &name))?;
        for (entry, zone) in entries.into_iter().zip(shape.zones_of_chunk(chunk)) {
            if entry != ZoneEntry::NEW {
                table.load(ZoneId(zone), entry);
            }
        }
    }
    Ok(())
}

/// Applies what a bundle says to the table and the places of tails.
fn apply(table: &mut Table, pieces: &mut BTreeMap<ZoneId, Vec<Piece>>, bundle: &Bundle) {
    for (zone, entry) in &bundle.zones {
        if entry.life != table.life(*zone) || !entry.state.is_active() {
            pieces.remove(zone);
        }
        table.load(*zone, entry.clone());
    }
    for piece in bundle.references.iter().chain(&bundle.pieces) {
        let of_zone = pieces.entry(piece.zone).or_default();
        of_zone.retain(|earlier| earlier.block < piece.block);
        of_zone.push(*piece);
    }
}

/// Reads the blocks of unfinished parts into memory.
fn read_tails(
    store: &dyn Store,
    names: &Names,
    shape: &Shape,
    table: &Table,
    mut pieces: BTreeMap<ZoneId, Vec<Piece>>,
) -> std::result::Result<Tails, LoadError> {
    let block_size = u64::from(shape.geometry.block_size);
    let mut tails = Tails::default();
    for zone in table.active() {
        let pointer = table.info(zone).pointer;
        let first = tail_start(shape, pointer);
        let of_tail: Vec<Piece> = pieces
            .remove(&zone)
            .unwrap_or_default()
            .into_iter()
            .filter(|piece| piece.block >= first)
            .collect();
        let end = of_tail
            .iter()
            .try_fold(first, |next, piece| (piece.block == next).then_some(next + piece.blocks));
        if end != Some(pointer) {
            let why = format!("blocks of zone {} between {first} and {pointer} are missing", zone.0);
            return Err(LoadError::Other(damaged(store, &names.bundles(), why)));
        }
        if of_tail.is_empty() {
            continue;
        }
        let requests: Vec<_> = of_tail
            .iter()
            .map(|piece| {
                let end = piece.offset + u64::from(piece.blocks) * block_size;
                (names.bundle(piece.bundle), piece.offset..end)
            })
            .collect();
        let tail = tails.at(zone, first);
        for ((name, range), found) in requests.iter().zip(store.read_many(&requests)) {
            let found = found.map_err(|error| unread(store, name, error))?;
            if found.len() as u64 != range.end - range.start {
                return Err(LoadError::Other(damaged(store, name, "it is too short")));
            }
            tail.bytes.extend_from_slice(&found);
        }
        tail.pieces = of_tail;
    }
    Ok(tails)
}
