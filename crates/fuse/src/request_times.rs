//! How long requests take, from the moment they are received until the reply is sent.
//!
//! Durations are counted in a histogram for each [`RequestKind`]. Each channel has histograms of its own, so threads do
//! not compete for a cache line, and counting takes no lock: two additions to relaxed atomics. A snapshot adds the
//! histograms of all channels. Its counts may miss requests that are being counted, but never decrease.
//!
//! The time that a request waits in the kernel until a thread receives it is not included. The time in the queue of
//! writes is.

use std::sync::Arc;

use rt::sync::Mutex;
use rt::sync::atomic::{AtomicU64, Ordering};

/// Durations below 2^`FIRST_OCTAVE` ns (about 1 µs) are in the first bucket.
const FIRST_OCTAVE: u32 = 10;
/// Durations from 2^`END_OCTAVE` ns (about 34 s) on are in the last bucket.
const END_OCTAVE: u32 = 35;
/// Buckets for each power of two.
const STEPS: usize = 4;

/// The number of buckets of a histogram.
pub const DURATION_BUCKETS: usize = 2 + (END_OCTAVE - FIRST_OCTAVE) as usize * STEPS;

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestKind {
    /// Reading a file, and searching for data or holes.
    Read,
    /// Writing a file, allocating space, copying ranges.
    Write,
    /// Making data durable.
    Sync,
    /// Looking a name up.
    Lookup,
    /// Reading attributes, extended attributes, links and the sizes of the volume.
    Attributes,
    /// Listing a directory.
    List,
    /// Opening and closing.
    Open,
    /// Changing names and attributes.
    Change,
}

/// The durations of the requests of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durations {
    /// The kind.
    pub kind: RequestKind,
    /// The sum of all durations.
    pub total_ns: u64,
    /// Bytes in the replies.
    pub reply_bytes: u64,
    /// The number of requests in each bucket, see [`duration_bound_ns`].
    pub buckets: Vec<u64>,
}

/// The histograms of all channels of a mount. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RequestTimes(Arc<Mutex<Vec<Arc<ChannelTimes>>>>);

/// The histograms of one channel.
#[derive(Debug)]
pub(crate) struct ChannelTimes([Histogram; RequestKind::ALL.len()]);

#[derive(Debug)]
struct Histogram {
    total_ns: AtomicU64,
    reply_bytes: AtomicU64,
    buckets: [AtomicU64; DURATION_BUCKETS],
}

impl RequestKind {
    /// All kinds.
    pub const ALL: [RequestKind; 8] = [
        RequestKind::Read,
        RequestKind::Write,
        RequestKind::Sync,
        RequestKind::Lookup,
        RequestKind::Attributes,
        RequestKind::List,
        RequestKind::Open,
        RequestKind::Change,
    ];

    /// The name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            RequestKind::Read => "read",
            RequestKind::Write => "write",
            RequestKind::Sync => "sync",
            RequestKind::Lookup => "lookup",
            RequestKind::Attributes => "attributes",
            RequestKind::List => "list",
            RequestKind::Open => "open",
            RequestKind::Change => "change",
        }
    }
}

/// The end of a bucket: durations in it are shorter. `u64::MAX` for the last one.
pub fn duration_bound_ns(bucket: usize) -> u64 {
    match bucket {
        0 => 1 << FIRST_OCTAVE,
        _ if bucket >= DURATION_BUCKETS - 1 => u64::MAX,
        _ => {
            let (octave, step) = ((bucket - 1) / STEPS, (bucket - 1) % STEPS);
            ((STEPS + step + 1) as u64) << (FIRST_OCTAVE as usize + octave - STEPS.ilog2() as usize)
        }
    }
}

fn bucket_of(duration_ns: u64) -> usize {
    let octave = duration_ns.max(1).ilog2();
    match octave {
        0..FIRST_OCTAVE => 0,
        END_OCTAVE.. => DURATION_BUCKETS - 1,
        _ => {
            let step = (duration_ns >> (octave - STEPS.ilog2())) as usize % STEPS;
            1 + (octave - FIRST_OCTAVE) as usize * STEPS + step
        }
    }
}

impl RequestTimes {
    /// Adds the histograms of a channel.
    pub(crate) fn add_channel(&self) -> Arc<ChannelTimes> {
        let times = Arc::new(ChannelTimes::new());
        self.0.lock().push(Arc::clone(&times));
        times
    }

    /// The durations of all requests since the mount, by kind.
    pub fn durations(&self) -> Vec<Durations> {
        let channels = self.0.lock();
        let of = |kind: RequestKind| {
            let mut sum = Durations { kind, total_ns: 0, reply_bytes: 0, buckets: vec![0; DURATION_BUCKETS] };
            channels.iter().for_each(|channel| channel.histogram(kind).add_to(&mut sum));
            sum
        };
        RequestKind::ALL.into_iter().map(of).collect()
    }
}

impl ChannelTimes {
    fn new() -> ChannelTimes {
        ChannelTimes(std::array::from_fn(|_| Histogram::new()))
    }

    fn histogram(&self, kind: RequestKind) -> &Histogram {
        &self.0[kind as usize]
    }

    /// Counts a request.
    pub(crate) fn count(&self, kind: RequestKind, duration_ns: u64) {
        let histogram = self.histogram(kind);
        histogram.buckets[bucket_of(duration_ns)].fetch_add(1, Ordering::Relaxed);
        histogram.total_ns.fetch_add(duration_ns, Ordering::Relaxed);
    }

    /// Counts the bytes of a reply.
    pub(crate) fn count_bytes(&self, kind: RequestKind, bytes: usize) {
        self.histogram(kind).reply_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Histogram {
    fn new() -> Histogram {
        Histogram {
            total_ns: AtomicU64::new(0),
            reply_bytes: AtomicU64::new(0),
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn add_to(&self, sum: &mut Durations) {
        sum.total_ns += self.total_ns.load(Ordering::Relaxed);
        sum.reply_bytes += self.reply_bytes.load(Ordering::Relaxed);
        let buckets = sum.buckets.iter_mut().zip(&self.buckets);
        buckets.for_each(|(sum, bucket)| *sum += bucket.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests;
