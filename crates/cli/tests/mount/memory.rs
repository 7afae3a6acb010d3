//! A daemon and a writer that have little memory between them.
//!
//! The kernel can only give them memory by writing dirty pages to the daemon. If the daemon waited for memory to
//! take them, nothing would ever go on.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rt::{Clock, SystemClock};

use crate::bench_or_skip;

/// What both may use, beside it the bytes that are written.
const LIMIT_BYTES: usize = 64 << 20;
const WRITTEN_BYTES: usize = 160 << 20;
/// By then a deadlock is what it is: it takes two seconds.
const PATIENCE_NS: u64 = 120_000_000_000;

/// A control group with a limit; taken away when dropped.
struct Group {
    directory: PathBuf,
    /// Counts how often the limit was met.
    meets: &'static str,
}

impl Group {
    fn new() -> Result<Group, String> {
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
            if fs::write(group.directory.join(limit), LIMIT_BYTES.to_string()).is_ok() {
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
    let group = match Group::new() {
        Ok(group) => group,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let source = bench.volume().with_file_name("source");
    let contents: Vec<u8> = (0..WRITTEN_BYTES).map(|at| (at / 4099 + at) as u8).collect();
    fs::File::create(&source).unwrap().write_all(&contents).unwrap();
    let (volume, directory) = (bench.volume(), bench.directory());
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
