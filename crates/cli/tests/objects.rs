//! Volumes in object stores, without a mount: a directory of this machine, and a bucket of an emulated server.

#![cfg(feature = "objects")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use emulated::bucket::{Faults, Server};
use polder::{Volume, VolumeOptions};
use serde_json::Value;
use tempfile::TempDir;

/// The credentials of the commands. No output may contain them.
const SECRETS: [&str; 2] = ["the-access-key", "the-secret-key"];

struct Place {
    directory: TempDir,
    /// The address of the server for the commands.
    endpoint: Option<String>,
}

impl Place {
    fn new() -> Place {
        Place { directory: tempfile::tempdir().unwrap(), endpoint: None }
    }

    fn with(server: &Server) -> Place {
        Place { endpoint: Some(server.url().to_owned()), ..Place::new() }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}", self.path(name))
    }

    fn command(&self, name: &str, words: &[&str]) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(env!("CARGO_BIN_EXE_polder"));
        for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("AWS_")) {
            command.env_remove(variable);
        }
        command.arg0(name).args(words).env("POLDER_RUN_DIR", self.path("run"));
        if let Some(endpoint) = &self.endpoint {
            command.env("AWS_ENDPOINT_URL", endpoint).env("AWS_REGION", "here");
            command.env("AWS_ACCESS_KEY_ID", SECRETS[0]).env("AWS_SECRET_ACCESS_KEY", SECRETS[1]);
        }
        command
    }

    fn run_as(&self, name: &str, words: &[&str]) -> Output {
        let output = self.command(name, words).output().unwrap();
        for text in [&output.stdout, &output.stderr] {
            let text = String::from_utf8_lossy(text);
            assert!(SECRETS.iter().all(|secret| !text.contains(secret)), "{words:?}: {text}");
        }
        output
    }

    fn succeed(&self, words: &[&str]) -> String {
        let output = self.run_as("polder", words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{words:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn refusal(&self, status: i32, words: &[&str]) -> String {
        self.refusal_as("polder", status, words)
    }

    fn refusal_as(&self, name: &str, status: i32, words: &[&str]) -> String {
        let output = self.run_as(name, words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
        said
    }

    fn info(&self, url: &str) -> Value {
        serde_json::from_str(&self.succeed(&["info", url, "--json"])).unwrap()
    }
}

/// Every command that can look at an unmounted volume, on one with a file.
fn look_at(place: &Place, url: &str) {
    assert_eq!(place.succeed(&["ls", url]).lines().count(), 1);
    assert_eq!(place.succeed(&["cat", url, "/file"]), "text");
    place.succeed(&["cp", url, "/file", &place.path("copy")]);
    assert_eq!(fs::read(place.path("copy")).unwrap(), b"text");
    fs::remove_file(place.path("copy")).unwrap();
    assert!(place.succeed(&["check", "--data", url]).ends_with(": clean\n"));
    assert!(place.succeed(&["check", "--repair", url]).ends_with(": clean\n"));
    assert!(place.succeed(&["scrub", url]).ends_with(": clean\n"));
    assert!(place.succeed(&["zones", url]).contains("log"));
    place.succeed(&["stats", url]);
    place.succeed(&["gc", url]);
    place.succeed(&["defrag", url, "/file"]);
    place.succeed(&["fragments", url, "/file"]);
    place.succeed(&["label", url, "another"]);
    assert_eq!(place.succeed(&["label", url]), "another\n");
    place.succeed(&["dump", url, "zone", "1"]);
    assert!(place.succeed(&["probe", url]).contains("ID_FS_TYPE=polder"));
    assert!(place.succeed(&["salvage", url, &place.path("saved")]).contains("saved 1 files"));
    assert_eq!(fs::read(place.path("saved/file")).unwrap(), b"text");
    let checked = place.run_as("fsck.polder", &["-a", url]);
    assert_eq!(String::from_utf8(checked.stdout).unwrap(), format!("{url}: clean\n"));
    let said = place.refusal(1, &["sync", url]);
    assert!(said.contains("is not mounted"), "{said}");
    let said = place.refusal(1, &["umount", url]);
    assert!(said.contains("this volume is not mounted"), "{said}");
}

#[test]
fn commands_use_a_directory_as_a_store() {
    let place = Place::new();
    let url = place.url("volume");
    let said = place.succeed(&["mkfs", &url, "--size", "64M", "--label", "stored"]);
    assert!(said.contains("16 zones of 4 MiB") && said.contains("an object store"), "{said}");
    assert_eq!(fs::metadata(place.path("volume")).unwrap().permissions().mode() & 0o777, 0o700);
    Volume::open(&url).unwrap().write("/file", b"text").unwrap();
    let info = place.info(&url);
    assert_eq!(info["path"], url.as_str());
    assert_eq!((&info["label"], &info["last_mount"]["closed_properly"]), (&"stored".into(), &true.into()));
    look_at(&place, &url);

    // Other names of the same place.
    symlink(place.path("volume"), place.path("link")).unwrap();
    for name in [place.url("link"), format!("{url}/"), place.url("x/../volume")] {
        assert_eq!(place.info(&name)["path"], url.as_str());
    }
    // A path with such a name is a path.
    let as_path = format!("./{url}");
    assert!(place.refusal(1, &["info", &as_path]).contains("correct the path"));

    let id = info["id"].as_str().unwrap();
    let said = place.refusal(1, &["mkfs", &url, "--size", "64M"]);
    assert!(said.contains("there is a volume of Polder already") && said.contains("--force"), "{said}");
    let said = place.refusal(1, &["mkfs", &url, "--size", "64M", "--force", "--uuid", id]);
    assert!(said.contains("is the ID of the present volume"), "{said}");
    place.succeed(&["mkfs", &url, "--size", "64M", "--force"]);
    assert_ne!(place.info(&url)["id"], info["id"]);
    assert_eq!(place.succeed(&["ls", &url]), "");
}

#[test]
fn the_volumes_of_a_store_are_listed() {
    let place = Place::new();
    for (name, label) in [("one", "first"), ("two", "second")] {
        place.succeed(&["mkfs", &place.url(name), "--size", "64M", "--label", label]);
    }
    fs::create_dir(place.path("empty")).unwrap();
    fs::write(place.path("file"), "text").unwrap();
    let url = place.url("");
    let rows: Value = serde_json::from_str(&place.succeed(&["list", &url, "--json"])).unwrap();
    let rows: Vec<(&str, &str)> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["path"].as_str().unwrap(), row["label"].as_str().unwrap()))
        .collect();
    let (one, two) = (place.url("one"), place.url("two"));
    assert_eq!(rows, [(one.as_str(), "first"), (two.as_str(), "second")]);
    assert_eq!(place.succeed(&["list", &one]).lines().count(), 2, "the volume itself");
    // A volume that cannot be read is listed with the reason.
    let object = place.path("two/volume");
    let mut bytes = fs::read(&object).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&object, bytes).unwrap();
    let said = place.succeed(&["list", &url]);
    assert!(said.lines().count() == 4 && said.contains("object volume: "), "{said}");
    fs::write(&object, "of another program").unwrap();
    assert_eq!(place.succeed(&["list", &url]).lines().count(), 2);
    let said = place.refusal(2, &["list", "/dev"]);
    assert!(said.contains("is no URL"), "{said}");
}

#[test]
fn commands_use_a_bucket() {
    let server = Server::start().unwrap();
    let place = Place::with(&server);
    let url = "s3://bucket/some/volume";
    place.succeed(&["mkfs", url, "--size", "64M", "--label", "stored"]);
    assert!(server.names().iter().all(|name| name.starts_with("some/volume/")));
    fs::write(place.path("script"), "").unwrap();
    write_through(&place, url);
    look_at(&place, url);
    let rows: Value = serde_json::from_str(&place.succeed(&["list", "s3://bucket/some", "--json"])).unwrap();
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["path"]), (1, &url.into()));
    assert_eq!(place.succeed(&["list", "s3://bucket/other"]).lines().count(), 1);
}

/// Writes a file by the library in another process, which has the environment of the commands.
fn write_through(place: &Place, url: &str) {
    let commands = place.command("polder", &[]);
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "child_that_writes", "--nocapture"]).env(CHILD, url);
    for (name, value) in commands.get_envs() {
        match value {
            Some(value) => child.env(name, value),
            None => child.env_remove(name),
        };
    }
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

const CHILD: &str = "POLDER_TEST_STORED_VOLUME";

/// The child, if this process is one.
#[test]
fn child_that_writes() {
    let Ok(url) = std::env::var(CHILD) else { return };
    let volume = Volume::open(&url).unwrap();
    volume.write("/file", b"text").unwrap();
    volume.close().unwrap();
}

#[test]
fn errors_of_a_store_say_what_to_do() {
    let server = Server::start().unwrap();
    let place = Place::with(&server);
    let url = "s3://bucket/volume";
    let mkfs = ["mkfs", url, "--size", "64M"];
    server.plan(Faults { ignores_conditions: true, ..Faults::default() });
    assert!(place.refusal(1, &mkfs).contains("supports conditional writes"));
    for (faults, advice) in [
        (Faults { has_no_bucket: true, ..Faults::default() }, "the bucket or directory does not exist"),
        (Faults { forbidden: Some("InvalidAccessKeyId"), ..Faults::default() }, "check AWS_ACCESS_KEY_ID"),
        (
            Faults { forbidden: Some("AccessDenied"), ..Faults::default() },
            "check the credentials and their rights",
        ),
    ] {
        server.plan(faults);
        for words in [&mkfs[..], &["info", url], &["mount", url, "/mnt"], &["list", "s3://bucket"]] {
            let said = place.refusal(1, words);
            assert!(said.contains("s3://bucket") && said.contains(advice), "{said}");
        }
        assert!(place.refusal(8, &["check", url]).contains(advice));
        assert!(place.refusal_as("mount.polder", 32, &[url, "/mnt"]).contains(advice));
    }
    server.plan(Faults::default());
    let said = place.refusal(1, &["info", url]);
    assert!(said.contains("there is no volume of Polder") && said.contains("polder mkfs"), "{said}");
    place.succeed(&mkfs);
    // With rights to read alone, everything works that changes nothing.
    server.plan(Faults { is_read_only: true, ..Faults::default() });
    place.succeed(&["info", url]);
    assert!(place.succeed(&["check", url]).ends_with(": clean\n"));
    let said = place.refusal(1, &["label", url, "other"]);
    assert!(said.contains("check the credentials and their rights"), "{said}");

    let without = Place::new();
    let said = without.refusal(1, &["info", url]);
    assert!(said.contains("there are no credentials") && said.contains("AWS_ACCESS_KEY_ID"), "{said}");
    // Nothing is asked to know whether it is mounted.
    assert!(without.refusal(1, &["umount", url]).contains("is not mounted"));
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nowhere = Place { endpoint: Some(format!("http://{nowhere}")), ..Place::new() };
    let said = nowhere.refusal(1, &["info", url]);
    assert!(said.contains("cannot be reached") && said.contains("AWS_ENDPOINT_URL"), "{said}");
}

#[test]
fn what_makes_no_sense_for_a_url_is_refused() {
    let place = Place::new();
    let url = place.url("volume");
    let other = place.url("other");
    let folder = place.path("folder");
    fs::create_dir(&folder).unwrap();
    for (words, complaint) in [
        (&["mkfs", &url][..], "--size"),
        (
            &["mkfs", &url, "--size", "64M", "--preallocate"],
            "--preallocate has no meaning in an object store",
        ),
        (&["mkfs", &url, "--size", "64M", "--max-open", "9"], "--max-open has no meaning in an object store"),
        (&["mkfs", "--size", "64M", "--layout", "mirror", &url, &other], "leave --layout out"),
        (&["mkfs", &url, "--size", "1M"], "too few"),
        (&["mount", &url, &folder, "-o", "degraded"], "no members"),
        (&["mount", &url, &folder, "-o", "device=/a"], "no members"),
        (&["mount", &url, "/a", &folder], "no members"),
        (&["mount", &url, &folder, "-o", "ro,takeover"], "takes nothing over"),
        (&["mount", &folder, &folder, "-o", "takeover"], "only a volume in an object store"),
    ] {
        let status = if complaint == "--size" { 1 } else { 2 };
        let said = place.refusal(status, words);
        assert!(said.contains(complaint), "{words:?}: {said}");
    }
    assert!(!Path::new(&place.path("volume")).exists(), "nothing was made");
    place.succeed(&["mkfs", &url, "--size", "64M"]);
    fs::create_dir_all(place.path("used/by-others")).unwrap();
    fs::write(place.path("file"), "text").unwrap();
    for (words, complaint) in [
        (&["device", "list", &url][..], "has no devices"),
        (&["hint", &url], "is a URL"),
        (&["po2", &url], "is no zoned device"),
        (&["zones", &url, "--mount", &folder], "cannot be mounted"),
        (&["mount", &other, &folder], "there is no volume of Polder"),
        (&["info", "s3://"], "s3://bucket/place"),
        (&["info", "ftp://host/volume"], "only s3://bucket/place and file:///directory"),
        (&["info", "file://host/volume"], "three slashes"),
        (&["info", "s3://the-access-key:the-secret-key@bucket/volume"], "AWS_SECRET_ACCESS_KEY"),
        (&["info", "s3://bucket/volume?key=the-secret-key"], "AWS_SECRET_ACCESS_KEY"),
        (&["mkfs", &place.url("no/such/volume"), "--size", "64M"], "there is no directory"),
        (&["mkfs", &place.url("folder/../used"), "--size", "64M"], "other files"),
        (&["mkfs", &place.url("file"), "--size", "64M"], "is no directory"),
    ] {
        let said = place.refusal(1, words);
        assert!(said.contains(complaint), "{words:?}: {said}");
    }
}

/// A volume that a process of another machine uses can be read, with a warning. A test cannot be another machine, but a
/// process of this one that no command can ask.
#[test]
fn a_volume_in_use_is_read_with_a_warning() {
    let place = Place::new();
    let url = place.url("volume");
    place.succeed(&["mkfs", &url, "--size", "64M"]);
    let owner = VolumeOptions::new().share(false).open(&url).unwrap();
    owner.write("/file", b"text").unwrap();
    owner.sync().unwrap();
    let output = place.run_as("polder", &["cat", &url, "/file"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.lines().count() == 1 && said.contains("this is the state of its last sync"), "{said}");
    assert_eq!(output.stdout, b"text");
    let process = format!("process {}", std::process::id());
    for words in [
        &["label", &url, "other"][..],
        &["check", "--repair", &url],
        &["mkfs", &url, "--size", "64M", "--force"],
        &["mount", &url, "/mnt"],
        &["mount", "-o", "ro", &url, "/mnt"],
    ] {
        let output = place.run_as("polder", words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("is in use"), "{words:?}: {said}");
        assert!(said.contains(&process), "{words:?}: {said}");
    }
    owner.close().unwrap();
    assert_eq!(place.succeed(&["cat", &url, "/file"]), "text");
}

#[test]
fn what_another_program_has_in_a_directory_is_not_touched() {
    let place = Place::new();
    let (directory, url) = (place.path("others"), place.url("others"));
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    let file = format!("{directory}/volume");
    fs::write(&file, "of another program").unwrap();
    for words in [["mkfs", &url, "--size", "64M"].as_slice(), &["mkfs", "--force", &url, "--size", "64M"]] {
        assert!(place.refusal(1, words).contains("was not written by Polder"), "{words:?}");
        assert_eq!(fs::read(&file).unwrap(), b"of another program");
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o755);
    }
    fs::remove_file(&file).unwrap();
    fs::write(format!("{directory}/other"), "").unwrap();
    assert!(place.refusal(1, &["mkfs", "--force", &url, "--size", "64M"]).contains("contains other files"));
}

#[test]
fn a_place_without_a_volume_is_none() {
    let place = Place::new();
    fs::create_dir(place.path("empty")).unwrap();
    for name in ["empty", "missing"] {
        let output = place.run_as("polder", &["probe", &place.url(name)]);
        assert_eq!((output.status.code(), output.stdout, output.stderr), (Some(2), vec![], vec![]), "{name}");
    }
}

/// Parts of the URL that have no meaning were ignored: another place was used than the one that was named.
#[test]
fn no_part_of_a_url_is_ignored() {
    let place = Place::new();
    for (url, words) in [
        (place.url("store#2"), "write %23"),
        ("s3://bucket/place#2".to_owned(), "write %23"),
        ("s3://host:9000/bucket".to_owned(), "set AWS_ENDPOINT_URL"),
        ("s3://bucket//place".to_owned(), "name another one"),
    ] {
        assert!(place.refusal(2, &["mkfs", &url, "--size", "64M"]).contains(words), "{url}");
    }
}
