//! The status page of a mount: `polder mount --status ADDRESS`.
//!
//! One thread takes a sample each second. All requests are answered from the last sample, so no client ever touches the
//! volume, and the page still answers when the device hangs: it then shows how old the sample is.
//!
//! **A slow or hostile client holds nothing but its own connection.** The number of connections, the size of a request,
//! and the time for a request and for its answer are limited. Each connection has a thread of its own and serves one
//! request.
//!
//! **Only GET, only for the names of this machine.** Nothing can be changed through the page. A request is refused if its
//! `Host` is not an address of this machine that it arrived at, because a page of another site could otherwise read the
//! answers by pointing its own name here (DNS rebinding). No answer allows other origins to read it. No answer contains a
//! name or the contents of a file of the volume.

mod board;
mod hosts;
mod http;
mod metrics;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rt::sync::atomic::{AtomicUsize, Ordering};
use rt::thread::Stop;

use crate::monitor::sample::Sample;
use board::{Board, Report};
use hosts::Hosts;
use http::{Answer, Deadline, Head, Refusal};

/// The largest number of connections at the same time.
const CONNECTIONS_MAX: usize = 32;
/// The number of those that may be event streams, which stay.
const STREAMS_MAX: usize = 8;
/// How long a request may take to arrive.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// How long a client may take to receive an answer or an event.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How long a client of a new mount waits for the first sample.
const FIRST_SAMPLE_TIME: Duration = Duration::from_secs(2);
/// How long an event stream lasts. A browser then connects again.
const STREAM_TIME: Duration = Duration::from_secs(3600);
/// An event is sent at least this often, so that a client that has gone is noticed.
const PULSE: Duration = Duration::from_secs(5);
/// The pause after a connection could not be accepted, for example for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

const PAGE: &str = include_str!("status/page/page.html");
const STYLE: &str = include_str!("status/page/page.css");
const SCRIPT: &str = include_str!("status/page/page.js");

/// A page that is not served yet.
pub(crate) struct StatusPage {
    listener: TcpListener,
    address: SocketAddr,
    hosts: Hosts,
}

/// What the connections share.
struct Served {
    board: Arc<Board>,
    hosts: Hosts,
    connections: AtomicUsize,
    streams: AtomicUsize,
}

impl StatusPage {
    /// Refuses an address that other machines may be able to reach, unless that is permitted.
    pub(crate) fn check(address: SocketAddr, may_be_remote: bool) -> Result<()> {
        ensure!(
            address.ip().is_loopback() || may_be_remote,
            "--status {address}: other machines could read the page at this address; use 127.0.0.1, or add --status-remote"
        );
        Ok(())
    }

    /// Takes the address. `may_be_remote`: other machines may be able to reach it.
    pub(crate) fn bind(address: SocketAddr, may_be_remote: bool) -> Result<StatusPage> {
        let bound = TcpListener::bind(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = bound.with_context(|| format!("--status {address}"))?;
        Ok(StatusPage { listener, address, hosts: Hosts::new(may_be_remote) })
    }

    /// The URL of the page.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Starts the threads that take samples and answer requests until the process ends.
    pub(crate) fn serve(self, take: impl Fn() -> Result<Sample> + Send + 'static) -> Result<()> {
        let board = Arc::new(Board::default());
        let samples = Arc::clone(&board);
        rt::thread::spawn("polder-samples", move || samples.keep_taking(take))?;
        let served = Arc::new(Served {
            board,
            hosts: self.hosts,
            connections: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
        });
        let listener = self.listener;
        rt::thread::spawn("polder-status", move || accept_all(&listener, &served))?;
        Ok(())
    }
}

fn accept_all(listener: &TcpListener, served: &Arc<Served>) {
    for stream in listener.incoming() {
        match stream {
            Ok(stream) => accept(stream, served),
            Err(error) => {
                tracing::debug!("a connection to the status page cannot be accepted: {error}");
                Stop::default().wait(PAUSE);
            }
        }
    }
}

fn accept(stream: TcpStream, served: &Arc<Served>) {
    let Some(place) = Place::take(served, |served| &served.connections, CONNECTIONS_MAX) else {
        return http::refuse_at_once(&stream, &Refusal::Busy);
    };
    let spawned = rt::thread::spawn("polder-reader", move || {
        if let Err(error) = place.served.answer(&stream) {
            tracing::debug!("a client of the status page is dropped: {error}");
        }
    });
    if let Err(error) = spawned {
        tracing::debug!("a connection to the status page is refused: {error}");
    }
}

/// One connection or stream, of which the number is limited. Dropping it makes room for another one.
struct Place {
    served: Arc<Served>,
    count: fn(&Served) -> &AtomicUsize,
}

impl Place {
    fn take(served: &Arc<Served>, count: fn(&Served) -> &AtomicUsize, most: usize) -> Option<Place> {
        let place = Place { served: Arc::clone(served), count };
        let taken = count(served).fetch_add(1, Ordering::SeqCst);
        (taken < most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        (self.count)(&self.served).fetch_sub(1, Ordering::SeqCst);
    }
}

impl Served {
    fn answer(self: &Arc<Self>, stream: &TcpStream) -> std::io::Result<()> {
        let head = http::read_head(stream, Deadline::after(REQUEST_TIME))?;
        let head = head.and_then(|head| self.check(head, stream));
        match head {
            Ok(head) if head.path == "/events" => self.stream(stream),
            Ok(head) => http::send(stream, &self.find(&head.path), Deadline::after(ANSWER_TIME)),
            Err(refusal) => http::send(stream, &Answer::from(&refusal), Deadline::after(ANSWER_TIME)),
        }
    }

    fn check(&self, head: Head, stream: &TcpStream) -> Result<Head, Refusal> {
        let local = stream.local_addr().map_err(|_| Refusal::Malformed)?;
        match self.hosts.accept(head.host.as_deref(), local.ip()) {
            _ if head.method != "GET" => Err(Refusal::Method),
            true => Ok(head),
            false => Err(Refusal::Host),
        }
    }

    fn find(&self, path: &str) -> Answer {
        match path {
            "/" => return Answer::new("text/html; charset=utf-8", PAGE),
            "/page.css" => return Answer::new("text/css; charset=utf-8", STYLE),
            "/page.js" => return Answer::new("text/javascript; charset=utf-8", SCRIPT),
            "/metrics" | "/status.json" | "/zones.json" | "/history.json" => {}
            _ => return Answer::from(&Refusal::Path),
        }
        let Some(report) = self.board.report_within(FIRST_SAMPLE_TIME) else {
            return Answer::from(&Refusal::NoSample);
        };
        match path {
            "/metrics" => {
                Answer::new(metrics::CONTENT_TYPE, metrics::text(&report, self.board.age_seconds()))
            }
            "/zones.json" => Answer::new(http::JSON, report.map.clone()),
            "/history.json" => Answer::new(http::JSON, self.board.history()),
            _ => Answer::new(http::JSON, self.status(&report)),
        }
    }

    fn status(&self, report: &Report) -> String {
        format!("{{\"age_seconds\":{:.1},\"report\":{}}}", self.board.age_seconds(), report.event)
    }

    /// Sends each new sample as an event, as long as the client receives them.
    fn stream(self: &Arc<Self>, stream: &TcpStream) -> std::io::Result<()> {
        let Some(_place) = Place::take(self, |served| &served.streams, STREAMS_MAX) else {
            return http::send(stream, &Answer::from(&Refusal::Busy), Deadline::after(ANSWER_TIME));
        };
        http::begin_stream(stream, Deadline::after(ANSWER_TIME))?;
        let (end, mut seen) = (Deadline::after(STREAM_TIME), 0);
        while end.left().is_some() {
            let event = match self.board.next_report(seen, PULSE) {
                Some((number, report)) => {
                    seen = number;
                    format!("event: report\ndata: {}\n\n", report.event)
                }
                None => format!("event: age\ndata: {:.1}\n\n", self.board.age_seconds()),
            };
            http::send_bytes(stream, event.as_bytes(), Deadline::after(ANSWER_TIME))?;
        }
        Ok(())
    }
}
