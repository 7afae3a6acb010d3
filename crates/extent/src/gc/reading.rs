//! Reading what is to be moved: what lies close together at once, and ahead, while what comes before it is
//! appended.
//!
//! Contents are kept for the front of the queue only. They are those of an address, in one life of its zone, which is
//! never written twice, so they cannot be outdated; whether anybody still has them is looked at when they have been
//! appended. What was not read, or wrongly, is found when it is verified, block by block.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use tree::{Group, ZoneRef};
use zone::{Address, Blocks, Command, DeviceError, Geometry, ZoneId};

use super::{CHUNK_BYTES, Chunk, GcState, Move, place_of, sources};
use crate::format::{self, EXTENT};
use crate::write::is_fatal;
use crate::{Extents, Object, Result, map};

/// Where extents are so small on average, or to begin elsewhere takes long, what is moved in so many pieces of work is
/// read at once.
const SMALL_BYTES: usize = 16 << 10;
const CHUNKS_READ: usize = 8;
/// More than so many gaps that are just read are not read at once, nor more than so many bytes: others wait for their
/// turn in these zones.
const GAPS_MAX: usize = 32;
const AT_ONCE_BYTES_MAX: usize = 16 << 20;
/// Nor what lies apart in more places. In the order of objects the first ones lie apart, while those that follow are near
/// to one of them.
const COMMANDS_MAX: usize = 256;
/// The most that one command reads.
const READ_BYTES: usize = 1 << 20;

/// How a block that is to be moved was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// As it was written.
    Whole,
    /// Twice it could not be read, or was not what was written.
    Wrong,
    /// Its zone is offline: there is no use in asking again.
    Gone,
}

/// How far one reads to get at what is to be moved.
#[derive(Clone, Copy, Debug)]
struct Reach {
    /// What lies so close to each other is read at once, with what is in between: that takes no longer than another read.
    near: Blocks,
    /// The most that is read at once, with what is in between.
    at_once: Blocks,
    /// To begin elsewhere takes as long as reading a piece of work.
    is_far: bool,
}

impl Reach {
    fn of(geometry: &Geometry) -> Reach {
        let (near, size) = (geometry.seek_bytes as usize, geometry.block_size as usize);
        let at_once = (GAPS_MAX * near).min(AT_ONCE_BYTES_MAX);
        Reach {
            near: (near / size) as Blocks,
            at_once: (at_once / size) as Blocks,
            is_far: near >= CHUNK_BYTES,
        }
    }
}

/// Contents of extents that are to be moved, and how they are read.
#[derive(Default)]
pub(super) struct Contents {
    fetches: Vec<Fetch>,
    /// For an extent of this length: which fetch has it, and where in its bytes.
    places: HashMap<(Address, Blocks), (usize, Range<usize>)>,
}

/// What one command reads.
struct Fetch {
    zone: ZoneId,
    block: Blocks,
    bytes: Vec<u8>,
}

impl Contents {
    /// How to read the extents.
    fn of_all(mut moves: Vec<&Move>, geometry: &Geometry) -> Contents {
        moves.sort_by_key(|moved| place_of(moved));
        let (block_size, Reach { near, at_once, .. }) = (geometry.block_size as usize, Reach::of(geometry));
        let most = (READ_BYTES / block_size) as Blocks;
        let mut gaps_left = at_once;
        // Zone, first block, and the block behind the last.
        let mut spans: Vec<(ZoneId, Blocks, Blocks)> = Vec::new();
        let mut places = HashMap::new();
        for moved in moves {
            let (zone, block) = place_of(moved);
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

    /// The commands that read them.
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

/// Where some extents lie, together with what is between those that are near to each other.
#[derive(Default)]
struct Spans {
    /// From a block of a zone to the one behind the last.
    ends: BTreeMap<(ZoneId, Blocks), Blocks>,
    blocks: Blocks,
}

impl Spans {
    fn add(&mut self, moved: &Move, near: Blocks) {
        let (zone, block) = place_of(moved);
        let (mut from, mut to) = (block, block + moved.extent.blocks);
        // Those that it touches, the last one first: they lie apart, so none before one that is too far does.
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

impl Extents {
    /// How many of the first extents are read at once: so many blocks, and small ones for several pieces of work,
    /// because what is read with one piece has others in between; of extents that lie far apart, fewer.
    pub(super) fn read_together<'m>(&self, moves: impl Iterator<Item = &'m Move>) -> usize {
        let (most, size) = (self.piece_blocks(), self.block_size() as usize);
        let Reach { near, at_once, is_far } = Reach::of(self.device.geometry());
        let (mut count, mut blocks, mut spans) = (0, 0, Spans::default());
        for moved in moves {
            let several = is_far || blocks * size <= count * SMALL_BYTES;
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

    /// Takes so many blocks from the front of the queue, or a little more, with their contents; what cannot be read is
    /// marked. The zones are held: nobody writes there what is to be moved.
    pub(super) fn read_chunk(&self, gc: &mut GcState, blocks: usize) -> Result<(Chunk, Vec<ZoneRef>)> {
        if !gc.queue.front().is_some_and(|next| gc.contents.has(next)) {
            let (mut contents, _held) = self.plan_moves(gc)?;
            self.submit_deferred();
            self.device.run(&mut contents.reads().collect::<Vec<_>>());
            gc.contents = contents;
        }
        let (mut moves, mut held, mut data) = (Vec::new(), Vec::new(), Vec::new());
        let most = blocks * self.block_size() as usize;
        while data.len() < most
            && let Some(bytes) = gc.queue.front().and_then(|next| gc.contents.of(next))
        {
            let next = gc.queue.pop_front().expect("it was just looked at");
            // A zone that cannot be held has been emptied and reset meanwhile.
            if let Some(hold) = self.store.enter_zone(next.extent.address) {
                data.extend_from_slice(bytes);
                held.push(hold);
                moves.push(next);
            }
        }
        // What is moved is looked up once more when it is committed.
        self.read_map_ahead(moves.iter().map(|moved| (moved.object, moved.start)));
        Ok((self.chunk_of(&moves, data)?, held))
    }

    /// Where in the map's trees an object's block is: those of a group lie together.
    pub(super) fn place_in_map(&self, object: Object, block: u64) -> (Group, Object, u64) {
        (self.store.group_of(object.0), object, block)
    }

    /// Reads the leaves of the map in which the first of these blocks are looked up next; of how many blocks. No lock is
    /// held.
    pub(super) fn read_map_ahead(&self, blocks: impl Iterator<Item = (Object, u64)>) -> usize {
        let key = |(object, block): (Object, u64)| {
            (self.store.group_of(object.0), format::key(object, block).to_vec())
        };
        self.store.read_ahead_of(EXTENT, blocks.map(key))
    }

    /// How to read what will be next in the queue, if that is not here; its zones are held meanwhile. What is here
    /// then is of no more use.
    pub(super) fn plan_next(&self, gc: &mut GcState) -> Result<Option<(Contents, Vec<ZoneRef>)>> {
        if gc.queue.front().is_none_or(|next| gc.contents.has(next)) {
            return Ok(None);
        }
        gc.contents = Contents::default();
        self.plan_moves(gc).map(Some)
    }

    /// How to read the front of the queue, without what has died since it was queued. What cannot be held is passed over;
    /// in front it goes.
    fn plan_moves(&self, gc: &mut GcState) -> Result<(Contents, Vec<ZoneRef>)> {
        let hold = |moved: &Move| self.store.enter_zone(moved.extent.address);
        loop {
            while gc.queue.front().is_some_and(|first| hold(first).is_none()) {
                gc.queue.pop_front();
            }
            let count = self.read_together(gc.queue.iter());
            let (queued, mut living, mut ahead) =
                (gc.queue.drain(..count).collect::<Vec<_>>(), Vec::new(), 0);
            for (index, moved) in queued.iter().enumerate() {
                if index == ahead {
                    ahead +=
                        self.read_map_ahead(queued[index..].iter().map(|next| (next.object, next.start)));
                }
                self.add_living(moved, &mut living)?;
            }
            let held = living.iter().filter_map(|next| Some((next, hold(next)?)));
            let (moves, held): (Vec<&Move>, Vec<ZoneRef>) = held.unzip();
            let contents = Contents::of_all(moves, self.device.geometry());
            let is_some_left = !living.is_empty();
            living.into_iter().rev().for_each(|moved| gc.queue.push_front(moved));
            if is_some_left || gc.queue.is_empty() {
                return Ok((contents, held));
            }
        }
    }

    /// Adds what the object still has of an extent that is to be moved.
    fn add_living(&self, moved: &Move, living: &mut Vec<Move>) -> Result<()> {
        let (from, to) = (moved.start, moved.start + u64::from(moved.extent.blocks));
        let _shared = self.map_of(moved.object).read();
        for (start, extent) in map::extents(&self.store, moved.object, (from, to), usize::MAX)? {
            let part = start.max(from)..to.min(start + u64::from(extent.blocks));
            let before = |block: u64, start: u64| (block - start) as Blocks;
            if extent.address_of(before(part.start, start))
                == moved.extent.address_of(before(part.start, from))
            {
                let extent = moved.extent.slice(before(part.start, from), before(part.end, from));
                living.push(Move { object: moved.object, start: part.start, extent });
            }
        }
        Ok(())
    }

    /// Reads what is to be moved, from zones that are held; what cannot be read is marked.
    pub(crate) fn read_moves(&self, moves: &[Move]) -> Result<Chunk> {
        let mut contents = Contents::of_all(moves.iter().collect(), self.device.geometry());
        self.submit_deferred();
        self.device.run(&mut contents.reads().collect::<Vec<_>>());
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
        assert_eq!(chunk.data.len(), chunk.sources.len() * self.block_size() as usize, "each block is there");
        self.verify_chunk(&mut chunk)?;
        Ok(chunk)
    }

    /// Verifies every block, and reads once more by itself what is not right: the next block may be.
    fn verify_chunk(&self, chunk: &mut Chunk) -> Result<()> {
        let size = self.block_size() as usize;
        for (source, bytes) in chunk.sources.iter_mut().zip(chunk.data.chunks_mut(size)) {
            if zone::format::checksum(&[bytes]) == source.crc {
                continue;
            }
            let output = self.device.read(source.address.zone(), source.address.block(), bytes);
            source.found = match output {
                Ok(()) if zone::format::checksum(&[bytes]) == source.crc => Found::Whole,
                Err(error) if is_fatal(&error) => return Err(tree::StoreError::Device(error).into()),
                Err(DeviceError::Offline(_)) => Found::Gone,
                _ => Found::Wrong,
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
    use crate::Recovering;
    use crate::format::Extent;
    use crate::place::tests::extents_on;

    const SIZE: usize = 4096;

    /// Single blocks of several zones, in an order that has nothing to do with where they lie: whatever is read at once
    /// is bounded, and of two that are near to each other neither is read by itself.
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

    /// One block of so many; by how many commands.
    fn read_scattered(extents: &Extents, apart: usize) -> usize {
        let geometry = extents.device.geometry();
        let Reach { near, at_once, .. } = Reach::of(geometry);
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
            let (next, after) = rest.split_at(extents.read_together(rest.iter()));
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

    /// Objects of one block each, made in any order, so that what is in a zone lies all over the map.
    fn scattered_over_the_map(device: &Arc<Emulated>) {
        let extents = extents_on(Arc::clone(device) as Arc<dyn Device>);
        let mut objects: Vec<u64> = (1..=OBJECTS).collect();
        Rng::with_seed(3).shuffle(&mut objects);
        objects.iter().for_each(|&object| crate::gc::tests::write(&extents, object, 0, 1, 0));
        extents.store.close().unwrap();
    }

    const OBJECTS: u64 = 20_000;

    /// A mount with a cache that takes a part of the map; its clock, and a zone that is full.
    fn mounted(device: &Arc<Emulated>) -> (Arc<Extents>, Arc<Timed>, ZoneId) {
        let clock = Arc::new(ManualClock::at(Timestamp(0)));
        let timed = Arc::new(Timed::new(Arc::clone(device) as _, clock, Model::shingled()));
        let mut recovering = Recovering::new(Arc::clone(&timed) as _);
        let config = tree::Config { cache_bytes: 1 << 20, read_only: false, accept_loss: false };
        let (store, _) = tree::Store::open(Arc::clone(&timed) as _, &config, &mut recovering).unwrap();
        let extents = Extents::open(Arc::new(store), recovering).unwrap();
        let (zone, _) = extents.store.pool().victims(1)[0];
        (extents, timed, zone)
    }

    /// Of a map that is larger than the cache each look-up of an entry read a leaf, and those of a zone came back to the
    /// same leaves: a zone of 65,536 single blocks kept a disk busy for minutes before anything of it was moved.
    #[test]
    fn entries_are_looked_up_with_each_leaf_read_once_and_many_together() {
        let device = Arc::new(Emulated::new(Spec::new(SIZE as u32, 64, 1024)));
        scattered_over_the_map(&device);
        let now = |extents: &Extents, timed: &Timed| {
            (timed.clock().monotonic_ns(), extents.store.stats().nodes_read)
        };
        let alone = {
            let (extents, timed, zone) = mounted(&device);
            let (entries, before) = (extents.view_zone(zone).unwrap(), now(&extents, &timed));
            for entry in &entries {
                crate::map::extents(&extents.store, entry.object, (0, 1), usize::MAX).unwrap();
            }
            (now(&extents, &timed).0 - before.0, now(&extents, &timed).1 - before.1)
        };
        let (extents, timed, zone) = mounted(&device);
        let (entries, before) = (extents.view_zone(zone).unwrap(), now(&extents, &timed));
        let mut moves = BTreeMap::new();
        extents.find_live(zone, &entries, &mut moves).unwrap();
        let (ns, nodes) = (now(&extents, &timed).0 - before.0, now(&extents, &timed).1 - before.1);
        println!("{} entries: {nodes} nodes in {ns} ns; each by itself {alone:?}", entries.len());
        assert!(entries.len() > 500 && moves.len() == entries.len(), "{} live", moves.len());
        assert!(nodes * 3 < alone.1 * 2 && ns * 5 < alone.0, "{nodes} nodes, {ns} ns; one by one {alone:?}");
    }
}
