//! The core workloads of YCSB: Cooper and others, "Benchmarking Cloud Serving Systems with YCSB" (SoCC 2010), table 2
//! and section 4.1. An update writes the whole value.

use anyhow::Result;
use clap::ValueEnum;
use rand::Rng;
use rand::distr::Distribution;
use rand::rngs::SmallRng;
use rand_distr::Zipf;

use crate::records::{below, scattered};

/// YCSB's constant: some records are much more popular than others.
const SKEW: f64 = 0.99;
const SCAN_LENGTH_MAX: usize = 100;

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Insert all records into a new database.
    Load,
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads.
    C,
    /// 95 % reads of what came last, 5 % inserts.
    D,
    /// 95 % scans of up to a hundred records, 5 % inserts.
    E,
    /// Half reads, half reads with a change and a write of the same record.
    F,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Update,
    Insert,
    Scan,
    ReadModifyWrite,
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] =
        [Kind::Read, Kind::Update, Kind::Insert, Kind::Scan, Kind::ReadModifyWrite];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Update => "update",
            Kind::Insert => "insert",
            Kind::Scan => "scan",
            Kind::ReadModifyWrite => "read-modify-write",
        }
    }
}

impl Workload {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Workload::Load => "load",
            Workload::A => "a",
            Workload::B => "b",
            Workload::C => "c",
            Workload::D => "d",
            Workload::E => "e",
            Workload::F => "f",
        }
    }

    /// The frequent kind, the other one, and how many of a hundred operations are of the first.
    fn mix(self) -> (Kind, Kind, u64) {
        match self {
            Workload::Load => (Kind::Insert, Kind::Insert, 100),
            Workload::A => (Kind::Read, Kind::Update, 50),
            Workload::B => (Kind::Read, Kind::Update, 95),
            Workload::C => (Kind::Read, Kind::Read, 100),
            Workload::D => (Kind::Read, Kind::Insert, 95),
            Workload::E => (Kind::Scan, Kind::Insert, 95),
            Workload::F => (Kind::Read, Kind::ReadModifyWrite, 50),
        }
    }
}

/// What one client does next, and to which record.
pub(crate) struct Choice {
    workload: Workload,
    /// Of those that were there at the beginning the same ones stay popular.
    records: u64,
    popularity: Zipf<f64>,
}

impl Choice {
    /// `records` are there at the beginning.
    pub(crate) fn new(workload: Workload, records: u64) -> Result<Self> {
        Ok(Choice { workload, records, popularity: Zipf::new(records as f64, SKEW)? })
    }

    pub(crate) fn kind(&self, random: &mut SmallRng) -> Kind {
        let (frequent, other, percent) = self.workload.mix();
        if below(100, random) < percent { frequent } else { other }
    }

    /// One of those below `confirmed`: in workload D the later ones are popular, elsewhere some anywhere.
    pub(crate) fn record(&self, confirmed: u64, random: &mut SmallRng) -> u64 {
        let rank = self.popularity.sample(random) as u64 - 1;
        if self.workload == Workload::D {
            confirmed - 1 - rank.min(confirmed - 1)
        } else {
            scattered(rank) % self.records
        }
    }

    pub(crate) fn scan_length(&self, random: &mut SmallRng) -> usize {
        random.random_range(1..=SCAN_LENGTH_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::SeedableRng;

    use super::*;

    const RECORDS: u64 = 10_000;
    const DRAWN: u64 = 100_000;

    #[test]
    fn who_is_popular_stays_so_while_others_are_added() {
        let choice = Choice::new(Workload::E, RECORDS).unwrap();
        let first = choice.record(RECORDS, &mut SmallRng::seed_from_u64(7));
        assert_eq!(choice.record(RECORDS + 1, &mut SmallRng::seed_from_u64(7)), first);
    }

    /// How often records were drawn, the most popular first.
    fn drawn(workload: Workload) -> Vec<(u64, u64)> {
        let choice = Choice::new(workload, RECORDS).unwrap();
        let mut random = SmallRng::seed_from_u64(1);
        let mut counts = BTreeMap::new();
        for _ in 0..DRAWN {
            *counts.entry(choice.record(RECORDS, &mut random)).or_default() += 1;
        }
        let mut counts: Vec<(u64, u64)> = counts.into_iter().collect();
        counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        counts
    }

    #[test]
    fn few_records_are_popular_and_lie_anywhere() {
        let counts = drawn(Workload::A);
        assert!(counts.iter().all(|&(record, _)| record < RECORDS));
        // Of ten thousand with this skew, the first has a tenth.
        assert!((8_000..12_000).contains(&counts[0].1), "{:?}", counts[0]);
        let hundred: u64 = counts[..100].iter().map(|(_, count)| count).sum();
        assert!((45_000..60_000).contains(&hundred), "{hundred}");
        let late = counts[..100].iter().filter(|&&(record, _)| record >= RECORDS / 2).count();
        assert!((30..70).contains(&late), "{late}");
    }

    #[test]
    fn workload_d_reads_what_came_last() {
        let counts = drawn(Workload::D);
        assert_eq!(counts[0].0, RECORDS - 1);
        assert!(counts[..20].iter().all(|&(record, _)| record >= RECORDS - 100), "{:?}", &counts[..20]);
    }

    #[test]
    fn a_twentieth_of_workload_e_inserts() {
        let choice = Choice::new(Workload::E, RECORDS).unwrap();
        let mut random = SmallRng::seed_from_u64(1);
        let inserts = (0..DRAWN).filter(|_| choice.kind(&mut random) == Kind::Insert).count();
        assert!((4_700..5_300).contains(&inserts), "{inserts}");
        assert!((0..DRAWN).all(|_| (1..=SCAN_LENGTH_MAX).contains(&choice.scan_length(&mut random))));
    }
}
