//! The control socket: how other processes ask the daemon that has a volume.
//!
//! One line of JSON for each request and one for its answer: `{"command":"stats"}` is answered by
//! `{"ok":…}` or `{"error":"…"}`. The socket is named after the volume's id and readable by nobody but its
//! owner, in a directory that is the owner's too.
//!
//! The daemon's lock on the volume is what keeps two daemons apart; a socket that nobody listens on is
//! what a killed daemon left behind and is replaced.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rt::sync::Mutex;
use rt::thread::Stop;
use rustix::fs::{FlockOperation, Mode, flock};
use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zone::FsId;

use crate::ending::Daemon;
use crate::info::Info;
use crate::name::AnyPath;
use crate::scrub::Place;
use crate::volume::is_same;

/// Overrides where sockets are.
const DIRECTORY: &str = "POLDER_RUN_DIR";

/// How long a daemon may take to say what it has.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to take a name that another has.
const PAUSE: Duration = Duration::from_millis(20);

const OTHER_RELEASE: &str = "the daemon's answer is of another release";

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub(crate) enum Request {
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
        /// The mount that is meant: readers of one volume share a socket.
        directory: AnyPath,
        /// As after `-o`.
        options: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ok(Value),
    Error(String),
}

/// Who answers requests.
pub(crate) trait Service: Send + Sync + 'static {
    fn answer(&self, request: Request) -> Result<Value>;
}

/// The listening end; the name goes when it is dropped.
pub(crate) struct Socket {
    name: Arc<Mutex<Name>>,
    wanted: Wanted,
}

/// Whose name is wanted.
#[derive(Clone)]
struct Wanted {
    fs_id: FsId,
    /// Of the volume.
    volume: PathBuf,
}

/// Who has the name of a volume among sockets.
enum Name {
    /// We do.
    Ours(UnixListener, PathBuf),
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
    pub(crate) fn bind(fs_id: FsId, volume: &Path, shared: bool) -> Result<Socket> {
        let wanted = Wanted { fs_id, volume: volume.to_owned() };
        let name = wanted.take();
        if !shared && matches!(name, Name::Others(_) | Name::Foreign) {
            bail!(
                "another volume with the id {fs_id} is mounted; unmount it first (is this one a copy of it?)"
            );
        }
        Ok(Socket { name: Arc::new(Mutex::new(name)), wanted })
    }

    /// Answers, each client on a thread of its own, for as long as the process lives.
    pub(crate) fn serve(&self, service: &Arc<dyn Service>) -> Result<()> {
        let (name, wanted, service) = (Arc::clone(&self.name), self.wanted.clone(), Arc::clone(service));
        rt::thread::spawn("polder-control", move || {
            if let Some(listener) = wanted.listener(&name) {
                answer_all(&listener, &service);
            }
        })?;
        Ok(())
    }
}

impl Wanted {
    fn take(&self) -> Name {
        let path = socket_path(self.fs_id);
        self.take_path(&path).unwrap_or_else(|error| {
            tracing::warn!("no control socket: {error:#}");
            Name::Missing
        })
    }

    /// Nobody else takes a name in this directory meanwhile: what nobody listens to is taken away.
    fn take_path(&self, path: &Path) -> Result<Name> {
        let directory = path.parent().expect("a directory and a name were joined");
        make_directory(directory)?;
        let alone = File::open(directory).with_context(|| directory.display().to_string())?;
        flock(&alone, FlockOperation::LockExclusive).with_context(|| directory.display().to_string())?;
        let Some(other) = connect(path) else {
            return Ok(Name::Ours(listen(path)?, path.to_owned()));
        };
        drop(alone);
        let told = Client { stream: BufReader::new(other.try_clone()?) }.introduce()?;
        match told.is_none_or(|(info, _)| is_same(&info.path, &self.volume)) {
            true => Ok(Name::Others(other)),
            false => Ok(Name::Foreign),
        }
    }

    /// Waits until the name is ours, if it ever is.
    fn listener(&self, name: &Mutex<Name>) -> Option<UnixListener> {
        loop {
            let other = match &*name.lock() {
                Name::Ours(listener, _) => return listener.try_clone().ok(),
                Name::Others(other) => other.try_clone().ok()?,
                Name::Foreign | Name::Missing => return None,
            };
            // Nothing is asked, so nothing comes but the end.
            let _ = (&other).read(&mut [0]);
            Stop::default().wait(PAUSE);
            let taken = self.take();
            let mut name = name.lock();
            match *name {
                Name::Others(_) => *name = taken,
                _ => return None,
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        *self.name.lock() = Name::Missing;
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if let Name::Ours(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn listen(path: &Path) -> Result<UnixListener> {
    let _ = std::fs::remove_file(path);
    // The permissions of a socket are those it is made with.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    bound.with_context(|| path.display().to_string())
}

fn answer_all(listener: &UnixListener, service: &Arc<dyn Service>) {
    for stream in listener.incoming().flatten() {
        let service = Arc::clone(service);
        let spawned = rt::thread::spawn("polder-client", move || serve_client(&stream, service.as_ref()));
        if let Err(error) = spawned {
            tracing::warn!("a client of the control socket is turned away: {error}");
        }
    }
}

/// The asking end.
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// `None` when no daemon of a user whose socket we may open has the volume.
    pub(crate) fn connect(fs_id: FsId) -> Option<Client> {
        connect(&socket_path(fs_id)).map(|stream| Client { stream: BufReader::new(stream) })
    }

    /// What the daemon has, and the daemon; nothing if it has ended: one that was just killed may still have taken the
    /// connection. Refused when it does not answer for long, as one that was stopped.
    pub(crate) fn introduce(&mut self) -> Result<Option<(Info, Option<Daemon>)>> {
        let peer = socket_peercred(self.stream.get_ref()).ok().map(|peer| peer.pid);
        // Before the answer: whoever gives that is the one with this number.
        let daemon = peer.and_then(Daemon::with_number);
        self.stream.get_ref().set_read_timeout(Some(PATIENCE))?;
        let info = self.ask_if_alive(&Request::Info).map_err(|error| match is_impatience(&error) {
            true => anyhow!(silent(peer)),
            false => error,
        });
        self.stream.get_ref().set_read_timeout(None)?;
        Ok(info?.map(|info| (info, daemon)))
    }

    pub(crate) fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T> {
        self.ask_if_alive(request)?.context("the daemon has ended without an answer; ask again")
    }

    fn ask_if_alive<T: DeserializeOwned>(&mut self, request: &Request) -> Result<Option<T>> {
        let mut line = String::new();
        let sent = send(self.stream.get_ref(), request);
        match sent.and_then(|()| self.stream.read_line(&mut line)) {
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                return Ok(None);
            }
            Ok(0) => return Ok(None),
            read => read.context("the daemon does not answer")?,
        };
        match serde_json::from_str(&line).context(OTHER_RELEASE)? {
            Answer::Ok(value) => serde_json::from_value(value).context(OTHER_RELEASE).map(Some),
            Answer::Error(why) => Err(anyhow!(why)),
        }
    }
}

/// Whether nothing came in time.
fn is_impatience(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// What to say of a daemon that was given time to answer.
fn silent(daemon: Option<Pid>) -> String {
    let seconds = PATIENCE.as_secs();
    let Some(daemon) = daemon.map(Pid::as_raw_pid) else {
        return format!(
            "the daemon has not answered for {seconds} s; it may be busy, stopped or hang: ask again"
        );
    };
    format!(
        "the daemon (process {daemon}) has not answered for {seconds} s; it may be busy, stopped or hang: ask again, \
         see its log and its state (`ps {daemon}`), and if that does not help end it (`kill -9 {daemon}`) and mount \
         again, which loses what was not synced"
    )
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

fn send(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn socket_path(fs_id: FsId) -> PathBuf {
    directory().join(format!("{fs_id}.sock"))
}

fn directory() -> PathBuf {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return directory.into();
    }
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return "/run/polder".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(runtime) => Path::new(&runtime).join("polder"),
        None => std::env::temp_dir().join(format!("polder-{}", uid.as_raw())),
    }
}

/// Nobody is listened to in a directory that somebody else may have made: what he says of a volume might be
/// anything.
fn connect(path: &Path) -> Option<UnixStream> {
    let is_ours = owner_of(path.parent()?).is_ok_and(|owner| owner == rustix::process::geteuid().as_raw());
    if is_ours { UnixStream::connect(path).ok() } else { None }
}

/// Makes the directory for our sockets, or makes sure that it is ours: in a shared place somebody else
/// might have made it.
fn make_directory(directory: &Path) -> Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.with_context(|| directory.display().to_string())?;
    if owner_of(directory)? != rustix::process::geteuid().as_raw() {
        bail!("{} belongs to another user; set {DIRECTORY} to a directory of yours", directory.display());
    }
    Ok(())
}

/// Not of what a symbolic link leads to: that is the maker's choice.
fn owner_of(directory: &Path) -> std::io::Result<u32> {
    Ok(std::fs::symlink_metadata(directory)?.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_written_as_the_manual_says() {
        assert_eq!(serde_json::to_string(&Request::Stats).unwrap(), r#"{"command":"stats"}"#);
        assert_eq!(serde_json::from_str::<Request>(r#"{"command":"unmount"}"#).unwrap(), Request::Unmount);
        let remount = Request::Remount { directory: AnyPath("/mnt".into()), options: "ro".into() };
        let line = r#"{"command":"remount","directory":"/mnt","options":"ro"}"#;
        assert_eq!(serde_json::to_string(&remount).unwrap(), line);
        let line = r#"{"command":"defragment","inode":7,"from":0}"#;
        assert_eq!(serde_json::to_string(&Request::Defragment { inode: 7, from: 0 }).unwrap(), line);
        assert_eq!(
            serde_json::to_string(&Request::Gc { work: true }).unwrap(),
            r#"{"command":"gc","work":true}"#
        );
        assert!(serde_json::from_str::<Request>(r#"{"command":"format"}"#).is_err());
        assert_eq!(serde_json::to_string(&Answer::Error("no".into())).unwrap(), r#"{"error":"no"}"#);
    }

    struct Echo;

    impl Service for Echo {
        fn answer(&self, request: Request) -> Result<Value> {
            match request {
                Request::Info => Ok(Value::from("here")),
                _ => Err(anyhow!("not now")),
            }
        }
    }

    /// Where there is no directory of his own for them, a user's sockets are in /tmp. Who had made that
    /// directory first could answer for his volumes: that all is durable, that a file is sound.
    #[test]
    fn nobody_is_listened_to_in_a_directory_of_somebody_else() {
        let place = tempfile::tempdir().unwrap();
        let (own, linked) = (place.path().join("own"), place.path().join("linked"));
        make_directory(&own).unwrap();
        let _listener = UnixListener::bind(own.join("socket")).unwrap();
        assert!(connect(&own.join("socket")).is_some());
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root can give a directory away");
        }
        std::os::unix::fs::symlink(&own, &linked).unwrap();
        std::os::unix::fs::lchown(&linked, Some(65534), None).unwrap();
        assert!(connect(&linked.join("socket")).is_none());
        std::os::unix::fs::chown(&own, Some(65534), None).unwrap();
        assert!(connect(&own.join("socket")).is_none());
        assert!(make_directory(&own).unwrap_err().to_string().contains("belongs to another user"));
    }

    /// All that was said was "Resource temporarily unavailable".
    #[test]
    fn a_daemon_that_does_not_answer_is_named() {
        let (near, _far) = UnixStream::pair().unwrap();
        near.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut client = Client { stream: BufReader::new(near) };
        let error = client.ask_if_alive::<Value>(&Request::Info).unwrap_err();
        assert!(is_impatience(&error) && !is_impatience(&anyhow!("not now")), "{error:#}");
        let said = silent(Pid::from_raw(17));
        assert!(
            said.contains("(process 17) has not answered for 10 s") && said.contains("kill -9 17"),
            "{said}"
        );
    }

    #[test]
    fn a_conversation_goes_on_after_an_error() {
        let (near, far) = UnixStream::pair().unwrap();
        let served = rt::thread::spawn("served", move || serve_client(&far, &Echo)).unwrap();
        let mut client = Client { stream: BufReader::new(near) };
        assert_eq!(client.ask::<Value>(&Request::Sync).unwrap_err().to_string(), "not now");
        assert_eq!(client.ask::<String>(&Request::Info).unwrap(), "here");
        client.stream.get_ref().write_all(b"nonsense\n").unwrap();
        let mut line = String::new();
        client.stream.read_line(&mut line).unwrap();
        assert!(line.starts_with(r#"{"error":"not a request"#), "{line}");
        drop(client);
        served.join().unwrap();
    }
}
