//! A server that speaks as much of the protocol of S3 as Polder's client uses, with faults.
//!
//! It has one bucket, `bucket`, and verifies no signatures. It ends with the process.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use rt::sync::Mutex;

/// A listing has at most this number of names, so that listings have pages.
const PAGE: usize = 3;

/// The faults of the server. The numbers say how many of the next creations have one.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The object is created, and the connection is closed without a reply.
    pub lost_replies: u32,
    /// Nothing is created: another request for the same name is in progress (409).
    pub conflicts: u32,
    /// Nothing is created: the server is too busy (503).
    pub busy: u32,
    /// Every request is refused with this code (403).
    pub forbidden: Option<&'static str>,
    /// Every request that changes something is refused (403).
    pub is_read_only: bool,
    /// There is no bucket (404).
    pub has_no_bucket: bool,
    /// Objects are created although they exist.
    pub ignores_conditions: bool,
}

#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, Vec<u8>>,
    faults: Faults,
    creations: u32,
    requests: u32,
}

/// A server with one bucket.
#[derive(Clone)]
pub struct Server {
    bucket: Arc<Mutex<Bucket>>,
    url: String,
}

struct Request {
    method: String,
    key: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// Status, headers and body.
type Reply = (&'static str, String, Vec<u8>);

impl Server {
    /// Starts a server at a free port of this machine.
    ///
    /// # Errors
    /// There is none, or no thread.
    pub fn start() -> io::Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        let server = Server { bucket: Arc::default(), url };
        let served = server.clone();
        rt::thread::spawn("server", move || {
            for stream in listener.incoming().flatten() {
                let server = served.clone();
                // Without a thread, the connection is closed.
                let _ = rt::thread::spawn("connection", move || while server.serve_one(&stream).is_some() {});
            }
        })?;
        Ok(server)
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sets the faults from now on.
    pub fn plan(&self, faults: Faults) {
        self.bucket.lock().faults = faults;
    }

    /// The names of all objects, in order.
    pub fn names(&self) -> Vec<String> {
        self.bucket.lock().objects.keys().cloned().collect()
    }

    /// How many creations it was asked for, with those that had a fault.
    pub fn creations(&self) -> u32 {
        self.bucket.lock().creations
    }

    /// How many requests it has had.
    pub fn requests(&self) -> u32 {
        self.bucket.lock().requests
    }

    /// `None` ends the connection.
    fn serve_one(&self, stream: &TcpStream) -> Option<()> {
        let request = read_request(stream)?;
        let (status, headers, body) = self.bucket.lock().answer(&request)?;
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
        let mut stream = stream;
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(&body).ok()
    }
}

impl Bucket {
    fn answer(&mut self, request: &Request) -> Option<Reply> {
        self.requests += 1;
        let changes = request.method != "GET";
        match self.faults {
            Faults { forbidden: Some(code), .. } => return error("403 Forbidden", code),
            Faults { is_read_only: true, .. } if changes => return error("403 Forbidden", "AccessDenied"),
            Faults { has_no_bucket: true, .. } => return error("404 Not Found", "NoSuchBucket"),
            _ => {}
        }
        match request.method.as_str() {
            "PUT" => self.create(request),
            "GET" if request.key.is_empty() => said("200 OK", self.list(&request.query)),
            "GET" => match self.objects.get(&request.key) {
                None => error("404 Not Found", "NoSuchKey"),
                Some(object) => Some(part_of(object, request.headers.get("range").map(String::as_str))),
            },
            "POST" => self.delete(&request.body),
            method => panic!("the client uses {method}"),
        }
    }

    fn create(&mut self, request: &Request) -> Option<Reply> {
        self.creations += 1;
        assert_eq!(request.headers.get("if-none-match").map(String::as_str), Some("*"));
        let take = |count: &mut u32| std::mem::replace(count, count.saturating_sub(1)) > 0;
        if take(&mut self.faults.busy) {
            return error("503 Slow Down", "SlowDown");
        }
        if take(&mut self.faults.conflicts) {
            return error("409 Conflict", "ConditionalRequestConflict");
        }
        if self.objects.contains_key(&request.key) && !self.faults.ignores_conditions {
            return error("412 Precondition Failed", "PreconditionFailed");
        }
        self.objects.insert(request.key.clone(), request.body.clone());
        let is_lost = take(&mut self.faults.lost_replies);
        (!is_lost).then(|| ("200 OK", "ETag: \"x\"\r\n".to_owned(), Vec::new()))
    }

    fn delete(&mut self, body: &[u8]) -> Option<Reply> {
        let body = String::from_utf8_lossy(body);
        let keys: Vec<&str> =
            body.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()).collect();
        keys.iter().for_each(|key| {
            self.objects.remove(*key);
        });
        let deleted: String = keys.iter().map(|key| format!("<Deleted><Key>{key}</Key></Deleted>")).collect();
        said("200 OK", format!("<DeleteResult>{deleted}</DeleteResult>"))
    }

    /// A page of names. With a delimiter, those that have it behind the prefix are listed once, up to it.
    fn list(&self, query: &BTreeMap<String, String>) -> String {
        let of = |name: &str| query.get(name).cloned().unwrap_or_default();
        let (after, prefix, delimiter) =
            (of("start-after").max(of("continuation-token")), of("prefix"), of("delimiter"));
        let shown = |name: &String| match name[prefix.len()..].split_once(&delimiter) {
            Some((first, _)) if !delimiter.is_empty() => format!("{prefix}{first}{delimiter}"),
            _ => name.clone(),
        };
        let names = self.objects.keys().filter(|name| name.starts_with(&prefix)).map(shown);
        let names: BTreeSet<String> = names.filter(|name| *name > after).collect();
        let page: Vec<&String> = names.iter().take(PAGE).collect();
        let entries: String = page.iter().map(|name| self.entry(name)).collect();
        let more = match (names.len() > PAGE, page.last()) {
            (true, Some(last)) => format!(
                "<IsTruncated>true</IsTruncated><NextContinuationToken>{last}</NextContinuationToken>"
            ),
            _ => "<IsTruncated>false</IsTruncated>".to_owned(),
        };
        format!("<ListBucketResult>{entries}{more}</ListBucketResult>")
    }

    fn entry(&self, name: &str) -> String {
        match self.objects.get(name) {
            None => format!("<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"),
            Some(object) => format!(
                "<Contents><Key>{name}</Key><Size>{}</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                 <ETag>x</ETag></Contents>",
                object.len()
            ),
        }
    }
}

fn said(status: &'static str, text: String) -> Option<Reply> {
    Some((status, String::new(), text.into_bytes()))
}

/// What real servers say, with a part of what was signed.
fn error(status: &'static str, code: &str) -> Option<Reply> {
    said(
        status,
        format!(
            "<Error><Code>{code}</Code><Message>The server says so.</Message>\
             <AWSAccessKeyId>the-access-key</AWSAccessKeyId><StringToSign>the-signed</StringToSign></Error>"
        ),
    )
}

fn part_of(object: &[u8], range: Option<&str>) -> Reply {
    let about = "ETag: \"x\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n";
    let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let range = range.and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    let Some((first, last)): Option<(usize, usize)> = range else {
        return ("200 OK", about.to_owned(), object.to_vec());
    };
    let last = last.min(object.len() - 1);
    if first >= object.len() {
        return ("416 Range Not Satisfiable", String::new(), Vec::new());
    }
    let last = last.min(object.len() - 1);
    let range = format!("{about}Content-Range: bytes {first}-{last}/{}\r\n", object.len());
    ("206 Partial Content", range, object[first..=last].to_vec())
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|&length| length > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length: usize = headers.get("content-length").map_or(Some(0), |length| length.parse().ok())?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let key = decoded(path.strip_prefix("/bucket")?.trim_start_matches('/'))?;
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = pairs.map(|(name, value)| Some((decoded(name)?, decoded(value)?))).collect::<Option<_>>()?;
    Some(Request { method, key, query, headers, body })
}

/// Text of which some bytes are written as `%` and two digits.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, others)) = rest.split_first() {
        rest = others;
        if byte == b'%' {
            let (digits, others) = others.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = others;
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}
