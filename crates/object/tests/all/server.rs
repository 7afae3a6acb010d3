//! A server that speaks as much of the protocol of S3 as the client uses, with faults.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use rt::sync::Mutex;

/// The faults of the server, as numbers of the next creations that have them.
#[derive(Default)]
pub(crate) struct Faults {
    /// The object is created, and the connection is closed without a reply.
    pub(crate) lost_replies: u32,
    /// Nothing is created: another request for the same name is in progress (409).
    pub(crate) conflicts: u32,
    /// Nothing is created: the server is too busy (503).
    pub(crate) busy: u32,
    /// Every request is refused (403).
    pub(crate) is_forbidden: bool,
}

#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, Vec<u8>>,
    faults: Faults,
    creations: u32,
}

/// A server with one bucket, which ends with the process.
#[derive(Clone)]
pub(crate) struct Server {
    bucket: Arc<Mutex<Bucket>>,
    pub(crate) url: String,
}

struct Request {
    method: String,
    key: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Server {
    pub(crate) fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Server { bucket: Arc::default(), url };
        let served = server.clone();
        rt::thread::spawn("server", move || {
            for stream in listener.incoming().flatten() {
                let server = served.clone();
                rt::thread::spawn("connection", move || while server.serve_one(&stream).is_some() {})
                    .unwrap();
            }
        })
        .unwrap();
        server
    }

    pub(crate) fn plan(&self, faults: Faults) {
        self.bucket.lock().faults = faults;
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.bucket.lock().objects.keys().cloned().collect()
    }

    /// How many creations it was asked for, with those that had a fault.
    pub(crate) fn creations(&self) -> u32 {
        self.bucket.lock().creations
    }

    /// `None` ends the connection.
    fn serve_one(&self, stream: &TcpStream) -> Option<()> {
        let request = read_request(stream)?;
        let (status, headers, body) = self.answer(&request)?;
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
        let mut stream = stream;
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(&body).ok()
    }

    fn answer(&self, request: &Request) -> Option<(&'static str, String, Vec<u8>)> {
        let mut bucket = self.bucket.lock();
        let said = |status, text: String| Some((status, String::new(), text.into_bytes()));
        if bucket.faults.is_forbidden {
            return said("403 Forbidden", "<Error><Code>AccessDenied</Code></Error>".to_owned());
        }
        match request.method.as_str() {
            "PUT" => {
                bucket.creations += 1;
                assert_eq!(request.headers.get("if-none-match").map(String::as_str), Some("*"));
                let take = |count: &mut u32| std::mem::replace(count, count.saturating_sub(1)) > 0;
                if take(&mut bucket.faults.busy) {
                    return said("503 Slow Down", "<Error><Code>SlowDown</Code></Error>".to_owned());
                }
                if take(&mut bucket.faults.conflicts) {
                    let code = "<Error><Code>ConditionalRequestConflict</Code></Error>";
                    return said("409 Conflict", code.to_owned());
                }
                if bucket.objects.contains_key(&request.key) {
                    let code = "<Error><Code>PreconditionFailed</Code></Error>";
                    return said("412 Precondition Failed", code.to_owned());
                }
                bucket.objects.insert(request.key.clone(), request.body.clone());
                let is_lost = take(&mut bucket.faults.lost_replies);
                (!is_lost).then(|| ("200 OK", "ETag: \"x\"\r\n".to_owned(), Vec::new()))
            }
            "GET" if request.key.is_empty() => said("200 OK", bucket.list(&request.query)),
            "GET" => match bucket.objects.get(&request.key) {
                None => said("404 Not Found", "<Error><Code>NoSuchKey</Code></Error>".to_owned()),
                Some(object) => Some(part_of(object, request.headers.get("range").map(String::as_str))),
            },
            "POST" => {
                let body = String::from_utf8(request.body.clone()).unwrap();
                let keys: Vec<&str> =
                    body.split("<Key>").skip(1).map(|rest| rest.split("</Key>").next().unwrap()).collect();
                keys.iter().for_each(|key| {
                    bucket.objects.remove(*key);
                });
                let deleted: String =
                    keys.iter().map(|key| format!("<Deleted><Key>{key}</Key></Deleted>")).collect();
                said("200 OK", format!("<DeleteResult>{deleted}</DeleteResult>"))
            }
            method => panic!("the client uses {method}"),
        }
    }
}

impl Bucket {
    /// At most three names at a time, so that listings have pages.
    fn list(&self, query: &BTreeMap<String, String>) -> String {
        let of = |name: &str| query.get(name).cloned().unwrap_or_default();
        let after = of("start-after").max(of("continuation-token"));
        let matches = |name: &&String| name.starts_with(&of("prefix")) && **name > after;
        let names: Vec<&String> = self.objects.keys().filter(matches).take(4).collect();
        let contents: String = names.iter().take(3).map(|name| {
            let size = self.objects[*name].len();
            format!(
                "<Contents><Key>{name}</Key><Size>{size}</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag></Contents>"
            )
        }).collect();
        let more = match names.get(3) {
            Some(_) => format!(
                "<IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken>",
                names[2]
            ),
            None => "<IsTruncated>false</IsTruncated>".to_owned(),
        };
        format!("<ListBucketResult>{contents}{more}</ListBucketResult>")
    }
}

fn part_of(object: &[u8], range: Option<&str>) -> (&'static str, String, Vec<u8>) {
    let about = "ETag: \"x\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n";
    let Some((first, last)) = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-')) else {
        return ("200 OK", about.to_owned(), object.to_vec());
    };
    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
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
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let url = url::Url::parse("http://server/").unwrap().join(&target).unwrap();
    let key = url.path().strip_prefix("/bucket")?.trim_start_matches('/').to_owned();
    let query = url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
    Some(Request { method, key, query, headers, body })
}
