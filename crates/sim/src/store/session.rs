//! A mounted store that is driven at random, together with the model.

use std::collections::BTreeSet;
use std::sync::Arc;

use emulated::{CommandKind, Counters, CrashPlan, Emulated, Fault, Spec};
use rt::random::Rng;
use tree::{Config, FormatOptions, Group, Lsn, Store, StoreError, Table, Tx, ZoneRef};
use zone::{Cause, Device, FsId, Lease, Role, ZoneState};

use super::crew::{Write, transaction};
use super::data::{DATA, Place, Recovering, User};
use super::entries::{Entries, Key};
use super::scenarios::{Profile, ZoneFailure};
use crate::case::{Cut, Loss, Run};
use crate::caught::Wrong;
use crate::digest::mix;
use crate::explore::{Ran, Recovered, Subject};
use crate::history::{History, State};
use crate::shapes::Shape;
use crate::shows::{Reading, Shown, Sign};

/// The table of entries that do not refer to data.
const PLAIN: u8 = 1;

/// Steps after each recovery.
const STEPS_AFTER: u32 = 6;

/// Transactions of each client after each recovery.
const TRANSACTIONS_AFTER: u32 = 2;

/// How often all clients continue together until the signs of the scenario have risen.
const CREW_ROUNDS: u32 = 60;

/// The store under one profile on one shape of device.
pub struct StoreSubject {
    run: Run,
    pub(super) profile: Profile,
    shape: Shape,
}

impl StoreSubject {
    /// A run of this profile.
    pub fn new(profile: Profile, shape: Shape, seed: u64) -> Self {
        StoreSubject { run: Run { scenario: profile.name, shape: shape.name, seed }, profile, shape }
    }

    fn format(&self, device: &Arc<Emulated>) -> Result<(), Wrong> {
        let options = FormatOptions {
            fs_id: FsId([7; 16]),
            label: "sim".to_owned(),
            page_size: self.shape.page_size,
            groups: self.profile.groups,
            created_ns: 0,
            reserve: tree::Reserve::default(),
        };
        let device: Arc<dyn Device> = Arc::clone(device) as _;
        Store::format(&device, &options).map_err(|error| Wrong::at("format", error))
    }

    fn open(&self, device: &Arc<Emulated>) -> Result<(Arc<Store>, Recovering), Wrong> {
        device.reopen();
        let mut recovering = Recovering::new(Arc::clone(device) as _);
        let config = Config { cache_bytes: self.profile.cache_bytes, read_only: false, accept_loss: false };
        let (store, recovery) = Store::open(Arc::clone(device) as _, &config, &mut recovering)
            .map_err(|error| Wrong::at("open", error))?;
        recovering.discarded = recovery.discarded;
        Ok((Arc::new(store), recovering))
    }
}

impl StoreSubject {
    fn run_crew(&self, session: &mut Session<'_>, before: &Reading) -> Result<(), Wrong> {
        for _ in 0..CREW_ROUNDS {
            session.crew(self.profile.steps)?;
            if session.reading().since(before).check(self.profile.shows).is_ok() {
                break;
            }
        }
        Ok(())
    }

    /// The run is a recovery from a loss of power that left the record of the last transaction, but not the data to
    /// which it refers.
    fn run_recovery(&self, mut session: Session<'_>) -> Result<Ran<Entries>, Wrong> {
        let device = Arc::clone(session.device);
        session.commit_data()?;
        let appends = |device: &Emulated| device.counters().of(CommandKind::Append);
        let data = appends(&device) - session.recorded_from.of(CommandKind::Append) - 1;
        session.all_durable()?;
        let flush = device.commands();
        let lost = CrashPlan::BackFrom(u32::try_from(data).expect("few appends are recorded"));
        let image = Arc::new(Cut { at: flush - 1, loss: Loss::Power(lost) }.apply(&device));
        let allowed = session.history.allowed(flush - 1).to_vec();
        drop(session);
        let (Recovered { history, .. }, discarded) = self.recover_counting(&image, &allowed, 0)?;
        let mut shown = Shown::default();
        shown.set(Sign::Discarded, discarded);
        Ok(Ran { device: image, history, shown })
    }
}

impl Subject for StoreSubject {
    type State = Entries;

    fn run_id(&self) -> &Run {
        &self.run
    }

    fn shows(&self) -> &[Sign] {
        self.profile.shows
    }

    fn spec(&self) -> Spec {
        self.shape.spec.clone().seed(self.run.seed)
    }

    fn run(&self, device: &Arc<Emulated>) -> Result<Ran<Entries>, Wrong> {
        self.format(device)?;
        let (store, recovering) = self.open(device)?;
        let history = History::from(Entries::default());
        let mut session = Session::new(self, device, store, &recovering, history, self.run.seed)?;
        session.preparing = self.profile.idle_before;
        session.steps(self.profile.prepare)?;
        session.preparing = false;
        session.all_durable()?;
        if self.profile.capacities {
            session.change_capacities();
        }
        session.restart();
        if self.profile.retries {
            return self.run_recovery(session);
        }
        session.meddling = self.profile.meddling;
        let before = session.reading();
        if self.profile.clients > 0 {
            self.run_crew(&mut session, &before)?;
        } else {
            session.steps_with_failure(self.profile.steps, self.profile.failure)?;
        }
        let shown = session.reading().since(&before);
        Ok(Ran { device: Arc::clone(device), history: session.history, shown })
    }

    fn recover(
        &self,
        device: &Arc<Emulated>,
        allowed: &[Arc<Entries>],
        round: usize,
    ) -> Result<Recovered<Entries>, Wrong> {
        self.recover_counting(device, allowed, round).map(|(recovered, _)| recovered)
    }
}

impl StoreSubject {
    /// Recovers, checks and continues. Also returns the number of records that recovery discarded.
    fn recover_counting(
        &self,
        device: &Arc<Emulated>,
        allowed: &[Arc<Entries>],
        round: usize,
    ) -> Result<(Recovered<Entries>, u64), Wrong> {
        let mut history = History::recovering(allowed);
        let (store, recovering) = self.open(device)?;
        let found = observe(&store, &recovering)?;
        let discarded = recovering.discarded;
        let index = State::find(allowed, &found).ok_or_else(|| {
            let wrong = Entries::explain(allowed, &found);
            Wrong(format!("none of the {} states that may be found; the nearest:\n{wrong}", allowed.len()))
        })?;
        history.settle(device.commands(), Arc::clone(&allowed[index]));
        let seed = mix(&[self.run.seed, round as u64]);
        let mut session = Session::new(self, device, store, &recovering, history, seed)?;
        if self.profile.clients > 0 {
            session.crew(TRANSACTIONS_AFTER)?;
        } else {
            session.steps(STEPS_AFTER)?;
        }
        session.all_durable()?;
        session.steps(STEPS_AFTER / 2)?;
        Ok((Recovered { found: found.digest(), history: session.history }, discarded))
    }
}

/// Everything in the store, after the checker and further checks of promises.
fn observe(store: &Store, recovering: &Recovering) -> Result<Entries, Wrong> {
    let mut found = Entries::default();
    let findings = store
        .check(&mut |group, table, key, value| found.put((group.0, table.0, key.to_vec()), value.to_vec()))
        .map_err(|error| Wrong::at("check", error))?;
    if !findings.is_empty() {
        let lines: Vec<String> = findings.into_iter().map(|finding| finding.what).collect();
        return Err(Wrong(format!("the checker finds:\n{}", lines.join("\n"))));
    }
    check_look_ups(store, &found)?;
    check_data(store, recovering, &found)?;
    Ok(found)
}

/// Lookups give the same entries as the checker's walk.
fn check_look_ups(store: &Store, found: &Entries) -> Result<(), Wrong> {
    for group in 0..store.info().groups {
        for table in [PLAIN, DATA] {
            let expected = found.table(group, table);
            let range = store
                .range(Group(group), Table(table), &[], &[], usize::MAX)
                .map_err(|error| Wrong::at("range", error))?;
            let range = range.iter().map(|(key, value)| (&key[..], &value[..]));
            if !range.eq(expected.iter().map(|(key, value)| (&key[..], &value[..]))) {
                return Err(Wrong(format!(
                    "a range of group {group} table {table} is not what the walk found"
                )));
            }
            for (key, value) in expected.iter().step_by(7) {
                let got =
                    store.get(Group(group), Table(table), key).map_err(|error| Wrong::at("get", error))?;
                if got.as_ref() != Some(value) {
                    return Err(Wrong(format!("get of {key:?} in group {group} is not what the walk found")));
                }
            }
        }
    }
    Ok(())
}

/// The data to which entries refer exists, the live counts of zones match them, and a checkpoint carried what it must
/// carry.
fn check_data(store: &Store, recovering: &Recovering, found: &Entries) -> Result<(), Wrong> {
    let pool = store.pool();
    let mut live = vec![0; pool.count() as usize];
    let mut owned = BTreeSet::new();
    for (key, value) in found.iter().filter(|((_, table, _), _)| *table == DATA) {
        let place = Place::decode(value).ok_or_else(|| Wrong(format!("{key:?} names no place")))?;
        let zone = place.at.zone();
        live[zone.0 as usize] += place.blocks;
        let mut blocks = (0..place.blocks).map(|block| (zone, place.at.block() + block));
        if let Some(twice) = blocks.find(|&block| !owned.insert(block)) {
            return Err(Wrong(format!("{twice:?} belongs to {key:?} and to another entry")));
        }
        // Entries still refer to data in a zone that went offline, but the data is lost.
        let gone = pool.info(zone).state == ZoneState::Offline;
        if !(gone || place.is_there(store.device().as_ref())) || !place.at.is_of(pool.entry(zone).life) {
            return Err(Wrong(format!("the data of {key:?} is not at {}", place.at)));
        }
        if pool.info(zone).state.is_active() && !recovering.known.contains(&place.at.bits()) {
            return Err(Wrong(format!(
                "{} is in an open zone, and neither checkpoint nor records name it",
                place.at
            )));
        }
    }
    for (zone, live) in (0..).map(zone::ZoneId).zip(live) {
        let entry = pool.entry(zone);
        if live > 0 && !entry.role.holds_data() || entry.role.holds_data() && entry.live != live {
            return Err(Wrong(format!("{zone:?} holds {live} live blocks, the table says {entry:?}")));
        }
    }
    Ok(())
}

/// A mounted store.
pub(super) struct Session<'a> {
    pub(super) subject: &'a StoreSubject,
    pub(super) device: &'a Arc<Emulated>,
    pub(super) store: Arc<Store>,
    user: Arc<User>,
    pub(super) entries: Entries,
    pub(super) history: History<Entries>,
    /// For each commit, in the order of LSNs, the index of the state after it.
    pub(super) commits: Vec<(Lsn, usize)>,
    lease: Option<Lease>,
    /// A reader, and the zone that it has entered.
    reading: Option<(Place, ZoneRef)>,
    /// Transactions in the middle of each checkpoint. None after a recovery: if the log needs a checkpoint first,
    /// they would wait for the checkpoint that waits for them.
    meddling: u32,
    /// Take no background steps.
    preparing: bool,
    /// The device's counters when the recording began.
    recorded_from: Counters,
    pub(super) rng: Rng,
}

impl<'a> Session<'a> {
    fn new(
        subject: &'a StoreSubject,
        device: &'a Arc<Emulated>,
        store: Arc<Store>,
        recovering: &Recovering,
        history: History<Entries>,
        seed: u64,
    ) -> Result<Self, Wrong> {
        let user = Arc::new(User::default());
        recovering.known.iter().for_each(|&bits| user.add(zone::Address::from_bits(bits)));
        store.set_client(Arc::clone(&user) as _);
        let mut session = Session {
            subject,
            device,
            store,
            user,
            entries: history.newest().as_ref().clone(),
            history,
            commits: vec![],
            lease: None,
            reading: None,
            meddling: 0,
            preparing: false,
            recorded_from: device.counters(),
            rng: Rng::with_seed(seed),
        };
        session.resume()?;
        Ok(session)
    }

    /// Resumes one partly written data zone, and gives up the others.
    fn resume(&mut self) -> Result<(), Wrong> {
        for role in [Role::Data, Role::Gc] {
            for zone in self.store.pool().in_role(role) {
                let active = self.store.pool().info(zone).state.is_active();
                if active && self.lease.is_none() {
                    let lease = self.store.resume_zone(zone);
                    self.lease = Some(lease.map_err(|error| Wrong::at("resume a zone", error))?);
                } else {
                    if self.device.report_zone(zone).is_ok_and(|info| info.state == ZoneState::Closed) {
                        self.device.finish(zone).map_err(|error| Wrong::at("finish a zone", error))?;
                    }
                    self.close(zone);
                }
            }
        }
        Ok(())
    }

    fn close(&self, zone: zone::ZoneId) {
        self.user.forget(zone);
        self.store.pool().close(zone);
    }

    /// Forgets the history. The recording begins here.
    fn restart(&mut self) {
        self.device.record();
        self.recorded_from = self.device.counters();
        self.history = History::from(self.entries.clone());
        self.commits.clear();
    }

    /// From its next reset on, each zone has another capacity, at least three quarters of the old one.
    fn change_capacities(&mut self) {
        for zone in (0..self.store.pool().count()).map(zone::ZoneId) {
            let capacity = self.store.pool().capacity(zone);
            let smaller = self.rng.u32(capacity * 3 / 4..capacity);
            self.device.change_capacity_at_reset(zone, smaller);
        }
    }

    /// The current counts.
    fn reading(&self) -> Reading {
        Reading::of(self.device, &self.store, 0)
    }

    fn steps(&mut self, count: u32) -> Result<(), Wrong> {
        self.steps_with_failure(count, None)
    }

    fn steps_with_failure(&mut self, count: u32, failure: Option<ZoneFailure>) -> Result<(), Wrong> {
        let failed = self.device.counters().failed;
        for step in 0..count {
            // Retry until it happens: the zone that is being written may have no space for another append.
            if let Some(failure) = failure.filter(|failure| failure.step <= step)
                && self.device.counters().failed == failed
            {
                self.fail(failure)?;
            }
            self.step()?;
            self.note_durable();
            self.read()?;
        }
        Ok(())
    }

    /// From now on every append to the zones that are being written in a role fails.
    fn fail(&self, failure: ZoneFailure) -> Result<(), Wrong> {
        self.device.clear_faults();
        let report = self.device.report().map_err(|error| Wrong::at("report", error))?;
        for zone in self.store.pool().in_role(failure.role) {
            if report[zone.0 as usize].state.is_active() {
                self.device.inject(Fault::nth(CommandKind::Append, 1, failure.effect).on(zone).forever());
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Wrong> {
        let weights = self.subject.profile.weights;
        let likely = [
            weights.commit,
            weights.data,
            weights.sync,
            weights.checkpoint,
            weights.step,
            weights.reclaim,
            weights.reader,
        ];
        let mut chosen = self.rng.u32(0..likely.iter().sum());
        let step = likely.iter().position(|&likely| {
            let here = chosen < likely;
            chosen = chosen.wrapping_sub(likely);
            here
        });
        match step.expect("a number below the sum falls somewhere") {
            0 => self.commit_plain(),
            1 => self.commit_data(),
            2 => self.all_durable(),
            3 => self.checkpoint(),
            4 | 5 if self.preparing => Ok(()),
            4 => self.store.step().map(|_| ()).map_err(|error| Wrong::at("step", error)),
            5 => self.store.reclaim(true).map(|_| ()).map_err(|error| Wrong::at("reclaim", error)),
            _ => self.reader(),
        }
    }

    /// A checkpoint, with other transactions in the middle of it.
    fn checkpoint(&mut self) -> Result<(), Wrong> {
        let mut states = Vec::new();
        let mut waiting = Vec::new();
        let mut after = self.entries.clone();
        for _ in 0..self.meddling {
            let tx = match self.subject.profile.weights.data {
                0 => self.plain(&mut after),
                _ => self.forget_data(&mut after),
            };
            waiting.push(tx);
            states.push(after.clone());
            self.history.begin(self.device.commands(), after.clone());
        }
        let first = self.history.last() + 1 - states.len();
        // All, some or none of them are durable before the checkpoint is.
        let sync_after = self.rng.usize(0..=2 * states.len());
        self.user.meddle(&self.store, waiting, sync_after);
        let taken = self.store.checkpoint();
        let done = self.user.meddled().map_err(|error| Wrong::at("commit during a checkpoint", error))?;
        taken.map_err(|error| Wrong::at("checkpoint", error))?;
        if done.len() < states.len() {
            return Err(Wrong("the checkpoint did not ask its user for the payload".to_owned()));
        }
        self.commits.extend(done.into_iter().zip(first..));
        self.entries = after;
        self.history.promise(self.device.commands(), first - 1);
        Ok(())
    }

    /// A reader enters the zone of some data, or leaves it.
    fn reader(&mut self) -> Result<(), Wrong> {
        if self.reading.take().is_some() {
            return Ok(());
        }
        let named: Vec<Place> = self
            .entries
            .iter()
            .filter_map(|((_, table, _), value)| (*table == DATA).then(|| Place::decode(value))?)
            .collect();
        if !named.is_empty() {
            let place = named[self.rng.usize(..named.len())];
            let held = self.store.enter_zone(place.at);
            self.reading =
                Some((place, held.ok_or_else(|| Wrong(format!("{} cannot be entered", place.at)))?));
        }
        Ok(())
    }

    fn offline(&self, zone: zone::ZoneId) -> bool {
        self.device.report_zone(zone).is_ok_and(|info| info.state == ZoneState::Offline)
    }

    /// The data in a zone that a reader has entered stays there, unless the zone goes offline.
    fn read(&self) -> Result<(), Wrong> {
        match &self.reading {
            Some((place, _)) if !place.is_there(self.device.as_ref()) && !self.offline(place.at.zone()) => {
                Err(Wrong(format!("the data at {} is gone while a reader is in its zone", place.at)))
            }
            _ => Ok(()),
        }
    }

    fn commit_plain(&mut self) -> Result<(), Wrong> {
        let mut after = self.entries.clone();
        let tx = self.plain(&mut after);
        self.commit(tx, after)
    }

    /// Puts and deletes, and their effect on the entries.
    fn plain(&mut self, after: &mut Entries) -> Tx {
        let writes = random_writes(&self.subject.profile, self.store.value_max(), &mut self.rng);
        let tx = transaction(&writes);
        writes.into_iter().for_each(|write| after.write(write));
        tx
    }

    fn commit(&mut self, tx: Tx, after: Entries) -> Result<(), Wrong> {
        self.history.begin(self.device.commands(), after.clone());
        match self.store.commit(tx) {
            Ok(lsn) => {
                self.commits.push((lsn, self.history.last()));
                self.entries = after;
                Ok(())
            }
            Err(StoreError::NoSpace) => {
                self.history.withdraw();
                Ok(())
            }
            Err(error) => Err(Wrong::at("commit", error)),
        }
    }

    /// Writes blocks to a data zone and refers to them in a transaction.
    fn commit_data(&mut self) -> Result<(), Wrong> {
        let (group, key) = random_key(&self.subject.profile, &mut self.rng);
        // Zones are full after a few dozen of these, for any block size.
        let most = (self.device.geometry().zone_blocks / 12).max(3);
        let (blocks, tag) =
            if self.subject.profile.retries { (1, 1) } else { (self.rng.u32(1..=most), self.rng.u64(..)) };
        let bytes = Place::bytes(tag, blocks, self.device.geometry().block_size);
        let Some(at) = self.append(&bytes, blocks)? else { return Ok(()) };
        self.user.add(at);
        let place = Place { at, blocks, tag };
        let (mut tx, mut after) = (Tx::new(), self.entries.clone());
        let key: Key = (group, DATA, key);
        if let Some(old) = self.entries.get(&key).and_then(|value| Place::decode(value)) {
            tx.zone_live(old.at.zone(), -(old.blocks as i32));
        }
        tx.put(Group(group), Table(DATA), key.2.clone(), place.encode());
        tx.zone_live(at.zone(), blocks as i32);
        after.put(key, place.encode());
        let committed = self.commit(tx, after);
        self.store.pool().remove_pending(at.zone(), blocks);
        committed
    }

    /// A transaction that deletes the references to some data. Any other transaction if there is no data.
    fn forget_data(&mut self, after: &mut Entries) -> Tx {
        let data: Vec<(Key, Place)> = after
            .iter()
            .filter(|((_, table, _), _)| *table == DATA)
            .filter_map(|(key, value)| Some((key.clone(), Place::decode(value)?)))
            .collect();
        let Some((key, place)) = self.rng.choice(data) else { return self.plain(after) };
        let mut tx = Tx::new();
        tx.delete(Group(key.0), Table(DATA), key.2.clone());
        tx.zone_live(place.at.zone(), -(place.blocks as i32));
        after.delete(&key);
        tx
    }

    /// Appends, in another zone if necessary. The blocks are pending then. `None`: no zone is free.
    fn append(&mut self, bytes: &[u8], blocks: u32) -> Result<Option<zone::Address>, Wrong> {
        loop {
            if self.lease.is_none() {
                self.lease = self.open_zone()?;
            }
            let Some(lease) = &self.lease else { return Ok(None) };
            let (zone, life) = (lease.zone(), lease.life());
            if lease.admit(blocks, 0) {
                self.store.pool().add_pending(zone, blocks);
                match lease.append_in_pieces(Cause::Data, bytes) {
                    Ok(block) => return Ok(Some(zone::Address::new(zone, block, life))),
                    Err(error) if !error.ends_zone() => return Err(Wrong::at("append data", error)),
                    Err(_) => self.store.pool().remove_pending(zone, blocks),
                }
            }
            let full = self.lease.take().expect("it was there above");
            let lost = self.device.report_zone(zone).is_ok_and(|info| !info.state.is_active());
            // A zone that has failed for good is not active any more, so there is nothing to finish.
            if !lost {
                full.finish().map_err(|error| Wrong::at("finish a zone", error))?;
            }
            self.close(zone);
        }
    }

    fn open_zone(&mut self) -> Result<Option<Lease>, Wrong> {
        let mut lease = self.store.open_zone(Role::Data).map_err(|error| Wrong::at("open a zone", error))?;
        if lease.is_none() {
            self.store.reclaim(true).map_err(|error| Wrong::at("reclaim", error))?;
            lease = self.store.open_zone(Role::Data).map_err(|error| Wrong::at("open a zone", error))?;
        }
        Ok(lease)
    }

    fn all_durable(&mut self) -> Result<(), Wrong> {
        self.store.sync(self.store.last_lsn()).map_err(|error| Wrong::at("sync", error))?;
        self.promise_all();
        Ok(())
    }

    fn promise_all(&mut self) {
        self.history.promise(self.device.commands(), self.history.last());
    }

    /// Everything that the store reports as durable is promised, no matter which client asked for it.
    pub(super) fn note_durable(&mut self) {
        let durable = self.store.durable_lsn();
        if let Some((_, state)) = self.commits.iter().rev().find(|(lsn, _)| *lsn <= durable) {
            self.history.promise(self.device.commands(), *state);
        }
    }
}

fn random_key(profile: &Profile, rng: &mut Rng) -> (u16, Vec<u8>) {
    let group = rng.u16(0..profile.groups);
    (group, format!("key-{:05}", rng.u32(0..profile.keys)).into_bytes())
}

/// The puts and deletes of a transaction.
pub(super) fn random_writes(profile: &Profile, value_max: usize, rng: &mut Rng) -> Vec<Write> {
    let write = |rng: &mut Rng| {
        let (group, key) = random_key(profile, rng);
        if profile.delete_every > 0 && rng.u32(0..profile.delete_every) == 0 {
            return ((group, PLAIN, key), None);
        }
        let mut value = vec![0; rng.usize(0..=profile.value_bytes.min(value_max))];
        rng.fill(&mut value);
        // Values of one key differ in a few bytes, so that the journal gets patches.
        let same = value.len().saturating_sub(16);
        value[..same].fill(key[key.len() - 1]);
        ((group, PLAIN, key), Some(value))
    };
    (0..rng.u32(1..=profile.writes)).map(|_| write(rng)).collect()
}
