//! Letting other processes attach to a volume that its owner uses by [`Fs`], as the daemon of `polder mount --shared`
//! does. A [`Volume`](crate::Volume) shares itself.

use std::io;
use std::path::Path;
use std::sync::Arc;

use fs::Fs;
use fuse::Changes;

use crate::attached::{Server, SocketName};
use crate::shared::Shared;

/// The socket at which processes can connect from now on. They wait until [`Waiting::serve`]. Dropping it refuses them.
pub struct Waiting(SocketName);

impl Waiting {
    /// The caller holds the lock of the volume, and may not have recovered it yet.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn listen(path: &Path) -> io::Result<Waiting> {
        SocketName::listen(path).map(Waiting)
    }

    /// Begins to accept processes. `changes` are those of the uncached mount of the volume, if there is one.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn serve(self, path: &Path, fs: Arc<Fs>, changes: Option<Changes>) -> io::Result<Sharing> {
        let shared = Arc::new(Shared::new(path, fs));
        if changes.is_some() {
            shared.begin_mount().map_err(io::Error::from)?;
            shared.set_changes(changes);
        }
        let server = Server::start(self.0, Arc::clone(&shared))?;
        Ok(Sharing { shared, server })
    }
}

/// Serves attached processes until it is dropped.
///
/// The caller closes the volume: first [`Sharing::stop`], then [`Fs::unmount`]. Then dropping this lets processes that
/// have connected meanwhile try to open the volume themselves.
pub struct Sharing {
    shared: Arc<Shared>,
    server: Server,
}

impl Sharing {
    /// Accepts no more processes, and waits for operations in progress. Later ones fail.
    pub fn stop(&self) {
        self.server.stop_accepting();
        self.shared.end_mount();
        self.shared.give_up();
    }
}
