//! The status page: what it answers, what it refuses, and clients that are slow or many.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::{Mounted, bench_or_skip};

const ANY_PORT: [&str; 2] = ["--status", "127.0.0.1:0"];
/// As in `crates/cli/src/status.rs`.
const CONNECTIONS_MAX: usize = 32;

/// The address of the page of a mount.
fn address(mounted: &Mounted<'_>) -> String {
    let url = mounted.report("info")["status"].as_str().unwrap().to_owned();
    url.strip_prefix("http://").unwrap().strip_suffix('/').unwrap().to_owned()
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends bytes, and returns everything that is answered.
fn ask(address: &str, request: &str) -> String {
    let mut stream = connect(address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(address: &str, path: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
}

/// The body of an answer that succeeds.
fn body(address: &str, path: &str) -> String {
    let answer = get(address, path);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{path}: {answer}");
    body.to_owned()
}

fn json(address: &str, path: &str) -> Value {
    serde_json::from_str(&body(address, path)).unwrap()
}

/// The samples of a text of metrics: the name with its labels, and the value. Checks that each has a help text and a type.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let named = |keyword: &str| -> BTreeSet<&str> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(keyword));
        lines.map(|line| line.split(' ').next().unwrap()).collect()
    };
    let (helps, types) = (named("# HELP "), named("# TYPE "));
    assert_eq!(helps, types);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let plain = name.split('{').next().unwrap();
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| plain.strip_suffix(end));
        assert!(helps.contains(plain) || family.is_some_and(|family| helps.contains(family)), "{line}");
        (name.to_owned(), value.parse().unwrap())
    });
    samples.collect()
}

/// The names of metrics in a text, as programs read them.
fn families(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

/// Waits for a sample that was taken after this call.
fn wait_for_sample(address: &str) {
    let taken = |address| json(address, "/status.json")["report"]["sample"]["at_ms"].as_u64().unwrap();
    let (first, waiting) = (taken(address), rt::thread::Stop::default());
    let is_newer = |_| taken(address) > first || waiting.wait(Duration::from_millis(50));
    assert!((0..200).any(is_newer), "no new sample within ten seconds");
}

#[test]
fn metrics_count_what_programs_do() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&ANY_PORT);
    let address = address(&mounted);
    fs::write(mounted.path("file"), vec![7; 8 << 20]).unwrap();
    fs::File::open(mounted.path("file")).unwrap().sync_all().unwrap();
    fs::create_dir(mounted.path("directory")).unwrap();
    wait_for_sample(&address);
    let text = body(&address, "/metrics");
    let samples = samples(&text);
    let of = |name: &str| *samples.get(name).unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(of("polder_written_user_bytes_total") >= f64::from(8 << 20));
    assert!(of("polder_written_device_bytes_total{cause=\"data\"}") >= f64::from(8 << 20));
    assert!(of("polder_request_duration_seconds_count{kind=\"write\"}") >= 8.0);
    assert!(of("polder_request_duration_seconds_count{kind=\"sync\"}") >= 1.0);
    assert!(of("polder_request_duration_seconds_count{kind=\"change\"}") >= 2.0);
    assert!(of("polder_request_duration_seconds_sum{kind=\"write\"}") > 0.0);
    assert!(of("polder_zones{role=\"free\"}") > 0.0);
    assert_eq!(of("polder_shut_down"), 0.0);
    for kind in ["read", "write", "sync", "lookup", "attributes", "list", "open", "change"] {
        let prefix = format!("polder_request_duration_seconds_bucket{{kind=\"{kind}\",le=\"");
        let lines = text.lines().filter_map(|line| line.strip_prefix(&prefix));
        let counts: Vec<u64> =
            lines.map(|line| line.split(' ').next_back().unwrap().parse().unwrap()).collect();
        assert!(counts.len() > 20 && counts.is_sorted(), "{kind}: {counts:?}");
        let all = of(&format!("polder_request_duration_seconds_count{{kind=\"{kind}\"}}"));
        assert_eq!(*counts.last().unwrap() as f64, all, "{kind}");
    }
    if promtool(&text) == Some(false) {
        panic!("promtool finds something wrong: {text}");
    }
    mounted.umount();
}

/// Whether Prometheus's own checker accepts the text. Nothing if it is not installed.
fn promtool(text: &str) -> Option<bool> {
    let mut checker =
        Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).spawn().ok()?;
    checker.stdin.take()?.write_all(text.as_bytes()).ok()?;
    Some(checker.wait().ok()?.success())
}

/// Names in a dashboard or an alert rule that do not exist would show nothing, without an error.
#[test]
fn the_manual_and_the_dashboard_name_the_metrics() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&ANY_PORT);
    let address = address(&mounted);
    let text = body(&address, "/metrics");
    let families = families(&text);
    let manual = include_str!("../../../../docs/manual.md");
    let table = manual.lines().skip_while(|line| *line != "| metric | type | meaning |");
    let in_manual: BTreeSet<String> = table
        .take_while(|line| line.starts_with('|'))
        .flat_map(|line| line.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2))
        .map(|name| name.split('{').next().unwrap().to_owned())
        .collect();
    let undocumented: Vec<&String> = families.difference(&in_manual).collect();
    assert!(undocumented.is_empty(), "{undocumented:?}");
    // There is no debt while no zone can be reclaimed.
    let missing: Vec<&String> =
        in_manual.difference(&families).filter(|name| *name != "polder_gc_debt_bytes").collect();
    assert!(missing.is_empty(), "{missing:?}");
    let dashboard = include_str!("../../../../contrib/grafana/polder.json");
    let parsed: Value = serde_json::from_str(dashboard).unwrap();
    assert!(parsed["panels"].as_array().unwrap().len() > 8);
    for name in dashboard.split("polder_").skip(1) {
        let name: String = name.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let name = format!("polder_{name}");
        let bare =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
        assert!(in_manual.contains(&name) || in_manual.contains(bare), "{name}");
    }
    mounted.umount();
}

#[test]
fn the_page_and_its_data_are_answered() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&ANY_PORT);
    let address = address(&mounted);
    assert!(body(&address, "/").contains("<script src=\"/page.js\""));
    assert!(body(&address, "/page.js").contains("EventSource"));
    assert!(body(&address, "/page.css").contains("prefers-color-scheme"));
    let status = json(&address, "/status.json");
    assert!(status["age_seconds"].as_f64().unwrap() < 10.0, "{status}");
    let sample = &status["report"]["sample"];
    assert_eq!(sample["info"]["label"], "bench");
    assert!(sample["zone_map"].is_null() && sample["info"]["shutdown_reason"].is_null(), "{sample}");
    assert_eq!(status["report"]["alerts"].as_array().unwrap().len(), 0, "{status}");
    let map = json(&address, "/zones.json");
    assert_eq!(map["cells"].as_str().unwrap().len() as u64, 2 * map["zones"].as_u64().unwrap());
    assert!(json(&address, "/history.json").is_array());
    let answer = get(&address, "/status.json?x=1");
    for header in [
        "X-Content-Type-Options: nosniff",
        "Content-Security-Policy: default-src 'self'",
        "Cache-Control: no-store",
    ] {
        assert!(answer.contains(header), "{answer}");
    }
    assert!(!answer.to_lowercase().contains("access-control-allow"), "{answer}");
    assert!(bench.succeed(&["info", mounted.root().to_str().unwrap()]).contains("status page"));
    mounted.umount();
}

#[test]
fn events_are_sent_for_each_sample() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&ANY_PORT);
    let address = address(&mounted);
    let mut stream = connect(&address);
    stream.write_all(format!("GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    while text.matches("event: report\ndata: {").count() < 3 {
        let count = stream.read(&mut bytes).unwrap();
        assert!(count > 0, "{text}");
        text += &String::from_utf8_lossy(&bytes[..count]);
    }
    assert!(text.contains("Content-Type: text/event-stream"), "{text}");
    // A stream does not keep the mount or its daemon.
    mounted.umount();
}

#[test]
fn only_get_under_an_address_of_this_machine_is_answered() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&ANY_PORT);
    let address = address(&mounted);
    let status = |request: &str| ask(&address, request).split(' ').nth(1).unwrap_or_default().to_owned();
    let with_host = |host: &str| status(&format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    for host in ["evil.example", "localhost.evil.example:9180", "192.0.2.7", "", "a, b"] {
        assert_eq!(with_host(host), "403", "{host}");
    }
    for host in ["localhost", "127.0.0.1", "[::1]:80"] {
        assert_eq!(with_host(host), "200", "{host}");
    }
    assert_eq!(status("GET /metrics HTTP/1.0\r\n\r\n"), "403");
    for method in ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "get"] {
        let request = format!("{method} /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
        assert_eq!(status(&request), "405", "{method}");
    }
    for path in ["/../etc/passwd", "//metrics", "/metrics/", "/file", "http://localhost/metrics"] {
        assert_eq!(status(&format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")), "404", "{path}");
    }
    let body = format!("GET / HTTP/1.1\r\nHost: {address}\r\nContent-Length: 9\r\n\r\nsomething");
    assert_eq!(status(&body), "413");
    let long = format!("GET / HTTP/1.1\r\nHost: {address}\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    assert_eq!(status(&long), "431");
    assert_eq!(status("\u{16}\u{3}\u{1} hello\r\n\r\n"), "400");
    mounted.umount();
}

#[test]
fn slow_and_many_clients_hold_nothing() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&ANY_PORT);
    let address = address(&mounted);
    // They send less than a request, and read nothing.
    let mut slow: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| connect(&address)).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(b"GET / HT").unwrap());
    let waiting = rt::thread::Stop::default();
    let is_refused = |_| {
        let mut refused = connect(&address);
        let mut answer = String::new();
        // The daemon may close the connection before it has read the request.
        let _ = refused.read_to_string(&mut answer);
        answer.starts_with("HTTP/1.1 503") || waiting.wait(Duration::from_millis(20))
    };
    assert!((0..50).any(is_refused), "there is a limit of connections");
    fs::write(mounted.path("file"), "written meanwhile").unwrap();
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"written meanwhile");
    bench.succeed(&["stats", mounted.root().to_str().unwrap()]);
    // After the time limit they are closed, and others are answered.
    for stream in &mut slow {
        match stream.read_to_end(&mut Vec::new()) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            read => panic!("{read:?}"),
        }
    }
    assert!(body(&address, "/metrics").contains("polder_up"));
    mounted.umount();
}

#[test]
fn an_address_that_cannot_be_used_is_refused_before_the_mount() {
    let bench = bench_or_skip!();
    let (volume, directory) = (bench.volume(), bench.directory());
    let mount = ["mount", volume.to_str().unwrap(), directory.to_str().unwrap(), "--status"];
    let said = bench.fail(2, &[&mount[..], &["9180"]].concat());
    assert!(said.contains("127.0.0.1:9180"), "{said}");
    let said = bench.fail(2, &[&mount[..], &["0.0.0.0:0"]].concat());
    assert!(said.contains("--status-remote"), "{said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = bench.fail(1, &[&mount[..], &[&address]].concat());
    assert!(said.contains(&address) && said.contains("in use"), "{said}");
    assert!(!bench.is_mounted());
    let mounted = bench.mount(&["--status", "0.0.0.0:0", "--status-remote"]);
    let port = self::address(&mounted).rsplit_once(':').unwrap().1.to_owned();
    assert!(body(&format!("127.0.0.1:{port}"), "/metrics").contains("polder_"));
    mounted.umount();
}

#[test]
fn a_mount_has_no_page_unless_it_is_requested() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    assert!(mounted.report("info")["status"].is_null());
    let threads = mounted.daemon().threads();
    assert!(!threads.iter().any(|name| name.starts_with("polder-status")), "{threads:?}");
    mounted.umount();
}

/// A read-only mount has no garbage collection, so its metrics are missing.
#[test]
fn a_read_only_mount_has_metrics() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&["-o", "ro", ANY_PORT[0], ANY_PORT[1]]);
    let samples = samples(&body(&address(&mounted), "/metrics"));
    assert_eq!(samples["polder_read_only"], 1.0);
    assert!(!samples.contains_key("polder_gc_headroom_bytes"));
    mounted.umount();
}

/// A mount of `/etc/fstab` has no other way to name the page.
#[test]
fn the_page_can_be_a_mount_option() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&["-o", "status=127.0.0.1:0"]);
    assert!(body(&address(&mounted), "/metrics").contains("polder_"));
    let root = mounted.root();
    let said = bench.fail(1, &["mount", "-o", "remount,status=127.0.0.1:1", root.to_str().unwrap()]);
    assert!(said.contains("cannot be changed by a remount"), "{said}");
    bench.succeed(&["mount", "-o", "remount,status=127.0.0.1:0,commit=7", root.to_str().unwrap()]);
    assert!(body(&address(&mounted), "/metrics").contains("polder_"));
    mounted.umount();
}

/// The answers come from the last sample, and the page is not waited for.
#[test]
fn a_client_of_a_stopped_daemon_does_not_hinder_it_afterwards() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&ANY_PORT);
    let address = address(&mounted);
    wait_for_sample(&address);
    let daemon = mounted.daemon();
    daemon.signal(rustix::process::Signal::STOP);
    let mut waiting: Vec<TcpStream> = (0..2 * CONNECTIONS_MAX).map(|_| connect(&address)).collect();
    for stream in &mut waiting {
        stream.write_all(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    }
    daemon.signal(rustix::process::Signal::CONT);
    drop(waiting);
    fs::write(mounted.path("file"), "written").unwrap();
    wait_for_sample(&address);
    mounted.umount();
}

/// Streams stay, so they must not take all connections.
#[test]
fn event_streams_leave_connections_to_others() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&ANY_PORT);
    let address = address(&mounted);
    let open = || {
        let mut stream = connect(&address);
        stream.write_all(format!("GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        (String::from_utf8_lossy(&head).into_owned(), stream)
    };
    let mut streams = Vec::new();
    let is_limited = (0..CONNECTIONS_MAX).any(|_| {
        let (head, stream) = open();
        streams.push(stream);
        head == "HTTP/1.1 503"
    });
    assert!(is_limited && streams.len() < CONNECTIONS_MAX / 2, "{} streams", streams.len());
    assert!(body(&address, "/metrics").contains("polder_"));
    // The places of streams that have ended are free again.
    drop(streams);
    let waiting = rt::thread::Stop::default();
    let is_free = |_| open().0 == "HTTP/1.1 200" || waiting.wait(Duration::from_millis(500));
    assert!((0..40).any(is_free), "a stream that has ended keeps its place");
    mounted.umount();
}
