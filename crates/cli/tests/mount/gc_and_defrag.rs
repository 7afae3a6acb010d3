//! Manual garbage collection and defragmentation, mounted and unmounted.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::bench::{Bench, Mounted};
use crate::bench_or_skip;

const PIECE: usize = 4096;
const PIECES: usize = 60;
const FILES: usize = 24;

fn contents(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 + number) as u8).collect()
}

/// Creates files and deletes every second one.
fn half_dead(mounted: &Mounted<'_>) {
    for number in 0..240 {
        fs::write(mounted.path(&number.to_string()), contents(number, 300_000)).unwrap();
    }
    mounted.bench.succeed(&["sync", mounted.root().to_str().unwrap()]);
    (0..240).step_by(2).for_each(|number| fs::remove_file(mounted.path(&number.to_string())).unwrap());
}

fn verify(mounted: &Mounted<'_>) {
    for number in (1..240).step_by(2) {
        let found = fs::read(mounted.path(&number.to_string())).unwrap();
        assert!(found == contents(number, 300_000), "file {number}");
    }
}

fn json(bench: &Bench, arguments: &[&str]) -> Value {
    serde_json::from_str(&bench.succeed(&[arguments, &["--json"]].concat())).unwrap()
}

/// `gc --free N` moved all blocks that it could, and only then reported that N is too many. Now it refuses an impossible N
/// in advance. Returns the largest possible N, which the error names.
fn refuses_impossible_free(bench: &Bench, path: &str) -> u64 {
    let said = bench.fail(1, &["gc", path, "--free", "64"]);
    let most = said.split("leaves at most ").nth(1).and_then(|rest| rest.split(';').next()).unwrap_or(&said);
    let most = most.parse().unwrap();
    assert!((1..64).contains(&most) && said.lines().count() == 1, "{said}");
    most
}

#[test]
fn garbage_is_collected_on_a_mounted_volume() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    half_dead(&mounted);
    let root = mounted.root();
    let root = root.to_str().unwrap();
    let most = refuses_impossible_free(&bench, root);
    assert_eq!(mounted.report("stats")["gc"]["blocks_moved"], 0, "an impossible request moves nothing");
    let count = |done: &Value, name: &str| done[name].as_u64().unwrap_or_else(|| panic!("{name}: {done}"));
    let done = json(&bench, &["gc", root]);
    assert!(count(&done, "zones_reclaimed") > 4 && count(&done, "blocks_moved") > 0, "{done}");
    assert!(count(&done, "free_zones") > count(&done, "free_zones_before"), "{done}");
    let again = json(&bench, &["gc", root]);
    assert_eq!(count(&again, "blocks_moved"), 0, "{again}");
    let said = bench.succeed(&["gc", root, "--free", "3", "--seconds", "20"]);
    assert!(
        said.starts_with("0 zones reclaimed, 0 blocks moved\n") && said.ends_with("dead blocks remain\n"),
        "{said}"
    );
    let more = count(&again, "free_zones") + 1;
    let said = bench.fail(1, &["gc", root, "--free", &more.to_string()]);
    assert!(more <= most && said.contains("no more can be reclaimed"), "{more} of {most}: {said}");
    verify(&mounted);
    mounted.umount();
    bench.check();
}

#[test]
fn garbage_is_collected_on_an_unmounted_volume() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    half_dead(&mounted);
    mounted.umount();
    let volume = bench.volume();
    refuses_impossible_free(&bench, volume.to_str().unwrap());
    let done = json(&bench, &["gc", volume.to_str().unwrap()]);
    assert!(done["zones_reclaimed"].as_u64() > Some(4), "{done}");
    bench.check();
    let mounted = bench.mount(&["-o", "ro"]);
    verify(&mounted);
    let said = bench.fail(1, &["gc", mounted.root().to_str().unwrap()]);
    assert!(said.contains("read-only"), "{said}");
    mounted.umount();
}

#[test]
fn stats_report_how_near_throttling_is() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    half_dead(&mounted);
    bench.succeed(&["hint", mounted.path("1").to_str().unwrap(), "long"]);
    let file = OpenOptions::new().append(true).open(mounted.path("1")).unwrap();
    file.write_all_at(&[1; 1 << 20], 300_000).unwrap();
    file.sync_all().unwrap();
    let stats = mounted.report("stats");
    let gc = &stats["gc"];
    let number = |name: &str| gc[name].as_f64().unwrap_or_else(|| panic!("{name}: {stats}"));
    assert!(
        number("headroom_bytes") > number("low_watermark_bytes") && number("low_watermark_bytes") > 0.0,
        "{stats}"
    );
    assert!(number("debt_bytes") > 0.0 && number("freed_per_moved") > 0.3, "{stats}");
    assert!(number("written_bytes_per_second") > 0.0 && number("throttle_in_seconds") > 0.0, "{stats}");
    assert_eq!((number("charged_bytes"), number("moved_per_written")), (0.0, 0.0), "{stats}");
    let stream = |name: &str, what: &str| stats["streams"][name][what].as_f64().unwrap_or(-1.0);
    assert!(stream("none", "user_bytes") > 0.0 && stream("none", "amplification") >= 1.0, "{stats}");
    assert!(stream("moved", "user_bytes") == 0.0 && stats["streams"]["moved"]["amplification"].is_null());
    let stored = |name: &str| stats["stored"][name].as_u64().unwrap_or_else(|| panic!("{name}: {stats}"));
    let parts = ["live_bytes", "pending_bytes", "unwritten_bytes", "reserved_bytes", "available_bytes"];
    assert_eq!(parts.map(stored).iter().sum::<u64>(), stored("total_bytes"), "{stats}");
    assert!(stored("live_bytes") > 0 && stored("available_bytes") > 0, "{stats}");
    let reserved = ["free_zones_reserved", "free_zones_reserved_for_metadata"].map(stored);
    assert!(reserved[0] > reserved[1] && reserved[1] > 0, "{stats}");
    let said = bench.succeed(&["stats", mounted.root().to_str().unwrap()]);
    assert!(said.contains("low watermark") && said.contains("throttle"), "{said}");
    assert!(said.contains("reserved  ") && said.contains("zone reserve"), "{said}");
    let zones = mounted.report("zones");
    let classes = zones.as_array().unwrap().iter().filter_map(|zone| zone["lifetime"].as_str());
    assert!(
        classes.clone().any(|class| class == "long") && classes.clone().any(|class| class == "none"),
        "{zones}"
    );
    let listed = bench.succeed(&["zones", mounted.root().to_str().unwrap(), "--list"]);
    assert!(listed.lines().any(|line| line.ends_with("  long")), "{listed}");
    let both = json(&bench, &["zones", mounted.root().to_str().unwrap(), "--list"]);
    assert_eq!(
        both.as_array().unwrap().len(),
        listed.lines().count() - 1,
        "a line for each zone, and the heads"
    );
    drop(file);
    mounted.umount();
    let volume = bench.volume();
    let stats: Value = json(&bench, &["stats", volume.to_str().unwrap()]);
    assert_eq!(stats["gc"], Value::Null);
}

/// Zones whose capacity is less than their size provide the same space as zones of that smaller size. The reserve was counted
/// in zone sizes instead of capacities, so no space was available if the capacity was an eighth of the size.
#[test]
fn zones_with_a_smaller_capacity_provide_as_much_space_as_smaller_zones() {
    let bench = bench_or_skip!();
    let apart = ["--size", "256M", "--zone-size", "4M", "--zone-capacity", "1M"];
    let close = ["--size", "64M", "--zone-size", "1M"];
    let [apart, close] = [&apart[..], &close[..]].map(|shape| {
        let volume = bench.volume();
        bench.succeed(&[&["mkfs", "--force"], shape, &[volume.to_str().unwrap()]].concat());
        let mounted = bench.mount(&[]);
        let stats = mounted.report("stats");
        mounted.umount();
        ["free_zones_reserved_for_metadata", "available_bytes"]
            .map(|name| stats["stored"][name].as_u64().unwrap_or_else(|| panic!("{name}: {stats}")))
    });
    assert_eq!(apart[0], close[0]);
    assert!(apart[1].abs_diff(close[1]) < 1 << 20, "{} and {}", apart[1], close[1]);
}

/// The progress bar appears only on a terminal, not in output that a program reads.
#[test]
fn gc_shows_its_progress_on_a_terminal() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    half_dead(&mounted);
    let root = mounted.root();
    let line = format!("{} gc {}", bench.program().display(), root.display());
    let mut script = Command::new("script");
    script
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env("POLDER_RUN_DIR", bench.sockets());
    let output = script.env("TERM", "xterm").stdin(Stdio::null()).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains(" of ") && shown.contains("MiB, "), "a bar: {shown}");
    assert!(shown.contains("left"), "{shown}");
    half_dead(&mounted);
    let output = bench.polder(&["gc", root.to_str().unwrap()]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    mounted.umount();
}

/// `stats` and `zones` reported two more free zones than `gc`, because they counted zones of the log, and they counted the
/// unwritten space in open zones as dead.
#[test]
fn all_commands_report_the_same_zones() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    fs::write(mounted.path("file"), contents(7, 300_000)).unwrap();
    let root = mounted.root();
    let root = root.to_str().unwrap();
    bench.succeed(&["sync", root]);
    same_zones(&bench, root);
    half_dead(&mounted);
    let before = same_zones(&bench, root);
    bench.succeed(&["gc", root]);
    assert!(same_zones(&bench, root) > before);
    mounted.umount();
    same_zones(&bench, bench.volume().to_str().unwrap());
}

/// The number of free zones, which all commands must report.
fn same_zones(bench: &Bench, path: &str) -> u64 {
    // Zones are reset and opened in the background for a while.
    let (stats, zones, done) = loop {
        let (stats, zones) = (json(bench, &["stats", path]), json(bench, &["zones", path]));
        let done = json(bench, &["gc", path, "--seconds", "0"]);
        if json(bench, &["stats", path])["stored"] == stats["stored"] {
            break (stats, zones, done);
        }
    };
    let stored = &stats["stored"];
    let count = |role: &str| zones.as_array().unwrap().iter().filter(|zone| zone["role"] == role).count();
    let free = done["free_zones_before"].as_u64().unwrap();
    assert_eq!((stored["zones_by_role"]["free"].as_u64(), count("free") as u64), (Some(free), free));
    assert_eq!((stored["zones_by_role"]["log"].as_u64(), count("log")), (Some(3), 3), "{stats}");
    let of_data = |name: &str| -> u64 {
        let is_data = |zone: &&Value| ["data", "gc"].contains(&zone["role"].as_str().unwrap());
        zones.as_array().unwrap().iter().filter(is_data).map(|zone| zone[name].as_u64().unwrap()).sum()
    };
    let written = of_data("written_blocks") - of_data("live_blocks");
    let dead = [stored["dead_bytes"].as_u64().unwrap() / 4096, done["dead_blocks"].as_u64().unwrap()];
    assert_eq!(dead, [written; 2], "written and not live");
    free
}

/// After an interrupt at any moment the volume is sound, and GC continues from there.
#[test]
fn gc_can_be_interrupted() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    half_dead(&mounted);
    mounted.umount();
    for _ in 0..3 {
        let volume = bench.volume();
        let mut command = Command::new(bench.program());
        let command = command.args(["gc", volume.to_str().unwrap()]).env("POLDER_RUN_DIR", bench.sockets());
        let written = || fs::metadata(&volume).unwrap().modified().unwrap();
        let before = written();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Interrupted as soon as it writes. A process that has ended was reaped, so another process may have its number.
        let mut ended = None;
        while written() == before && ended.is_none() {
            ended = child.try_wait().unwrap();
        }
        if ended.is_none() {
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            rustix::process::kill_process(pid, Signal::INT).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        match output.status.code() {
            Some(0) => assert_eq!(said, "", "gc was done before the signal"),
            Some(1) => {
                assert!(said.starts_with("polder: interrupted") && said.lines().count() == 1, "{said}")
            }
            _ => panic!("{}: {said}", output.status),
        }
        bench.check();
    }
    bench.succeed(&["gc", bench.volume().to_str().unwrap()]);
    let mounted = bench.mount(&[]);
    verify(&mounted);
    mounted.umount();
}

/// Writes the blocks of several files alternately, with direct I/O, and synchronously, so that each is stored by itself.
fn scatter(mounted: &Mounted<'_>) {
    fs::create_dir(mounted.path("d")).unwrap();
    let direct = (OFlags::DIRECT | OFlags::DSYNC).bits().cast_signed();
    let files: Vec<File> = (0..FILES)
        .map(|number| {
            let path = mounted.path(&format!("d/{number}"));
            OpenOptions::new().write(true).create_new(true).custom_flags(direct).open(path).unwrap()
        })
        .collect();
    let mut buffer = vec![0; 2 * PIECE];
    let aligned = buffer.as_ptr().align_offset(PIECE);
    for piece in 0..PIECES {
        for (number, file) in files.iter().enumerate() {
            let page = &mut buffer[aligned..aligned + PIECE];
            page.copy_from_slice(&contents(number + piece, PIECE));
            file.write_all_at(page, (piece * PIECE) as u64).unwrap();
        }
    }
}

fn is_whole(directory: &Path) -> bool {
    (0..FILES).all(|number| {
        let found = fs::read(directory.join(number.to_string())).unwrap();
        let pieces = found.chunks(PIECE).enumerate();
        found.len() == PIECES * PIECE
            && pieces.into_iter().all(|(n, piece)| piece == contents(number + n, PIECE))
    })
}

fn nothing_to_do() -> String {
    format!("none of {FILES} files is scattered, nothing to do\n")
}

fn fragments(bench: &Bench, paths: &[&str]) -> u64 {
    let shown = json(bench, &[&["fragments"], paths].concat());
    shown.as_array().unwrap().iter().map(|file| file["fragments"].as_u64().unwrap()).sum()
}

#[test]
fn defrag_works_on_a_mounted_volume() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    scatter(&mounted);
    let directory = mounted.path("d");
    let [directory_shown, one] = [directory.clone(), directory.join("7")];
    let [directory_shown, one] = [directory_shown.to_str().unwrap(), one.to_str().unwrap()];
    let before = fragments(&bench, &[directory_shown]);
    assert!(before > (FILES * PIECES / 2) as u64, "{before}");
    let said = bench.succeed(&["fragments", one, one]);
    assert!(said.contains("fragments of") && said.lines().count() == 1, "{said}");
    let listed = bench.succeed(&["defrag", "--dry-run", directory_shown]);
    assert!(listed.lines().count() > FILES / 2, "{listed}");
    assert_eq!(fragments(&bench, &[directory_shown]), before);

    let said = bench.succeed(&["defrag", one]);
    assert!(
        said.contains("now 1 and 1\n") && said.ends_with("1 of 1 files defragmented, 240 KiB moved\n"),
        "{said}"
    );
    let said = bench.succeed(&["defrag", directory_shown]);
    assert!(said.ends_with("moved\n") && !said.contains(&format!("{one}:")), "{said}");
    let after = fragments(&bench, &[directory_shown]);
    assert!(after <= 2 * FILES as u64, "{after}");
    assert_eq!(bench.succeed(&["defrag", "-n", directory_shown]), "");
    assert_eq!(bench.succeed(&["defrag", directory_shown]), nothing_to_do());
    mounted.umount();
    bench.check();
    let mounted = bench.mount(&[]);
    assert!(is_whole(&mounted.path("d")));
    mounted.umount();
}

#[test]
fn defrag_works_on_an_unmounted_volume() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    scatter(&mounted);
    let inside = mounted.path("d");
    let said = bench.fail(1, &["defrag", bench.volume().to_str().unwrap(), "/d"]);
    assert!(said.contains("is mounted on") && said.lines().count() == 1, "{said}");
    mounted.umount();
    let volume = bench.volume();
    let volume = volume.to_str().unwrap();
    let before = fragments(&bench, &[volume, "/"]);
    let said = bench.succeed(&["defrag", volume, "/d/3", "/"]);
    assert!(said.contains("/d/3: "), "{said}");
    assert_eq!(bench.succeed(&["defrag", volume, "/"]), nothing_to_do());
    let after = fragments(&bench, &[volume, "/"]);
    assert!(before > (FILES * PIECES / 2) as u64 && after <= 2 * FILES as u64, "{before}, then {after}");
    bench.check();
    for (arguments, complaint) in [
        (&["defrag", volume][..], "add paths inside it"),
        (&["fragments", volume, "/nothing"], "/nothing in the volume"),
        (&["defrag", "/proc/self/status"], "is not in a mounted Polder volume"),
    ] {
        let said = bench.fail(1, arguments);
        assert!(said.contains(complaint) && said.lines().count() == 1, "{said}");
    }
    let mounted = bench.mount(&["-o", "ro"]);
    assert!(is_whole(&inside));
    let path = mounted.path("d/3");
    assert!(bench.succeed(&["fragments", path.to_str().unwrap()]).contains("fragment"));
    // `defrag` reported that there is nothing to do, although it cannot do anything on a read-only mount.
    let said = bench.fail(1, &["defrag", path.to_str().unwrap()]);
    assert!(said.contains("read-only: mount it with rw") && said.lines().count() == 1, "{said}");
    assert_eq!(bench.succeed(&["defrag", "-n", path.to_str().unwrap()]), "");
    mounted.umount();
}
