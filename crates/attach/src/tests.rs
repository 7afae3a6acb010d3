//! Honest and hostile clients of an owner that answers with what it was sent.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::memory::{CommonWord, Word, state};

const PATIENCE: Duration = Duration::from_secs(30);
const GREETING: &[u8] = b"test";

/// An owner that sends everything back, backwards. It serves until it is dropped.
struct Echo {
    place: TempDir,
    listener: Arc<Listener>,
    owners: Arc<rt::sync::Mutex<Vec<Arc<Owner>>>>,
    /// Connections that have ended with all their threads.
    ended: Arc<AtomicUsize>,
    thread: Option<rt::thread::JoinHandle<()>>,
}

impl Echo {
    fn start() -> Echo {
        let place = tempfile::tempdir().unwrap();
        let listener = Arc::new(Listener::bind(&place.path().join("socket")).unwrap());
        let (accepting, owners) = (Arc::clone(&listener), Arc::new(rt::sync::Mutex::new(Vec::new())));
        let (accepted, ended) = (Arc::clone(&owners), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&ended);
        let thread = rt::thread::spawn("test-accept", move || {
            let mut threads = Vec::new();
            while let Ok(peer) = accepting.accept() {
                let owner = Arc::new(Owner::accept(peer, GREETING).unwrap());
                accepted.lock().push(Arc::clone(&owner));
                let counted = Arc::clone(&counted);
                let serve = move || {
                    serve(&owner);
                    counted.fetch_add(1, Ordering::SeqCst);
                };
                threads.push(rt::thread::spawn("test-client", serve).unwrap());
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        Echo { place, listener, owners, ended, thread: Some(thread.unwrap()) }
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("socket")
    }

    fn connect(&self) -> Client {
        Client::connect(&self.path(), PATIENCE).unwrap()
    }

    fn wait_until_ended(&self, count: usize) {
        while self.ended.load(Ordering::SeqCst) < count {
            std::thread::yield_now();
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.listener.stop();
        self.owners.lock().iter().for_each(|owner| owner.disconnect());
        self.thread.take().unwrap().join().unwrap();
    }
}

fn serve(owner: &Arc<Owner>) {
    let mut threads = Vec::new();
    while let Ok(slot) = owner.next_slot() {
        let owner = Arc::clone(owner);
        threads.push(rt::thread::spawn("test-slot", move || owner.serve(slot, reverse)).unwrap());
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn reverse(exchange: &mut Exchange) -> Result<(), Disconnected> {
    exchange.message.reverse();
    let mut data = exchange.data().to_vec();
    data.reverse();
    data.truncate(exchange.wanted());
    exchange.answer_data(data.len()).copy_from_slice(&data);
    if exchange.message == b"end" { Err(Disconnected) } else { Ok(()) }
}

/// Calls with these lengths, and compares the answer.
fn check_call(
    client: &Client,
    random: &mut fastrand::Rng,
    message: usize,
    data: usize,
) -> Result<(), Disconnected> {
    let bytes = |random: &mut fastrand::Rng, length| {
        let mut bytes = vec![0; length];
        random.fill(&mut bytes);
        bytes
    };
    let (mut message, mut data) = (bytes(random, message), bytes(random, data));
    let (mut answer, mut into) = (Vec::new(), vec![0; data.len()]);
    let received = client.call(&message, &data, &mut answer, &mut into)?;
    message.reverse();
    data.reverse();
    assert!(answer == message && received == data.len() && into == data);
    Ok(())
}

#[test]
fn calls_of_all_lengths_are_answered() {
    let echo = Echo::start();
    let client = echo.connect();
    assert_eq!(client.greeting(), GREETING);
    let mut random = fastrand::Rng::with_seed(1);
    for (message, data) in
        [(0, 0), (1, 1), (100, 4096), (MESSAGE_MAX, 1 << 20), (5, (1 << 20) + 1), (5, DATA_MAX)]
    {
        check_call(&client, &mut random, message, data).unwrap();
    }
    for _ in 0..2000 {
        let lengths = (random.usize(..200), random.usize(..10_000));
        check_call(&client, &mut random, lengths.0, lengths.1).unwrap();
    }
}

#[test]
fn more_threads_than_slots_call_at_the_same_time() {
    let echo = Echo::start();
    let clients = [echo.connect(), echo.connect()];
    std::thread::scope(|scope| {
        for thread in 0..3 * SLOTS {
            let client = &clients[thread % 2];
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread as u64);
                for _ in 0..200 {
                    let lengths = (random.usize(..200), random.usize(..5000));
                    check_call(client, &mut random, lengths.0, lengths.1).unwrap();
                }
            });
        }
    });
}

#[test]
fn notices_wake_all_threads_that_wait() {
    let echo = Echo::start();
    let client = echo.connect();
    // The owner has been noted when it answers.
    check_call(&client, &mut fastrand::Rng::with_seed(1), 1, 1).unwrap();
    let owner = Arc::clone(&echo.owners.lock()[0]);
    for _ in 0..100 {
        let seen = client.notices();
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| client.wait_for_notice(seen))).collect();
            owner.notify();
            waiting.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), Ok(())));
        });
    }
    let seen = client.notices();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| client.wait_for_notice(seen))).collect();
        owner.disconnect();
        waiting.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), Err(Disconnected)));
    });
    assert_eq!(client.wait_for_notice(seen), Err(Disconnected));
}

#[test]
fn an_end_of_either_side_ends_calls() {
    let echo = Echo::start();
    let client = echo.connect();
    let mut random = fastrand::Rng::with_seed(1);
    check_call(&client, &mut random, 1, 1).unwrap();
    drop(client);
    echo.wait_until_ended(1);
    let client = echo.connect();
    check_call(&client, &mut random, 1, 1).unwrap();
    echo.owners.lock()[1].disconnect();
    assert_eq!(check_call(&client, &mut random, 1, 1), Err(Disconnected));
    assert_eq!(check_call(&client, &mut random, 1, 1), Err(Disconnected));
    echo.wait_until_ended(2);
    // The owner does not answer what it does not understand.
    assert_eq!(echo.connect().call(b"dne", &[], &mut Vec::new(), &mut []), Err(Disconnected));
    echo.wait_until_ended(3);
}

/// An owner that panics in a call must not let the client wait.
#[test]
fn a_panic_in_an_answer_disconnects() {
    let place = tempfile::tempdir().unwrap();
    let listener = Listener::bind(&place.path().join("socket")).unwrap();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let owner = Owner::accept(listener.accept().unwrap(), GREETING).unwrap();
            let slot = owner.next_slot().unwrap();
            owner.serve(slot, |_| panic!("this is part of the test"));
        });
        let client = Client::connect(&place.path().join("socket"), PATIENCE).unwrap();
        assert_eq!(client.call(&[], &[], &mut Vec::new(), &mut []), Err(Disconnected));
        assert!(serving.join().is_err());
    });
}

#[test]
fn owners_that_are_none_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("socket");
    let connect = || Client::connect(&path, PATIENCE).err().unwrap();
    assert!(matches!(connect(), Refused::Absent));
    let listener = Listener::bind(&path).unwrap();
    let answer_with = |answer: &(dyn Fn(Peer) + Sync)| {
        std::thread::scope(|scope| {
            scope.spawn(|| answer(listener.accept().unwrap()));
            connect()
        })
    };
    assert!(matches!(answer_with(&drop), Refused::Ended));
    let full = answer_with(&|peer| Owner::refuse(&peer, "full"));
    assert!(matches!(full, Refused::Owner(reason) if reason == "full"));
    let strange = answer_with(&|peer| socket::greet(&peer.socket, b"hello", &[]).unwrap());
    assert!(matches!(strange, Refused::Version));
    let nothing = answer_with(&|peer| socket::greet(&peer.socket, b"POLDATT1\x01", &[]).unwrap());
    assert!(matches!(nothing, Refused::Version));
    // Memory that can be cut.
    let cut = answer_with(&|peer| {
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let descriptors = [file.as_fd(); 1 + SLOTS];
        socket::greet(&peer.socket, b"POLDATT1\x01", &descriptors).unwrap();
    });
    assert!(matches!(cut, Refused::System(_)));
    drop(listener);
    // As after the owner was killed.
    assert!(matches!(connect(), Refused::Absent));
}

#[test]
fn the_memory_cannot_be_cut_and_the_socket_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let echo = Echo::start();
    let mode = std::fs::symlink_metadata(echo.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (_memory, file) = memory::Memory::create().unwrap();
    assert!(rustix::fs::ftruncate(&file, 0).is_err() && rustix::fs::ftruncate(&file, 1 << 40).is_err());
}

/// The directory of the parent, for a child that cannot open many descriptors.
const PLACE: &str = "POLDER_TEST_DESCRIPTORS";

/// Once, both sides reported something else: an owner that has ended, and another version.
#[test]
fn a_lack_of_descriptors_is_reported() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let echo = Echo::start();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::child_with_few_descriptors", "--nocapture"])
        .env(PLACE, echo.place.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line == "ready"), "{:?}", child.wait());
    let refused = Client::connect(&echo.place.path().join("child"), PATIENCE).err().unwrap();
    assert!(refused.to_string().contains("the owner cannot serve another process: "), "{refused}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn child_with_few_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    let listener = Listener::bind(&place.join("child")).unwrap();
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(12);
    setrlimit(Resource::Nofile, limit).unwrap();
    let refused = Client::connect(&place.join("socket"), PATIENCE).err().unwrap();
    assert!(matches!(&refused, Refused::System(error) if error.raw_os_error() == Some(24)), "{refused}");
    println!("\nready");
    assert!(Owner::accept(listener.accept().unwrap(), GREETING).is_err());
}

/// Writes anything into all words of a client's memory, and rings, as long as the owner serves it.
fn scribble(client: &Client, random: &mut fastrand::Rng) {
    let words = [Word::State, Word::Message, Word::Data, Word::Wanted, Word::OwnerWaits];
    for _ in 0..random.usize(1..2000) {
        let slot = random.usize(..SLOTS);
        let value = match random.u8(..6) {
            0 => random.u32(..),
            1 => random.u32(..8),
            2 => state::CALLED,
            3 => state::AWAITED,
            4 => MESSAGE_MAX as u32 + random.u32(..3) - 1,
            _ => random.u32(..2 * DATA_MAX as u32),
        };
        client.memory().word(slot, words[random.usize(..words.len())]).store(value, Ordering::SeqCst);
        match random.u8(..20) {
            0 => socket::ring(client.socket(), random.u8(..)),
            1 => socket::ring(client.bell(slot), random.u8(..)),
            2 => client.memory().common(CommonWord::NoticeAwaited).store(random.u32(..), Ordering::SeqCst),
            _ => {}
        }
    }
}

/// Ends the honest client, also if the test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The owner survives any contents of the memory, and other clients get right answers meanwhile.
#[test]
fn hostile_clients_harm_no_others() {
    let echo = Echo::start();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let honest = scope.spawn(|| {
            let client = echo.connect();
            let mut random = fastrand::Rng::with_seed(7);
            let mut calls = 0;
            while !is_over.load(Ordering::SeqCst) {
                let lengths = (random.usize(..200), random.usize(..5000));
                check_call(&client, &mut random, lengths.0, lengths.1).unwrap();
                calls += 1;
            }
            calls
        });
        let ending = Ending(&is_over);
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let client = echo.connect();
            for slot in 0..random.usize(..SLOTS) {
                socket::ring(client.socket(), slot as u8);
            }
            scribble(&client, &mut random);
            echo.owners.lock().iter().rev().take(1).for_each(|owner| owner.notify());
        }
        drop(ending);
        assert!(honest.join().unwrap() > 100);
    });
    // All their threads have ended.
    echo.wait_until_ended(301);
}
