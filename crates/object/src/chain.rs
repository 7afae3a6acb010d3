//! The chain of bundles as its owner writes it. Between bundles, the owner writes chunks of the table and deletes
//! objects that are not needed any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use rt::Clock;
use rt::sync::Mutex;
use rt::sync::atomic::{AtomicU64, Ordering};
use zone::{DeviceError, Life, Result, ZoneId};

use crate::format::{
    Bundle, Holder as StoredHolder, Piece, ZoneEntry, decode_bundle, encode_bundle, encode_chunk,
};
use crate::garbage::{self, Garbage, Unneeded};
use crate::opening::LoadedEnd;
use crate::options::{Limits, OpenOptions};
use crate::store::{Placed, wait_for};
use crate::zones::{PartId, State, Zones};

/// The chain, and what its owner does about it. Its methods get the zones, whose state it records.
pub(crate) struct Chain {
    holder: StoredHolder,
    nonce: [u8; 16],
    clock: Arc<dyn Clock>,
    limits: Limits,
    /// Held while a bundle is written; locked before the state of the zones.
    end: Mutex<End>,
    /// The number of flushes that have begun; changed under `end`.
    flushes: AtomicU64,
    garbage: Mutex<Garbage>,
    bytes_written: AtomicU64,
}

/// The end of the chain, as far as this process knows.
struct End {
    /// The number of the next bundle.
    next: u64,
    /// The last table bundle.
    table: u64,
    /// The numbers of the newest chunks, and how many this owner has written.
    chunks: Vec<u64>,
    chunks_written: u32,
    /// The numbers that the last table bundle has.
    named_chunks: Vec<u64>,
    /// Bundles that exist and may be no owner bundles.
    bundles: BTreeSet<u64>,
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

impl Chain {
    /// The chain that was read, with the objects that an earlier process has not deleted.
    pub(crate) fn new(read: LoadedEnd, nonce: [u8; 16], garbage: Garbage, options: &OpenOptions) -> Chain {
        let LoadedEnd { last, chunks, bundles, bytes_since_table } = read;
        let end = End {
            next: last.sequence + 1,
            table: last.table,
            named_chunks: chunks.clone(),
            chunks,
            chunks_written: 0,
            bundles,
            bytes_since_table,
            last_nonce: last.nonce,
        };
        Chain {
            holder: options.holder.0.clone(),
            nonce,
            clock: Arc::clone(&options.clock),
            limits: options.limits,
            end: Mutex::new(end),
            flushes: AtomicU64::new(0),
            garbage: Mutex::new(garbage),
            bytes_written: AtomicU64::new(0),
        }
    }

    pub(crate) fn nonce(&self) -> &[u8; 16] {
        &self.nonce
    }

    /// Bytes of bundles and chunks that were written.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }

    /// Makes everything durable that has completed.
    pub(crate) fn flush(&self, zones: &Zones) -> Result<()> {
        let begun = self.flushes.load(Ordering::SeqCst);
        let mut end = self.end.lock();
        if self.flushes.load(Ordering::SeqCst) > begun {
            // A flush that began after this call has ended, so it includes this call.
            return zones.lock().check();
        }
        self.flushes.fetch_add(1, Ordering::SeqCst);
        self.write_bundle(zones, &mut end)
    }

    /// Does one piece of background work. Returns whether there was any.
    pub(crate) fn do_background_work(&self, zones: &Zones) -> bool {
        match self.background_step(zones) {
            Ok(was_any) => was_any,
            Err(error) => {
                tracing::warn!("{}: {error}", zones.store.describe());
                false
            }
        }
    }

    fn background_step(&self, zones: &Zones) -> Result<bool> {
        if self.write_chunk(zones)? {
            return Ok(true);
        }
        let now = self.clock.monotonic_ns();
        let Some(unneeded) = self.garbage.lock().next(now) else { return Ok(false) };
        if let Err(error) = garbage::delete(zones, &unneeded) {
            self.garbage.lock().put_back(now, unneeded);
            let why = format!("objects that are not needed could not be deleted: {error}");
            return Err(DeviceError::Unusable(why));
        }
        if let Unneeded::Bundle(sequence) = unneeded {
            self.end.lock().bundles.remove(&sequence);
        }
        Ok(true)
    }

    fn write_bundle(&self, zones: &Zones, end: &mut End) -> Result<()> {
        let is_changed = {
            let state = zones.lock();
            state.check()?;
            !state.changed.is_empty()
        };
        let is_due = end.next - end.table >= self.limits.table_bundles
            || end.bytes_since_table > self.limits.table_bytes;
        match is_changed {
            true => self.add_bundle(zones, end, is_due, false),
            false => Ok(()),
        }
    }

    /// Writes the chunk of the table in which the most zones have changed, if it is worth it. The next table bundle
    /// has its number. Returns whether one was written.
    fn write_chunk(&self, zones: &Zones) -> Result<bool> {
        let Some((chunk, entries)) = self.capture_chunk(zones) else { return Ok(false) };
        let number = {
            let mut end = self.end.lock();
            end.chunks_written += 1;
            u64::from(zones.owner) << 32 | u64::from(end.chunks_written)
        };
        let name = zones.names.chunk(chunk, number);
        let object = encode_chunk(&zones.shape, chunk, number, &entries);
        let creation = zones.store.create(&name, object.clone());
        let placed = wait_for(&*zones.store, &name, &object, creation);
        // No bundle is being written: the next table bundle has either these zones or the new number.
        let mut end = self.end.lock();
        let captured = std::mem::take(&mut zones.lock().in_new_chunk);
        let why = match placed {
            Ok(Placed::Ours) => {
                self.bytes_written.fetch_add(object.len() as u64, Ordering::Relaxed);
                end.chunks[chunk as usize] = number;
                return Ok(true);
            }
            Ok(Placed::Other(_)) => "another program has created it".to_owned(),
            Err(error) => error.to_string(),
        };
        zones.lock().differing.extend(captured);
        Err(DeviceError::Unusable(format!("{name} could not be written: {why}")))
    }

    /// The entries of the chunk in which the most zones have changed, if it is worth it and no chunk is being written.
    fn capture_chunk(&self, zones: &Zones) -> Option<(u32, Vec<ZoneEntry>)> {
        let mut state = zones.lock();
        let changed = |chunk: u32| {
            let range = zones.shape.zones_of_chunk(chunk);
            state.differing.range(ZoneId(range.start)..ZoneId(range.end)).copied()
        };
        let chunk = (0..zones.shape.chunks() as u32).max_by_key(|&chunk| changed(chunk).count())?;
        let captured: BTreeSet<ZoneId> = changed(chunk).collect();
        if captured.len() < self.limits.chunk_changes || !state.in_new_chunk.is_empty() {
            return None;
        }
        state.differing.retain(|zone| !captured.contains(zone));
        state.in_new_chunk = captured;
        Some((chunk, state.table.entries(zones.shape.zones_of_chunk(chunk))))
    }

    /// Ends the ownership. Nothing is written from then on.
    pub(crate) fn close(&self, zones: &Zones) -> Result<()> {
        let mut end = self.end.lock();
        zones.lock().check()?;
        self.add_bundle(zones, &mut end, true, true)?;
        let why = "the volume was closed; open it again";
        zones.lock().broken.get_or_insert_with(|| why.to_owned());
        Ok(())
    }

    fn empty_bundle(&self, owner: u32, end: &End) -> Bundle {
        Bundle {
            sequence: end.next,
            table: end.table,
            swept: end.bundles.first().copied().unwrap_or(end.next),
            nonce: self.nonce,
            previous_nonce: end.last_nonce,
            owner,
            holder: self.holder.clone(),
            is_owner: false,
            is_closing: false,
            chunks: None,
            zones: Vec::new(),
            pieces: Vec::new(),
            references: Vec::new(),
        }
    }

    fn snapshot(&self, zones: &Zones, last_table: Option<u64>) -> Result<Snapshot> {
        let mut state = zones.lock();
        // A part that failed is not in flight any more.
        state.check()?;
        let mut changed = std::mem::take(&mut state.changed);
        changed.append(&mut state.noted);
        if last_table.is_some() && !rt::is_planted("object-changes-of-table") {
            changed.extend(&state.differing);
            changed.extend(&state.in_new_chunk);
        }
        let (pieces, payload) = state.tails.to_record(&zones.shape, last_table, self.limits.tail_pieces);
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
    fn add_bundle(&self, zones: &Zones, end: &mut End, is_table: bool, is_closing: bool) -> Result<()> {
        let Snapshot { zones: entries, pieces, payload, references, parts, reset, lives } =
            self.snapshot(zones, is_table.then_some(end.table))?;
        if !rt::is_planted("object-parts-first") {
            zones.wait_for_parts(&parts)?;
        }
        let empty = self.empty_bundle(zones.owner, end);
        let mut bundle = Bundle { zones: entries, pieces, references, is_closing, ..empty };
        if is_table {
            (bundle.table, bundle.chunks) = (bundle.sequence, Some(end.chunks.clone()));
        }
        let object = encode_bundle(&zones.shape, &mut bundle, &payload);
        drop(payload);
        let bytes = object.len() as u64;
        Self::create_bundle(zones, bundle.sequence, object)?;
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
        (end.next, end.last_nonce) = (bundle.sequence + 1, self.nonce);
        end.bundles.insert(bundle.sequence);
        end.bytes_since_table += bytes;
        {
            let mut state = zones.lock();
            let State { table, tails, .. } = &mut *state;
            tails.note(&bundle.pieces, |zone| lives.get(&zone) == Some(&table.life(zone)));
        }
        let now = self.clock.monotonic_ns();
        let emptied = bundle.zones.iter().filter(|(zone, _)| reset.contains(zone));
        let mut garbage = self.garbage.lock();
        emptied.for_each(|(zone, entry)| garbage.add_zone(now, *zone, entry.life));
        if is_table {
            (end.table, end.bytes_since_table) = (bundle.sequence, 0);
            end.named_chunks.clone_from(&end.chunks);
            let references = match rt::is_planted("object-tails-of-table") {
                true => &[],
                false => &bundle.references[..],
            };
            let needed: BTreeSet<u64> = references.iter().map(|piece| piece.bundle).collect();
            let unneeded = end.bundles.range(..bundle.sequence).filter(|bundle| !needed.contains(bundle));
            unneeded.for_each(|&bundle| garbage.add_bundle(now, bundle));
            garbage.add_chunks(now, &end.named_chunks);
        }
        Ok(())
    }

    /// Creates the next bundle of the chain. If that fails, nothing is written any more.
    fn create_bundle(zones: &Zones, sequence: u64, object: Bytes) -> Result<()> {
        let name = zones.names.bundle(sequence);
        let creation = zones.store.create(&name, object.clone());
        match wait_for(&*zones.store, &name, &object, creation) {
            Ok(Placed::Ours) => Ok(()),
            Ok(Placed::Other(_)) if rt::is_planted("object-trust-reply") => Ok(()),
            Ok(Placed::Other(found)) => {
                let holder = decode_bundle(&zones.shape, sequence, &found).map(|bundle| bundle.holder).ok();
                let (host, process) =
                    holder.map_or(("another machine".to_owned(), 0), |holder| (holder.host, holder.process));
                Err(zones.break_down(replaced(&host, process)))
            }
            Err(error) => Err(zones.break_down(unknown_chain(&error))),
        }
    }
}

/// The error for a flush after which the chain is not known.
fn unknown_chain(error: &dyn std::fmt::Display) -> String {
    format!("a flush of the volume failed ({error}); open the volume again")
}

/// The error of a device that was replaced by another owner.
fn replaced(host: &str, process: u32) -> String {
    format!("process {process} on {host} has taken over the volume; nothing is written here any more")
}
