//! Making, finding and opening a volume: reading its chain of bundles, and becoming its owner.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use zone::{FsId, Geometry, ZoneId};

use crate::error::ObjectError;
use crate::format::{
    self, Bundle, NO_CHUNK, Piece, Shape, Unreadable, ZoneEntry, decode_bundle, decode_chunk, encode_bundle,
};
use crate::holder::{self, Holder};
use crate::names::{Names, VOLUME};
use crate::options::{Mode, OpenOptions, VolumeShape};
use crate::store::{Created, Placed, Store, StoreError, wait_for};
use crate::table::{Table, tail_start};
use crate::tails::Tails;
use crate::zones::Recorded;

type Result<T, E = ObjectError> = std::result::Result<T, E>;

/// How often the chain is read again because another process changed it meanwhile.
const ATTEMPTS: usize = 32;

/// The most bytes that are read of an object `volume`.
const VOLUME_BYTES_MAX: u64 = 64 << 10;

/// A volume that was opened.
pub(crate) struct Opened {
    pub(crate) names: Names,
    pub(crate) shape: Shape,
    pub(crate) end: LoadedEnd,
    pub(crate) zones: Recorded,
    /// The number of this owner, and its nonce; zeros for a process that only reads.
    pub(crate) owner: u32,
    pub(crate) nonce: [u8; 16],
    /// Another owner that may be alive, if this process only reads.
    pub(crate) other_owner: Option<ObjectError>,
}

/// A chain that was read: its end, and what it says about the zones.
struct Loaded {
    end: LoadedEnd,
    zones: Recorded,
}

/// The end of a chain that was read.
pub(crate) struct LoadedEnd {
    pub(crate) last: Bundle,
    /// The numbers of the newest chunks.
    pub(crate) chunks: Vec<u64>,
    /// Bundles that exist and may be no owner bundles.
    pub(crate) bundles: BTreeSet<u64>,
    /// The bytes of the bundles since the last table bundle.
    pub(crate) bytes_since_table: u64,
}

/// Why a chain could not be read.
enum LoadError {
    /// An object was deleted meanwhile, so there is a newer one.
    Gone(ObjectError),
    Other(ObjectError),
}

/// Creates a volume. Deletes one that is there already if `force` is set.
pub(crate) fn create(store: &dyn Store, wanted: &VolumeShape, force: bool) -> Result<()> {
    let shape = wanted.shape()?;
    if let Some(earlier) = check_place(store, force)? {
        delete_volume(store, &earlier)?;
    }
    let created = create_empty(store, &shape);
    if created.is_err() {
        // The first error is the one that counts.
        let _ = discard(store, shape.fs_id);
    }
    created
}

/// Deletes what an unsuccessful attempt to make a volume has left: its objects, and what makes them a volume if that
/// is not another one.
pub(crate) fn discard(store: &dyn Store, fs_id: FsId) -> Result<()> {
    if read_volume(store).is_ok_and(|shape| shape.fs_id == fs_id) {
        store.delete(VOLUME).map_err(|error| failed(store, error))?;
    }
    delete_all(store, fs_id)
}

/// Checks what [`create`] would refuse before it changes anything. Returns the shape of the device.
pub(crate) fn draft(store: &dyn Store, wanted: &VolumeShape, force: bool) -> Result<Geometry> {
    let shape = wanted.shape()?;
    check_place(store, force)?;
    Ok(shape.geometry)
}

/// The id of the volume in a store and the shape of its device, if there is a volume.
pub(crate) fn probe(store: &dyn Store) -> Result<Option<(FsId, Geometry)>> {
    match read_volume(store) {
        Ok(shape) => Ok(Some((shape.fs_id, shape.geometry))),
        Err(ObjectError::NoVolume(_) | ObjectError::Foreign(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a volume.
pub(crate) fn open(store: &dyn Store, options: &OpenOptions) -> Result<Opened> {
    let shape = read_volume(store)?;
    let names = Names::of(shape.fs_id);
    let (Loaded { end, zones }, owner, nonce) = match options.mode {
        Mode::ReadOnly => (load(store, &names, &shape)?, 0, [0; 16]),
        Mode::ReadWrite => {
            refuse_store_without_conditions(store, &names)?;
            become_owner(store, &names, &shape, options)?
        }
    };
    let other_owner = match options.mode {
        Mode::ReadOnly => owner_of(store, &end.last, &options.holder),
        Mode::ReadWrite => None,
    };
    Ok(Opened { names, shape, end, zones, owner, nonce, other_owner })
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
fn create_new(store: &dyn Store, name: &str, object: Bytes) -> Result<()> {
    let creation = store.create(name, object.clone());
    match wait_for(store, name, &object, creation) {
        Ok(Placed::Ours) => Ok(()),
        Ok(Placed::Other(_)) => Err(ObjectError::Exists(store.describe())),
        Err(error) => Err(failed(store, error)),
    }
}

/// Creates a volume without contents.
fn create_empty(store: &dyn Store, shape: &Shape) -> Result<()> {
    let names = Names::of(shape.fs_id);
    refuse_store_without_conditions(store, &names)?;
    let mut first = Bundle {
        sequence: 0,
        table: 0,
        swept: 0,
        nonce: nonce(),
        previous_nonce: [0; 16],
        owner: 0,
        holder: Holder::this_process().0,
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
fn refuse_store_without_conditions(store: &dyn Store, names: &Names) -> Result<()> {
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
fn check_place(store: &dyn Store, force: bool) -> Result<Option<Bytes>> {
    let Some(earlier) = volume_object(store)? else { return Ok(None) };
    let shape = match format::decode_volume(&earlier) {
        Err(Unreadable::Foreign) => return Err(ObjectError::Foreign(store.describe())),
        _ if !force => return Err(ObjectError::Exists(store.describe())),
        shape => shape,
    };
    if let Ok(shape) = shape
        && let Some(last) = newest(store, &Names::of(shape.fs_id), &shape)?
        && let Some(refusal) = owner_of(store, &last, &Holder::this_process())
    {
        return Err(refusal);
    }
    Ok(Some(earlier))
}

/// The object that makes a place a volume, if there is one. It may be of another program, so it is read only as far as
/// one of Polder's can be long.
fn volume_object(store: &dyn Store) -> Result<Option<Bytes>> {
    match store.read(VOLUME, Some(0..VOLUME_BYTES_MAX)) {
        Ok(object) => Ok(Some(object)),
        Err(StoreError::NotFound(_)) => Ok(None),
        Err(error) => Err(failed(store, error)),
    }
}

/// The newest bundle, which names the owner. `None` if it is damaged, or there is none.
fn newest(store: &dyn Store, names: &Names, shape: &Shape) -> Result<Option<Bundle>> {
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
fn owner_of(store: &dyn Store, last: &Bundle, this: &Holder) -> Option<ObjectError> {
    if last.is_closing || this.knows_is_gone(&last.holder, &last.nonce) {
        return None;
    }
    let (host, process) = (last.holder.host.clone(), last.holder.process);
    Some(ObjectError::InUse { store: store.describe(), host, process, is_here: this.can_see(&last.holder) })
}

/// Deletes a volume: first what makes it one, unless that is another one by now.
fn delete_volume(store: &dyn Store, volume: &Bytes) -> Result<()> {
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
fn delete_all(store: &dyn Store, fs_id: FsId) -> Result<()> {
    let names = store.list(&Names::of(fs_id).all(), "").map_err(|error| failed(store, error))?;
    names.iter().try_for_each(|name| store.delete(name)).map_err(|error| failed(store, error))
}

fn read_volume(store: &dyn Store) -> Result<Shape> {
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
) -> Result<(Loaded, u32, [u8; 16])> {
    let nonce = nonce();
    for _ in 0..ATTEMPTS {
        let mut loaded = load(store, names, shape)?;
        let last = &loaded.end.last;
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
        if owner_of(store, &loaded.end.last, &options.holder).is_some() {
            let (host, process) = (&loaded.end.last.holder.host, loaded.end.last.holder.process);
            tracing::warn!("{}: process {process} on {host} has lost its ownership", store.describe());
        }
        // The name may be that of a bundle that was deleted since the chain was read. Then there is a later one.
        // What was created stays: if there is a later bundle, it may be in the chain.
        let later = list_quickly(store, &names.bundles(), &name, options)?;
        if later.is_empty() || rt::is_planted("object-list-again") {
            loaded.end.last = bundle;
            holder::remember(nonce);
            return Ok((loaded, owner, nonce));
        }
    }
    Err(ObjectError::Replaced(store.describe()))
}

/// Lists the names after `after`, in less time than the grace period, so that no bundle that is newer than `after`
/// during the whole listing is deleted and replaced behind its back.
fn list_quickly(store: &dyn Store, prefix: &str, after: &str, options: &OpenOptions) -> Result<Vec<String>> {
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
fn load(store: &dyn Store, names: &Names, shape: &Shape) -> Result<Loaded> {
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

fn load_once(store: &dyn Store, names: &Names, shape: &Shape) -> Result<Loaded, LoadError> {
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
    Ok(Loaded {
        end: LoadedEnd { last, chunks, bundles, bytes_since_table },
        zones: Recorded { table, tails, differing },
    })
}

fn read(store: &dyn Store, name: &str) -> Result<Bytes, LoadError> {
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
) -> Result<(Bundle, Bytes), LoadError> {
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
) -> Result<(), LoadError> {
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
) -> Result<Tails, LoadError> {
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
