//! Clients that send anything. The owner and honest clients go on, and no data but that of the hostile client changes.
//!
//! The memory itself is attacked in the tests of the crate `attach`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use attach::{Client, DATA_MAX, Listener, MESSAGE_MAX, Owner};
use polder::{Error, File, Volume, VolumeOptions};

use crate::bench::{Bench, file, socket};

fn connect(volume: &Path) -> Client {
    Client::connect(&socket(volume), Duration::from_secs(30)).unwrap()
}

/// The bytes before the request: an unprivileged caller.
fn caller() -> Vec<u8> {
    [
        &65_534_u32.to_le_bytes()[..],
        &65_534_u32.to_le_bytes(),
        &0_u32.to_le_bytes(),
        &0o022_u16.to_le_bytes(),
        &[0],
    ]
    .concat()
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat()
}

/// A number that is likely to be at a limit.
fn number(random: &mut fastrand::Rng) -> u64 {
    match random.u8(..8) {
        0 => 0,
        1 => u64::MAX,
        2 => i64::MAX as u64,
        3 => i64::MAX as u64 + 1,
        4 => 1 << random.u8(..64),
        5 => random.u64(..20),
        _ => random.u64(..1 << 24),
    }
}

/// The path of an own directory or outside, or none.
fn path(random: &mut fastrand::Rng) -> Vec<u8> {
    let names: [&[u8]; 9] =
        [b"/own", b"/own/a", b"/own/b", b"/own/../own/a", b"", b"\0", b"own/b/", b"/honest", b"/"];
    match random.u8(..12) {
        0 => vec![b'x'; random.usize(..300)],
        1 => (0..random.usize(..100)).map(|_| random.u8(..)).collect(),
        _ => names[random.usize(..names.len())].to_vec(),
    }
}

/// A request with random contents. Most of them can be decoded.
fn request(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut message = caller();
    let kind = random.u8(..6);
    message.push(kind);
    match kind {
        0 => {
            message.push(random.u8(..23));
            message.extend(text(&path(random)));
            if random.bool() {
                message.extend(text(&path(random)));
            }
        }
        // A file and an operation on it.
        1 => {
            message.extend(number(random).to_le_bytes());
            message.push(random.u8(..16));
            (0..random.u8(..4)).for_each(|_| message.extend(number(random).to_le_bytes()));
        }
        2 => {
            message.extend(random.u64(..20).to_le_bytes());
            message.extend(random.u64(..20).to_le_bytes());
            message.push(random.u8(..3));
            (0..3).for_each(|_| message.extend(number(random).to_le_bytes()));
        }
        3 => message.extend(random.u64(..20).to_le_bytes()),
        5 => {
            message.push(0);
            message.extend(text(&path(random)));
            message.extend((0..6).map(|_| random.u8(..2)));
            message.push(random.u8(..3));
            message.push(random.u8(..2));
            message.extend(0o666_u16.to_le_bytes());
        }
        _ => {}
    }
    (0..random.u8(..5)).for_each(|_| message.push(random.u8(..3)));
    message
}

/// The shortest form of each operation on an open file, with numbers at the limits.
fn file_request(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut message = caller();
    message.push(1);
    message.extend(random.u64(..6).to_le_bytes());
    let call = random.u8(..15);
    message.push(call);
    let numbers = |message: &mut Vec<u8>, random: &mut fastrand::Rng, count: u8| {
        (0..count).for_each(|_| message.extend(number(random).to_le_bytes()));
    };
    match call {
        0 | 1 | 5 | 6 | 14 => numbers(&mut message, random, 1),
        3 => message.extend(changes(random)),
        4 => {
            let mode = random.u8(..5);
            message.push(mode);
            message.extend([1].iter().take(usize::from(matches!(mode, 0 | 2))));
            numbers(&mut message, random, 2);
        }
        7 => message.push(random.u8(..2)),
        9 => message.extend([1, random.u8(..6)]),
        10 => message.extend([random.u8(..2), random.u8(..2)]),
        12 => {
            numbers(&mut message, random, 2);
            message.extend([random.u8(..2), random.u8(..2)]);
        }
        13 => numbers(&mut message, random, 2),
        _ => {}
    }
    message
}

/// Changes of some attributes.
fn changes(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut message = Vec::new();
    // Permissions, user, group, size.
    for bytes in [2, 4, 4, 8] {
        message.push(random.u8(..2));
        if message.ends_with(&[1]) {
            message.extend(&number(random).to_le_bytes()[..bytes]);
        }
    }
    // The times of access and modification: none, now, or another one.
    for _ in 0..2 {
        match random.u8(..3) {
            0 => message.push(0),
            1 => message.extend([1, 0]),
            _ => message.extend([&[1, 1][..], &number(random).to_le_bytes()].concat()),
        }
    }
    message.push(random.u8(..2));
    if message.ends_with(&[1]) {
        message.extend(number(random).to_le_bytes());
    }
    message
}

/// A client with some open files and a directory.
fn connect_and_open(volume: &Path) -> Client {
    let client = connect(volume);
    let mut open = caller();
    open.extend([5, 0]);
    open.extend(text(b"/own/a"));
    open.extend([1, 1, 0, 0, 0, 1, 0, 0o266, 1]);
    for _ in 0..3 {
        client.call(&open, &[], &mut Vec::new(), &mut []).unwrap();
    }
    let directory = [caller(), vec![5, 1], text(b"/own")].concat();
    client.call(&directory, &[], &mut Vec::new(), &mut []).unwrap();
    client
}

/// Sends requests. Connects again when the owner has disconnected. Returns how many were answered.
fn attack(volume: &Path, seed: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut client = connect_and_open(volume);
    let (mut answered, mut answer, mut into) = (0, Vec::new(), vec![0; 9000]);
    for _ in 0..400 {
        let message = match random.u8(..20) {
            0 => (0..random.usize(..64)).map(|_| random.u8(..)).collect(),
            1..12 => file_request(&mut random),
            _ => request(&mut random),
        };
        let data = vec![random.u8(..); random.usize(..9000)];
        let wanted = random.usize(..9000);
        match client.call(&message, &data, &mut answer, &mut into[..wanted]) {
            Ok(_) => answered += 1,
            Err(_) => client = connect_and_open(volume),
        }
    }
    answered
}

#[test]
fn hostile_messages_change_nothing_of_others() {
    let bench = Bench::new();
    let owner = bench.create().open().unwrap();
    owner.create_dir("/own").unwrap();
    owner.set_owner("/own", Some(65_534), Some(65_534)).unwrap();
    owner.write("/honest", vec![9; 10_000]).unwrap();
    owner.set_permissions("/honest", 0o600).unwrap();
    // The fourth is a directory: its entries.
    let listing = [caller(), vec![1], 3_u64.to_le_bytes().to_vec(), vec![14], vec![0; 8]].concat();
    let mut answer = Vec::new();
    connect_and_open(&bench.path()).call(&listing, &[], &mut answer, &mut []).unwrap();
    assert_eq!(answer[..2], [0, 11]);
    let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let honest = scope.spawn(|| honest(&bench.open(), &is_over));
        let _ending = Ending(&is_over);
        for seed in 0..30 {
            // The client before may have taken the rights from itself.
            owner.set_permissions("/own", 0o755).unwrap();
            let _ = owner.set_permissions("/own/a", 0o666);
            answered.fetch_add(attack(&bench.path(), seed), Ordering::SeqCst);
        }
        is_over.store(true, Ordering::SeqCst);
        assert!(honest.join().unwrap() > 10);
    });
    let answered = answered.into_inner();
    assert!(answered > 4000, "the owner understands many of the messages: {answered}");
    assert_eq!(owner.read("/honest").unwrap(), vec![9; 10_000]);
    owner.close().unwrap();
    let volume = bench.open();
    volume.remove_dir_all("/own").unwrap();
    assert_eq!(volume.read("/honest").unwrap(), vec![9; 10_000]);
}

/// Ends the honest client, also if the test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A client whose data must stay as it writes it.
fn honest(volume: &Volume, is_over: &AtomicBool) -> u64 {
    volume.create_dir("/kept").unwrap();
    volume.set_permissions("/kept", 0o700).unwrap();
    let mut rounds = 0;
    while !is_over.load(Ordering::SeqCst) {
        let path = format!("/kept/{}", rounds % 10);
        let contents = vec![rounds as u8; 20_000];
        volume.write(&path, &contents).unwrap();
        let open = file(volume, &path);
        open.lock().unwrap();
        open.sync_data().unwrap();
        assert_eq!(volume.read(&path).unwrap(), contents);
        rounds += 1;
    }
    rounds
}

/// An owner that answers with numbers for bytes that it does not send. The client must not return other bytes.
#[test]
fn an_owner_that_lies_is_disconnected() {
    const VERSION: u32 = 1;
    let bench = Bench::new();
    let alone = VolumeOptions::new().share(false);
    let _lock = bench.create().open_options(alone).open().unwrap();
    std::fs::create_dir_all(polder::runtime::directory()).unwrap();
    let name = socket(&bench.path());
    let number = |number: u64| [vec![0, 9], number.to_le_bytes().to_vec()].concat();
    let appended = |offset: u64, length: u64| {
        [vec![0, 10], offset.to_le_bytes().to_vec(), length.to_le_bytes().to_vec()].concat()
    };
    type Operation = fn(&File) -> polder::Result<()>;
    let read: Operation = |file| file.read_exact_at(&mut [0; 10], 0);
    let write: Operation = |file| file.write_all_at(b"text", 0);
    let append: Operation = |file| file.append(b"text").map(drop);
    let large: Operation = |file| file.read_at(&mut vec![0; DATA_MAX + 1], 0).map(drop);
    for (answer, sent, operation) in [
        (number(10), 9, read),
        (number(11), 10, read),
        (number(0), 10, read),
        (vec![0, 0], 10, read),
        (number(u64::MAX), 0, read),
        (number(u64::MAX), 0, large),
        (number(DATA_MAX as u64), 5, large),
        (number(5), 0, write),
        (number(u64::MAX), 0, write),
        (appended(0, 5), 0, append),
        (appended(u64::MAX, 4), 0, append),
        (vec![1], 0, read),
    ] {
        // A killed owner would have left it.
        let _ = std::fs::remove_file(&name);
        let listener = Listener::bind(&name).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let owner = Owner::accept(listener.accept().unwrap(), &VERSION.to_le_bytes()).unwrap();
                let slot = owner.next_slot().unwrap();
                let mut is_open = false;
                owner.serve(slot, |exchange| {
                    if is_open {
                        exchange.answer_data(sent.min(exchange.wanted()));
                        exchange.message.clone_from(&answer);
                    } else {
                        exchange.set_data_length(0);
                        exchange.message = number(1);
                        is_open = true;
                    }
                    Ok(())
                });
            });
            let volume = bench.open();
            let opened = volume.options().read(true).write(true).open("/file").unwrap();
            let done = operation(&opened);
            assert!(matches!(done, Err(Error::Disconnected)), "{answer:?} {sent}: {done:?}");
            assert!(matches!(volume.sync(), Err(Error::Disconnected)));
        });
    }
    std::fs::remove_file(&name).unwrap();
}

/// Messages of every length that is possible, and every single byte of a valid one replaced.
#[test]
fn broken_messages_end_the_connection_of_their_client_alone() {
    let (bench, volume) = Bench::attached();
    volume.write("/file", b"text").unwrap();
    let mut valid = caller();
    valid.extend([0, 5]);
    valid.extend(text(b"/file"));
    valid.push(1);
    let mut answer = Vec::new();
    let is_answered =
        |message: &[u8]| connect(&bench.path()).call(message, &[], &mut Vec::new(), &mut []).is_ok();
    connect(&bench.path()).call(&valid, &[], &mut answer, &mut []).unwrap();
    assert_eq!(answer[..2], [0, 1], "the attributes of a file");
    for length in 0..valid.len() {
        assert!(!is_answered(&valid[..length]), "{length}");
    }
    assert!(!is_answered(&[&valid[..], &[0]].concat()), "a byte too much");
    for at in 0..valid.len() {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut broken = valid.clone();
            broken[at] = byte;
            // Whatever it means now.
            is_answered(&broken);
        }
    }
    let huge = [caller(), vec![0, 5], text(&vec![b'a'; MESSAGE_MAX - 100]), vec![1]].concat();
    let client = connect(&bench.path());
    client.call(&huge, &vec![1; DATA_MAX], &mut answer, &mut []).unwrap();
    assert_eq!(answer[0], 1, "an error");
    assert_eq!(volume.read("/file").unwrap(), b"text");
}
