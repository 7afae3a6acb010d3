//! The control socket: how other processes ask the daemon that has a volume.
//!
//! One line of JSON for each request and one for its answer: `{"command":"stats"}` is answered by
//! `{"ok":…}` or `{"error":"…"}`. Each client is answered by a thread of its own. Sockets have names in the
//! [registry](crate::registry), and nobody but their owner may use them. [`crate::client`] is the asking end.
//!
//! A daemon has the name of its volume before it is mounted, and that of its mount as soon as there is one.
//! The lock on the volume is what keeps two daemons apart, not these names.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use rt::sync::Mutex;
use rt::thread::Stop;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zone::FsId;

use crate::client::Reached;
use crate::name::AnyPath;
use crate::registry::{Connected, Name, Registry};
use crate::scrub::Place;
use crate::volume::FileId;

/// Between two attempts to take a name that another has.
const PAUSE: Duration = Duration::from_millis(20);

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Tell the identity of the daemon: a sign of life.
    Introduce,
    /// What the volume is.
    Info,
    /// What was written and what is stored.
    Stats,
    /// What each zone is.
    Zones,
    /// Verify what can be verified while the volume is in use.
    Check {
        /// The contents of files too.
        data: bool,
    },
    /// How garbage stands; with `work`, after a piece of collecting it.
    Gc {
        /// Whether to do something.
        work: bool,
    },
    /// How a file lies in zones.
    Layout {
        /// Its number.
        inode: u64,
    },
    /// Put a part of a file together.
    Defragment {
        /// Its number.
        inode: u64,
        /// The block with which to begin.
        from: u64,
    },
    /// Read and verify a piece of everything that lives.
    Scrub {
        /// Where it begins.
        at: Place,
        /// About how many bytes.
        bytes: u64,
    },
    /// A name of each of these inodes.
    Paths {
        /// Their numbers.
        inodes: BTreeSet<u64>,
    },
    /// Make everything durable that programs have written, in the kernel's cache too.
    Sync,
    /// End the mount, as a signal would.
    Unmount,
    /// Change how it is mounted.
    Remount {
        /// As after `-o`.
        options: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Ok(Value),
    Error(String),
}

/// Who answers requests.
pub(crate) trait Service: Send + Sync + 'static {
    fn answer(&self, request: Request) -> Result<Value>;
}

/// The identity of a daemon and of what it serves; told without any lock of the volume's.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Introduction {
    pub(crate) pid: u32,
    /// Major and minor number of the mount's device, as `12:34`.
    pub(crate) device: Option<String>,
    /// The volume's file or device, wherever it is by now.
    pub(crate) volume: FileId,
    /// Where that was when it was mounted.
    pub(crate) path: AnyPath,
    /// Where the mount is now, if it is not lazily unmounted.
    pub(crate) mounted_on: Option<AnyPath>,
    /// Whether the mount has ended and the daemon has the volume only to close it.
    pub(crate) closing: bool,
}

/// The listening ends; their names go when this is dropped.
pub(crate) struct Socket {
    of_volume: Arc<Mutex<OfVolume>>,
    of_mount: Option<Name>,
    wanted: Wanted,
}

/// The name of a volume.
#[derive(Clone)]
struct Wanted {
    registry: Registry,
    fs_id: FsId,
    volume: FileId,
}

/// Who has the name of a volume among sockets.
enum OfVolume {
    /// We do.
    Ours(Name),
    /// Another daemon of the same volume does, until this connection ends.
    Others(UnixStream),
    /// The daemon of another volume with the same id does.
    Foreign,
    /// It cannot be taken, but need not be: a machine may have no place for sockets.
    Missing,
}

impl Socket {
    /// Takes the volume's name. Readers share a volume, so `shared` is content with another that has the name, and
    /// takes it after that has ended. Where the daemon of a copy has it, a reader goes without, and others are refused.
    pub(crate) fn bind(registry: Registry, fs_id: FsId, volume: FileId, shared: bool) -> Result<Socket> {
        let wanted = Wanted { registry, fs_id, volume };
        let of_volume = wanted.take();
        if !shared && matches!(of_volume, OfVolume::Others(_) | OfVolume::Foreign) {
            bail!(
                "another volume with the id {fs_id} is mounted; unmount it first (is this one a copy of it?)"
            );
        }
        Ok(Socket { of_volume: Arc::new(Mutex::new(of_volume)), of_mount: None, wanted })
    }

    /// Takes the name of the mount.
    pub(crate) fn bind_mount(&mut self, device: &str) {
        match self.wanted.registry.listen_for_mount(self.wanted.fs_id, device) {
            Ok(taken) => self.of_mount = Some(taken),
            Err(error) => tracing::warn!("no control socket for the mount: {error:#}"),
        }
    }

    /// Answers, each client on a thread of its own, for as long as the process lives.
    pub(crate) fn serve(&self, service: &Arc<dyn Service>) -> Result<()> {
        if let Some(name) = &self.of_mount {
            let (listener, service) = (name.listener()?, Arc::clone(service));
            rt::thread::spawn("polder-answers", move || answer_all(&listener, &service))?;
        }
        let (name, wanted, service) = (Arc::clone(&self.of_volume), self.wanted.clone(), Arc::clone(service));
        rt::thread::spawn("polder-control", move || {
            if let Some(listener) = wanted.listener(&name) {
                answer_all(&listener, &service);
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

    /// Nobody else takes a name meanwhile: what nobody listens to is taken away.
    fn try_to_take(&self) -> Result<OfVolume> {
        let alone = self.registry.lock()?;
        let path = self.registry.of_volume(self.fs_id);
        let other = match self.registry.connect(&path) {
            Connected::Stream(other) => other,
            Connected::Crowded => bail!("{}: its daemon takes no connections", path.display()),
            Connected::Refused | Connected::Missing => {
                return Ok(OfVolume::Ours(self.registry.listen(&path)?));
            }
        };
        drop(alone);
        other.set_read_timeout(None)?;
        match Reached::at(&self.registry, &path)? {
            Reached::Answers(_, found) if found.volume != self.volume => Ok(OfVolume::Foreign),
            Reached::Silent(silent) => bail!("{}: {silent}", path.display()),
            _ => Ok(OfVolume::Others(other)),
        }
    }

    /// Waits until the name is ours, if it ever is.
    fn listener(&self, name: &Mutex<OfVolume>) -> Option<UnixListener> {
        loop {
            let other = match &*name.lock() {
                OfVolume::Ours(name) => return name.listener().ok(),
                OfVolume::Others(other) => other.try_clone().ok()?,
                OfVolume::Foreign | OfVolume::Missing => return None,
            };
            // Nothing is asked, so nothing comes but the end.
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

pub(crate) fn answer_all(listener: &UnixListener, service: &Arc<dyn Service>) {
    for stream in listener.incoming().flatten() {
        let service = Arc::clone(service);
        let spawned = rt::thread::spawn("polder-client", move || serve_client(&stream, service.as_ref()));
        if let Err(error) = spawned {
            tracing::warn!("a client of the control socket is turned away: {error}");
        }
    }
}

fn serve_client(stream: &UnixStream, service: &dyn Service) {
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let answer = match serde_json::from_str(&line) {
            Ok(request) => service.answer(request),
            Err(error) => Err(anyhow!("not a request: {error}")),
        };
        let answer = match answer {
            Ok(value) => Answer::Ok(value),
            Err(error) => Answer::Error(format!("{error:#}")),
        };
        if send(stream, &answer).is_err() {
            return;
        }
    }
}

pub(crate) fn send(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_written_as_the_manual_says() {
        assert_eq!(serde_json::to_string(&Request::Stats).unwrap(), r#"{"command":"stats"}"#);
        assert_eq!(serde_json::from_str::<Request>(r#"{"command":"unmount"}"#).unwrap(), Request::Unmount);
        let remount = Request::Remount { options: "ro".into() };
        assert_eq!(serde_json::to_string(&remount).unwrap(), r#"{"command":"remount","options":"ro"}"#);
        // As it was once asked for.
        let line = r#"{"command":"remount","directory":"/mnt","options":"ro"}"#;
        assert_eq!(serde_json::from_str::<Request>(line).unwrap(), remount);
        let line = r#"{"command":"defragment","inode":7,"from":0}"#;
        assert_eq!(serde_json::to_string(&Request::Defragment { inode: 7, from: 0 }).unwrap(), line);
        assert_eq!(
            serde_json::to_string(&Request::Gc { work: true }).unwrap(),
            r#"{"command":"gc","work":true}"#
        );
        assert!(serde_json::from_str::<Request>(r#"{"command":"format"}"#).is_err());
        assert_eq!(serde_json::to_string(&Answer::Error("no".into())).unwrap(), r#"{"error":"no"}"#);
    }
}
