//! Makes a plan that fails smaller: fewer rounds, then fewer operations (delta debugging: Zeller and Hildebrandt,
//! "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 2002, without its complements).
//!
//! The final failure may differ from the first one. With operations left out, threads meet elsewhere, so a smaller
//! plan may pass although the bug exists. The result is small, but not always the smallest.

use std::collections::BTreeSet;

use super::{Place, Plan};
use crate::caught::Wrong;

/// A failing plan, and its failure.
#[derive(Clone, Debug)]
pub struct Failing {
    /// The plan.
    pub plan: Plan,
    /// The failure.
    pub wrong: Wrong,
}

/// A smaller failing plan, after at most this many tries.
pub fn shrink(failing: Failing, tries: u32) -> Failing {
    shrink_by(failing, tries, &|plan| plan.run().err())
}

/// The same, with a function that runs a plan.
pub(super) fn shrink_by(failing: Failing, tries: u32, run: &dyn Fn(&Plan) -> Option<Wrong>) -> Failing {
    let mut shrinking = Shrinking { best: failing, left: tries, run };
    while shrinking.best.plan.rounds > 1 && shrinking.left > 0 {
        let plan = &shrinking.best.plan;
        if !shrinking.fails(Plan { rounds: plan.rounds - 1, ..plan.clone() }) {
            break;
        }
    }
    let mut chunk = shrinking.best.plan.places().len().div_ceil(2);
    while chunk > 0 && shrinking.left > 0 {
        let smaller = shrinking.without_chunks(chunk);
        chunk = if smaller { chunk.min(shrinking.best.plan.places().len()) } else { chunk / 2 };
    }
    shrinking.best
}

struct Shrinking<'r> {
    best: Failing,
    left: u32,
    run: &'r dyn Fn(&Plan) -> Option<Wrong>,
}

impl Shrinking<'_> {
    /// Leaves out every chunk without which the plan still fails. Returns whether there was one.
    fn without_chunks(&mut self, chunk: usize) -> bool {
        let places: Vec<Place> = self.best.plan.places().into_iter().collect();
        let mut smaller = false;
        for chunk in places.chunks(chunk) {
            let mut only = self.best.plan.places();
            only.retain(|place| !chunk.contains(place));
            smaller |= self.left > 0 && self.fails(self.best.plan.with_only(only));
        }
        smaller
    }

    /// Whether this plan fails as well. Then it is the best so far.
    fn fails(&mut self, plan: Plan) -> bool {
        self.left = self.left.saturating_sub(1);
        match (self.run)(&plan) {
            None => false,
            Some(wrong) => {
                self.best = Failing { plan, wrong };
                true
            }
        }
    }
}

impl Plan {
    fn with_only(&self, only: BTreeSet<Place>) -> Plan {
        Plan { only: Some(only), ..self.clone() }
    }
}
