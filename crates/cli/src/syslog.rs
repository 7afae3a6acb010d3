//! Output to the system's log: each line is a datagram to the socket `/dev/log`.
//!
//! The daemon never waits for the system's log. The log may store its files on the volume that the daemon serves, and then
//! the log waits for the daemon. Lines that it does not accept at once are lost. So are all lines if there is no such log.
//! Each line opens the path anew, because the log may start later than the daemon, or restart.

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// The socket of the system's log.
pub(crate) const SOCKET: &str = "/dev/log";

/// The facility for system daemons (RFC 3164, section 4.1.1).
const FACILITY: u8 = 3;

/// Writes to the system's log.
pub(crate) struct Syslog {
    socket: UnixDatagram,
    path: PathBuf,
}

/// The writer of one line.
pub(crate) struct Line<'a> {
    log: &'a Syslog,
    severity: u8,
}

impl Syslog {
    pub(crate) fn new(path: &Path) -> io::Result<Syslog> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Syslog { socket, path: path.to_owned() })
    }
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { log: self, severity: severity(Level::INFO) }
    }

    fn make_writer_for(&'a self, of: &Metadata<'_>) -> Line<'a> {
        Line { log: self, severity: severity(*of.level()) }
    }
}

impl Write for Line<'_> {
    /// Writes a whole line: the formatter calls this once per line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut message =
            format!("<{}>polder[{}]: ", FACILITY * 8 + self.severity, std::process::id()).into_bytes();
        message.extend_from_slice(line.trim_ascii());
        // There is no other place to report an error.
        let _ = self.log.socket.send_to(&message, &self.log.path);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_datagram_and_a_full_queue_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = Syslog::new(&path).unwrap();
        let say = || Line { log: &log, severity: severity(Level::WARN) }.write_all(b" early\n").unwrap();
        say();
        let listener = UnixDatagram::bind(&path).unwrap();
        say();
        let mut taken = [0; 100];
        let length = listener.recv(&mut taken).unwrap();
        let expected = format!("<28>polder[{}]: early", std::process::id());
        assert_eq!(String::from_utf8_lossy(&taken[..length]), expected);
        // The listener reads no more, so the queue is full long before this ends.
        (0..100_000).for_each(|_| say());
    }
}
