//! The reasons why bounds do not hold.

use std::fmt::Write as _;

use anyhow::{Result, ensure};

use super::bounds::{Bound, Kind};
use super::{pieces, usable};

/// The reason why bounds of some kinds may not hold for some workloads.
struct Reason {
    workloads: &'static [&'static str],
    kinds: &'static [Kind],
    title: &'static str,
    /// The reason explains violations up to this factor.
    at_most: f64,
    text: &'static str,
}

/// In the order of the page. Every kind of bound has a reason, except those that have always held.
const REASONS: [Reason; 19] = [
    Reason {
        workloads: &["uniform"],
        kinds: &[Kind::Ideal, Kind::Optimum],
        title: "uniform, against the ideal cleaner and the optimum",
        at_most: 1.5,
        text: "Both are without metadata. Here a transaction of one block has its own record in the log, leaves of the \
            object map are written at each checkpoint, and each block has an entry in a reverse map: on 64 × 16 MiB, \
            80 %, 2.61 = 1 + 1.306 garbage collection + 0.026 reverse map + 0.097 journal + 0.174 checkpoint and the \
            rest, where the ideal is 2.10 and the optimum 2.08. With garbage collection as good as the ideal \
            cleaner's it would still be 1.15 times the optimum there, and 1.42 times on 256 × 16 MiB at 90 %: 1.10 \
            cannot be reached while metadata of single blocks is counted. Zones of full size cost more because the \
            map is four times as large: an epoch's pages are bounded by the size of a zone, so that fewer changes \
            share a page, and checkpoints write twice as much (0.51 for 0.26 at 80 %, 1.11 for 0.53 at 90 %). Longer \
            epochs, and shorter entries for single blocks, are the next ideas; \
            [0024](decisions/0024-read-ahead-in-gc-and-throttle-writers-in-step-with-gc-debt.md) says where garbage collection's \
            zones are.",
    },
    Reason {
        workloads: &["small-files"],
        kinds: &[Kind::Ideal],
        title: "small files, against the ideal cleaner",
        at_most: 1.02,
        text: "With fsync each file that is closed writes a batch of the log and its inode; the ideal cleaner has \
            neither, and knows no fsync. On average half a zone, which is most where zones are few, is kept for \
            garbage collection to open ([0012](decisions/0012-learn-lifetimes-and-use-them-to-choose-victims-and-zones.md)).",
    },
    Reason {
        workloads: &["large-files"],
        kinds: &[Kind::Ideal],
        title: "large files, against the ideal cleaner",
        at_most: 1.02,
        text: "The ideal cleaner has no metadata, and one stream: Polder keeps about half a zone for garbage collection \
            to open, and has a zone more open for each class ([0012](decisions/0012-learn-lifetimes-and-use-them-to-choose-victims-and-zones.md)).",
    },
    Reason {
        workloads: &["zipf"],
        kinds: &[Kind::Ideal],
        title: "zipf, against the ideal cleaner",
        at_most: 1.2,
        text: "At 60 % the ideal cleaner moves 0.7 to 0.9 for each block, and a fifth less than it writes is half of \
            what it moves; metadata of single blocks, which it does not have, takes 0.10 to 0.16 of that back, and a \
            class that is kept apart takes a zone more, which is worth several hundredths where zones are few \
            ([0012](decisions/0012-learn-lifetimes-and-use-them-to-choose-victims-and-zones.md)).",
    },
    Reason {
        workloads: &["rocksdb"],
        kinds: &[Kind::Ideal],
        title: "rocksdb, against the ideal cleaner",
        at_most: 1.05,
        text: "Tables die together, so that the ideal cleaner moves next to nothing, and the bound is a few hundredths \
            above that. With 64 zones at 60 % it is learning that moves 0.07 more than none (below). With another \
            seed it was 1.10 and 1.13 with 256 zones at 90 %, where zones of their own for large tables leave more \
            ends (1.06 without): which tables are better put together is not learned, and is the next idea.",
    },
    Reason {
        workloads: &["mix"],
        kinds: &[Kind::Ideal],
        title: "mix, against the ideal cleaner",
        at_most: 1.3,
        text: "On 64 × 64 MiB one zone is 1/64 of the volume, and a class of its own costs about half a zone of room. A \
            model that knows which files live shortly, and how fast they die, is at 0.64 there if all that is moved \
            goes to one zone, as here, and at 0.59 if what lives shortly goes back among its like, which won in the \
            volume there and lost elsewhere ([0012](decisions/0012-learn-lifetimes-and-use-them-to-choose-victims-and-zones.md)). On 256 × 16 MiB it is \
            0.59 to 0.64 with different seeds, two hundredths more on average since no writer pays for the whole \
            room at once ([0045](decisions/0045-measure-exposure-in-dead-blocks-and-give-each-lifetime-class-a-zone-early.md)). At 60 % 0.60 of the ideal, \
            1.58, is less than the user's own bytes.",
    },
    Reason {
        workloads: &["spool"],
        kinds: &[Kind::Ideal, Kind::ClosedMost, Kind::ClosedAll, Kind::HalfMost, Kind::HalfAll],
        title: "spool, against the ideal cleaner, and waits",
        at_most: 10.0,
        text: "Where little is moved, names that change and single blocks of indexes are most of what is written \
            beside, and the ideal cleaner has neither. There are few writes of 1 MiB, so that of a thousand the \
            longest counts; no wait was traced, because nothing is to be chosen by this trace \
            ([0012](decisions/0012-learn-lifetimes-and-use-them-to-choose-victims-and-zones.md) has what was). The longest at half rate of the page are \
            here, 76 times the median of an empty device: to trace one, with a seed that nothing is judged by, is \
            the next step.",
    },
    Reason {
        workloads: &["small-files", "uniform"],
        kinds: &[Kind::Learning],
        title: "small files and uniform, with learning against without",
        at_most: 1.02,
        text: "Lives are alike there, and whatever is learned is chance. Three errors in how deaths were counted are \
            corrected; what was expected unseen still bends the order of victims \
            ([0045](decisions/0045-measure-exposure-in-dead-blocks-and-give-each-lifetime-class-a-zone-early.md)).",
    },
    Reason {
        workloads: &["large-files"],
        kinds: &[Kind::Learning],
        title: "large files, with learning against without",
        at_most: 1.05,
        text: "A death is a whole file of up to 64 MiB, a zone of 64 MiB or four of 16, so that few deaths are seen, \
            and what is expected unseen may weigh too little to outweigh one of them \
            ([0045](decisions/0045-measure-exposure-in-dead-blocks-and-give-each-lifetime-class-a-zone-early.md), with the next idea).",
    },
    Reason {
        workloads: &["zipf", "rocksdb", "mix", "spool"],
        kinds: &[Kind::Learning],
        title: "zipf, rocksdb, mix and spool, with learning against without",
        at_most: 1.05,
        text: "Classes that are kept apart have a zone open each. Where little is moved anyway (60 % on few zones, and \
            RocksDB), that room is worth more than what is told apart \
            ([0012](decisions/0012-learn-lifetimes-and-use-them-to-choose-victims-and-zones.md)). From 80 % on learning saves a fifth to a quarter with \
            the mix, and with Zipf's law on 256 zones; on 64 an eighth to a fifth, and nothing at 95 %. How many \
            classes are worth a zone is not asked of the room that is left; that is the next idea.",
    },
    Reason {
        workloads: &["small-files", "large-files", "uniform", "zipf", "rocksdb", "mix", "spool"],
        kinds: &[Kind::Price],
        title: "price of being self-contained",
        at_most: 1.12,
        text: "Log, metadata and what garbage collection needs come out of the same zones, and are a larger part of few \
            zones, or of small ones ([0015](decisions/0015-let-mkfs-set-the-reserve.md)). With single blocks, \
            written uniformly at 80 %, they take 17 of 256 zones of 4 MiB and 14 of 16 MiB, and a tenth more room \
            saves a fifth there. Smaller entries in object map and reverse map are the next idea.",
    },
    Reason {
        workloads: &["rocksdb"],
        kinds: &[Kind::WithoutHints],
        title: "rocksdb, without hints against with",
        at_most: 1.05,
        text: "Without hints a file's lifetime is what was learned of files of the same directory, owner and pattern of \
            the name: what differs among these is not known before they die \
            ([0012](decisions/0012-learn-lifetimes-and-use-them-to-choose-victims-and-zones.md)).",
    },
    Reason {
        workloads: &["small-files", "large-files", "rocksdb", "mix"],
        kinds: &[Kind::ClosedMost],
        title: "closed loop, 99.9 % of 1-MiB writes",
        at_most: 3.0,
        text: "A write waits for the piece of garbage collection that is in hand, then moves one with its own; a reset \
            holds the channel of its zone for 3 ms, 3.4 times an empty device's median, and strikes more than one \
            write of a thousand. For RocksDB and for large files at 90 % no order of the work holds the bound on \
            this device ([0042](decisions/0042-measure-latency-with-the-products-threads-and-let-writers-wait-for-one-gc-step.md)). Writes that go past a channel on \
            which a zone is being reset, where a device tells of its channels, are the next idea.",
    },
    Reason {
        workloads: &["small-files", "large-files", "rocksdb", "mix"],
        kinds: &[Kind::ClosedAll],
        title: "closed loop, all 1-MiB writes",
        at_most: 6.0,
        text: "The longest write meets a reset, the piece of garbage collection that is in hand, and his own piece; and \
            while collection waits for data to take the last zone, metadata may take it, so that all is owed at \
            once. It is one write of a whole run, and another course of events has another: with this seed it is 52 \
            times the median of an empty device once, with large files on 64 zones at 95 %, where all others of \
            these are at most 20 ([0042](decisions/0042-measure-latency-with-the-products-threads-and-let-writers-wait-for-one-gc-step.md)).",
    },
    Reason {
        workloads: &["rocksdb", "mix"],
        kinds: &[Kind::HalfMost, Kind::HalfAll],
        title: "rocksdb and mix, half rate",
        at_most: 6.5,
        text: "RocksDB deletes whole tables at once, so that what is cheap to collect comes and goes: where a written \
            block owes four that are moved, a backlog comes to be in which the device has no pause \
            ([0043](decisions/0043-run-gc-for-the-next-zone-while-no-writes-are-in-progress.md)). Two to four zones are won \
            ahead now, if they cost little, which does not last through every such phase \
            ([0044](decisions/0044-reclaim-cheap-zones-in-advance-and-metadatas-zone-at-the-end-of-an-epoch.md)). The mix waits longer in some cells \
            since what it must have soon is told apart from the end of the room \
            ([0045](decisions/0045-measure-exposure-in-dead-blocks-and-give-each-lifetime-class-a-zone-early.md)); at 95 % it was not traced by itself. On 64 \
            × 64 MiB it makes 890 to 930 writes of 1 MiB, so that one of them is the thousandth. The longest of \
            these, 40 times on 256 × 16 MiB at 90 %, was not traced; with another seed one was 49 times, which waited \
            for a zone, its garbage and metadata's, which were due at once. What is owed over several zones ahead, \
            and not over the next one or two, is the next idea.",
    },
    Reason {
        workloads: &["small-files", "large-files"],
        kinds: &[Kind::HalfMost, Kind::HalfAll],
        title: "small and large files, half rate",
        at_most: 3.5,
        text: "At 90 and 95 % two zones are owed where one was foreseen, data's and metadata's, and in that backlog \
            there is no pause ([0043](decisions/0043-run-gc-for-the-next-zone-while-no-writes-are-in-progress.md)). \
            Metadata's is foreseen sooner now, in the last quarter of an epoch, which is not always soon enough \
            ([0044](decisions/0044-reclaim-cheap-zones-in-advance-and-metadatas-zone-at-the-end-of-an-epoch.md)); the next idea is the same.",
    },
    Reason {
        workloads: &[usable::NAME],
        kinds: &[Kind::OfferedGb],
        title: "usable, GB of so many zones",
        at_most: 1.02,
        text: "Log, metadata and the reserve take nine to twelve zones, whatever the size of the device \
            ([0015](decisions/0015-let-mkfs-set-the-reserve.md)).",
    },
    Reason {
        workloads: &[usable::NAME],
        kinds: &[Kind::OfferedPercent],
        title: "usable, percent of many zones",
        at_most: 1.02,
        text: "Reverse maps (1.1 %) and object map (1.9 %) are kept for blocks that are each written by themselves, 124 \
            bytes a block; beside the eight zones for log, metadata and reserve 1,000 zones leave 90 for 97 %, and \
            4,000 zones 115. Blocks of 8 KiB (`mkfs --block-size 8K`) halve what is kept; smaller entries in both \
            would give it with 4 KiB ([0015](decisions/0015-let-mkfs-set-the-reserve.md)).",
    },
    Reason {
        workloads: &[pieces::NAME],
        kinds: &[Kind::Pieces],
        title: "pieces",
        at_most: 1.5,
        text: "Garbage collection by hand puts pieces in order where zones are won by it, and leaves the others where \
            they are ([0035](decisions/0035-take-more-victims-at-once-in-manual-gc.md)). `polder defrag` puts those \
            together; the table above has what that reaches.",
    },
];

impl Reason {
    fn is_of(&self, bound: &Bound) -> bool {
        self.kinds.contains(&bound.kind) && self.workloads.contains(&bound.workload.as_str())
    }

    fn explains(&self, bound: &Bound) -> bool {
        self.is_of(bound) && bound.excess() <= self.at_most
    }
}

/// The section of the page: how many bounds of each group do not hold, and why. Fails if a violated bound has no
/// reason, or exceeds the factor of its reason.
pub(super) fn section(bounds: &[Bound]) -> Result<String> {
    let unexplained = |bound: &&Bound| !bound.holds() && !REASONS.iter().any(|reason| reason.explains(bound));
    let unexplained: Vec<&str> = bounds.iter().filter(unexplained).map(|bound| bound.what.as_str()).collect();
    ensure!(
        unexplained.is_empty(),
        "these bounds do not hold, and tests/system/src/space/reasons.rs has no reason for them, or not for so much: {}",
        unexplained.join("; ")
    );
    let mut section = "\n## Why bounds do not hold\n\n".to_owned();
    for reason in &REASONS {
        let judged = || bounds.iter().filter(|bound| reason.is_of(bound));
        let failed = judged().filter(|bound| !bound.holds()).count();
        let title = reason.title;
        match (judged().count(), failed) {
            (0, _) => {}
            (judged, 0) => writeln!(section, "* **{title}**: 0 of {judged} do not hold.")?,
            (judged, failed) => {
                writeln!(section, "* **{title}**: {failed} of {judged} do not hold. {}", reason.text)?;
            }
        }
    }
    Ok(section)
}

#[cfg(test)]
mod tests;
