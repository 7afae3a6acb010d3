//! The part of HTTP/1.1 that a page for reading needs: one GET for each connection, with limits on size and time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rt::{Clock, SystemClock};

/// The largest request. Browsers send one or two kibibytes.
const HEAD_BYTES_MAX: usize = 8192;
const HEADERS_MAX: usize = 64;
/// A client that gets a refusal may still be sending. This much of that is dropped, so that the client can read the answer.
const DROPPED_BYTES_MAX: usize = 64 << 10;
const DROP_TIME: Duration = Duration::from_millis(500);
/// The shortest time limit that a socket accepts.
const SHORTEST: Duration = Duration::from_millis(1);

pub(super) const JSON: &str = "application/json";

/// The headers of every answer. The page loads nothing from elsewhere, no other page can read it or show it in a frame.
const HEADERS: &str = "Connection: close\r\n\
    Cache-Control: no-store\r\n\
    Content-Security-Policy: default-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n\
    Referrer-Policy: no-referrer\r\n\
    X-Content-Type-Options: nosniff\r\n";

/// The parts of a request that matter.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) method: String,
    /// Without the query.
    pub(super) path: String,
    pub(super) host: Option<String>,
}

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Malformed,
    TooLarge,
    Body,
    Method,
    Host,
    Path,
    Busy,
    NoSample,
}

pub(super) struct Answer {
    status: &'static str,
    content_type: &'static str,
    body: Vec<u8>,
}

/// The end of a time limit for several reads or writes.
pub(super) struct Deadline {
    clock: SystemClock,
    end_ns: u64,
}

impl Deadline {
    pub(super) fn after(time: Duration) -> Deadline {
        let clock = SystemClock::new();
        let end_ns = clock.monotonic_ns() + time.as_nanos() as u64;
        Deadline { clock, end_ns }
    }

    /// The time until then. Nothing if it has passed.
    pub(super) fn left(&self) -> Option<Duration> {
        let left = self.end_ns.checked_sub(self.clock.monotonic_ns())?;
        Some(Duration::from_nanos(left).max(SHORTEST))
    }

    fn left_or_end(&self) -> io::Result<Duration> {
        self.left().ok_or_else(|| ErrorKind::TimedOut.into())
    }
}

impl Answer {
    pub(super) fn new(content_type: &'static str, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status: "200 OK", content_type, body: body.into() }
    }
}

impl From<&Refusal> for Answer {
    fn from(refusal: &Refusal) -> Answer {
        let (status, why) = match refusal {
            Refusal::Malformed => ("400 Bad Request", "this is no HTTP request"),
            Refusal::TooLarge => ("431 Request Header Fields Too Large", "the request is too large"),
            Refusal::Body => ("413 Content Too Large", "a request must not have contents"),
            Refusal::Method => {
                ("405 Method Not Allowed", "only GET is possible: nothing can be changed here")
            }
            Refusal::Host => (
                "403 Forbidden",
                "the page is answered only under an address of this machine, such as 127.0.0.1 or localhost",
            ),
            Refusal::Path => (
                "404 Not Found",
                "there are /, /metrics, /status.json, /zones.json, /history.json and /events",
            ),
            Refusal::Busy => ("503 Service Unavailable", "there are too many connections; try again"),
            Refusal::NoSample => ("503 Service Unavailable", "there is no sample yet; try again"),
        };
        Answer { status, content_type: "text/plain; charset=utf-8", body: format!("{why}\n").into() }
    }
}

/// Reads a request up to the end of its headers.
pub(super) fn read_head(mut stream: &TcpStream, deadline: Deadline) -> io::Result<Result<Head, Refusal>> {
    let (mut bytes, mut end) = (vec![0; HEAD_BYTES_MAX], 0);
    loop {
        stream.set_read_timeout(Some(deadline.left_or_end()?))?;
        match stream.read(&mut bytes[end..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => end += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        match parse(&bytes[..end]) {
            Some(parsed) => return Ok(parsed),
            None if end == bytes.len() => return Ok(Err(Refusal::TooLarge)),
            None => {}
        }
    }
}

/// The head of a request. Nothing if it is not complete.
fn parse(bytes: &[u8]) -> Option<Result<Head, Refusal>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Some(Err(Refusal::TooLarge)),
        Err(_) => return Some(Err(Refusal::Malformed)),
    }
    Some(head_of(&request))
}

fn head_of(request: &httparse::Request<'_, '_>) -> Result<Head, Refusal> {
    let values = |name: &'static str| {
        let named = request.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| str::from_utf8(header.value).map_err(|_| Refusal::Malformed))
    };
    let mut hosts = values("host");
    let host = hosts.next().transpose()?.map(|host| host.trim().to_owned());
    if hosts.next().is_some() {
        return Err(Refusal::Malformed);
    }
    let has_length = values("content-length").any(|length| length != Ok("0"));
    if has_length || values("transfer-encoding").next().is_some() {
        return Err(Refusal::Body);
    }
    let target = request.path.unwrap_or_default();
    Ok(Head {
        method: request.method.unwrap_or_default().to_owned(),
        path: target.split_once('?').map_or(target, |(path, _)| path).to_owned(),
        host,
    })
}

/// Sends an answer, and ends the connection.
pub(super) fn send(stream: &TcpStream, answer: &Answer, deadline: Deadline) -> io::Result<()> {
    let mut bytes = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}{HEADERS}\r\n",
        answer.status,
        answer.content_type,
        answer.body.len(),
        if answer.status.starts_with("405") { "Allow: GET\r\n" } else { "" },
    )
    .into_bytes();
    bytes.extend_from_slice(&answer.body);
    send_bytes(stream, &bytes, deadline)?;
    stream.shutdown(Shutdown::Write)?;
    drop_rest(stream);
    Ok(())
}

/// Drops what the client still sends: if it were not read, the system would reset the connection, and the client might
/// lose the answer.
fn drop_rest(mut stream: &TcpStream) {
    let (deadline, mut bytes, mut dropped) = (Deadline::after(DROP_TIME), [0; 4096], 0);
    while let Some(left) = deadline.left().filter(|_| dropped < DROPPED_BYTES_MAX) {
        if stream.set_read_timeout(Some(left)).is_err() {
            return;
        }
        match stream.read(&mut bytes) {
            Ok(count @ 1..) => dropped += count,
            _ => return,
        }
    }
}

/// Begins an answer of events.
pub(super) fn begin_stream(stream: &TcpStream, deadline: Deadline) -> io::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{HEADERS}\r\nretry: 2000\n\n");
    send_bytes(stream, head.as_bytes(), deadline)
}

/// Sends bytes within a time limit.
pub(super) fn send_bytes(mut stream: &TcpStream, mut bytes: &[u8], deadline: Deadline) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(deadline.left_or_end()?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Refuses a connection without waiting for anything.
pub(super) fn refuse_at_once(mut stream: &TcpStream, refusal: &Refusal) {
    let Answer { status, body, .. } = Answer::from(refusal);
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{HEADERS}\r\n", body.len());
    // The client may have gone.
    let _ = stream.set_nonblocking(true).and_then(|()| stream.write(&[head.as_bytes(), &body].concat()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_parsed_when_it_is_complete() {
        let text = b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:9180\r\nAccept: */*\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(parse(&text[..end]), None, "{end}");
        }
        let head = parse(text).unwrap().unwrap();
        assert_eq!((head.method.as_str(), head.path.as_str()), ("GET", "/metrics"));
        assert_eq!(head.host.as_deref(), Some("localhost:9180"));
    }

    #[test]
    fn other_requests_are_refused() {
        let refused = |text: &str| parse(text.as_bytes()).unwrap().unwrap_err();
        assert_eq!(refused("\x16\x03\x01\x02\r\n\r\n"), Refusal::Malformed);
        assert_eq!(refused("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), Refusal::Malformed);
        assert_eq!(refused("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"), Refusal::Body);
        assert_eq!(refused("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), Refusal::Body);
        let many = "X: y\r\n".repeat(HEADERS_MAX + 1);
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\n{many}\r\n")), Refusal::TooLarge);
    }
}
