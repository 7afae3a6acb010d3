//! Asking a daemon, which may be busy, stopped, hanging or gone.
//!
//! An answer may take as long as the work does. So nobody waits for an answer for a certain time: a daemon that has been
//! silent for [`PATIENCE`] is asked on another connection for its identity, which it tells from a thread of its own
//! and without a lock of the volume's. A daemon that answers is at work. For one that does not, the command ends with an
//! error that names the process and says what helps.

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
use crate::ending::{Daemon, becomes_readable, is_stopped};
use crate::registry::{Connected, PATIENCE, Registry};

const OTHER_RELEASE: &str = "the daemon's answer is of another release";
const STRANGER: &str =
    "the daemon does not tell its identity; if it is of another release, unmount and mount again";
const ENDED: &str = "the daemon has ended without an answer; ask again";

/// The asking end.
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
    registry: Registry,
    /// The name that led to the daemon.
    name: PathBuf,
    daemon: Option<Daemon>,
}

/// What a name of a daemon leads to.
#[expect(clippy::large_enum_variant, reason = "a command has one of them")]
pub(crate) enum Reached {
    /// To one that answers.
    Answers(Client, Introduction),
    /// To one that gives no sign of life.
    Silent(Silent),
    /// To one that has ended.
    Ended,
    /// Nowhere, or to what this user may not ask.
    Unknown,
}

/// A daemon that gives no sign of life; its process, where that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Silent(pub(crate) Option<Pid>);

/// What came within [`PATIENCE`].
enum Heard {
    Line(Vec<u8>),
    End,
    Nothing,
}

impl Silent {
    /// What is said of a mount with such a daemon.
    pub(crate) fn of_mount(self, directory: &Path) -> anyhow::Error {
        self.of_mount_for(directory, fuse::mount::may_end_by_force())
    }

    fn of_mount_for(self, directory: &Path, may_force: bool) -> anyhow::Error {
        let shown = directory.display();
        let force = match may_force {
            true => {
                format!(" and `polder umount --force {shown}` ends it, which loses what was not synced")
            }
            false => String::new(),
        };
        anyhow!("{shown}: {self}; if nothing helps, `polder umount --lazy {shown}` detaches it{force}")
    }

    /// What is said of a volume with such a daemon.
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
                "its daemon has not answered for {seconds} s; it may be stopped or hang: ask again"
            );
        };
        let number = pid.as_raw_pid();
        write!(formatter, "its daemon (process {number}) has not answered for {seconds} s; ")?;
        match is_stopped(pid) {
            true => write!(formatter, "it is stopped: let it go on (`kill -CONT {number}`)"),
            false => write!(
                formatter,
                "it may be busy or hang: ask again, see its log and its state (`ps {number}`); to end it \
                 (`kill -9 {number}`) loses what was not synced"
            ),
        }
    }
}

impl Reached {
    /// Asks at a name.
    pub(crate) fn at(registry: &Registry, name: &Path) -> Result<Reached> {
        let stream = match registry.connect(name) {
            Connected::Stream(stream) => stream,
            Connected::Crowded => return Ok(Reached::Silent(Silent(None))),
            Connected::Refused => return Ok(Reached::Ended),
            Connected::Missing => return Ok(Reached::Unknown),
        };
        // Before the answer: the process that answers still has the number that it had before.
        let daemon = peer(&stream).and_then(Daemon::with_number);
        let registry = registry.clone();
        let mut client = Client { stream: BufReader::new(stream), registry, name: name.to_owned(), daemon };
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

    /// Asks, and waits as long as the daemon lives.
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
                // It takes no others any more, so it is about to end.
                Ok(Reached::Ended | Reached::Unknown) if was_gone => bail!(ENDED),
                Ok(Reached::Ended | Reached::Unknown) => was_gone = true,
                Ok(Reached::Silent(silent)) => bail!("{silent}"),
                // Whatever it says, it lives.
                Ok(Reached::Answers(..)) | Err(_) => {}
            }
            heard = self.hear()?;
        }
    }

    /// The state of the daemon now; nothing when it has ended. Only between two questions.
    pub(crate) fn introduce(&mut self) -> Result<Option<Introduction>> {
        match self.say(&Request::Introduce)? {
            Heard::Line(line) => parse(&line).map(Some),
            Heard::End => Ok(None),
            Heard::Nothing => bail!("{}", self.silent()),
        }
    }

    /// Whether the daemon lives, and its mount somewhere.
    pub(crate) fn is_attached(&mut self) -> Result<bool> {
        Ok(self.introduce()?.is_some_and(|found| !found.closing))
    }

    /// Waits no longer than this; whether the daemon has ended. Only between two questions: where its process is not known
    /// it has ended when it closes the connection, and nothing else is to come.
    pub(crate) fn ends_within(&self, time: Duration) -> Result<bool> {
        match &self.daemon {
            Some(daemon) => daemon.wait_for(time),
            None => becomes_readable(self.stream.get_ref(), time),
        }
    }

    /// Waits until the daemon has ended. Refused when it gives no sign of life any more.
    pub(crate) fn wait_for_end(&mut self) -> Result<()> {
        let mut was_gone = false;
        while !self.ends_within(PATIENCE)? {
            if self.introduce()?.is_none() && std::mem::replace(&mut was_gone, true) {
                bail!("{}", self.silent());
            }
        }
        Ok(())
    }

    fn silent(&self) -> Silent {
        Silent(peer(self.stream.get_ref()))
    }

    fn say(&mut self, request: &Request) -> Result<Heard> {
        match send(self.stream.get_ref(), request) {
            Err(error) if is_end(&error) => Ok(Heard::End),
            Err(error) if is_impatience(&error) => Ok(Heard::Nothing),
            sent => {
                sent.context("the daemon cannot be asked")?;
                self.hear()
            }
        }
    }

    fn hear(&mut self) -> Result<Heard> {
        hear(&mut self.stream)
    }
}

fn hear(stream: &mut BufReader<UnixStream>) -> Result<Heard> {
    let mut line = Vec::new();
    match stream.read_until(b'\n', &mut line) {
        Ok(_) if line.ends_with(b"\n") => Ok(Heard::Line(line)),
        Ok(_) => Ok(Heard::End),
        Err(error) if is_end(&error) => Ok(Heard::End),
        Err(error) if is_impatience(&error) && line.is_empty() => Ok(Heard::Nothing),
        Err(error) if is_impatience(&error) => {
            bail!("the daemon has fallen silent in the middle of an answer")
        }
        Err(error) => Err(error).context("the daemon does not answer"),
    }
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T> {
    match serde_json::from_slice(line).context(OTHER_RELEASE)? {
        Answer::Ok(value) => serde_json::from_value(value).context(OTHER_RELEASE),
        Answer::Error(why) => Err(anyhow!(why)),
    }
}

/// The process at the other end. It has no number in a namespace of processes that it does not belong to: the system says 0.
fn peer(stream: &UnixStream) -> Option<Pid> {
    let peer = getsockopt(stream, PeerCredentials).ok()?;
    Pid::from_raw(peer.pid())
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

/// Whether nothing came in time.
fn is_impatience(error: &io::Error) -> bool {
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
    use crate::control::{Service, answer_all};

    const ID: FsId = FsId([7; 16]);

    /// Answers a long request when it has been asked for signs of life for so often.
    struct Busy {
        asked: AtomicUsize,
        until: usize,
    }

    impl Service for Busy {
        fn answer(&self, request: Request) -> Result<Value> {
            match request {
                Request::Introduce => {
                    self.asked.fetch_add(1, Ordering::SeqCst);
                    bail!("it is none of yours")
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
        let Connected::Stream(stream) = registry.connect(&name) else { panic!("nobody listens") };
        let daemon = peer(&stream).and_then(Daemon::with_number);
        Client { stream: BufReader::new(stream), registry: registry.clone(), name, daemon }
    }

    /// A service under the volume's name, for as long as the process lives.
    fn serve(place: &tempfile::TempDir, service: Busy) -> Registry {
        let registry = Registry::in_directory(place.path().join("run"));
        let _alone = registry.lock().unwrap();
        let name = registry.listen(&registry.of_volume(ID)).unwrap();
        let service: Arc<dyn Service> = Arc::new(service);
        rt::thread::spawn("served", move || answer_all(&name.listener().unwrap(), &service)).unwrap();
        registry
    }

    /// `polder check` of a large volume takes minutes, in which its daemon is at work.
    #[test]
    fn an_answer_is_waited_for_as_long_as_the_daemon_lives() {
        let place = tempfile::tempdir().unwrap();
        let registry = serve(&place, Busy { asked: AtomicUsize::new(0), until: 3 });
        let mut client = client(&registry);
        client.stream.get_ref().set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        assert_eq!(client.ask::<String>(&Request::Gc { work: true }).unwrap(), "done");
    }

    #[test]
    fn a_conversation_goes_on_after_an_error() {
        let place = tempfile::tempdir().unwrap();
        let registry = serve(&place, Busy { asked: AtomicUsize::new(0), until: 0 });
        let mut client = client(&registry);
        assert_eq!(client.ask::<Value>(&Request::Sync).unwrap_err().to_string(), "not now");
        assert_eq!(client.ask::<String>(&Request::Info).unwrap(), "here");
        client.stream.get_ref().write_all(b"nonsense\n").unwrap();
        let Heard::Line(line) = client.hear().unwrap() else { panic!("no answer") };
        assert!(line.starts_with(br#"{"error":"not a request"#), "{}", String::from_utf8_lossy(&line));
    }

    /// All that was said was "Resource temporarily unavailable".
    #[test]
    fn a_daemon_that_gives_no_sign_of_life_is_named() {
        let (near, _far) = UnixStream::pair().unwrap();
        near.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        assert!(matches!(hear(&mut BufReader::new(near)).unwrap(), Heard::Nothing));
        let nobody = Pid::from_raw(i32::MAX);
        let said = |may_force| Silent(nobody).of_mount_for(Path::new("/mnt"), may_force).to_string();
        assert!(!said(false).contains("--force"), "{}", said(false));
        let said = said(true);
        for words in
            ["(process 2147483647) has not answered for 5 s", "kill -9 2147483647", "umount --force /mnt"]
        {
            assert!(said.contains(words), "{said}");
        }
    }
}
