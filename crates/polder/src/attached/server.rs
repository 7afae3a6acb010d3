//! The owner's service for other processes: a thread that accepts them, one for each client, and one for each of its
//! slots that is used.
//!
//! No thread waits for a client with a lock held. When a client ends, its threads end, and its files are closed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use attach::{Owner, Peer};
use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, Ordering};
use rt::thread::{JoinHandle, Stop};

use super::CLIENTS_MAX;
use super::name::SocketName;
use super::session::Session;
use super::wire::VERSION;
use crate::shared::{Listener, Shared};

/// The pause after a client could not be accepted because this process has too many descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves clients until it is dropped.
pub(crate) struct Server {
    service: Arc<Service>,
    thread: Option<JoinHandle<()>>,
}

struct Service {
    name: SocketName,
    shared: Arc<Shared>,
    clients: Mutex<Vec<Connected>>,
    is_stopping: AtomicBool,
    stopped: Stop,
}

struct Connected {
    owner: Arc<Owner>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Accepts the clients that connect.
    pub(crate) fn start(name: SocketName, shared: Arc<Shared>) -> io::Result<Server> {
        let service = Arc::new(Service {
            name,
            shared,
            clients: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            stopped: Stop::default(),
        });
        let accepting = Arc::clone(&service);
        let thread = rt::thread::spawn("polder-accept", move || accepting.accept_all())?;
        Ok(Server { service, thread: Some(thread) })
    }

    /// Accepts no more clients. Those that connect from now on wait until [`Server::remove_name`]. Does not wait.
    pub(crate) fn stop_accepting(&self) {
        self.service.is_stopping.store(true, Ordering::SeqCst);
    }

    /// Lets clients that wait try to open the volume themselves. The volume is still locked. Does not wait.
    pub(crate) fn remove_name(&self) {
        self.service.name.stop();
        self.service.stopped.stop();
    }
}

impl Drop for Server {
    /// Disconnects all clients. Waits for the operations that they have begun.
    fn drop(&mut self) {
        self.stop_accepting();
        self.remove_name();
        // A thread that panicked has reported that.
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
        let clients = std::mem::take(&mut *self.service.clients.lock());
        clients.iter().for_each(|client| client.owner.disconnect());
        clients.into_iter().for_each(|client| drop(client.thread.join()));
    }
}

impl Service {
    fn accept_all(&self) {
        while !self.is_stopping.load(Ordering::SeqCst) {
            match self.name.listener().accept() {
                // The volume is being closed.
                Ok(_) if self.is_stopping.load(Ordering::SeqCst) => {}
                Ok(peer) => {
                    if let Err(error) = self.accept(peer) {
                        tracing::warn!("a process could not be attached: {error}");
                    }
                }
                Err(error) => {
                    tracing::debug!("no process was accepted: {error}");
                    self.stopped.wait(PAUSE);
                }
            }
        }
    }

    fn accept(&self, peer: Peer) -> io::Result<()> {
        let mut clients = self.clients.lock();
        clients.retain(|client| !client.thread.is_finished());
        if clients.len() >= CLIENTS_MAX {
            Owner::refuse(&peer, &format!("{CLIENTS_MAX} processes are attached already"));
            return Ok(());
        }
        let owner = Arc::new(Owner::accept(peer, &VERSION.to_le_bytes())?);
        let (shared, serving) = (Arc::clone(&self.shared), Arc::clone(&owner));
        let thread = rt::thread::spawn("polder-client", move || serve(&serving, shared))?;
        clients.push(Connected { owner, thread });
        Ok(())
    }
}

/// Serves one client until it disconnects.
fn serve(owner: &Arc<Owner>, shared: Arc<Shared>) {
    let notified = Arc::clone(owner);
    let listener: Arc<Listener> = Arc::new(move || notified.notify());
    shared.listen(Arc::downgrade(&listener));
    let session = Arc::new(Session::new(shared));
    let mut threads = Vec::new();
    while let Ok(slot) = owner.next_slot() {
        let (serving, answering) = (Arc::clone(owner), Arc::clone(&session));
        let serve = move || serving.serve(slot, |exchange| answering.answer(exchange));
        match rt::thread::spawn("polder-calls", serve) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                tracing::warn!("an attached process is disconnected: {error}");
                owner.disconnect();
            }
        }
    }
    threads.into_iter().for_each(|thread| drop(thread.join()));
}
