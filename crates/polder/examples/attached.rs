//! The rates of operations by the owner of a volume, by an attached process, and through mounts:
//! `cargo run --release -p polder --example attached -- DIRECTORY [MOUNT]`.
//!
//! The owner is another process. `MOUNT` is the directory of another mounted volume, for comparison.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use polder::Volume;
use rt::{Clock, SystemClock};

const ROUNDS: usize = 5;
const SECONDS: f64 = 0.7;
const FILE: u64 = 64 << 20;
const O_DIRECT: i32 = 0o40000;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// One operation on the file or name with this number.
type Operation<'a> = Box<dyn FnMut(u64) -> Outcome<()> + 'a>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--own", directory] => own(Path::new(directory)),
        [directory] => compare(Path::new(directory), None),
        [directory, mount] => compare(Path::new(directory), Some(Path::new(mount))),
        _ => Err("usage: attached DIRECTORY [MOUNT]".into()),
    }
}

/// Owns the volume, also mounts it, and reports its own rates, until the input ends.
fn own(directory: &Path) -> Outcome<()> {
    let volume = Volume::open(directory.join("volume"))?;
    for (name, rate) in rates(of_library(&volume, "owner")?)? {
        println!("{name} {rate}");
    }
    std::fs::create_dir_all(directory.join("mnt"))?;
    let mounted = volume.mount(directory.join("mnt"));
    println!("{}", if mounted.is_ok() { "mounted" } else { "ready" });
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(mounted);
    Ok(volume.close()?)
}

fn compare(directory: &Path, mount: Option<&Path>) -> Outcome<()> {
    Volume::create(directory.join("volume")).size(2 << 30).overwrite(true).open()?.close()?;
    let mut owner = Command::new(std::env::current_exe()?)
        .arg("--own")
        .arg(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = BufReader::new(owner.stdout.take().ok_or("no output")?).lines();
    let mut of_owner = Vec::new();
    let is_mounted = loop {
        match said.next().ok_or("the owner has ended")?? {
            line if line == "mounted" => break true,
            line if line == "ready" => break false,
            line => of_owner.push(line),
        }
    };
    let volume = Volume::open(directory.join("volume"))?;
    assert!(volume.is_attached(), "another process owns it");
    let mut columns = vec![("attached", rates(of_library(&volume, "attached")?)?)];
    println!("memory of this process: {} KiB", resident()?);
    if is_mounted {
        columns.push(("mount of the owner", rates(of_mount(&directory.join("mnt"))?)?));
    }
    if let Some(mount) = mount {
        columns.push(("other mount", rates(of_mount(mount)?)?));
    }
    println!("owner: {}", of_owner.join(", "));
    for (column, rates) in &columns {
        for ((name, rate), (_, attached)) in rates.iter().zip(&columns[0].1) {
            println!(
                "{column:20} {name:10} {rate:10.0} 1/s   attached is {:.2} times as fast",
                attached / rate
            );
        }
    }
    volume.close()?;
    drop(owner.stdin.take());
    owner.wait()?;
    Ok(())
}

fn of_library<'a>(volume: &'a Volume, name: &str) -> Outcome<Vec<(&'static str, Operation<'a>)>> {
    let directory = format!("/{name}");
    volume.create_dir_all(&directory)?;
    volume.write(format!("{directory}/file"), vec![7; FILE as usize])?;
    volume.sync()?;
    let file = volume.options().read(true).write(true).open(format!("{directory}/file"))?;
    let other = volume.options().read(true).write(true).open(format!("{directory}/file"))?;
    let path = format!("{directory}/file");
    Ok(vec![
        (
            "create",
            Box::new(move |number| {
                let path = format!("{directory}/new.{number}");
                volume.options().write(true).create_new(true).open(path)?;
                Ok(())
            }),
        ),
        ("stat", Box::new(move |_| Ok(volume.metadata(&path).map(drop)?))),
        ("read 4K", Box::new(move |number| Ok(file.read_exact_at(&mut [0; 4096], place(number))?))),
        ("write 4K", Box::new(move |number| Ok(other.write_all_at(&[1; 4096], place(number))?))),
    ])
}

fn of_mount(mount: &Path) -> Outcome<Vec<(&'static str, Operation<'_>)>> {
    let directory = mount.join("mounted");
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("file"), vec![7; FILE as usize])?;
    rustix::fs::syncfs(std::fs::File::open(mount)?)?;
    let open = || {
        let options = || std::fs::File::options().read(true).write(true).clone();
        let direct = options().custom_flags(O_DIRECT).open(directory.join("file"));
        // A mount that caches nothing refuses it.
        direct.or_else(|_| options().open(directory.join("file")))
    };
    let (file, other) = (open()?, open()?);
    let path = directory.join("file");
    Ok(vec![
        (
            "create",
            Box::new(move |number| {
                let path = directory.join(format!("new.{number}"));
                std::fs::File::options().write(true).create_new(true).open(path)?;
                Ok(())
            }),
        ),
        ("stat", Box::new(move |_| Ok(std::fs::metadata(&path).map(drop)?))),
        ("read 4K", Box::new(move |number| Ok(file.read_exact_at(&mut Block::new().0, place(number))?))),
        ("write 4K", Box::new(move |number| Ok(other.write_all_at(&Block::new().0, place(number))?))),
    ])
}

/// Aligned as direct access needs it.
#[repr(align(4096))]
struct Block([u8; 4096]);

impl Block {
    fn new() -> Block {
        Block([1; 4096])
    }
}

/// A block of the file, not the next one.
fn place(number: u64) -> u64 {
    number.wrapping_mul(7919) % (FILE / 4096) * 4096
}

/// The best rate of some rounds.
fn rates(operations: Vec<(&'static str, Operation<'_>)>) -> Outcome<Vec<(&'static str, f64)>> {
    let clock = SystemClock::new();
    let mut rates = Vec::new();
    for (name, mut operation) in operations {
        let (mut number, mut best) = (0, 0_f64);
        for _ in 0..ROUNDS {
            let (begin, first) = (clock.monotonic_ns(), number);
            let end = begin + Duration::from_secs_f64(SECONDS).as_nanos() as u64;
            while clock.monotonic_ns() < end {
                for _ in 0..16 {
                    operation(number)?;
                    number += 1;
                }
            }
            let seconds = (clock.monotonic_ns() - begin) as f64 / 1e9;
            best = best.max((number - first) as f64 / seconds);
        }
        rates.push((name, best));
    }
    Ok(rates)
}

fn resident() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS")).ok_or("no memory")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}
