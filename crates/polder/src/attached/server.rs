//! The owner's service for other processes: a thread that accepts them, one for each client, and one for each of its
//! slots that is used.
//!
//! No thread waits for a client with a lock held. When a client ends, its files are closed, and its threads end.
//!
//! A panic in one of these threads ends the process. State that threads share may be half changed, and an owner that
//! went on would write it to the volume. Recovery can start from the state of a process that has ended.

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
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
        let clients = std::mem::take(&mut *self.service.clients.lock());
        clients.iter().for_each(|client| client.owner.disconnect());
        clients.into_iter().for_each(|client| drop(client.thread.join()));
    }
}

impl Service {
    fn accept_all(&self) {
        let _ending = EndOnPanic;
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
    let _ending = EndOnPanic;
    let notified = Arc::clone(owner);
    let listener: Arc<Listener> = Arc::new(move || notified.notify());
    shared.listen(Arc::downgrade(&listener));
    let session = Arc::new(Session::new(shared));
    let mut threads = Vec::new();
    while let Ok(slot) = owner.next_slot() {
        let (serving, answering) = (Arc::clone(owner), Arc::clone(&session));
        let serve = move || {
            let _ending = EndOnPanic;
            serving.serve(slot, |exchange| answering.answer(exchange));
        };
        match rt::thread::spawn("polder-calls", serve) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                tracing::warn!("an attached process is disconnected: {error}");
                owner.disconnect();
            }
        }
    }
    // An operation in progress can take long. Others need not wait that long for the locks of the client.
    session.end();
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

/// Ends the process if the thread panics while this exists.
struct EndOnPanic;

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a thread that serves attached processes panicked, and the process ends");
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use super::EndOnPanic;

    const CHILD: &str = "POLDER_TEST_PANIC";

    /// A test program would otherwise go on after a panic of one of its threads, as any program does.
    #[test]
    fn a_panic_in_a_thread_that_serves_ends_the_process() {
        let panic = || {
            let _ending = EndOnPanic;
            panic!("this is part of the test");
        };
        if std::env::var_os(CHILD).is_some() {
            let _ = rt::thread::spawn("test", panic).unwrap().join();
            return;
        }
        let name = std::thread::current().name().unwrap().to_owned();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &name])
            .env(CHILD, "1")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert_eq!(child.unwrap().signal(), Some(rustix::process::Signal::ABORT.as_raw()));
    }
}
