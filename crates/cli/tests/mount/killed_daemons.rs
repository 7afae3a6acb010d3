//! Killed daemons: synced data must survive, and the volume must stay sound.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::bench::names;
use crate::{Mounted, bench_or_skip};

const THREADS: usize = 8;
const ROUNDS: usize = 40;

#[test]
fn synced_data_survive_a_kill() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    fs::create_dir(mounted.path("shared")).unwrap();
    in_threads(&mounted, work);
    mounted.daemon().kill();

    let mounted = bench.mount(&[]);
    in_threads(&mounted, verify);
    assert_eq!(names(&mounted.path("shared")).len(), THREADS * ROUNDS);
    // The volume is usable as before, also after a second kill.
    in_threads(&mounted, |root, thread| clear(&root.join(format!("thread-{thread}"))));
    File::open(mounted.root()).unwrap().sync_all().unwrap();
    mounted.daemon().kill();
    let mounted = bench.mount(&[]);
    assert_eq!(names(&mounted.root()), ["shared"]);
    mounted.umount();
    bench.check();
}

/// A block in the middle of the log is damaged, so the acknowledged transactions after it are lost. The volume is refused
/// until the user accepts the loss.
#[test]
fn a_volume_is_usable_without_the_lost_part_of_its_log_if_the_user_accepts_the_loss() {
    const FILES: usize = 60;
    const LOST: usize = 30;
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let name = |number: usize| format!("numbered-{number:02}");
    for number in 0..FILES {
        File::create(mounted.path(&name(number))).unwrap().sync_all().unwrap();
    }
    mounted.daemon().kill();
    drop(mounted);
    let mut bytes = fs::read(bench.volume()).unwrap();
    // Before the first checkpoint, names are only in the log.
    let wanted = name(LOST);
    let found: Vec<usize> = memchr::memmem::find_iter(&bytes, &wanted).collect();
    found.into_iter().for_each(|at| bytes[at] ^= 1);
    fs::write(bench.volume(), bytes).unwrap();

    let (volume, directory) = (bench.volume(), bench.directory());
    let [volume, directory] = [&volume, &directory].map(|path| path.to_str().unwrap());
    assert!(bench.fail(1, &["mount", volume, directory]).contains("--accept-loss"));
    // Reading is allowed, and no check calls what it reads complete.
    let finds_loss = |path: &str| {
        let checked = bench.polder(&["check", path]);
        let found = String::from_utf8(checked.stdout).unwrap();
        assert_eq!(checked.status.code(), Some(4), "{found}");
        assert!(found.contains("transactions up to"), "{found}");
    };
    finds_loss(volume);
    bench.succeed(&["mount", "-o", "ro", volume, directory]);
    finds_loss(directory);
    bench.succeed(&["umount", directory]);
    assert!(bench.fail(8, &["check", "--repair", volume]).contains("--accept-loss"));
    let repaired = bench.succeed(&["check", "--repair", "--accept-loss", volume]);
    assert!(repaired.contains("it was discarded"), "{repaired}");
    let mounted = bench.mount(&[]);
    assert_eq!(names(&mounted.root()), (0..LOST).map(name).collect::<Vec<_>>());
    File::create(mounted.path("more")).unwrap().sync_all().unwrap();
    mounted.daemon().kill();
    let mounted = bench.mount(&[]);
    assert_eq!(names(&mounted.root()).len(), LOST + 1);
    mounted.umount();
    bench.check();
}

#[test]
fn a_kill_while_many_threads_write_leaves_a_sound_volume() {
    let bench = bench_or_skip!();
    for round in 0..3 {
        let mounted = bench.mount(&["-o", "commit=1"]);
        let daemon = mounted.daemon();
        let root = mounted.root();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let root = &root;
                    scope.spawn(move || churn(&root.join(format!("churn-{round}-{thread}"))))
                })
                .collect();
            // The daemon is killed when the first thread has written its hundredth file.
            let marker = root.join(format!("churn-{round}-0/file-100"));
            let waiting = rt::thread::Stop::default();
            while !marker.exists() {
                waiting.wait(std::time::Duration::from_millis(1));
            }
            daemon.kill();
            for worker in workers {
                worker.join().unwrap();
            }
        });
        drop(mounted);
        bench.check();
    }
}

fn in_threads(mounted: &Mounted<'_>, body: fn(&Path, usize)) {
    let root = mounted.root();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let root = &root;
            scope.spawn(move || body(root, thread));
        }
    });
}

/// Creates, renames, links, truncates and deletes files. Then syncs.
fn work(root: &Path, thread: usize) {
    let own = root.join(format!("thread-{thread}"));
    fs::create_dir(&own).unwrap();
    for round in 0..ROUNDS {
        let path = own.join(format!("new-{round}"));
        let mut file = File::create_new(&path).unwrap();
        file.write_all(&contents(thread, round)).unwrap();
        fs::rename(&path, own.join(format!("kept-{round}"))).unwrap();
        fs::hard_link(own.join(format!("kept-{round}")), root.join(format!("shared/{thread}-{round}")))
            .unwrap();
        if round % 4 == 3 {
            file.set_len(100).unwrap();
        }
        if round % 4 == 1 {
            fs::remove_file(own.join(format!("kept-{}", round - 1))).unwrap();
        }
        if round % 5 == 0 {
            file.sync_data().unwrap();
        }
    }
    // The last fsync of each thread covers all of its earlier changes of metadata. The data need a separate sync.
    rustix::fs::syncfs(File::open(&own).unwrap()).unwrap();
    File::open(&own).unwrap().sync_all().unwrap();
}

fn verify(root: &Path, thread: usize) {
    for round in 0..ROUNDS {
        let kept = root.join(format!("thread-{thread}/kept-{round}"));
        let is_removed = round % 4 == 0 && round + 1 < ROUNDS;
        assert_eq!(kept.exists(), !is_removed, "{thread} {round}");
        let mut expected = contents(thread, round);
        if round % 4 == 3 {
            expected.truncate(100);
        }
        let found = fs::read(root.join(format!("shared/{thread}-{round}"))).unwrap();
        assert!(found == expected, "thread {thread}, round {round}: {} bytes", found.len());
    }
}

fn clear(directory: &Path) {
    for name in names(directory) {
        fs::remove_file(directory.join(name)).unwrap();
    }
    fs::remove_dir(directory).unwrap();
}

/// Creates and deletes files until the mount is dead.
fn churn(directory: &Path) {
    if fs::create_dir(directory).is_err() {
        return;
    }
    for number in 0.. {
        let path = directory.join(format!("file-{number}"));
        let done = File::create_new(&path).and_then(|mut file| {
            file.write_all(&contents(number % 7, number % 50))?;
            if number % 8 == 0 { file.sync_all() } else { Ok(()) }
        });
        let removed = match number % 3 {
            0 if number > 120 => fs::remove_file(directory.join(format!("file-{}", number - 20))),
            _ => Ok(()),
        };
        if done.and(removed).is_err() {
            return;
        }
    }
}

/// From zero bytes to some blocks, different for each thread and round.
fn contents(thread: usize, round: usize) -> Vec<u8> {
    (0..round * 997 % 40_000).map(|at| (at * 31 + thread * 7 + round) as u8).collect()
}
