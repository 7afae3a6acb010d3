//! Reading the extents to be moved: extents that lie close together at once, and the next ones while the ones before
//! them are appended.
//!
//! Contents are cached only for the front of the queue. They belong to an address, in one life of its zone, which is
//! never written twice. So they cannot be outdated, and the commit of the move checks whether an object still has them.
//! A block that was not read, or read wrong, is found when it is verified.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use tree::{Group, ZoneRef};
use zone::{Address, Blocks, Command, DeviceError, Geometry, ZoneId};

use super::chunk::{Chunk, Move, address_of_move, sources};
use super::state::GcState;
use crate::copies::read_intact;
use crate::format::{self, EXTENT};
use crate::maps::ObjectMaps;
use crate::{Object, Result, map};

/// Bytes that are moved in one piece of work …
const CHUNK_BYTES: usize = 1 << 20;
/// … or this number of times what the device reads in the time of a seek …
const CHUNK_SEEKS: usize = 4;
/// … or this share of a zone, if that is less.
const CHUNK_SHARE: usize = 16;
/// If extents are this small on average, or if seeks are slow, the extents of several chunks are read at once …
const SMALL_BYTES: usize = 16 << 10;
/// … this number of them.
const CHUNKS_READ: usize = 8;
/// One plan reads at most this number of gaps of the greatest length …
const GAPS_MAX: usize = 32;
/// … and at most this number of bytes with the gaps: extents of other chunks in these zones wait for their turn.
const AT_ONCE_BYTES_MAX: usize = 16 << 20;
/// One plan has at most this number of commands. In the order of objects the first extents lie apart, while those that
/// follow are near to one of them.
const COMMANDS_MAX: usize = 256;
/// The most bytes of one command.
const READ_BYTES: usize = 1 << 20;

/// The result of reading a block that is to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readability {
    /// Its contents are as written.
    Intact,
    /// Two reads failed, or had other contents.
    Unreadable,
    /// Its zone is offline: another attempt would be useless.
    Offline,
}

/// The limits of a read plan.
#[derive(Clone, Copy, Debug)]
struct ReadLimits {
    /// Extents this close to each other are read by one command, with the gap between them: that takes no longer than
    /// another command.
    near: Blocks,
    /// The most blocks that are read at once, with the gaps.
    at_once: Blocks,
    /// A seek takes as long as reading a chunk.
    are_seeks_slow: bool,
}

impl ReadLimits {
    fn of(geometry: &Geometry) -> ReadLimits {
        let (near, size) = (geometry.seek_bytes as usize, geometry.block_size as usize);
        let at_once = (GAPS_MAX * near).min(AT_ONCE_BYTES_MAX);
        ReadLimits {
            near: (near / size) as Blocks,
            at_once: (at_once / size) as Blocks,
            are_seeks_slow: near >= CHUNK_BYTES,
        }
    }
}

/// Contents of extents to be moved, and the reads that fill them.
#[derive(Default)]
pub(super) struct Contents {
    fetches: Vec<Fetch>,
    /// For an address and a length: the fetch, and the range in its bytes.
    places: HashMap<(Address, Blocks), (usize, Range<usize>)>,
}

/// The read of one command.
struct Fetch {
    zone: ZoneId,
    block: Blocks,
    bytes: Vec<u8>,
}

impl Contents {
    /// Plans the reads for the extents.
    fn of_all(mut moves: Vec<&Move>, geometry: &Geometry) -> Contents {
        moves.sort_by_key(|moved| address_of_move(moved));
        let (block_size, ReadLimits { near, at_once, .. }) =
            (geometry.block_size as usize, ReadLimits::of(geometry));
        let most = (READ_BYTES / block_size) as Blocks;
        let mut gaps_left = at_once;
        // Zone, first block, and the block behind the last.
        let mut spans: Vec<(ZoneId, Blocks, Blocks)> = Vec::new();
        let mut places = HashMap::new();
        for moved in moves {
            let (zone, block) = address_of_move(moved);
            let end = block + moved.extent.blocks;
            match spans.last_mut() {
                Some((last, from, to))
                    if *last == zone
                        && block.saturating_sub(*to) <= near.min(gaps_left)
                        && end <= *from + most =>
                {
                    gaps_left -= block.saturating_sub(*to);
                    *to = end.max(*to);
                }
                _ => spans.push((zone, block, end)),
            }
            let (_, from, _) = spans[spans.len() - 1];
            let within = (block - from) as usize * block_size..(end - from) as usize * block_size;
            places.insert((moved.extent.address, moved.extent.blocks), (spans.len() - 1, within));
        }
        let fetch = |(zone, from, to): (ZoneId, Blocks, Blocks)| Fetch {
            zone,
            block: from,
            bytes: vec![0; (to - from) as usize * block_size],
        };
        Contents { fetches: spans.into_iter().map(fetch).collect(), places }
    }

    /// The read commands.
    pub(super) fn reads(&mut self) -> impl Iterator<Item = Command<'_>> {
        let fetches = self.fetches.iter_mut();
        fetches.map(|Fetch { zone, block, bytes }| Command::Read { zone: *zone, block: *block, into: bytes })
    }

    /// The contents of an extent, if they are here.
    fn of(&self, moved: &Move) -> Option<&[u8]> {
        let (fetch, within) = self.places.get(&(moved.extent.address, moved.extent.blocks))?;
        Some(&self.fetches[*fetch].bytes[within.clone()])
    }

    pub(super) fn has(&self, moved: &Move) -> bool {
        self.of(moved).is_some()
    }
}

/// The spans of some extents, with the gaps between those that are near to each other.
#[derive(Default)]
struct Spans {
    /// The first block of a span, and the block behind its last.
    ends: BTreeMap<(ZoneId, Blocks), Blocks>,
    blocks: Blocks,
}

impl Spans {
    fn add(&mut self, moved: &Move, near: Blocks) {
        let (zone, block) = address_of_move(moved);
        let (mut from, mut to) = (block, block + moved.extent.blocks);
        // The spans that it touches, the last one first. Spans lie apart, so a span before one that is too far is too
        // far as well.
        while let Some((&(_, first), &end)) =
            self.ends.range((zone, 0)..=(zone, to.saturating_add(near))).next_back()
            && end.saturating_add(near) >= from
        {
            self.ends.remove(&(zone, first));
            self.blocks -= end - first;
            (from, to) = (from.min(first), to.max(end));
        }
        self.ends.insert((zone, from), to);
        self.blocks += to - from;
    }
}

/// Reads extents that are to be moved.
pub(crate) struct MoveReader {
    maps: Arc<ObjectMaps>,
    /// The smallest payload of a zone.
    payload_min: Blocks,
}

impl MoveReader {
    pub(super) fn new(maps: &Arc<ObjectMaps>, payload_min: Blocks) -> MoveReader {
        MoveReader { maps: Arc::clone(maps), payload_min }
    }

    /// Blocks of one piece of work.
    pub(crate) fn piece_blocks(&self) -> usize {
        let bytes = CHUNK_BYTES.max(CHUNK_SEEKS * self.maps.device().geometry().seek_bytes as usize);
        (bytes / self.maps.block_size() as usize).min(self.payload_min as usize / CHUNK_SHARE).max(1)
    }

    /// The number of extents that are read at once. They have the blocks of one chunk, or of several chunks if extents
    /// are small, because one chunk of small extents has many gaps. It is less if the extents lie far apart.
    pub(super) fn read_together<'m>(&self, moves: impl Iterator<Item = &'m Move>) -> usize {
        let (most, size) = (self.piece_blocks(), self.maps.block_size() as usize);
        let ReadLimits { near, at_once, are_seeks_slow } = ReadLimits::of(self.maps.device().geometry());
        let (mut count, mut blocks, mut spans) = (0, 0, Spans::default());
        for moved in moves {
            let several = are_seeks_slow || blocks * size <= count * SMALL_BYTES;
            if blocks >= if several { CHUNKS_READ * most } else { most } {
                break;
            }
            spans.add(moved, near);
            let is_much = spans.blocks > at_once || spans.ends.len() > COMMANDS_MAX;
            if count > 0 && is_much {
                break;
            }
            (count, blocks) = (count + 1, blocks + moved.extent.blocks as usize);
        }
        count
    }

    /// Takes about this number of blocks from the front of the queue, with their contents and their readability. The
    /// references keep their zones from being reset and written.
    pub(super) fn read_chunk(&self, gc: &mut GcState, blocks: usize) -> Result<(Chunk, Vec<ZoneRef>)> {
        if !gc.queue.front().is_some_and(|next| gc.contents.has(next)) {
            let (mut contents, _references) = self.plan_moves(gc)?;
            self.maps.appends().submit_deferred();
            self.maps.device().run(&mut contents.reads().collect::<Vec<_>>());
            gc.contents = contents;
        }
        let (mut moves, mut references, mut data) = (Vec::new(), Vec::new(), Vec::new());
        let most = blocks * self.maps.block_size() as usize;
        while data.len() < most
            && let Some(bytes) = gc.queue.front().and_then(|next| gc.contents.of(next))
        {
            let next = gc.queue.pop_front().expect("the front has contents");
            // If there is no reference, the zone has been reset meanwhile.
            if let Some(reference) = self.maps.store().enter_zone(next.extent.address) {
                data.extend_from_slice(bytes);
                references.push(reference);
                moves.push(next);
            }
        }
        // The commit of a move looks up the extent once more.
        self.prefetch_map(moves.iter().map(|moved| (moved.object, moved.start)));
        Ok((self.chunk_of(&moves, data)?, references))
    }

    /// The order of the object map's keys: first by group.
    pub(super) fn map_order(&self, object: Object, block: u64) -> (Group, Object, u64) {
        (self.maps.store().group_of(object.0), object, block)
    }

    /// Prefetches the map leaves for the first of these blocks. Returns their number. Call with no lock.
    pub(crate) fn prefetch_map(&self, blocks: impl Iterator<Item = (Object, u64)>) -> usize {
        let key = |(object, block): (Object, u64)| {
            (self.maps.store().group_of(object.0), format::key(object, block).to_vec())
        };
        self.maps.store().read_ahead_of(EXTENT, blocks.map(key))
    }

    /// Plans the reads for the next extents of the queue, with references to their zones, unless their contents are
    /// here. Contents that are here are dropped.
    pub(super) fn plan_next(&self, gc: &mut GcState) -> Result<Option<(Contents, Vec<ZoneRef>)>> {
        if gc.queue.front().is_none_or(|next| gc.contents.has(next)) {
            return Ok(None);
        }
        gc.contents = Contents::default();
        self.plan_moves(gc).map(Some)
    }

    /// Plans the reads for the front of the queue, without blocks that died since they were queued. Extents without a
    /// zone reference are left out, and removed from the front.
    fn plan_moves(&self, gc: &mut GcState) -> Result<(Contents, Vec<ZoneRef>)> {
        let reference = |moved: &Move| self.maps.store().enter_zone(moved.extent.address);
        loop {
            while gc.queue.front().is_some_and(|first| reference(first).is_none()) {
                gc.queue.pop_front();
            }
            let count = self.read_together(gc.queue.iter());
            let (queued, mut live, mut ahead) = (gc.queue.drain(..count).collect::<Vec<_>>(), Vec::new(), 0);
            for (index, moved) in queued.iter().enumerate() {
                if index == ahead {
                    ahead += self.prefetch_map(queued[index..].iter().map(|next| (next.object, next.start)));
                }
                self.add_live(moved, &mut live)?;
            }
            let references = live.iter().filter_map(|next| Some((next, reference(next)?)));
            let (moves, references): (Vec<&Move>, Vec<ZoneRef>) = references.unzip();
            let contents = Contents::of_all(moves, self.maps.device().geometry());
            let has_moves = !live.is_empty();
            live.into_iter().rev().for_each(|moved| gc.queue.push_front(moved));
            if has_moves || gc.queue.is_empty() {
                return Ok((contents, references));
            }
        }
    }

    /// Adds the parts of an extent that the object still has.
    fn add_live(&self, moved: &Move, live: &mut Vec<Move>) -> Result<()> {
        let (from, to) = (moved.start, moved.start + u64::from(moved.extent.blocks));
        let _shared = self.maps.map_of(moved.object).read();
        for (start, extent) in map::extents(self.maps.store(), moved.object, (from, to), usize::MAX)? {
            let part = start.max(from)..to.min(start + u64::from(extent.blocks));
            let before = |block: u64, start: u64| (block - start) as Blocks;
            if extent.address_of(before(part.start, start))
                == moved.extent.address_of(before(part.start, from))
            {
                let extent = moved.extent.slice(before(part.start, from), before(part.end, from));
                live.push(Move { object: moved.object, start: part.start, extent });
            }
        }
        Ok(())
    }

    /// Reads the extents. The caller has references to their zones.
    pub(crate) fn read_moves(&self, moves: &[Move]) -> Result<Chunk> {
        let mut contents = Contents::of_all(moves.iter().collect(), self.maps.device().geometry());
        self.maps.appends().submit_deferred();
        self.maps.device().run(&mut contents.reads().collect::<Vec<_>>());
        let bytes = moves.iter().filter_map(|moved| contents.of(moved));
        self.chunk_of(moves, bytes.collect::<Vec<_>>().concat())
    }

    fn chunk_of(&self, moves: &[Move], data: Vec<u8>) -> Result<Chunk> {
        let mut chunk = Chunk {
            sources: moves.iter().flat_map(sources).collect(),
            places: moves.iter().flat_map(sources).map(|s| ((s.object, s.block), s.address)).collect(),
            data,
            crcs: moves.iter().flat_map(|m| m.extent.crcs.iter().copied()).collect(),
        };
        assert_eq!(
            chunk.data.len(),
            chunk.sources.len() * self.maps.block_size() as usize,
            "each block has bytes"
        );
        self.verify_chunk(&mut chunk)?;
        Ok(chunk)
    }

    /// Verifies every block, and reads a wrong one once more by itself, because the blocks after it may be right.
    fn verify_chunk(&self, chunk: &mut Chunk) -> Result<()> {
        let size = self.maps.block_size() as usize;
        for (source, bytes) in chunk.sources.iter_mut().zip(chunk.data.chunks_mut(size)) {
            if zone::format::checksum(&[bytes]) == source.crc {
                continue;
            }
            let output = self.maps.device().read(source.address.zone(), source.address.block(), bytes);
            source.readability = match output {
                Ok(()) if zone::format::checksum(&[bytes]) == source.crc => Readability::Intact,
                Err(error) if error.is_of_whole_device() => {
                    return Err(tree::StoreError::Device(error).into());
                }
                _ if read_intact(&**self.maps.device(), source.address, source.crc, bytes) => {
                    Readability::Intact
                }
                Err(DeviceError::Offline(_)) => Readability::Offline,
                _ => Readability::Unreadable,
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use emulated::timed::{Model, Timed};
    use emulated::{Emulated, Spec};
    use rt::random::Rng;
    use rt::{Clock, ManualClock, Timestamp};
    use zone::{Device, Life};

    use super::*;
    use crate::format::Extent;
    use crate::place::tests::extents_on;
    use crate::{Extents, Recovering};

    const SIZE: usize = 4096;

    /// Single blocks of several zones, in an order that is independent of their addresses. The bytes read at once are
    /// bounded, and two blocks that are near to each other are read by one command.
    #[test]
    fn scattered_extents_are_read_by_few_commands() {
        let spec = Spec::new(SIZE as u32, 16, 4096);
        let fetched = [spec.clone(), spec.disk()].map(|spec| {
            let extents = extents_on(Arc::new(Emulated::new(spec)) as Arc<dyn Device>);
            [5, 40, 200].map(|apart| read_scattered(&extents, apart))
        });
        let [flash, disk] = fetched;
        let are_fewer = disk.iter().zip(&flash).all(|(disk, flash)| disk * 4 < flash * 3);
        assert!(are_fewer, "of a disk {disk:?}, otherwise {flash:?} commands");
    }

    /// Reads one of each `apart` blocks. Returns the number of commands.
    fn read_scattered(extents: &Extents, apart: usize) -> usize {
        let geometry = extents.maps().device().geometry();
        let ReadLimits { near, at_once, .. } = ReadLimits::of(geometry);
        let (near, at_once, mut commands) = (near as usize * SIZE, at_once as usize * SIZE, 0);
        let mut rng = Rng::with_seed(7);
        let mut moves: Vec<Move> = (4..8u32)
            .flat_map(|zone| (0..4096u32).step_by(apart).map(move |block| (zone, block)))
            .enumerate()
            .map(|(object, (zone, block))| Move {
                object: Object(object as u64 + 1),
                start: 0,
                extent: Extent::new(Address::new(ZoneId(zone), block, Life(1)), vec![0]),
            })
            .collect();
        rng.shuffle(&mut moves);
        let mut rest = &moves[..];
        while !rest.is_empty() {
            let (next, after) =
                rest.split_at(extents.collector().mover().reader().read_together(rest.iter()));
            let contents = Contents::of_all(next.iter().collect(), geometry);
            assert!(next.iter().all(|moved| contents.has(moved)));
            let bytes: usize = contents.fetches.iter().map(|fetch| fetch.bytes.len()).sum();
            assert!(bytes <= at_once, "{bytes} bytes for {} extents", next.len());
            assert!(contents.fetches.len() <= COMMANDS_MAX, "{} commands", contents.fetches.len());
            for pair in contents.fetches.windows(2).filter(|pair| pair[0].zone == pair[1].zone) {
                let end = pair[0].block as usize * SIZE + pair[0].bytes.len();
                let next_end = pair[1].block as usize * SIZE + SIZE;
                let is_full = next_end - pair[0].block as usize * SIZE > READ_BYTES;
                assert!(is_full || pair[1].block as usize * SIZE > end + near, "{} and {end}", pair[1].block);
            }
            commands += contents.fetches.len();
            rest = after;
        }
        commands
    }

    /// Objects of one block each, created in any order, so that the entries of a zone lie all over the map.
    fn scattered_over_the_map(device: &Arc<Emulated>) {
        let extents = extents_on(Arc::clone(device) as Arc<dyn Device>);
        let mut objects: Vec<u64> = (1..=OBJECTS).collect();
        Rng::with_seed(3).shuffle(&mut objects);
        objects.iter().for_each(|&object| crate::gc::tests::write(&extents, object, 0, 1, 0));
        extents.store().close().unwrap();
    }

    const OBJECTS: u64 = 20_000;

    /// A mount whose cache holds a part of the map; its clock, and a full zone.
    fn mounted(device: &Arc<Emulated>) -> (Arc<Extents>, Arc<Timed>, ZoneId) {
        let clock = Arc::new(ManualClock::at(Timestamp(0)));
        let timed = Arc::new(Timed::new(Arc::clone(device) as _, clock, Model::shingled()));
        let mut recovering = Recovering::new(Arc::clone(&timed) as _);
        let config = tree::Config { cache_bytes: 1 << 20, read_only: false, accept_loss: false };
        let (store, _) = tree::Store::open(Arc::clone(&timed) as _, &config, &mut recovering).unwrap();
        let extents = Extents::open(Arc::new(store), recovering).unwrap();
        let (zone, _) = extents.store().pool().victims(1)[0];
        (extents, timed, zone)
    }

    /// If the map was larger than the cache, each lookup of an entry read a leaf, and a zone's entries came back to the
    /// same leaves. A zone of 65,536 single blocks kept a disk busy for minutes before its first move.
    #[test]
    fn lookups_of_entries_read_each_leaf_once_and_many_at_once() {
        let device = Arc::new(Emulated::new(Spec::new(SIZE as u32, 64, 1024)));
        scattered_over_the_map(&device);
        let now = |extents: &Extents, timed: &Timed| {
            (timed.clock().monotonic_ns(), extents.store().stats().nodes_read)
        };
        let alone = {
            let (extents, timed, zone) = mounted(&device);
            let (entries, before) =
                (extents.reverse_maps().entries_of(extents.store(), zone).unwrap(), now(&extents, &timed));
            for entry in &entries {
                crate::map::extents(extents.store(), entry.object, (0, 1), usize::MAX).unwrap();
            }
            (now(&extents, &timed).0 - before.0, now(&extents, &timed).1 - before.1)
        };
        let (extents, timed, zone) = mounted(&device);
        let (entries, before) =
            (extents.reverse_maps().entries_of(extents.store(), zone).unwrap(), now(&extents, &timed));
        let mut moves = BTreeMap::new();
        extents.collector().mover().find_live(zone, &entries, &mut moves).unwrap();
        let (ns, nodes) = (now(&extents, &timed).0 - before.0, now(&extents, &timed).1 - before.1);
        println!("{} entries: {nodes} nodes in {ns} ns; one by one {alone:?}", entries.len());
        assert!(entries.len() > 500 && moves.len() == entries.len(), "{} live", moves.len());
        assert!(nodes * 3 < alone.1 * 2 && ns * 5 < alone.0, "{nodes} nodes, {ns} ns; one by one {alone:?}");
    }
}
