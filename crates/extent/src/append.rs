//! Appending runs of blocks to an open zone: several commands in flight, and a summary of earlier ones with them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use zone::{Address, Blocks, Cause, Command, DeviceError, Output, ZoneId};

use crate::appended::{Appended, Pending};
use crate::format::{Entry, Extent};
use crate::maps::ObjectMaps;
use crate::open_zone::OpenZone;
use crate::place::Placer;
use crate::reverse::Summary;
use crate::{ExtentError, Object, Result};

/// Appends of one writer that are in flight to one zone.
pub(crate) const BATCH_APPENDS: usize = 8;

/// Blocks of one object that are to be appended.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) object: Object,
    /// The first block in the object.
    pub(crate) start: u64,
    /// The buffer that contains the run, and its place in there.
    buffer: &'a [u8],
    from: usize,
    to: usize,
    /// The checksums, if they are known.
    pub(crate) crcs: Option<&'a [u32]>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(object: Object, start: u64, data: &'a [u8]) -> Run<'a> {
        Run::within(object, start, (data, 0..data.len()), None)
    }

    /// A run in a part of a buffer.
    pub(crate) fn within(
        object: Object,
        start: u64,
        (buffer, bytes): (&'a [u8], Range<usize>),
        crcs: Option<&'a [u32]>,
    ) -> Run<'a> {
        assert!(bytes.start <= bytes.end && bytes.end <= buffer.len(), "a run is a part of its buffer");
        Run { object, start, buffer, from: bytes.start, to: bytes.end, crcs }
    }

    fn data(&self) -> &'a [u8] {
        &self.buffer[self.from..self.to]
    }

    fn split(self, blocks: Blocks, block_size: usize) -> (Run<'a>, Option<Run<'a>>) {
        let at = self.from + blocks as usize * block_size;
        assert!(blocks > 0 && at <= self.to, "a run is split within its blocks");
        let crcs = self.crcs.map(|crcs| crcs.split_at(blocks as usize));
        let start = self.start + u64::from(blocks);
        let rest = Run { start, from: at, crcs: crcs.map(|(_, rest)| rest), ..self };
        (Run { to: at, crcs: crcs.map(|(crcs, _)| crcs), ..self }, (at < self.to).then_some(rest))
    }

    pub(crate) fn blocks(&self, block_size: usize) -> Blocks {
        ((self.to - self.from) / block_size) as Blocks
    }

    fn checksums(&self, block_size: usize) -> Vec<u32> {
        match self.crcs {
            Some(crcs) => {
                assert_eq!(crcs.len(), self.data().len() / block_size, "each moved block has a checksum");
                crcs.to_vec()
            }
            None => self.data().chunks(block_size).map(|block| zone::format::checksum(&[block])).collect(),
        }
    }
}

/// The runs that one command appends: they are adjacent in memory, and may be of several objects.
struct Append<'a> {
    runs: SmallVec<[Run<'a>; 1]>,
}

impl<'a> Append<'a> {
    fn data(&self) -> &'a [u8] {
        let (first, last) = (self.runs[0], self.runs[self.runs.len() - 1]);
        &first.buffer[first.from..last.to]
    }

    /// Whether the same command can append this run too, within `most` bytes.
    fn is_followed_by(&self, run: &Run<'a>, most: usize) -> bool {
        let (first, last) = (self.runs[0], self.runs[self.runs.len() - 1]);
        std::ptr::eq(first.buffer, run.buffer) && last.to == run.from && run.to - first.from <= most
    }
}

/// Runs to be appended to a zone, and the cause.
pub(crate) struct Appending<'r, 'd> {
    pub(crate) open: &'r Arc<OpenZone>,
    pub(crate) runs: &'r mut VecDeque<Run<'d>>,
    pub(crate) cause: Cause,
    /// Most appends in flight at once. The device carries them out in any order.
    pub(crate) at_once: usize,
}

/// What one append needs for each of its runs when it is complete: the blocks in flight, and their checksums.
type Prepared = SmallVec<[(Pending, Vec<u32>); 1]>;

/// Appends that are submitted together. A small write is one append of one run.
struct Batch<'d> {
    appends: SmallVec<[Append<'d>; 1]>,
    prepared: SmallVec<[Prepared; 1]>,
    /// Bytes of the reverse map's entries for these appends.
    entry_bytes: usize,
    /// A summary of earlier appends, which is appended first.
    due: Option<Summary>,
}

impl Batch<'_> {
    fn commands(&self, zone: ZoneId) -> impl Iterator<Item = Command<'_>> {
        let due = self.due.iter().map(|summary| &summary.bytes[..]);
        let data = due.chain(self.appends.iter().map(|append| append.data()));
        data.map(move |from| Command::Append { zone, from })
    }
}

/// Appends to open zones.
pub(crate) struct Appender {
    maps: Arc<ObjectMaps>,
    placer: Arc<Placer>,
}

impl Appender {
    pub(crate) fn new(maps: &Arc<ObjectMaps>, placer: &Arc<Placer>) -> Appender {
        Appender { maps: Arc::clone(maps), placer: Arc::clone(placer) }
    }

    /// Appends one batch of runs, as far as the zone has space. Failed runs are put back in their order. A zone that is full
    /// or has failed is retired. `beside`: reads to be submitted with the appends, if there are any.
    pub(crate) fn append_some(
        &self,
        to: &mut Appending<'_, '_>,
        beside: Vec<Command<'_>>,
    ) -> Result<Vec<Appended>> {
        let batch = self.prepare(to);
        let commands = batch.commands(to.open.lease.zone()).count();
        let outputs = self.submit_batch(to.open, &batch, beside);
        assert!(outputs.len() >= commands, "each command has an output");
        self.complete(to, batch, &mut outputs.into_iter())
    }

    fn submit_batch(&self, open: &Arc<OpenZone>, batch: &Batch<'_>, beside: Vec<Command<'_>>) -> Vec<Output> {
        self.maps.appends().submit_deferred();
        let mut commands: SmallVec<[Command<'_>; 2]> = batch.commands(open.lease.zone()).collect();
        if commands.is_empty() {
            return Vec::new();
        }
        commands.extend(beside);
        self.maps.appends().run(open, &mut commands)
    }

    /// Takes the next appends from the runs.
    fn prepare<'d>(&self, to: &mut Appending<'_, 'd>) -> Batch<'d> {
        let size = self.maps.block_size() as usize;
        let due = to.open.map.lock().take_due(&to.open.lease);
        let (appends, entry_bytes) = self.admit_batch(to);
        let prepare =
            |run: &Run<'_>| (Pending::new(self.maps.store(), to.open, run.blocks(size)), run.checksums(size));
        let prepared = appends.iter().map(|append| append.runs.iter().map(prepare).collect()).collect();
        Batch { appends, prepared, entry_bytes, due }
    }

    /// The device has carried out the commands, with these outputs.
    fn complete<'d>(
        &self,
        to: &mut Appending<'_, 'd>,
        batch: Batch<'d>,
        outputs: &mut impl Iterator<Item = Output>,
    ) -> Result<Vec<Appended>> {
        let Appending { open, cause, .. } = *to;
        if let Some(due) = batch.due {
            let output = outputs.next().expect("each command has an output");
            open.lease.account(Cause::ReverseMap, due.bytes.len(), &output);
            open.map.lock().end_summary(&due, output.ok());
        }
        if batch.appends.is_empty() {
            self.placer.retire(open)?;
            return Ok(Vec::new());
        }
        let (size, zone) = (self.maps.block_size() as usize, open.lease.zone());
        let (mut pieces, mut failed, mut fatal) = (Vec::new(), Vec::new(), None);
        let mut entries: SmallVec<[Entry; 1]> = SmallVec::new();
        let sequence = self.maps.store().last_lsn().0;
        for ((append, prepared), output) in batch.appends.into_iter().zip(batch.prepared).zip(outputs) {
            open.lease.account(cause, append.data().len(), &output);
            let mut block = match output {
                Ok(block) => block,
                Err(error) => {
                    fatal = fatal.or(error.is_of_whole_device().then_some(error));
                    failed.extend(append.runs);
                    continue;
                }
            };
            for (run, (pending, crcs)) in append.runs.into_iter().zip(prepared) {
                let (object, offset) = (run.object, run.start);
                entries.push(Entry { object, offset, sequence, block, crcs: crcs.clone() });
                let extent = Extent::new(Address::new(zone, block, open.lease.life()), crcs);
                pieces.push(Appended::new(object, run.start, extent, pending));
                block += run.blocks(size);
            }
        }
        // In their order, before the runs that follow them.
        failed.into_iter().rev().for_each(|run| to.runs.push_front(run));
        open.map.lock().end(batch.entry_bytes, entries);
        match fatal {
            // The zone has failed for its lease, but the device works: the zone is closed like any other.
            Some(DeviceError::HostFull { .. }) => {
                self.placer.retire_if_full(open).and(Err(ExtentError::NoSpace))
            }
            Some(error) => Err(tree::StoreError::Device(error).into()),
            None => self.placer.retire_if_full(open).map(|()| pieces),
        }
    }

    /// Takes runs from the front as far as the zone has space for them. Returns them and the bytes of their entries. Begins
    /// a batch unless it is empty.
    fn admit_batch<'d>(&self, to: &mut Appending<'_, 'd>) -> (SmallVec<[Append<'d>; 1]>, usize) {
        let Appending { open, runs, at_once, .. } = to;
        let size = self.maps.block_size() as usize;
        let most = self.maps.piece_blocks_max() as usize * size;
        let (mut batch, mut entry_bytes) = (SmallVec::<[Append<'d>; 1]>::new(), 0);
        let mut map = open.map.lock();
        while let Some(run) = runs.pop_front() {
            let blocks = run.blocks(size).min(self.maps.piece_blocks_max());
            let joins =
                batch.last().is_some_and(|last| last.is_followed_by(&run.split(blocks, size).0, most));
            let blocks = match joins || batch.len() < *at_once {
                true => map.admit(&open.lease, blocks),
                false => 0,
            };
            if blocks == 0 {
                runs.push_front(run);
                break;
            }
            let (piece, rest) = run.split(blocks, size);
            entry_bytes += Entry::bytes_for(blocks);
            match batch.last_mut().filter(|_| joins) {
                Some(last) => last.runs.push(piece),
                None => batch.push(Append { runs: smallvec![piece] }),
            }
            rest.into_iter().for_each(|rest| runs.push_front(rest));
        }
        assert_eq!(batch.is_empty(), entry_bytes == 0, "each run of a batch has an entry");
        if !batch.is_empty() {
            map.begin();
        }
        (batch, entry_bytes)
    }
}
