//! A daemon and a writer that share little memory.
//!
//! The kernel can only reclaim memory for them by writing dirty pages to the daemon. If the daemon waited for memory to
//! accept these pages, there would be a deadlock.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rt::{Clock, SystemClock};

use crate::bench_or_skip;

/// A generous estimate of the memory that both use without the dirty pages.
const OWN_BYTES: usize = 48 << 20;
/// A FUSE mount may have 1 / `SHARE_OF_DIRTY` of the system's limit of dirty pages.
const SHARE_OF_DIRTY: usize = 100;
const PAGE_BYTES: usize = 4096;
/// A flag of a thread, from the kernel's `sched.h`: the kernel does not start I/O to reclaim memory for it.
const PF_MEMALLOC_NOIO: u64 = 0x0008_0000;
/// The capability to lock memory without a limit.
const CAP_IPC_LOCK: u32 = 14;
/// The environment variable that limits the number of heaps of the C library.
const HEAPS_MAX: &str = "MALLOC_ARENA_MAX";
/// The time limit that shows a deadlock. Normally the test takes two seconds.
const PATIENCE_NS: u64 = 120_000_000_000;

/// The memory limit for both: twice the dirty pages that the kernel permits for the mount. With less than that number once,
/// the kernel would kill the larger process instead of waiting, because it does not wait for FUSE mounts when it reclaims
/// memory.
fn limit_bytes() -> usize {
    let counts = fs::read_to_string("/proc/vmstat").unwrap();
    let threshold = counts.lines().find_map(|line| line.strip_prefix("nr_dirty_threshold "));
    let pages: usize = threshold.expect("the kernel counts dirty pages").parse().unwrap();
    OWN_BYTES + 2 * pages * PAGE_BYTES / SHARE_OF_DIRTY
}

/// A control group with a limit. It is removed when dropped.
struct Group {
    directory: PathBuf,
    /// The file that counts how often the limit was reached.
    meets: &'static str,
}

impl Group {
    fn new(limit_bytes: usize) -> Result<Group, String> {
        let name = format!("polder-test-{}", std::process::id());
        let found = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.failcnt"),
            ("/sys/fs/cgroup", "memory.max", "memory.events"),
        ];
        for (root, limit, meets) in found {
            let directory = Path::new(root).join(&name);
            if fs::create_dir(&directory).is_err() {
                continue;
            }
            let group = Group { directory, meets };
            if fs::write(group.directory.join(limit), limit_bytes.to_string()).is_ok() {
                return Ok(group);
            }
        }
        Err("no control group for memory can be made".to_owned())
    }

    /// A command that runs in the group.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"echo $$ > "$0" && exec "$@""#])
            .arg(self.directory.join("cgroup.procs"))
            .arg(program);
        command
    }

    fn met(&self) -> String {
        let text = fs::read_to_string(self.directory.join(self.meets)).unwrap();
        let line = text.lines().find(|line| line.starts_with("max ")).unwrap_or(text.trim());
        line.trim_start_matches("max ").to_owned()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.directory);
    }
}

#[test]
fn a_daemon_without_memory_accepts_dirty_pages() {
    let bench = bench_or_skip!();
    let limit = limit_bytes();
    let group = match Group::new(limit) {
        Ok(group) => group,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let source = bench.volume().with_file_name("source");
    let contents: Vec<u8> = (0..limit * 5 / 4).map(|at| (at / 4099 + at) as u8).collect();
    fs::File::create(&source).unwrap().write_all(&contents).unwrap();
    let (volume, directory) = (bench.volume(), bench.directory());
    let size = (2 * limit).to_string();
    bench.succeed(&["mkfs", volume.to_str().unwrap(), "--force", "--size", &size]);
    let started = group
        .command(bench.program())
        .args(["mount", "-o", "cache=8M"])
        .args([&volume, &directory])
        .env("POLDER_RUN_DIR", bench.sockets())
        .status();
    assert!(started.unwrap().success());
    let mounted = crate::Mounted { bench: &bench };
    let daemon = mounted.daemon();
    // The OOM killer selects the daemon last, if the score can be set.
    let score = fs::read_to_string(format!("/proc/{}/oom_score_adj", daemon.number())).unwrap();
    let may = fs::write("/proc/self/oom_score_adj", "-1").is_ok();
    assert_eq!(score.trim(), if may { "-999" } else { "0" });
    assert_eq!(is_part_of_writing(daemon.number()), may_set_flag());
    assert_eq!(locked_bytes(daemon.number()) > 0, has_capability(CAP_IPC_LOCK));

    let writer = group
        .command(Path::new("dd"))
        .arg(format!("if={}", source.display()))
        .arg(format!("of={}", mounted.path("file").display()))
        .args(["bs=1M", "conv=fsync", "status=none"])
        .spawn()
        .unwrap();
    let status = finish_in_time(writer, || daemon.kill());
    assert!(status, "the writer has failed: {}", bench.logged());
    let met: u64 = group.met().parse().unwrap();
    assert!(met > 0, "the limit was never reached, so the test shows nothing");
    println!("the limit was reached {met} times");
    mounted.umount();
    let mounted = bench.mount(&[]);
    assert!(fs::read(mounted.path("file")).unwrap() == contents);
    mounted.umount();
    bench.check();
}

/// Per-thread buffers would be most of the daemon's memory, and dirty pages take memory twice while they are in the daemon's
/// queue.
#[test]
fn a_daemon_has_few_heaps_and_its_mount_few_dirty_pages() {
    const ASIDE_BYTES: u64 = 18 << 20;
    let bench = bench_or_skip!();
    let (volume, directory) = (bench.volume(), bench.directory());
    for chosen in [None, Some("5")] {
        let mut command = Command::new(bench.program());
        command.args(["mount", "-o", "cache=8M"]).args([&volume, &directory]);
        command.env("POLDER_RUN_DIR", bench.sockets()).env_remove(HEAPS_MAX);
        command.envs(chosen.map(|heaps| (HEAPS_MAX, heaps)));
        let mounted = crate::Mounted { bench: &bench };
        assert!(command.status().unwrap().success(), "{}", bench.logged());
        let environment = fs::read(format!("/proc/{}/environ", mounted.daemon().number())).unwrap();
        let heaps = format!("{HEAPS_MAX}={}", chosen.unwrap_or("2"));
        assert!(environment.split(|byte| *byte == 0).any(|word| word == heaps.as_bytes()));

        // 0, and the minor number of the mount's device.
        let device = fs::metadata(&directory).unwrap().dev();
        let knob = format!("/sys/class/bdi/0:{}/max_bytes", device & 0xff | device >> 12 & !0xff);
        let may_choose = fs::File::options().write(true).open(&knob);
        match may_choose.and_then(|_| fs::read_to_string(&knob)) {
            // The kernel stores it as a share of the limit of all dirty pages, which may have grown.
            Ok(bytes) => assert!(bytes.trim().parse::<u64>().unwrap() <= 2 * ASIDE_BYTES, "{bytes}"),
            Err(error) => println!("not verified: {knob}: {error}"),
        }
        mounted.umount();
    }
}

/// Whether the kernel treats all threads of this process as part of writeback.
fn is_part_of_writing(process: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let flags = threads.map(|thread| {
        let text = fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
        // After the process name, which may contain any characters.
        let fields = text.rsplit_once(')').unwrap().1;
        fields.split_whitespace().nth(6).unwrap().parse::<u64>().unwrap()
    });
    let set: Vec<bool> = flags.map(|flags| flags & PF_MEMALLOC_NOIO != 0).collect();
    assert!(set.iter().all(|is_set| *is_set == set[0]), "all threads or none: {set:?}");
    set[0]
}

/// Whether this process has the right to set the flag, as the daemon does.
fn may_set_flag() -> bool {
    let set = rustix::process::configure_io_flusher_behavior(true);
    set.and_then(|()| rustix::process::configure_io_flusher_behavior(false)).is_ok()
}

fn status_of(process: &str, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {text}")).trim().to_owned()
}

/// The locked memory of a process.
fn locked_bytes(process: i32) -> u64 {
    let shown = status_of(&process.to_string(), "VmLck");
    shown.trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn has_capability(number: u32) -> bool {
    u64::from_str_radix(&status_of("self", "CapEff"), 16).unwrap() & 1 << number != 0
}

/// Whether the child succeeds. If it does not end in time, calls `give_up` and fails.
fn finish_in_time(mut child: Child, give_up: impl Fn()) -> bool {
    let clock = SystemClock::new();
    let waiting = rt::thread::Stop::default();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        if clock.monotonic_ns() > PATIENCE_NS {
            give_up();
            let _ = child.kill();
            let _ = child.wait();
            panic!("the writer waits for the daemon, and the daemon for memory");
        }
        waiting.wait(std::time::Duration::from_millis(20));
    }
}
