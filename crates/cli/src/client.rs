//! Requests to a daemon, which may be busy, stopped, hanging or gone.
//!
//! An answer may take as long as the work takes, so there is no time limit for an answer. If the daemon has been silent
//! for [`PATIENCE`], the client asks for its identity on another connection. The daemon answers this from a separate thread
//! and without a lock of the volume. A daemon that answers is at work. If it does not answer, the command ends with an error
//! that names the process and says what helps.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::process::Pid;
use serde::de::DeserializeOwned;

use crate::control::{Answer, Introduction, Request, send};
use crate::daemon_process::{Daemon, becomes_readable, is_stopped};
use crate::registry::{Connected, PATIENCE, Registry};

const OTHER_RELEASE: &str =
    "the daemon is of another release, and its answer cannot be read; unmount and mount again";
const STRANGER: &str =
    "the daemon does not report its identity; if it is of another release, unmount and mount again";
const ENDED: &str = "the daemon has ended without an answer; run the command again";
const CLOSE_UNKNOWN: &str = "its daemon has ended before the volume was closed";
/// The beginning of the line with the result of closing the volume.
const CLOSED: &[u8] = br#"{"closed":"#;

/// The client's side of a connection.
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
    registry: Registry,
    /// The name that led to the daemon.
    name: PathBuf,
    daemon: Option<Daemon>,
    /// The last line, after which the daemon ends.
    closed: Option<Answer>,
}

/// The daemon to which a name leads.
#[expect(clippy::large_enum_variant, reason = "a command has one of them")]
pub(crate) enum Reached {
    /// The daemon answers.
    Answers(Client, Introduction),
    /// The daemon does not answer.
    Silent(Silent),
    /// The daemon has ended.
    Ended,
    /// There is no daemon, or this user may not ask it.
    Unknown,
}

/// A daemon that does not answer, and its process if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Silent(pub(crate) Option<Pid>);

/// The input within [`PATIENCE`].
enum Heard {
    Line(Vec<u8>),
    End,
    Nothing,
}

impl Silent {
    /// The error for a mount with such a daemon.
    pub(crate) fn of_mount(self, directory: &Path) -> anyhow::Error {
        self.of_mount_for(directory, fuse::mount::may_end_by_force())
    }

    fn of_mount_for(self, directory: &Path, may_force: bool) -> anyhow::Error {
        let shown = directory.display();
        let force = match may_force {
            true => {
                format!(", and `polder umount --force {shown}` ends it, which loses unsynced data")
            }
            false => String::new(),
        };
        anyhow!("{shown}: {self}; if that does not help, `polder umount --lazy {shown}` detaches it{force}")
    }

    /// The error for a volume with such a daemon.
    pub(crate) fn of_volume(self, path: &Path) -> anyhow::Error {
        anyhow!("{}: the volume is in use, and {self}", path.display())
    }
}

impl fmt::Display for Silent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = PATIENCE.as_secs();
        let Some(pid) = self.0 else {
            return write!(
                formatter,
                "its daemon has not answered for {seconds} s; it may be stopped or hang: try again"
            );
        };
        let number = pid.as_raw_pid();
        write!(formatter, "its daemon (process {number}) has not answered for {seconds} s; ")?;
        match is_stopped(pid) {
            true => write!(formatter, "it is stopped: continue it (`kill -CONT {number}`)"),
            false => write!(
                formatter,
                "it may be busy or hang: try again, see its log and its state (`ps {number}`); ending it \
                 (`kill -9 {number}`) loses unsynced data"
            ),
        }
    }
}

impl Reached {
    /// Connects to a name and asks for the identity.
    pub(crate) fn at(registry: &Registry, name: &Path) -> Result<Reached> {
        let stream = match registry.connect(name) {
            Connected::Stream(stream) => stream,
            Connected::Crowded => return Ok(Reached::Silent(Silent(None))),
            Connected::Refused => return Ok(Reached::Ended),
            Connected::Missing => return Ok(Reached::Unknown),
        };
        // Opened before the answer: a process that answers has not ended, so its number was not reused.
        let daemon = peer(&stream).and_then(Daemon::with_number);
        let registry = registry.clone();
        let stream = BufReader::new(stream);
        let mut client = Client { stream, registry, name: name.to_owned(), daemon, closed: None };
        match client.say(&Request::Introduce)? {
            Heard::Line(line) => {
                let found = parse(&line).context(STRANGER)?;
                Ok(Reached::Answers(client, found))
            }
            Heard::End => Ok(Reached::Ended),
            Heard::Nothing => Ok(Reached::Silent(client.silent())),
        }
    }
}

impl Client {
    pub(crate) fn daemon(&self) -> Option<&Daemon> {
        self.daemon.as_ref()
    }

    /// Sends a request, and waits for the answer as long as the daemon is alive.
    pub(crate) fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T> {
        let mut heard = self.say(request)?;
        let mut was_gone = false;
        loop {
            match heard {
                Heard::Line(line) => return parse(&line),
                Heard::End => bail!(ENDED),
                Heard::Nothing => {}
            }
            match Reached::at(&self.registry, &self.name) {
                // The daemon accepts no connections any more, so it is about to end.
                Ok(Reached::Ended | Reached::Unknown) if was_gone => bail!(ENDED),
                Ok(Reached::Ended | Reached::Unknown) => was_gone = true,
                Ok(Reached::Silent(silent)) => bail!("{silent}"),
                // Any answer shows that the daemon is alive.
                Ok(Reached::Answers(..)) | Err(_) => {}
            }
            heard = self.hear()?;
        }
    }

    /// The current state of the daemon. Nothing if it has ended. Must not be called while an answer is pending.
    pub(crate) fn introduce(&mut self) -> Result<Option<Introduction>> {
        match self.say(&Request::Introduce)? {
            Heard::Line(line) => parse(&line).map(Some),
            Heard::End => Ok(None),
            Heard::Nothing => bail!("{}", self.silent()),
        }
    }

    /// Whether the daemon is alive and its mount is attached somewhere.
    pub(crate) fn is_attached(&mut self) -> Result<bool> {
        Ok(self.introduce()?.is_some_and(|found| !found.closing))
    }

    /// Waits at most this time for the end of the daemon. Returns whether it has ended. Must not be called while an answer is
    /// pending: if the process is not known, any input counts as the end of the connection.
    pub(crate) fn ends_within(&self, time: Duration) -> Result<bool> {
        match &self.daemon {
            Some(daemon) => daemon.wait_for(time),
            None => becomes_readable(self.stream.get_ref(), time),
        }
    }

    /// Waits until the daemon has ended. Fails if it does not answer any more.
    pub(crate) fn wait_for_end(&mut self) -> Result<()> {
        let mut was_gone = false;
        while !self.ends_within(PATIENCE)? {
            if self.introduce()?.is_none() && std::mem::replace(&mut was_gone, true) {
                bail!("{}", self.silent());
            }
        }
        Ok(())
    }

    /// Asks for the result of closing the volume. Returns false if the daemon cannot report it: it is of another release, or
    /// has ended.
    pub(crate) fn request_close_report(&mut self) -> bool {
        self.ask::<()>(&Request::ReportClose).is_ok()
    }

    /// The result of closing the volume, which was requested. Must be called after the end of the daemon.
    pub(crate) fn close_result(&mut self) -> Result<()> {
        // Answers to earlier requests may come first.
        while self.closed.is_none() && matches!(self.hear()?, Heard::Line(_)) {}
        match self.closed.take() {
            Some(Answer::Closed(None)) => Ok(()),
            Some(Answer::Closed(Some(why))) => Err(anyhow!(why)),
            _ => bail!(CLOSE_UNKNOWN),
        }
    }

    fn silent(&self) -> Silent {
        Silent(peer(self.stream.get_ref()))
    }

    fn say(&mut self, request: &Request) -> Result<Heard> {
        match send(self.stream.get_ref(), request) {
            Err(error) if is_end(&error) => Ok(Heard::End),
            Err(error) if is_timeout(&error) => Ok(Heard::Nothing),
            sent => {
                sent.context("the request cannot be sent to the daemon")?;
                self.hear()
            }
        }
    }

    fn hear(&mut self) -> Result<Heard> {
        match hear(&mut self.stream)? {
            Heard::Line(line) if line.starts_with(CLOSED) => {
                self.closed = Some(serde_json::from_slice(&line).context(OTHER_RELEASE)?);
                Ok(Heard::End)
            }
            heard => Ok(heard),
        }
    }
}

fn hear(stream: &mut BufReader<UnixStream>) -> Result<Heard> {
    let mut line = Vec::new();
    match stream.read_until(b'\n', &mut line) {
        Ok(_) if line.ends_with(b"\n") => Ok(Heard::Line(line)),
        Ok(_) => Ok(Heard::End),
        Err(error) if is_end(&error) => Ok(Heard::End),
        Err(error) if is_timeout(&error) && line.is_empty() => Ok(Heard::Nothing),
        Err(error) if is_timeout(&error) => {
            bail!("the daemon stopped in the middle of an answer; run the command again")
        }
        Err(error) => Err(error).context("the daemon does not answer"),
    }
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T> {
    match serde_json::from_slice(line).context(OTHER_RELEASE)? {
        Answer::Ok(value) => serde_json::from_value(value).context(OTHER_RELEASE),
        Answer::Error(why) => Err(anyhow!(why)),
        Answer::Closed(_) => bail!(ENDED),
    }
}

/// The process at the other end. The system reports 0 for a process in another PID namespace.
fn peer(stream: &UnixStream) -> Option<Pid> {
    let peer = getsockopt(stream, PeerCredentials).ok()?;
    Pid::from_raw(peer.pid())
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

/// Whether the time limit of a read or write has passed.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rt::thread::Stop;
    use serde_json::Value;
    use zone::FsId;

    use super::*;
    use crate::control::{Connections, Service, answer_all};

    const ID: FsId = FsId([7; 16]);

    /// Answers a long request after `until` requests for its identity.
    struct Busy {
        asked: AtomicUsize,
        until: usize,
    }

    impl Service for Busy {
        fn answer(&self, request: Request) -> Result<Value> {
            match request {
                Request::Introduce => {
                    self.asked.fetch_add(1, Ordering::SeqCst);
                    bail!("not reported")
                }
                Request::Info => Ok(Value::from("here")),
                Request::Gc { .. } => {
                    while self.asked.load(Ordering::SeqCst) < self.until {
                        Stop::default().wait(Duration::from_millis(1));
                    }
                    Ok(Value::from("done"))
                }
                _ => Err(anyhow!("not now")),
            }
        }
    }

    fn client(registry: &Registry) -> Client {
        let name = registry.of_volume(ID);
        let Connected::Stream(stream) = registry.connect(&name) else { panic!("no process listens") };
        let daemon = peer(&stream).and_then(Daemon::with_number);
        let (stream, registry) = (BufReader::new(stream), registry.clone());
        Client { stream, registry, name, daemon, closed: None }
    }

    /// Starts a service with the volume's name. It runs until the process ends.
    fn serve(place: &tempfile::TempDir, service: Busy) -> Registry {
        serve_with(place, service, &Arc::default())
    }

    fn serve_with(place: &tempfile::TempDir, service: Busy, connections: &Arc<Connections>) -> Registry {
        let registry = Registry::in_directory(place.path().join("run"));
        let _alone = registry.lock().unwrap();
        let name = registry.listen(&registry.of_volume(ID)).unwrap();
        let (service, connections): (Arc<dyn Service>, _) = (Arc::new(service), Arc::clone(connections));
        rt::thread::spawn("served", move || answer_all(&name.listener().unwrap(), &service, &connections))
            .unwrap();
        registry
    }

    /// `polder check` of a large volume takes minutes, and the daemon is at work all the time.
    #[test]
    fn a_client_waits_for_an_answer_as_long_as_the_daemon_is_alive() {
        let place = tempfile::tempdir().unwrap();
        let registry = serve(&place, Busy { asked: AtomicUsize::new(0), until: 3 });
        let mut client = client(&registry);
        client.stream.get_ref().set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        assert_eq!(client.ask::<String>(&Request::Gc { work: true }).unwrap(), "done");
    }

    #[test]
    fn a_connection_is_usable_after_an_error() {
        let place = tempfile::tempdir().unwrap();
        let registry = serve(&place, Busy { asked: AtomicUsize::new(0), until: 0 });
        let mut client = client(&registry);
        assert_eq!(client.ask::<Value>(&Request::Sync).unwrap_err().to_string(), "not now");
        assert_eq!(client.ask::<String>(&Request::Info).unwrap(), "here");
        client.stream.get_ref().write_all(b"nonsense\n").unwrap();
        let Heard::Line(line) = client.hear().unwrap() else { panic!("no answer") };
        assert!(line.starts_with(br#"{"error":"not a request"#), "{}", String::from_utf8_lossy(&line));
    }

    /// The report may come at any time, also instead of an answer.
    #[test]
    fn clients_are_told_how_the_volume_was_closed() {
        let place = tempfile::tempdir().unwrap();
        let connections = Arc::default();
        let registry = serve_with(&place, Busy { asked: AtomicUsize::new(0), until: 0 }, &connections);
        let (mut before, mut during, mut gone) = (client(&registry), client(&registry), client(&registry));
        for client in [&mut before, &mut during, &mut gone] {
            assert!(client.request_close_report());
        }
        let mut uninterested = client(&registry);
        assert_eq!(uninterested.ask::<String>(&Request::Info).unwrap(), "here");
        drop(gone);
        connections.report_closed(Some("no space".into()));
        assert_eq!(before.close_result().unwrap_err().to_string(), "no space");
        assert!(during.introduce().unwrap().is_none(), "it is about to end");
        assert_eq!(during.close_result().unwrap_err().to_string(), "no space");

        // It has not ended yet.
        let mut late = client(&registry);
        assert!(late.request_close_report());
        assert_eq!(late.close_result().unwrap_err().to_string(), "no space");
        assert_eq!(uninterested.ask::<String>(&Request::Info).unwrap(), "here", "it gets only answers");
    }

    #[test]
    fn a_daemon_that_ends_without_a_report_has_not_closed_the_volume() {
        let place = tempfile::tempdir().unwrap();
        let registry = Registry::in_directory(place.path().to_owned());
        let (near, far) = UnixStream::pair().unwrap();
        let stream = BufReader::new(near);
        let mut client = Client { stream, registry, name: PathBuf::new(), daemon: None, closed: None };
        drop(far);
        assert_eq!(client.close_result().unwrap_err().to_string(), CLOSE_UNKNOWN);
    }

    /// The only message was "Resource temporarily unavailable".
    #[test]
    fn the_error_about_a_silent_daemon_names_its_process() {
        let (near, _far) = UnixStream::pair().unwrap();
        near.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        assert!(matches!(hear(&mut BufReader::new(near)).unwrap(), Heard::Nothing));
        let process = Pid::from_raw(i32::MAX);
        let said = |may_force| Silent(process).of_mount_for(Path::new("/mnt"), may_force).to_string();
        assert!(!said(false).contains("--force"), "{}", said(false));
        let said = said(true);
        for words in
            ["(process 2147483647) has not answered for 5 s", "kill -9 2147483647", "umount --force /mnt"]
        {
            assert!(said.contains(words), "{said}");
        }
    }
}
