//! Mounted volumes in object stores.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Output};

use emulated::bucket::{Faults, Server};
use rustix::process::Signal;

use crate::bench::{Daemon, assert_contents, mounts, names, write};
use crate::{Bench, bench_or_skip};

/// A volume in a store, and a mount point with sockets of its own: what another machine would have.
struct Machine<'a> {
    bench: &'a Bench,
    url: String,
    directory: PathBuf,
    sockets: PathBuf,
    endpoint: Option<String>,
}

impl<'a> Machine<'a> {
    fn new(bench: &'a Bench, name: &str, url: &str) -> Machine<'a> {
        let directory = bench.directory().with_file_name(format!("mnt-{name}"));
        let sockets = bench.directory().with_file_name(format!("run-{name}"));
        fs::create_dir(&directory).unwrap();
        Machine { bench, url: url.to_owned(), directory, sockets, endpoint: None }
    }

    fn polder(&self, words: &[&str]) -> Output {
        let mut command = Command::new(self.bench.program());
        command.args(words).env("POLDER_RUN_DIR", &self.sockets);
        if let Some(endpoint) = &self.endpoint {
            command.env("AWS_ENDPOINT_URL", endpoint).env("AWS_REGION", "here");
            command.env("AWS_ACCESS_KEY_ID", "the-key").env("AWS_SECRET_ACCESS_KEY", "the-secret");
        }
        command.output().unwrap()
    }

    fn succeed(&self, words: &[&str]) -> String {
        let output = self.polder(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}{}", self.logged());
        String::from_utf8(output.stdout).unwrap()
    }

    fn refusal(&self, words: &[&str]) -> String {
        let output = self.polder(words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
        said
    }

    fn mount_words<'w>(&'w self, more: &[&'w str]) -> Vec<&'w str> {
        let log = self.log();
        let log: &str = Box::leak(log.into_os_string().into_string().unwrap().into_boxed_str());
        [&["mount", &self.url, self.directory.to_str().unwrap(), "--log", log], more].concat()
    }

    fn mount(&self, more: &[&str]) {
        self.succeed(&self.mount_words(more));
    }

    fn umount(&self) {
        self.succeed(&["umount", &self.url]);
        assert!(!mounts().contains(self.directory.to_str().unwrap()));
    }

    fn daemon(&self) -> Daemon {
        let info = self.succeed(&["info", self.directory.to_str().unwrap(), "--json"]);
        Daemon::in_report(&info)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn log(&self) -> PathBuf {
        self.directory.with_extension("log")
    }

    fn logged(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        if mounts().contains(self.directory.to_str().unwrap()) {
            self.polder(&["umount", "--lazy", self.directory.to_str().unwrap()]);
        }
        if std::thread::panicking() {
            eprintln!("{}", self.logged());
        }
    }
}

/// A volume in a directory that is used as a store.
fn in_directory(bench: &Bench) -> String {
    let url = format!("file://{}", bench.volume().with_file_name("stored").display());
    bench.succeed(&["mkfs", &url, "--size", "256M", "--label", "stored"]);
    url
}

#[test]
fn a_volume_in_a_directory_is_mounted_killed_and_mounted_again() {
    let bench = bench_or_skip!();
    let machine = Machine::new(&bench, "a", &in_directory(&bench));
    whole_cycle(&machine);
}

#[test]
fn a_volume_in_a_bucket_is_mounted_killed_and_mounted_again() {
    let bench = bench_or_skip!();
    let server = Server::start().unwrap();
    let mut machine = Machine::new(&bench, "a", "s3://bucket/some/volume");
    machine.endpoint = Some(server.url().to_owned());
    machine.succeed(&["mkfs", &machine.url, "--size", "256M", "--label", "stored"]);
    let before = server.requests();
    machine.mount(&[]);
    let mounted = server.requests();
    write(&machine.path("synced"), 7);
    let synced = server.requests();
    machine.umount();
    let requests = [mounted - before, synced - mounted, server.requests() - synced];
    // docs/objects.md says what a mount costs.
    assert!(requests[0] <= 30 && requests[1] <= 8 && requests[2] <= 8, "{requests:?}");
    whole_cycle(&machine);
    assert!(!machine.logged().contains("the-secret") && !machine.logged().contains("the-key"));
}

fn whole_cycle(machine: &Machine<'_>) {
    let directory = machine.directory.to_str().unwrap();
    machine.mount(&[]);
    let line = mounts();
    let line = line.lines().find(|line| line.contains(directory)).unwrap();
    assert!(line.contains(&format!(" - fuse.polder {} ", machine.url)), "{line}");
    write(&machine.path("file"), 3);
    fs::create_dir(machine.path("directory")).unwrap();
    for number in 0..200 {
        fs::write(machine.path(&format!("directory/{number}")), number.to_string()).unwrap();
    }
    // Commands find the daemon by the URL and by the directory.
    for named in [machine.url.as_str(), directory] {
        machine.succeed(&["sync", named]);
        for command in ["info", "stats", "zones", "check", "scrub"] {
            machine.succeed(&[command, named]);
        }
    }
    machine.succeed(&["device", "list", directory]);
    let listed = machine.succeed(&["list"]);
    assert!(listed.contains(&machine.url) && listed.contains(directory), "{listed}");
    let said = machine.refusal(&["cat", &machine.url, "/file"]);
    assert!(said.contains("is mounted on"), "{said}");
    // A second mount is refused, also of another user of this machine.
    let said = machine.refusal(&machine.mount_words(&[]));
    assert!(said.contains("is already mounted there"), "{said}");
    let second = machine.directory.with_extension("second");
    fs::create_dir(&second).unwrap();
    for options in ["rw", "ro", "takeover"] {
        let said = machine.refusal(&["mount", &machine.url, second.to_str().unwrap(), "-o", options]);
        assert!(said.contains("is in use") && said.contains("polder umount"), "{options}: {said}");
    }
    machine.succeed(&["mount", "-o", "remount,ro", directory]);
    assert_eq!(fs::write(machine.path("x"), "").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    machine.succeed(&["mount", "-o", "remount,rw", directory]);
    write(&machine.path("second"), 5);

    let daemon = machine.daemon();
    daemon.kill();
    let said = machine.succeed(&["mount", &machine.url, directory, "--log", machine.log().to_str().unwrap()]);
    assert_eq!(said, "");
    assert_contents(&machine.path("file"), 3);
    assert_contents(&machine.path("second"), 5);
    assert_eq!(names(&machine.path("directory")).len(), 200);
    fs::remove_file(machine.path("file")).unwrap();
    machine.umount();
    assert!(machine.succeed(&["check", "--data", &machine.url]).ends_with(": clean\n"));

    // A signal closes the volume, and so the next mount has nothing to recover.
    machine.mount(&[]);
    fs::write(machine.path("late"), "text").unwrap();
    let daemon = machine.daemon();
    daemon.signal(Signal::TERM);
    daemon.wait();
    let info = machine.succeed(&["info", &machine.url, "--json"]);
    assert!(info.contains("\"closed_properly\": true"), "{info}");
    machine.mount(&["-o", "ro"]);
    assert_eq!(fs::read(machine.path("late")).unwrap(), b"text");
    machine.succeed(&["umount", directory]);
}

/// The second machine is a process with sockets of its own.
#[test]
fn a_takeover_ends_the_first_mount_and_loses_nothing_acknowledged() {
    let bench = bench_or_skip!();
    let url = in_directory(&bench);
    let (first, second) = (Machine::new(&bench, "a", &url), Machine::new(&bench, "b", &url));
    first.mount(&["-o", "commit=3600"]);
    for seed in 1..4 {
        write(&first.path(&format!("file-{seed}")), seed);
    }
    fs::write(first.path("not-synced"), "text").unwrap();
    let said = second.refusal(&second.mount_words(&[]));
    assert!(said.contains("is in use") && said.contains("process "), "{said}");
    second.mount(&["-o", "takeover"]);
    assert!(second.logged().contains("has lost its ownership"), "{}", second.logged());
    for seed in 1..4 {
        assert_contents(&second.path(&format!("file-{seed}")), seed);
    }
    write(&second.path("of-second"), 9);

    // The first one acknowledges nothing more, and says why.
    let late = File::create(first.path("late"));
    let synced = late.and_then(|file| file.sync_all());
    let kind = synced.unwrap_err().raw_os_error();
    assert!(kind == Some(5) || kind == Some(30), "{kind:?}");
    assert!(fs::write(first.path("later"), "x").is_err());
    let info = first.succeed(&["info", first.directory.to_str().unwrap()]);
    assert!(info.contains("shut down") && info.contains("has taken over the volume"), "{info}");
    assert!(first.logged().contains("has taken over the volume"), "{}", first.logged());
    let said = first.refusal(&["umount", first.directory.to_str().unwrap()]);
    assert!(said.contains("unmounted, but") && said.contains("has taken over the volume"), "{said}");
    assert!(!mounts().contains(first.directory.to_str().unwrap()));

    write(&second.path("of-second-too"), 11);
    second.umount();
    assert!(bench.succeed(&["check", "--data", &url]).ends_with(": clean\n"));
    second.mount(&[]);
    assert_contents(&second.path("of-second"), 9);
    assert_contents(&second.path("of-second-too"), 11);
    assert!(!second.path("late").exists() && !second.path("later").exists());
    second.umount();
}

/// Keys that are revoked, for example.
#[test]
fn a_store_that_refuses_shuts_the_volume_down_and_loses_nothing_synced() {
    let bench = bench_or_skip!();
    let server = Server::start().unwrap();
    let mut machine = Machine::new(&bench, "a", "s3://bucket/volume");
    machine.endpoint = Some(server.url().to_owned());
    machine.succeed(&["mkfs", &machine.url, "--size", "256M"]);
    machine.mount(&["-o", "commit=3600"]);
    write(&machine.path("synced"), 3);
    server.plan(Faults { forbidden: Some("InvalidAccessKeyId"), ..Faults::default() });
    let late = File::create(machine.path("late")).and_then(|file| file.sync_all());
    assert_eq!(late.unwrap_err().raw_os_error(), Some(5));
    let directory = machine.directory.to_str().unwrap();
    let info = machine.succeed(&["info", directory]);
    assert!(info.contains("shut down") && info.contains("check AWS_ACCESS_KEY_ID"), "{info}");
    assert!(machine.logged().contains("check AWS_ACCESS_KEY_ID"), "{}", machine.logged());
    let said = machine.refusal(&["umount", directory]);
    assert!(said.contains("unmounted, but") && said.contains("check AWS_ACCESS_KEY_ID"), "{said}");
    server.plan(Faults::default());
    machine.mount(&[]);
    assert_contents(&machine.path("synced"), 3);
    assert!(!machine.path("late").exists());
    machine.umount();
    assert!(machine.succeed(&["check", "--data", &machine.url]).ends_with(": clean\n"));
}

/// Readers do not exclude each other.
#[test]
fn a_closed_volume_has_several_readers() {
    let bench = bench_or_skip!();
    let url = in_directory(&bench);
    let (first, second) = (Machine::new(&bench, "a", &url), Machine::new(&bench, "b", &url));
    first.mount(&[]);
    write(&first.path("file"), 3);
    first.umount();
    first.mount(&["-o", "ro"]);
    second.mount(&["-o", "ro"]);
    assert_contents(&first.path("file"), 3);
    assert_contents(&second.path("file"), 3);
    let said = first.refusal(&["umount", &url]);
    assert!(said.contains("has several mounts"), "{said}");
    first.succeed(&["umount", first.directory.to_str().unwrap()]);
    second.umount();
}
