//! The zones of a volume, mounted as files.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::MountFlags;
use serde_json::Value;
use zone::file::{FileDevice, OpenMode};
use zone::{Device, ZoneId, ZoneState};

use crate::bench::names;
use crate::{Bench, Mounted, bench_or_skip};

/// Writes enough to fill some zones, and kills the daemon, so that the volume is not closed.
fn used(bench: &Bench) {
    let mounted = bench.mount(&[]);
    for file in 0..20_u8 {
        fs::write(mounted.path(&format!("file{file}")), vec![file; 3 << 20]).unwrap();
    }
    bench.succeed(&["sync", mounted.root().to_str().unwrap()]);
    mounted.daemon().kill();
    let mounted = Mounted { bench };
    mounted.umount();
}

fn shown(bench: &Bench) -> Mounted<'_> {
    let (volume, directory, log) = (bench.volume(), bench.directory(), bench.log());
    let [volume, directory, log] = [&volume, &directory, &log].map(|path| path.to_str().unwrap());
    let mounted = Mounted { bench };
    bench.succeed(&["zones", volume, "--mount", directory, "--log", log]);
    mounted
}

/// All bytes of the volume's zones, read from the device.
fn stored(bench: &Bench) -> Vec<Vec<u8>> {
    let device = FileDevice::open(&bench.volume(), OpenMode::ReadOnly).unwrap();
    let zones = device.report().unwrap();
    let read = |(number, info): (usize, &zone::ZoneInfo)| {
        let blocks = if info.state == ZoneState::Full { info.capacity } else { info.pointer };
        let mut bytes = vec![0; blocks as usize * device.geometry().block_size as usize];
        if !bytes.is_empty() {
            device.read(ZoneId(number as u32), 0, &mut bytes).unwrap();
        }
        bytes
    };
    zones.iter().enumerate().map(read).collect()
}

fn zone(mounted: &Mounted<'_>, number: usize) -> PathBuf {
    mounted.path("seq").join(number.to_string())
}

#[test]
fn each_zone_is_a_file_with_its_written_bytes() {
    let bench = bench_or_skip!();
    used(&bench);
    let (volume, before) = (bench.volume(), fs::read(bench.volume()).unwrap());
    let listed = bench.succeed(&["zones", volume.to_str().unwrap(), "--json"]);
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let stored = stored(&bench);
    let mounted = shown(&bench);

    assert_eq!(names(&mounted.root()), ["seq"]);
    let mut expected: Vec<String> = (0..listed.len()).map(|number| number.to_string()).collect();
    expected.sort();
    assert_eq!(names(&mounted.path("seq")), expected);
    let block = mounted_block_size(&bench);
    let mut seen = [0; 3];
    for (number, listed) in listed.iter().enumerate() {
        let bytes = fs::read(zone(&mounted, number)).unwrap();
        assert!(bytes == stored[number], "zone {number}");
        let about = fs::metadata(zone(&mounted, number)).unwrap();
        let is_full = listed["state"] == "full";
        let blocks = if is_full { &listed["capacity_blocks"] } else { &listed["written_blocks"] };
        assert_eq!(about.len(), blocks.as_u64().unwrap() * block, "zone {number}: {listed}");
        assert_eq!(about.blocks(), about.len() / 512);
        seen[usize::from(about.len() > 0) + usize::from(is_full)] += 1;
    }
    assert!(seen.iter().all(|&count| count > 0), "empty, begun, full: {seen:?}");
    mounted.umount();
    assert!(fs::read(bench.volume()).unwrap() == before, "a reader has written");
    bench.mount(&[]).umount();
    bench.check();
}

fn mounted_block_size(bench: &Bench) -> u64 {
    let info = bench.succeed(&["info", bench.volume().to_str().unwrap(), "--json"]);
    serde_json::from_str::<Value>(&info).unwrap()["block_size"].as_u64().unwrap()
}

#[test]
fn a_zone_can_be_read_at_any_offset_up_to_its_write_pointer() {
    let bench = bench_or_skip!();
    used(&bench);
    let stored = stored(&bench);
    let mounted = shown(&bench);
    let begun = stored.iter().position(|bytes| !bytes.is_empty()).unwrap();
    let (bytes, mut file) = (&stored[begun], File::open(zone(&mounted, begun)).unwrap());
    for from in [0, 1, 4095, 4097, bytes.len() / 2 + 3, bytes.len() - 5] {
        file.seek(SeekFrom::Start(from as u64)).unwrap();
        let mut read = Vec::new();
        (&file).take(5000).read_to_end(&mut read).unwrap();
        assert!(read == bytes[from..(from + 5000).min(bytes.len())], "from {from}");
    }
    file.seek(SeekFrom::Start(bytes.len() as u64)).unwrap();
    assert_eq!(file.read(&mut [0; 10]).unwrap(), 0);
    let xattr = |name| {
        let mut value = [0; 100];
        let read = rustix::fs::getxattr(zone(&mounted, begun), name, &mut value);
        read.map(|length| String::from_utf8(value[..length].to_vec()).unwrap())
    };
    assert_eq!(xattr("user.polder.role").unwrap(), "log");
    assert!(xattr("user.polder.life").unwrap().parse::<u32>().unwrap() > 0);
    assert!(["closed", "full"].contains(&xattr("user.polder.state").unwrap().as_str()));
    assert_eq!(xattr("user.polder.nothing"), Err(Errno::NODATA));
    drop(file);
    mounted.umount();
}

#[test]
fn only_the_user_that_mounted_a_view_can_read_it_and_it_cannot_be_changed() {
    let bench = bench_or_skip!();
    used(&bench);
    let mounted = shown(&bench);
    let one = zone(&mounted, 0);
    let about = fs::metadata(&one).unwrap();
    assert_eq!(
        (about.permissions().mode() & 0o7777, about.uid()),
        (0o400, rustix::process::geteuid().as_raw())
    );
    let refused =
        |done: std::io::Result<()>| assert_eq!(done.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    refused(File::options().write(true).open(&one).map(drop));
    refused(File::create(mounted.path("seq/new")).map(drop));
    refused(fs::remove_file(&one));
    refused(fs::rename(&one, mounted.path("other")));
    refused(fs::set_permissions(&one, PermissionsExt::from_mode(0o644)));
    if rustix::process::geteuid().is_root() {
        // Not even if the kernel treats the mount as writable.
        rustix::mount::mount_remount(mounted.root(), MountFlags::empty(), c"").unwrap();
        refused(File::create(mounted.path("seq/new")).map(drop));
        refused(fs::remove_file(&one));
        refused(
            File::options()
                .write(true)
                .open(&one)
                .and_then(|mut file| std::io::Write::write_all(&mut file, b"x")),
        );
        // Other users do not even see the names.
        let mut list = Command::new("setpriv");
        list.args(["--reuid=65534", "--regid=65534", "--clear-groups", "ls"]).arg(mounted.root());
        assert!(String::from_utf8_lossy(&list.output().unwrap().stderr).contains("Permission denied"));
    }
    mounted.umount();
    bench.check();
}

#[test]
fn a_volume_cannot_be_mounted_and_viewed_at_the_same_time() {
    let bench = bench_or_skip!();
    let (volume, directory) = (bench.volume(), bench.directory());
    let [volume, directory] = [&volume, &directory].map(|path| path.to_str().unwrap());
    let elsewhere = bench.sockets().with_file_name("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let other = elsewhere.to_str().unwrap();
    let mounted = bench.mount(&[]);
    assert!(bench.fail(1, &["zones", volume, "--mount", other]).contains("in use"));
    assert!(bench.fail(1, &["zones", directory, "--mount", other]).contains("name its file or block device"));
    mounted.umount();

    let mounted = shown(&bench);
    assert!(bench.fail(1, &["mount", volume, other]).contains("in use"));
    assert!(bench.fail(1, &["mount", volume, directory]).contains("already mounted there"));
    assert!(bench.fail(1, &["zones", volume, "--mount", directory]).contains("already mounted there"));
    assert!(bench.fail(1, &["info", directory]).contains("no Polder volume is mounted there"));
    assert!(bench.fail(2, &["zones", volume, "--mount", other, "--json"]).contains("cannot be used with"));
    // A view does not exclude other readers.
    assert!(bench.succeed(&["check", volume]).ends_with(": clean\n"));
    let file = File::open(zone(&mounted, 0)).unwrap();
    assert!(bench.fail(1, &["umount", directory]).contains("is in use"));
    drop(file);
    mounted.umount();
    // When `umount` returns, the volume is free.
    bench.mount(&[]).umount();
}

/// The next mount gets the device number of an unmounted view. The process of the view, which had not ended yet, mistook the
/// next mount for its own and detached it.
#[test]
fn umount_and_signals_end_a_view() {
    let bench = bench_or_skip!();
    for _ in 0..20 {
        let mounted = shown(&bench);
        let detached = Command::new("umount").arg(mounted.root()).output().unwrap();
        assert!(detached.status.success(), "{detached:?}");
        assert!(!bench.is_mounted());
        let (volume, directory) = (bench.volume(), bench.directory());
        let mut command = Command::new(bench.program());
        command.arg("zones").arg(volume).arg("--mount").arg(directory).arg("--foreground");
        let mut process = command.env("POLDER_RUN_DIR", bench.sockets()).spawn().unwrap();
        let waiting = rt::thread::Stop::default();
        let came = (0..2000).any(|_| {
            bench.is_mounted()
                || process.try_wait().unwrap().is_some()
                || waiting.wait(std::time::Duration::from_millis(5))
        });
        assert!(came && bench.is_mounted(), "the view is not mounted");
        let pid = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(process.wait().unwrap().success());
        assert!(!bench.is_mounted());
    }
}

/// This helps with a volume that no other command can open.
#[test]
fn a_volume_that_cannot_be_opened_can_be_viewed() {
    let bench = bench_or_skip!();
    used(&bench);
    let mounted = shown(&bench);
    let logs: Vec<u64> = (0..)
        .map_while(|number| fs::metadata(zone(&mounted, number)).ok())
        .take(4)
        .map(|about| about.len())
        .collect();
    mounted.umount();
    spoil_logs(&bench, &logs);
    bench.fail(1, &["info", bench.volume().to_str().unwrap()]);
    let stored = stored(&bench);
    let mounted = shown(&bench);
    for (number, bytes) in stored.iter().enumerate() {
        assert!(fs::read(zone(&mounted, number)).unwrap() == *bytes, "zone {number}");
    }
    mounted.umount();
}

/// Overwrites the contents of the first zones except their headers. The headers are found by their contents.
fn spoil_logs(bench: &Bench, lengths: &[u64]) {
    use std::os::unix::fs::FileExt;
    let stored = stored(bench);
    let bytes = fs::read(bench.volume()).unwrap();
    let file = File::options().write(true).open(bench.volume()).unwrap();
    for (zone, length) in stored.iter().zip(lengths).filter(|(_, length)| **length > 4096) {
        let head = &zone[..4096];
        let at =
            bytes.chunks(4096).position(|block| block == head).expect("each header is in the file") * 4096;
        file.write_all_at(&vec![0x5a; *length as usize - 4096], at as u64 + 4096).unwrap();
    }
}
