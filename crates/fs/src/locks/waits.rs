//! The graph of a mount's POSIX owners that wait for each other's record locks.
//!
//! An edge exists only while it is true. It is inserted under the table of the file with the conflicting locks.
//! Before that table changes, the file's edges are removed and the waiting requests are woken, which try again and
//! insert new edges. So every cycle is a real one: no request is refused because of an owner that has released its
//! lock. And no cycle is missed: the request that closes it finds the other edges, or their requests are tried again
//! later and the last one finds it.

use std::collections::{BTreeMap, BTreeSet};

use rt::sync::Mutex;
use rustc_hash::FxHashSet;

use crate::errno::{FsError, Result};
use crate::types::InodeNo;

/// The graph.
#[derive(Default)]
pub(super) struct Waits(Mutex<Graph>);

#[derive(Default)]
struct Graph {
    /// One edge for each waiting request.
    edges: BTreeMap<u64, Edge>,
    /// The waiting requests of each owner.
    of_owner: BTreeMap<u64, BTreeSet<u64>>,
    /// The requests that wait for locks of each file.
    of_file: BTreeMap<InodeNo, BTreeSet<u64>>,
    last_request: u64,
}

struct Edge {
    file: InodeNo,
    owner: u64,
    waits_for: Vec<u64>,
}

/// The graph, for holders of the table of one file.
#[derive(Clone, Copy)]
pub(super) struct WaitsOf<'a> {
    waits: &'a Waits,
    file: InodeNo,
}

/// A waiting request.
pub(super) struct Request(u64);

impl Waits {
    pub(super) fn of(&self, file: InodeNo) -> WaitsOf<'_> {
        WaitsOf { waits: self, file }
    }
}

impl WaitsOf<'_> {
    /// The owner is about to wait for these owners. Refused if one of them waits for it.
    pub(super) fn begin(self, owner: u64, waits_for: Vec<u64>) -> Result<Request> {
        let mut graph = self.waits.0.lock();
        if graph.leads(&waits_for, owner) {
            return Err(FsError::Deadlock);
        }
        graph.last_request += 1;
        let request = graph.last_request;
        graph.add(request, Edge { file: self.file, owner, waits_for });
        Ok(Request(request))
    }

    /// The request does not wait any more.
    pub(super) fn end(self, request: Request) {
        self.waits.0.lock().remove(request.0);
    }

    /// The locks of the file are about to change, and the waiting requests will be woken.
    pub(super) fn forget(self) {
        let mut graph = self.waits.0.lock();
        let requests = graph.of_file.remove(&self.file).unwrap_or_default();
        requests.into_iter().for_each(|request| graph.remove(request));
    }
}

impl Graph {
    fn add(&mut self, request: u64, edge: Edge) {
        self.of_owner.entry(edge.owner).or_default().insert(request);
        self.of_file.entry(edge.file).or_default().insert(request);
        self.edges.insert(request, edge);
    }

    fn remove(&mut self, request: u64) {
        let Some(edge) = self.edges.remove(&request) else { return };
        remove_from(&mut self.of_owner, edge.owner, request);
        remove_from(&mut self.of_file, edge.file, request);
    }

    /// Whether one of these owners is `owner`, or waits for it directly or through others.
    fn leads(&self, from: &[u64], owner: u64) -> bool {
        let mut next = from.to_vec();
        let mut seen = FxHashSet::default();
        while let Some(other) = next.pop() {
            if other == owner {
                return true;
            }
            if seen.insert(other) {
                let requests = self.of_owner.get(&other).into_iter().flatten();
                next.extend(requests.flat_map(|request| &self.edges[request].waits_for));
            }
        }
        false
    }
}

fn remove_from<K: Ord>(sets: &mut BTreeMap<K, BTreeSet<u64>>, key: K, request: u64) {
    if let Some(set) = sets.get_mut(&key) {
        set.remove(&request);
        if set.is_empty() {
            sets.remove(&key);
        }
    }
}
