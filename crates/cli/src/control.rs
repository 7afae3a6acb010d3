//! The control socket, through which other processes send requests to the daemon of a volume.
//!
//! A request is one line of JSON, and so is its answer: `{"command":"stats"}` is answered by `{"ok":…}` or
//! `{"error":"…"}`. A separate thread answers each client. Sockets have names in the [registry](crate::registry), and only
//! their owner may use them. [`crate::client`] is the client's side.
//!
//! A client can ask for the result of closing the volume (`report_close`). It gets a last line when the volume is closed:
//! `{"closed":null}`, or `{"closed":"…"}` with the reason if the volume was not closed properly.
//!
//! A daemon takes the name of its volume before it mounts, and the name of the mount as soon as the mount exists. The lock
//! on the volume ensures that there is one daemon, not these names.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use rt::sync::Mutex;
use rt::thread::Stop;
use rustix::net::SendFlags;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zone::FsId;

use crate::client::Reached;
use crate::name::AnyPath;
use crate::rebuilds::Replacement;
use crate::registry::{self, Name, Registry};
use crate::scrub::Place;
use crate::volume::FileId;

/// The pause between two attempts to take a name that another daemon has.
const PAUSE: Duration = Duration::from_millis(20);

/// A request to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub(crate) enum Request {
    /// The identity of the daemon. The answer shows that the daemon is alive.
    Introduce,
    /// The properties of the volume.
    Info,
    /// Change the label of the volume.
    SetLabel {
        /// The new label.
        label: String,
    },
    /// Statistics of writes and stored data.
    Stats,
    /// The state of each zone.
    Zones,
    /// A sample for monitoring, of a limited size.
    Monitor,
    /// Verify as much as possible while the volume is in use.
    Check {
        /// Whether to verify the contents of files too.
        data: bool,
    },
    /// The state of garbage collection. With `work`, perform a piece of it first.
    Gc {
        /// Whether to move blocks.
        work: bool,
    },
    /// The layout of a file in zones.
    Layout {
        /// The inode number.
        inode: u64,
    },
    /// Defragment a part of a file.
    Defragment {
        /// The inode number.
        inode: u64,
        /// The first block.
        from: u64,
    },
    /// Read and verify a piece of the live data and metadata.
    Scrub {
        /// The beginning of the piece.
        at: Place,
        /// The approximate number of bytes.
        bytes: u64,
        /// Whether to repair damaged copies of which another copy is intact.
        #[serde(default)]
        repair: bool,
    },
    /// A name of each of these inodes.
    Paths {
        /// The inode numbers.
        inodes: BTreeSet<u64>,
    },
    /// Replace a member of a mirror. Everything is copied to the new one in the background.
    Replace(Replacement),
    /// The members that are being rebuilt.
    Rebuilds,
    /// Send the result of closing the volume on this connection, after an empty answer.
    ReportClose,
    /// Make all written data durable, including the kernel's dirty pages.
    Sync,
    /// End the mount, like a signal.
    Unmount,
    /// Change the mount options.
    Remount {
        /// The argument of `-o`.
        options: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Ok(Value),
    Error(String),
    /// No answer, but the last line of a connection: the reason if the volume was not closed properly.
    Closed(Option<String>),
}

/// Answers requests.
pub(crate) trait Service: Send + Sync + 'static {
    fn answer(&self, request: Request) -> Result<Value>;
}

/// The identity of a daemon and of its volume. It is reported without taking a lock of the volume.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) pid: u32,
    /// Major and minor number of the mount's device, as `12:34`.
    pub(crate) device: Option<String>,
    /// The volume's file or device, independent of its path.
    pub(crate) volume: FileId,
    /// The members that are used of a volume on several devices.
    #[serde(default)]
    pub(crate) members: Vec<FileId>,
    /// The path of the volume when it was mounted.
    pub(crate) path: AnyPath,
    /// The current mount point, unless the mount is lazily unmounted.
    pub(crate) mounted_on: Option<AnyPath>,
    /// Whether the mount has ended, so that the daemon only has to close the volume.
    pub(crate) closing: bool,
}

impl Introduction {
    /// Whether the daemon holds this file or device.
    pub(crate) fn holds(&self, file: &FileId) -> bool {
        self.volume == *file || self.members.contains(file)
    }
}

/// The listening sockets. Their names are removed when this is dropped.
pub(crate) struct Socket {
    of_volume: Arc<Mutex<OfVolume>>,
    of_mount: Option<Name>,
    wanted: Wanted,
    connections: Arc<Connections>,
}

/// The clients that wait for the result of closing the volume.
#[derive(Default)]
pub(crate) struct Connections(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    clients: BTreeMap<u64, Arc<UnixStream>>,
    /// Clients so far.
    count: u64,
    /// The line with the result, when the volume is closed.
    result: Option<Vec<u8>>,
}

/// The name of a volume.
#[derive(Clone)]
struct Wanted {
    registry: Registry,
    fs_id: FsId,
    volume: FileId,
}

/// The owner of the socket name of a volume.
enum OfVolume {
    /// This process.
    Ours(Name),
    /// Another daemon of the same volume, until this connection ends.
    Others(UnixStream),
    /// The daemon of another volume with the same ID.
    Foreign,
    /// The name cannot be taken. This is no error, because a machine may have no directory for sockets.
    Missing,
}

impl Socket {
    /// Takes the volume's name. Readers share a volume: with `shared`, another daemon may have the name, and this one takes
    /// it after the other has ended. If the daemon of a copy has the name, a reader works without it, and a writer fails.
    pub(crate) fn bind(registry: Registry, fs_id: FsId, volume: FileId, shared: bool) -> Result<Socket> {
        let wanted = Wanted { registry, fs_id, volume };
        let of_volume = wanted.take();
        if !shared && matches!(of_volume, OfVolume::Others(_) | OfVolume::Foreign) {
            bail!("another volume with the ID {fs_id} is mounted; unmount it first (is this one a copy?)");
        }
        let connections = Arc::default();
        Ok(Socket { of_volume: Arc::new(Mutex::new(of_volume)), of_mount: None, wanted, connections })
    }

    pub(crate) fn connections(&self) -> Arc<Connections> {
        Arc::clone(&self.connections)
    }

    /// Takes the name of the mount.
    pub(crate) fn bind_mount(&mut self, device: &str) {
        match self.wanted.registry.listen_for_mount(self.wanted.fs_id, device) {
            Ok(taken) => self.of_mount = Some(taken),
            Err(error) => tracing::warn!("no control socket for the mount: {error:#}"),
        }
    }

    /// Starts the threads that answer clients until the process ends.
    pub(crate) fn serve(&self, service: &Arc<dyn Service>) -> Result<()> {
        if let Some(name) = &self.of_mount {
            let (listener, service, connections) =
                (name.listener()?, Arc::clone(service), self.connections());
            rt::thread::spawn("polder-answers", move || answer_all(&listener, &service, &connections))?;
        }
        let (name, wanted, service) = (Arc::clone(&self.of_volume), self.wanted.clone(), Arc::clone(service));
        let connections = self.connections();
        rt::thread::spawn("polder-control", move || {
            if let Some(listener) = wanted.listener(&name) {
                answer_all(&listener, &service, &connections);
            }
        })?;
        Ok(())
    }
}

impl Wanted {
    fn take(&self) -> OfVolume {
        self.try_to_take().unwrap_or_else(|error| {
            tracing::warn!("no control socket: {error:#}");
            OfVolume::Missing
        })
    }

    /// Holds the lock of the registry, so that no other process takes the name meanwhile. Replaces a name on which no process
    /// listens.
    fn try_to_take(&self) -> Result<OfVolume> {
        let alone = self.registry.lock()?;
        let path = self.registry.of_volume(self.fs_id);
        let other = match self.registry.connect(&path) {
            registry::Connected::Stream(other) => other,
            registry::Connected::Crowded => bail!("{}: its daemon accepts no connections", path.display()),
            registry::Connected::Refused | registry::Connected::Missing => {
                return Ok(OfVolume::Ours(self.registry.listen(&path)?));
            }
        };
        drop(alone);
        other.set_read_timeout(None)?;
        match Reached::at(&self.registry, &path)? {
            Reached::Answers(_, found) if !found.holds(&self.volume) => Ok(OfVolume::Foreign),
            Reached::Silent(silent) => bail!("{}: {silent}", path.display()),
            _ => Ok(OfVolume::Others(other)),
        }
    }

    /// Waits until this process has the name. Returns nothing if it can never have it.
    fn listener(&self, name: &Mutex<OfVolume>) -> Option<UnixListener> {
        loop {
            let other = match &*name.lock() {
                OfVolume::Ours(name) => return name.listener().ok(),
                OfVolume::Others(other) => other.try_clone().ok()?,
                OfVolume::Foreign | OfVolume::Missing => return None,
            };
            // No request was sent, so the read returns only at the end of the connection.
            let _ = (&other).read(&mut [0]);
            Stop::default().wait(PAUSE);
            let taken = self.take();
            let mut name = name.lock();
            match *name {
                OfVolume::Others(_) => *name = taken,
                _ => return None,
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        *self.of_volume.lock() = OfVolume::Missing;
    }
}

impl Connections {
    /// Sends the result to this client, now or when there is one. Returns a number for [`Connections::remove`].
    fn add(&self, client: &Arc<UnixStream>) -> u64 {
        let mut waiting = self.0.lock();
        waiting.count += 1;
        let number = waiting.count;
        match &waiting.result {
            Some(line) => send_at_once(client, line),
            None => drop(waiting.clients.insert(number, Arc::clone(client))),
        }
        number
    }

    fn remove(&self, number: u64) {
        self.0.lock().clients.remove(&number);
    }

    /// The volume is closed. The process is about to end.
    pub(crate) fn report_closed(&self, why_not: Option<String>) {
        let line = line_of(&Answer::Closed(why_not)).expect("a text can be written as JSON");
        let mut waiting = self.0.lock();
        waiting.clients.values().for_each(|client| send_at_once(client, &line));
        waiting.result = Some(line);
    }
}

/// Does not wait for a client that does not read.
fn send_at_once(client: &UnixStream, line: &[u8]) {
    // A client that has ended needs no report.
    let _ = rustix::net::send(client, line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

pub(crate) fn answer_all(
    listener: &UnixListener,
    service: &Arc<dyn Service>,
    connections: &Arc<Connections>,
) {
    for stream in listener.incoming().flatten() {
        let (service, connections) = (Arc::clone(service), Arc::clone(connections));
        let spawned = rt::thread::spawn("polder-client", move || {
            serve_client(&Arc::new(stream), service.as_ref(), &connections);
        });
        if let Err(error) = spawned {
            tracing::warn!("a connection to the control socket is refused: {error}");
        }
    }
}

fn serve_client(stream: &Arc<UnixStream>, service: &dyn Service, connections: &Connections) {
    let mut waits = None;
    for line in BufReader::new(&**stream).lines() {
        let Ok(line) = line else { break };
        let request = serde_json::from_str(&line);
        let is_waiting = matches!(request, Ok(Request::ReportClose));
        let answer = match request {
            Ok(Request::ReportClose) => Ok(Value::Null),
            Ok(request) => service.answer(request),
            Err(error) => Err(anyhow!("not a request: {error}")),
        };
        let answer = match answer {
            Ok(value) => Answer::Ok(value),
            Err(error) => Answer::Error(format!("{error:#}")),
        };
        if send(stream, &answer).is_err() {
            break;
        }
        if is_waiting && waits.is_none() {
            waits = Some(connections.add(stream));
        }
    }
    if let Some(number) = waits {
        connections.remove(number);
    }
}

pub(crate) fn send(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    stream.write_all(&line_of(message)?)
}

fn line_of(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_format_of_the_manual() {
        assert_eq!(serde_json::to_string(&Request::Stats).unwrap(), r#"{"command":"stats"}"#);
        assert_eq!(serde_json::from_str::<Request>(r#"{"command":"unmount"}"#).unwrap(), Request::Unmount);
        let remount = Request::Remount { options: "ro".into() };
        assert_eq!(serde_json::to_string(&remount).unwrap(), r#"{"command":"remount","options":"ro"}"#);
        // The format of earlier releases.
        let line = r#"{"command":"remount","directory":"/mnt","options":"ro"}"#;
        assert_eq!(serde_json::from_str::<Request>(line).unwrap(), remount);
        let line = r#"{"command":"defragment","inode":7,"from":0}"#;
        assert_eq!(serde_json::to_string(&Request::Defragment { inode: 7, from: 0 }).unwrap(), line);
        assert_eq!(
            serde_json::to_string(&Request::Gc { work: true }).unwrap(),
            r#"{"command":"gc","work":true}"#
        );
        let [old, new] = ["missing", "/c"].map(|path| AnyPath::from(std::path::Path::new(path)));
        let replace = Request::Replace(Replacement { old, new, force: true });
        let line = r#"{"command":"replace","old":"missing","new":"/c","force":true}"#;
        assert_eq!(serde_json::to_string(&replace).unwrap(), line);
        assert_eq!(serde_json::from_str::<Request>(line).unwrap(), replace);
        assert!(serde_json::from_str::<Request>(r#"{"command":"format"}"#).is_err());
        assert_eq!(serde_json::to_string(&Answer::Error("no".into())).unwrap(), r#"{"error":"no"}"#);
        assert_eq!(serde_json::to_string(&Answer::Closed(None)).unwrap(), r#"{"closed":null}"#);
    }
}
