//! How much is done.

use super::rows;

/// The sizes of everything.
pub(super) struct Scale {
    /// The groups that run if the command line names none. Empty: all.
    pub(super) groups: &'static [&'static str],
    pub(super) rounds: u64,
    /// Bytes of each place.
    pub(super) bytes: u64,
    /// Files of the generated tree.
    pub(super) tree_files: u64,
    /// The part of the workspace whose sources are used.
    pub(super) sources: &'static str,
    /// Transactions of each SQLite database.
    pub(super) transactions: u64,
    /// Files of the directory that `ls` lists.
    pub(super) listed: u64,
    /// Files that are created, found, read and removed.
    pub(super) names: u64,
    /// The file of direct reads and writes.
    pub(super) file_bytes: u64,
    /// Small direct reads, and writes.
    pub(super) small: u64,
    /// The file of buffered reads and writes.
    pub(super) buffered_bytes: u64,
    /// Appends of one thread that are each made durable.
    pub(super) synced: u64,
    /// Whether reads, writes and names are also measured next to a large writer. Synced appends always are.
    pub(super) is_beside: bool,
    pub(super) churn: Churn,
    /// Files of 700 bytes whose log bytes are counted.
    pub(super) logged: u64,
    /// How long the mount must have been idle, and how long it is watched.
    pub(super) idle_seconds: (u64, u64),
    /// Arguments of `polder-sim turns` beside its places and rounds.
    pub(super) turns: &'static [&'static str],
    /// Arguments of `polder-sim amplification`.
    pub(super) amplification: &'static [&'static str],
}

/// The sizes of the churn.
pub(super) struct Churn {
    pub(super) bytes: u64,
    /// With 605 KB each on average.
    pub(super) files: u64,
    pub(super) rewrites: u64,
}

/// For a moment. The groups that take longest run only if they are named.
pub(super) const QUICK: Scale = Scale {
    groups: &[rows::NAMES, rows::SYNCED, rows::SQLITE, rows::LIBRARY, rows::LOG, rows::BINARY],
    rounds: 1,
    bytes: 512 << 20,
    tree_files: 150,
    sources: "crates/rt",
    transactions: 20,
    listed: 1000,
    names: 200,
    file_bytes: 4 << 20,
    small: 128,
    buffered_bytes: 16 << 20,
    synced: 16,
    is_beside: false,
    churn: Churn { bytes: 512 << 20, files: 30, rewrites: 30 },
    logged: 100,
    idle_seconds: (1, 2),
    turns: &["--file", "8", "--small", "512", "--synced", "16", "--names", "200"],
    amplification: &["--files", "6144", "--operations", "1000", "--times", "1"],
};

/// For the page. The churn fills three quarters of its places.
pub(super) const FULL: Scale = Scale {
    groups: &[],
    rounds: 5,
    bytes: 3 << 30,
    tree_files: 12_000,
    sources: ".",
    transactions: 1000,
    listed: 200_000,
    names: 10_000,
    file_bytes: 128 << 20,
    small: 16_384,
    buffered_bytes: 256 << 20,
    synced: 512,
    is_beside: true,
    churn: Churn { bytes: 1 << 30, files: 1300, rewrites: 5000 },
    logged: 4000,
    idle_seconds: (10, 30),
    turns: &[],
    amplification: &[],
};
