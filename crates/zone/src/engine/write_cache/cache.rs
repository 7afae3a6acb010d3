//! The cache and the simulated power loss.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Result};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rt::random::Rng;
use rt::sync::{Condvar, Mutex, MutexGuard};

use crate::engine::Transfer;

const PIPE: &str = "POLDER_KNIFE_PIPE";
const LIES: &str = "POLDER_KNIFE_LIES";

/// The unit that a power loss does not tear: the blocks of a volume, and the pages that contain the states of its
/// zones.
const UNIT: usize = 4096;
/// The largest number of writes between the request for a power loss and the loss.
const WRITES_MAX: u32 = 12;
/// The longest time that a requested power loss is delayed.
const DELAY_MAX: Duration = Duration::from_millis(200);

pub(in crate::engine) struct WriteCache(Arc<Shared>);

struct Shared {
    file: File,
    /// Whether a sync does nothing.
    lies: bool,
    state: Mutex<State>,
    /// Signalled when the power loss is due.
    due: Condvar,
}

/// When the power is lost, relative to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Now,
    /// After this number of writes.
    Writes(u32),
    /// At the beginning of the next sync, when the states of the zones have been written and nothing is durable yet.
    Sync,
}

impl Moment {
    fn draw(rng: &mut Rng) -> Moment {
        match rng.u32(0..5) {
            0 => Moment::Now,
            1 | 2 => Moment::Writes(rng.u32(1..=WRITES_MAX)),
            _ => Moment::Sync,
        }
    }
}

#[derive(Default)]
struct State {
    /// Written since the last sync began.
    new: Window,
    /// Being written to the file by a sync in progress.
    leaving: Arc<Window>,
    /// When the power is lost, if that was requested.
    moment: Option<Moment>,
}

/// Writes that a power loss may discard, in order.
#[derive(Default)]
struct Window {
    writes: Vec<Write>,
    /// The newest write of each unit.
    newest: HashMap<u64, usize>,
}

struct Write {
    /// Its first unit in the file.
    first: u64,
    bytes: Box<[u8]>,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Now => f.write_str("at once"),
            Moment::Writes(count) => write!(f, "behind {count} writes"),
            Moment::Sync => f.write_str("amid a sync"),
        }
    }
}

/// Which units of one write survive a power loss.
enum Survival {
    All,
    /// The first units, up to this number.
    First(u32),
    /// These units, by their bits, 64 at a time.
    Scattered(u64),
    None,
}

impl Survival {
    /// Chooses which units survive of a write that no sync has made durable.
    fn draw(rng: &mut Rng, units: u32) -> Survival {
        match rng.u32(0..6) {
            0 | 1 => Survival::All,
            3 => Survival::First(rng.u32(0..units)),
            4 => Survival::Scattered(rng.u64(..)),
            _ => Survival::None,
        }
    }

    /// Whether this unit of the write survives.
    fn keeps(&self, unit: u32) -> bool {
        match *self {
            Survival::All => true,
            Survival::First(first) => unit < first,
            Survival::Scattered(bits) => bits >> (unit % 64) & 1 == 1,
            Survival::None => false,
        }
    }
}

/// How many blocks a power loss has kept and lost.
#[derive(Debug, Default, PartialEq, Eq)]
struct CutBlocks {
    kept: u64,
    lost: u64,
}

impl Window {
    fn push(&mut self, offset: u64, from: &[u8]) {
        let first = offset / UNIT as u64;
        for unit in first..first + (from.len() / UNIT) as u64 {
            self.newest.insert(unit, self.writes.len());
        }
        self.writes.push(Write { first, bytes: from.into() });
    }

    fn find(&self, unit: u64) -> Option<&[u8]> {
        let write = &self.writes[*self.newest.get(&unit)?];
        Some(&write.bytes[(unit - write.first) as usize * UNIT..][..UNIT])
    }
}

impl WriteCache {
    /// A cache that is controlled through a pipe, if the environment names one.
    pub(in crate::engine) fn from_environment(file: &File, unit: usize) -> Result<Option<Self>> {
        let Some(pipe) = std::env::var_os(PIPE).map(PathBuf::from) else { return Ok(None) };
        if unit != UNIT {
            let why = format!("with {PIPE} in the environment only volumes with blocks of {UNIT} work");
            return Err(std::io::Error::other(why));
        }
        let write_cache = WriteCache::new(file.try_clone()?, std::env::var_os(LIES).is_some());
        let shared = Arc::clone(&write_cache.0);
        rt::thread::spawn("polder-power", move || match await_cut(&pipe) {
            Ok(seed) => shared.cut(seed),
            Err(error) => eprintln!("polder: {}: {error}", pipe.display()),
        })?;
        Ok(Some(write_cache))
    }

    fn new(file: File, lies: bool) -> Self {
        WriteCache(Arc::new(Shared { file, lies, state: Mutex::default(), due: Condvar::new() }))
    }

    pub(in crate::engine) fn execute(&self, transfer: &mut Transfer<'_>) -> Result<()> {
        match transfer {
            Transfer::Read { offset, into } => self.0.read(*offset, into),
            Transfer::Write { offset, from, .. } => {
                check(*offset, from.len());
                self.0.write(*offset, from);
                Ok(())
            }
        }
    }

    pub(in crate::engine) fn sync(&self) -> Result<()> {
        self.0.sync()
    }
}

impl Shared {
    /// The file is read under the lock. Otherwise a sync could end between the two reads, and both would miss the
    /// data.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        check(offset, into.len());
        let state = self.state.lock();
        self.file.read_exact_at(into, offset)?;
        for (unit, into) in (offset / UNIT as u64..).zip(into.chunks_mut(UNIT)) {
            if let Some(bytes) = state.new.find(unit).or_else(|| state.leaving.find(unit)) {
                into.copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) {
        let mut state = self.state.lock();
        state.new.push(offset, from);
        if let Some(Moment::Writes(left)) = &mut state.moment {
            *left -= 1;
            if *left == 0 {
                self.block_until_end(&mut state);
            }
        }
    }

    /// Data that is written during a sync belongs to the next sync.
    fn sync(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.moment == Some(Moment::Sync) {
            self.block_until_end(&mut state);
        }
        if self.lies {
            return Ok(());
        }
        assert!(state.leaving.writes.is_empty(), "one sync at a time");
        let leaving = Arc::new(std::mem::take(&mut state.new));
        state.leaving = Arc::clone(&leaving);
        drop(state);
        let mut writes = leaving.writes.iter();
        writes.try_for_each(|write| self.file.write_all_at(&write.bytes, write.first * UNIT as u64))?;
        self.state.lock().leaving = Arc::default();
        Ok(())
    }

    /// The power loss is due: later requests are not answered.
    fn block_until_end(&self, state: &mut MutexGuard<'_, State>) -> ! {
        state.moment = Some(Moment::Now);
        loop {
            self.due.notify_all();
            self.due.wait(state);
        }
    }

    /// Ends this process. Requests in the meantime are not answered.
    fn cut(&self, seed: u64) -> ! {
        let mut rng = Rng::with_seed(seed);
        let mut state = self.state.lock();
        let moment = Moment::draw(&mut rng);
        state.moment = Some(moment);
        if moment != Moment::Now {
            self.due.wait_for(&mut state, DELAY_MAX);
        }
        match self.write_survivors(&state, &mut rng) {
            Ok(CutBlocks { kept, lost }) => {
                eprintln!("polder: cut {seed}, {moment}: {kept} blocks kept, {lost} blocks lost");
            }
            Err(error) => eprintln!("polder: cut {seed} did not reach the file: {error}"),
        }
        end_process(state);
    }

    /// Writes the surviving blocks to the file.
    fn write_survivors(&self, state: &State, rng: &mut Rng) -> Result<CutBlocks> {
        let whole = match rng.u32(0..8) {
            0 => Some(Survival::All),
            1 => Some(Survival::None),
            _ => None,
        };
        let mut counts = CutBlocks::default();
        for write in state.leaving.writes.iter().chain(&state.new.writes) {
            let blocks = (write.bytes.len() / UNIT) as u32;
            let own = Survival::draw(rng, blocks);
            let survival = whole.as_ref().unwrap_or(&own);
            for (block, bytes) in (0..).zip(write.bytes.chunks(UNIT)) {
                if !survival.keeps(block) {
                    counts.lost += 1;
                    continue;
                }
                counts.kept += 1;
                self.file.write_all_at(bytes, (write.first + u64::from(block)) * UNIT as u64)?;
            }
        }
        Ok(counts)
    }
}

/// Waits for a request on the pipe and returns its seed.
fn await_cut(pipe: &std::path::Path) -> Result<u64> {
    let mut line = String::new();
    BufReader::new(File::open(pipe)?).read_line(&mut line)?;
    let seed = line.trim().strip_prefix("cut ").and_then(|seed| seed.parse().ok());
    seed.ok_or_else(|| std::io::Error::other(format!("{line:?} is not `cut SEED`; nothing is cut")))
}

/// Ends the process with the lock held. Nothing is closed or flushed.
fn end_process(state: MutexGuard<'_, State>) -> ! {
    let killed = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    // The signal arrives before the call returns.
    drop(state);
    unreachable!("a process can end itself: {killed:?}");
}

fn check(offset: u64, bytes: usize) {
    let whole = offset.is_multiple_of(UNIT as u64) && bytes.is_multiple_of(UNIT);
    assert!(whole, "{bytes} bytes at {offset} are not whole blocks");
}

#[cfg(test)]
mod tests;
