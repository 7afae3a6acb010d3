use super::*;
use emulated::CrashPlan;
use polder_extent::format::SUMMARY_MAGIC;
use zone::ZoneId;

/// The contents of each object at one moment.
type State = BTreeMap<u64, Arc<Vec<u8>>>;

/// The contents of all objects after each transaction, and the acknowledged syncs.
struct History {
    states: Vec<(Lsn, State)>,
    /// The number of commands when a sync of this LSN returned.
    synced: Vec<(u64, Lsn)>,
}

impl History {
    fn new(first: Lsn) -> History {
        History { states: vec![(first, BTreeMap::new())], synced: vec![(0, first)] }
    }

    fn last(&self) -> &State {
        &self.states.last().unwrap().1
    }

    /// The contents that a recovery up to this LSN must find.
    fn at(&self, lsn: Lsn) -> Model {
        let index = self.states.partition_point(|(at, _)| *at <= lsn) - 1;
        self.states[index].1.iter().map(|(&object, bytes)| (object, bytes.to_vec())).collect()
    }

    fn acknowledged(&self, commands: u64) -> Lsn {
        let index = self.synced.partition_point(|(at, _)| *at <= commands) - 1;
        self.synced[index].1
    }
}

/// One random operation.
fn act(volume: &Volume, rng: &mut Rng, history: &mut History, blocks: u64) {
    let size = volume.block_size() as usize;
    let object = rng.u64(1..4);
    let mut bytes = history.last().get(&object).map(|bytes| bytes.to_vec()).unwrap_or_default();
    let lsn = if rng.u8(0..8) == 0 {
        let left = rng.u64(0..blocks);
        volume.truncate(object, left).unwrap();
        bytes.truncate(left as usize * size);
        volume.store.last_lsn()
    } else {
        let length =
            if rng.bool() { rng.usize(1..2 * size) } else { rng.usize(1..blocks as usize / 2 * size) };
        let offset = rng.usize(0..blocks as usize * size - length);
        let data = noise(rng, length);
        let lsn = volume.write(object, offset as u64, &data, bytes.len() as u64).unwrap();
        bytes.resize(bytes.len().max(offset + length), 0);
        bytes[offset..offset + length].copy_from_slice(&data);
        lsn
    };
    let mut state = history.last().clone();
    state.insert(object, Arc::new(bytes));
    history.states.push((lsn, state));
    match rng.u8(0..6) {
        0 => {
            volume.sync();
            history.synced.push((volume.device.commands(), volume.store.durable_lsn()));
        }
        1 => volume.step(2),
        2 if rng.u8(0..4) == 0 => volume.store.checkpoint().unwrap(),
        _ => {}
    }
}

/// Recovers, compares the contents with the history, and continues from there.
fn recover(image: Emulated, history: &History, commands: u64, case: &str) {
    let volume = Volume::open(Arc::new(image));
    let acknowledged = history.acknowledged(commands);
    assert!(volume.recovered >= acknowledged, "{case}: {:?} < {acknowledged:?}", volume.recovered);
    let mut model = history.at(volume.recovered);
    volume.verify(&model);
    let mut rng = Rng::with_seed(commands);
    for _ in 0..6 {
        let data = noise(&mut rng, 30_000);
        let offset = rng.usize(0..100_000);
        write(&volume, &mut model, 1, offset, &data).unwrap();
        volume.step(3);
    }
    volume.verify(&model);
}

/// The seed of a test: its own, or `POLDER_SEED`.
fn seed(own: u64) -> u64 {
    std::env::var("POLDER_SEED").map_or(own, |seed| seed.parse().unwrap())
}

/// Crashes a random history at every `stride`-th command, under every plan that needs no seed and a few that need one.
/// Every now and then the test continues after the crash, and crashes again.
fn crash(name: &str, spec: Spec, (operations, stride, own): (usize, u64, u64)) {
    let seed = seed(own);
    let volume = Volume::new(spec);
    let mut rng = Rng::with_seed(seed);
    let space = volume.extents.budget().space().available;
    let blocks = (space / volume.block_size() / 8).min(48);
    volume.sync();
    let mut history = History::new(volume.store.last_lsn());
    volume.device.record();
    (0..operations).for_each(|_| act(&volume, &mut rng, &mut history, blocks));
    let commands = volume.device.commands();
    let mut states = 0u64;
    for n in (0..=commands).filter(|n| n % stride == seed % stride) {
        let mut plans = volume.device.plans_at(n);
        rng.shuffle(&mut plans);
        plans.truncate(6);
        plans.extend((0..2).map(|seed| CrashPlan::Subset(n * 2 + seed)));
        for plan in plans {
            let case = format!("{name}: POLDER_SEED={seed}, command {n} of {commands}, plan {plan}");
            let image = volume.device.image_at(n, &plan);
            let checked =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| recover(image, &history, n, &case)));
            assert!(checked.is_ok(), "{case}");
            states += 1;
        }
    }
    println!("{name}: {states} crashes of {operations} operations, {commands} commands");
}

#[test]
fn crashes_on_tiny_zones() {
    crash("tiny", Spec::tiny(), (120, 7, 3));
}

#[test]
fn crashes_on_odd_zones() {
    crash("odd", Spec::odd(), (80, 11, 4));
}

#[test]
fn crashes_on_blocks_of_512() {
    crash("blocks of 512", Spec::blocks_of_512(), (80, 11, 5));
}

#[test]
fn crashes_on_blocks_of_64k() {
    crash("blocks of 64 KiB", Spec::blocks_of_64k(), (40, 13, 6));
}

#[test]
fn crashes_on_16_zones_of_which_6_are_active() {
    crash("16 zones", Spec::new(4096, 16, 128).limits(6, 6), (120, 11, 7));
}

/// Zones that recovery did not continue stayed active. After a few crashes the log could not switch to another zone,
/// and the volume shut down. These zones are finished. Garbage collection had two leases and left none for the log on a
/// device with six active zones: the volume shut down. It returns one first.
#[test]
fn crashes_one_after_the_other() {
    let seed = seed(8);
    let mut rng = Rng::with_seed(seed);
    let mut reclaimed = 0;
    for round in 0..30 {
        let spec =
            [Spec::tiny(), Spec::new(4096, 16, 96).limits(6, 6), Spec::new(512, 20, 512)][round % 3].clone();
        let mut volume = Volume::new(spec);
        volume.sync();
        let mut history = History::new(volume.store.last_lsn());
        for life in 0..8 {
            volume.device.record();
            history.synced = vec![(0, volume.store.durable_lsn().min(history.states.last().unwrap().0))];
            let operations = rng.usize(1..60);
            (0..operations).for_each(|_| act(&volume, &mut rng, &mut history, 40));
            reclaimed += volume.extents.collector().stats().zones_reclaimed;
            let n = rng.u64(0..=volume.device.commands());
            let acknowledged = history.acknowledged(n);
            let image = volume.device.image_at(n, &CrashPlan::Subset(rng.u64(..)));
            volume = Volume::open(Arc::new(image));
            assert!(volume.recovered >= acknowledged, "POLDER_SEED={seed}: round {round}, life {life}");
            let model = history.at(volume.recovered);
            volume.verify(&model);
            let state = model.into_iter().map(|(object, bytes)| (object, Arc::new(bytes))).collect();
            history.states = vec![(Lsn(0), BTreeMap::new()), (volume.recovered, state)];
        }
    }
    println!("{reclaimed} zones reclaimed between crashes");
    assert!(reclaimed > 0, "GC runs between the crashes");
}

/// The summaries of several blocks, and their lengths.
fn long_summaries(device: &Emulated) -> Vec<(ZoneId, u32, u32)> {
    let size = device.geometry().block_size as usize;
    let mut found = Vec::new();
    for (zone, info) in (0..).map(ZoneId).zip(device.report().unwrap()) {
        for block in 1..info.pointer {
            let mut bytes = vec![0; size];
            device.read(zone, block, &mut bytes).unwrap();
            let claimed = extent::format::summary_blocks_claimed(SUMMARY_MAGIC, &bytes);
            found.extend(claimed.filter(|&blocks| blocks > 1).map(|blocks| (zone, block, blocks)));
        }
    }
    found
}

/// A batch appends a summary of several blocks in front of its data. After a power loss its first blocks may be there
/// and its last ones not, while the data behind it is complete and named by a record. Afterwards the zone's reverse map
/// must still name all live blocks (from a checkpoint, or from replay), and GC must be able to move them.
#[test]
fn a_summary_of_several_blocks_may_be_torn_at_each_of_them() {
    const BLOCKS: usize = 180;
    let volume = Volume::new(Spec::new(512, 36, 1200).max_append(128));
    volume.sync();
    let mut history = History::new(volume.store.last_lsn());
    volume.device.record();
    let mut rng = Rng::with_seed(11);
    for round in 0..12 {
        let (object, bytes) = (1 + round % 3, noise(&mut rng, BLOCKS * 512));
        let lsn = volume.write(object, 0, &bytes, BLOCKS as u64 * 512).unwrap();
        let mut state = history.last().clone();
        state.insert(object, Arc::new(bytes));
        history.states.push((lsn, state));
        match round % 4 {
            1 => {
                volume.sync();
                history.synced.push((volume.device.commands(), volume.store.durable_lsn()));
            }
            3 => volume.store.checkpoint().unwrap(),
            _ => {}
        }
    }
    let all = long_summaries(&volume.device);
    assert!(all.len() > 5, "{all:?}");
    let mut torn = 0;
    for n in 0..=volume.device.commands() {
        for plan in volume.device.plans_at(n) {
            let case = format!("command {n}, plan {plan}");
            let image = volume.device.image_at(n, &plan);
            torn += u32::from(all.iter().any(|&summary| is_torn(&volume.device, &image, summary)));
            let found = Volume::open(Arc::new(image));
            assert!(found.recovered >= history.acknowledged(n), "{case}");
            let model = history.at(found.recovered);
            found.verify(&model);
            for _ in 0..1000 {
                if !found.extents.collector().manual_gc().unwrap() {
                    break;
                }
            }
            found.verify(&model);
        }
    }
    println!("{torn} images with a torn summary");
    assert!(torn > 50, "{torn} images with a torn summary");
}

/// Whether the first block of the summary is there, and its last one is not.
fn is_torn(whole: &Emulated, image: &Emulated, (zone, block, blocks): (ZoneId, u32, u32)) -> bool {
    let is_there = |block: u32| {
        let (mut before, mut now) = (vec![0; 512], vec![0; 512]);
        whole.read(zone, block, &mut before).unwrap();
        image.read(zone, block, &mut now).is_ok() && before == now
    };
    is_there(block) && !is_there(block + blocks - 1)
}

/// A full volume is overwritten, so that GC runs all the time. Again and again the power is lost at some command, and
/// every open zone comes back full, GC's too. The reported available space can be overwritten all the same.
#[test]
fn a_full_volume_survives_any_number_of_crashes_that_fill_its_open_zones() {
    let seed = seed(9);
    let mut rng = Rng::with_seed(seed);
    let mut reclaimed = 0;
    for round in 0..12 {
        let spec =
            [Spec::tiny(), Spec::new(4096, 24, 96).limits(6, 6), Spec::new(4096, 40, 128)][round % 3].clone();
        let mut volume = Volume::new(spec);
        let mut blocks = 0;
        while volume.write(1, blocks * 4096, &[1; 4096], blocks * 4096).is_ok() {
            blocks += 1;
        }
        volume.sync();
        for life in 0..10 {
            volume.device.record();
            for _ in 0..rng.u64(1..300) {
                let block = rng.u64(0..blocks);
                let written = volume.write(1, block * 4096, &[life; 4096], blocks * 4096);
                assert!(written.is_ok(), "POLDER_SEED={seed}: round {round}, life {life}: {written:?}");
                volume.step(rng.usize(0..3));
            }
            reclaimed += volume.extents.collector().stats().zones_reclaimed;
            let n = rng.u64(0..=volume.device.commands());
            let image = volume.device.image_at(n, &CrashPlan::Subset(rng.u64(..)).full_active());
            volume = Volume::open(Arc::new(image));
        }
        volume.check();
    }
    assert!(reclaimed > 0, "GC runs between the crashes");
}
