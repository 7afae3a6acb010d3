//! A daemon and a writer that have little memory between them.
//!
//! The kernel can only give them memory by writing dirty pages to the daemon. If the daemon waited for memory to
//! take them, nothing would ever go on.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rt::{Clock, SystemClock};

use crate::bench_or_skip;

/// What the two may use beside dirty pages, generously.
const OWN_BYTES: usize = 48 << 20;
/// A mount may have this share of the dirty pages that the system allows: the kernel's rule for FUSE.
const SHARE_OF_DIRTY: usize = 100;
const PAGE_BYTES: usize = 4096;
/// A flag of a thread: memory for it is not won by writing. From the kernel's `sched.h`.
const PF_MEMALLOC_NOIO: u64 = 0x0008_0000;
/// Who has this may lock memory without a limit.
const CAP_IPC_LOCK: u32 = 14;
/// How many heaps the C library may have.
const HEAPS_MAX: &str = "MALLOC_ARENA_MAX";
/// By then a deadlock is what it is: it takes two seconds.
const PATIENCE_NS: u64 = 120_000_000_000;

/// What both may use: twice the dirty pages that the kernel lets the mount have. With fewer than once that many it
/// would rather kill the larger of the two than wait, as it waits for no FUSE mount when it looks for memory.
fn limit_bytes() -> usize {
    let counts = fs::read_to_string("/proc/vmstat").unwrap();
    let threshold = counts.lines().find_map(|line| line.strip_prefix("nr_dirty_threshold "));
    let pages: usize = threshold.expect("the kernel counts dirty pages").parse().unwrap();
    OWN_BYTES + 2 * pages * PAGE_BYTES / SHARE_OF_DIRTY
}

/// A control group with a limit; taken away when dropped.
struct Group {
    directory: PathBuf,
    /// Counts how often the limit was met.
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
fn a_daemon_without_memory_takes_dirty_pages() {
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
    // Not the last thing to be ended, where that can be asked for.
    let score = fs::read_to_string(format!("/proc/{}/oom_score_adj", daemon.number())).unwrap();
    let may = fs::write("/proc/self/oom_score_adj", "-1").is_ok();
    assert_eq!(score.trim(), if may { "-999" } else { "0" });
    assert_eq!(is_part_of_writing(daemon.number()), may_say_so());
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
    assert!(met > 0, "the limit was never met, so nothing was shown");
    println!("the limit was met {met} times");
    mounted.umount();
    let mounted = bench.mount(&[]);
    assert!(fs::read(mounted.path("file")).unwrap() == contents);
    mounted.umount();
    bench.check();
}

/// Buffers that each thread keeps for itself are most of what a daemon would take; and what is dirty is kept twice while
/// it waits for others.
#[test]
fn a_daemon_keeps_few_heaps_and_the_kernel_little_to_be_written_back() {
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

        // 0, and the number of the mount.
        let device = fs::metadata(&directory).unwrap().dev();
        let knob = format!("/sys/class/bdi/0:{}/max_bytes", device & 0xff | device >> 12 & !0xff);
        let may_choose = fs::File::options().write(true).open(&knob);
        match may_choose.and_then(|_| fs::read_to_string(&knob)) {
            // It is kept as a share of what may be dirty in all, which may have grown.
            Ok(bytes) => assert!(bytes.trim().parse::<u64>().unwrap() <= 2 * ASIDE_BYTES, "{bytes}"),
            Err(error) => println!("not looked at: {knob}: {error}"),
        }
        mounted.umount();
    }
}

/// Whether the kernel knows that it writes through this process: through each of its threads.
fn is_part_of_writing(process: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let flags = threads.map(|thread| {
        let text = fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
        // Behind the name, which may have anything in it.
        let fields = text.rsplit_once(')').unwrap().1;
        fields.split_whitespace().nth(6).unwrap().parse::<u64>().unwrap()
    });
    let told: Vec<bool> = flags.map(|flags| flags & PF_MEMALLOC_NOIO != 0).collect();
    assert!(told.iter().all(|is_told| *is_told == told[0]), "all threads or none: {told:?}");
    told[0]
}

/// Whether we could say it of ourselves, as the daemon does.
fn may_say_so() -> bool {
    let told = rustix::process::configure_io_flusher_behavior(true);
    told.and_then(|()| rustix::process::configure_io_flusher_behavior(false)).is_ok()
}

fn status_of(process: &str, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {text}")).trim().to_owned()
}

/// Of memory that the kernel does not take from it.
fn locked_bytes(process: i32) -> u64 {
    let shown = status_of(&process.to_string(), "VmLck");
    shown.trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn has_capability(number: u32) -> bool {
    u64::from_str_radix(&status_of("self", "CapEff"), 16).unwrap() & 1 << number != 0
}

/// Whether the child succeeds. One that never ends is given up, with the help of `give_up`.
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
