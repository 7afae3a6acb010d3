//! Letting other processes attach to a volume that its owner uses by [`Fs`], as the daemon of `polder mount --shared`
//! does. A [`Volume`](crate::Volume) shares itself.

use std::io;
use std::path::Path;
use std::sync::Arc;

use fs::Fs;
use fuse::Changes;

use crate::attached::{Server, SocketName};
use crate::shared::Shared;

/// Serves attached processes until it is dropped.
///
/// The caller closes the volume: first [`Sharing::stop`], then [`Fs::unmount`]. Then dropping this lets processes that
/// have connected meanwhile try to open the volume themselves.
pub struct Sharing {
    shared: Arc<Shared>,
    server: Server,
}

impl Sharing {
    /// Begins to accept processes. The caller holds the lock of the volume. `changes` are those of its uncached mount,
    /// if there is one.
    ///
    /// # Errors
    /// The socket cannot be made, or a thread cannot be started.
    pub fn start(path: &Path, fs: Arc<Fs>, changes: Option<Changes>) -> io::Result<Sharing> {
        let name = SocketName::listen(path)?;
        let shared = Arc::new(Shared::new(path, fs));
        if changes.is_some() {
            shared.begin_mount().map_err(io::Error::from)?;
            shared.set_changes(changes);
        }
        let server = Server::start(name, Arc::clone(&shared))?;
        Ok(Sharing { shared, server })
    }

    /// Accepts no more processes, and waits for operations in progress. Later ones fail.
    pub fn stop(&self) {
        self.server.stop_accepting();
        self.shared.end_mount();
        self.shared.give_up();
    }
}
