//! A volume that this process owns, and the clients that are attached to it.

use std::ops::Deref;
use std::sync::Arc;

use rt::sync::Mutex;

use crate::attached::Server;
use crate::error::{Error, Result};
use crate::shared::Shared;

/// Closes the volume when the last reference is dropped. The threads that serve clients have references to the
/// [`Shared`] inside, and so keep no volume open.
pub(crate) struct Owned {
    shared: Arc<Shared>,
    /// Nothing if other processes cannot attach, or the volume was closed.
    server: Mutex<Option<Server>>,
}

impl Owned {
    pub(crate) fn new(shared: Arc<Shared>, server: Option<Server>) -> Owned {
        Owned { shared, server: Mutex::new(server) }
    }

    /// Makes everything durable, closes the volume, and disconnects the clients.
    pub(crate) fn close(&self) -> Result<()> {
        let mut server = self.server.lock();
        let before = || server.iter().for_each(Server::stop_accepting);
        let closed = self.shared.close(before, || server.iter().for_each(Server::remove_name));
        if !matches!(closed, Err(Error::Mounted)) {
            drop(server.take());
        }
        closed
    }
}

#[cfg(test)]
impl Owned {
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }
}

impl Deref for Owned {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Err(error) = self.close()
            && !matches!(error, Error::Closed)
        {
            tracing::error!("the volume was not closed properly: {error}");
        }
    }
}
