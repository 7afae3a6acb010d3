//! How much is done.

/// The sizes of everything.
pub(super) struct Scale {
    pub(super) rounds: u64,
    /// Bytes of each place.
    pub(super) bytes: u64,
    /// Files of the generated tree.
    pub(super) tree_files: u64,
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

/// For a moment.
pub(super) const QUICK: Scale = Scale {
    rounds: 1,
    bytes: 512 << 20,
    tree_files: 300,
    transactions: 20,
    listed: 1000,
    names: 200,
    file_bytes: 8 << 20,
    small: 256,
    buffered_bytes: 16 << 20,
    synced: 16,
    churn: Churn { bytes: 512 << 20, files: 60, rewrites: 60 },
    logged: 200,
    idle_seconds: (1, 1),
    turns: &["--file", "8", "--small", "512", "--synced", "16", "--names", "200"],
    amplification: &["--files", "16384", "--operations", "2000", "--times", "4"],
};

/// For the page. The churn fills three quarters of its places.
pub(super) const FULL: Scale = Scale {
    rounds: 5,
    bytes: 3 << 30,
    tree_files: 12_000,
    transactions: 1000,
    listed: 200_000,
    names: 10_000,
    file_bytes: 128 << 20,
    small: 16_384,
    buffered_bytes: 256 << 20,
    synced: 512,
    churn: Churn { bytes: 1 << 30, files: 1300, rewrites: 5000 },
    logged: 4000,
    idle_seconds: (10, 30),
    turns: &[],
    amplification: &[],
};
