//! A store of one number, right and wrong in each way, to show that the harness notices each bug.

use zone::ZoneId;

use super::*;

const LOG: ZoneId = ZoneId(0);

/// A log of numbers, one block each. The last one counts.
struct Toy {
    run: Run,
    /// Promises before it flushes.
    early: bool,
    /// Reports what it has read before it is durable.
    trusting: bool,
    /// Panics if it finds a foreign block.
    fragile: bool,
    /// The signs that its run must show.
    shows: &'static [Sign],
}

impl Toy {
    fn new(early: bool, trusting: bool, fragile: bool) -> Arc<Self> {
        let run = Run { scenario: "toy", shape: "toy", seed: 3 };
        Arc::new(Toy { run, early, trusting, fragile, shows: &[Sign::Batches] })
    }

    fn explore(early: bool, trusting: bool, fragile: bool) -> (Counts, Option<Failure>) {
        explore(Toy::new(early, trusting, fragile), Thoroughness::FULL)
    }
}

struct Number(u64);

impl State for Number {
    fn digest(&self) -> u64 {
        self.0
    }

    fn difference(&self, found: &Self) -> String {
        format!("{} is not {}", found.0, self.0)
    }
}

/// Appends, unless the zone came back full.
fn append(device: &Emulated, number: u64) -> Result<(), Wrong> {
    if !device.report_zone(LOG).expect("it is there").state.has_pointer() {
        return Ok(());
    }
    let mut block = vec![0; 512];
    block[..8].copy_from_slice(&number.to_le_bytes());
    block[8..16].copy_from_slice(&mix(&[number]).to_le_bytes());
    device.append(LOG, &block).map(|_| ()).map_err(|error| Wrong::at("append", error))
}

fn flush(device: &Emulated) -> Result<(), Wrong> {
    device.flush().map_err(|error| Wrong::at("flush", error))
}

/// The greatest number in the log, and whether there are holes.
fn read(device: &Emulated) -> (u64, bool) {
    let info = device.report_zone(LOG).expect("it is there");
    let end = if info.state.has_pointer() { info.pointer } else { info.capacity };
    let mut block = vec![0; 512];
    let (mut last, mut holes) = (0, false);
    for at in 0..end {
        device.read(LOG, at, &mut block).expect("it is written");
        let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        match word(8) == mix(&[word(0)]) {
            true => last = last.max(word(0)),
            false => holes = true,
        }
    }
    (last, holes)
}

impl Subject for Toy {
    type State = Number;

    fn run_id(&self) -> &Run {
        &self.run
    }

    fn shows(&self) -> &[Sign] {
        self.shows
    }

    fn spec(&self) -> Spec {
        Spec::new(512, 6, 64)
    }

    fn run(&self, device: &Arc<Emulated>) -> Result<Ran<Number>, Wrong> {
        device.record();
        let mut history = History::from(Number(0));
        for number in 1..6 {
            history.begin(device.commands(), Number(number));
            append(device, number)?;
            if self.early {
                history.promise(device.commands(), history.last());
            }
            flush(device)?;
            history.promise(device.commands(), history.last());
        }
        let mut shown = Shown::default();
        shown.set(Sign::Batches, 5);
        Ok(Ran { device: Arc::clone(device), history, shown })
    }

    fn recover(
        &self,
        device: &Arc<Emulated>,
        allowed: &[Arc<Number>],
        _round: usize,
    ) -> Result<Recovered<Number>, Wrong> {
        let mut history = History::recovering(allowed);
        if !self.trusting {
            flush(device)?;
        }
        let (found, holes) = read(device);
        assert!(!(self.fragile && holes), "a hole");
        let index = State::find(allowed, &Number(found)).ok_or_else(|| Wrong(format!("{found} is wrong")))?;
        history.settle(device.commands(), Arc::clone(&allowed[index]));
        append(device, found)?;
        Ok(Recovered { found, history })
    }
}

#[test]
fn a_right_run_passes_and_is_counted() {
    let (counts, failure) = Toy::explore(false, false, false);
    assert!(failure.is_none(), "{}", failure.expect("there is one"));
    assert_eq!(counts.commands, 11, "ten commands, and before the first");
    assert!(counts.cuts.iter().all(|&cuts| cuts > 0), "{counts}");
    assert_eq!(counts.recovered.len(), 6);
}

#[test]
fn a_scenario_that_does_not_show_its_signs_fails() {
    let mut toy = Arc::into_inner(Toy::new(false, false, false)).expect("there is no other reference");
    toy.shows = &[Sign::Batches, Sign::NodesRead, Sign::Moved];
    let (counts, failure) = explore(Arc::new(toy), Thoroughness::QUICK);
    let failure = failure.expect("nothing was read back");
    assert!(failure.idle && counts.commands == 0, "{failure}");
    let words = "names: nodes read back, blocks moved by gc (it shows 5 batches)";
    assert!(failure.wrong.0.ends_with(words), "{failure}");
}

#[test]
fn a_promise_before_the_flush_is_seen() {
    let (_, failure) = Toy::explore(true, false, false);
    let failure = failure.expect("a promise was broken");
    assert!(failure.wrong.0.contains("is wrong"), "{failure}");
    let again = repeat(Toy::new(true, false, false).as_ref(), &failure.case);
    assert!(again.expect_err("the same case").0.ends_with(&failure.wrong.0));
}

#[test]
fn unflushed_data_of_a_killed_process_is_not_trusted() {
    let (_, failure) = Toy::explore(false, true, false);
    let case = failure.expect("a shown state got lost").case;
    assert!(case.cuts.iter().any(|cut| cut.loss == Loss::Killed), "{case}");
}

#[test]
fn a_panic_is_a_finding_with_its_words() {
    let (_, failure) = Toy::explore(false, false, true);
    let words = failure.expect("it panics").wrong.0;
    assert!(words.starts_with("panic: a hole (crates/sim/src/explore/tests.rs:"), "{words}");
}

#[test]
fn the_same_seed_gives_the_same_digest() {
    let digest = || Toy::explore(false, false, false).0.digest;
    assert_eq!(digest(), digest());
}

#[test]
fn a_case_is_a_line_that_is_read_again() {
    let plan = |text: &str| text.parse::<Loss>().expect("a plan");
    let cuts = vec![Cut { at: 3, loss: Loss::Killed }, Cut { at: 7, loss: plan("full:tear-one:2:1") }];
    let case = Case { run: Toy::new(false, false, false).run.clone(), cuts };
    let line = "polder-sim cuts --scenario toy --geometry toy --seed 3 \
                --cut 3 --plan killed --cut 7 --plan full:tear-one:2:1";
    assert_eq!(case.to_string(), line);
}
