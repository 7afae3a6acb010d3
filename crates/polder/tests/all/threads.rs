//! Several threads on one volume.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use polder::Error;

use crate::bench::{file, listed, volume};

const THREADS: usize = 4;

#[test]
fn threads_share_a_volume() {
    let (bench, volume) = volume();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let volume = volume.clone();
            scope.spawn(move || {
                let directory = format!("/{thread}");
                volume.create_dir(&directory).unwrap();
                for number in 0..100 {
                    let path = format!("{directory}/{number}");
                    volume.write(&path, path.as_bytes()).unwrap();
                    volume.rename(&path, format!("{directory}/done{number}")).unwrap();
                }
            });
        }
    });
    volume.close().unwrap();
    let volume = bench.open();
    for thread in 0..THREADS {
        assert_eq!(listed(&volume, &format!("/{thread}")).len(), 100);
        assert_eq!(volume.read(format!("/{thread}/done7")).unwrap(), format!("/{thread}/7").as_bytes());
    }
}

#[test]
fn appends_of_threads_do_not_mix() {
    const RECORD: usize = 5000;
    let (_bench, volume) = volume();
    let log = file(&volume, "/log");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                for _ in 0..50 {
                    let at = log.append(&[thread as u8; RECORD]).unwrap();
                    assert_eq!(at % RECORD as u64, 0);
                    let mut found = [0xff; RECORD];
                    log.read_exact_at(&mut found, at).unwrap();
                    assert_eq!(found, [thread as u8; RECORD]);
                }
            });
        }
    });
    let contents = volume.read("/log").unwrap();
    assert_eq!(contents.len(), THREADS * 50 * RECORD);
    assert!(contents.chunks(RECORD).all(|record| record.iter().all(|byte| *byte == record[0])));
}

/// Threads that race for names see each name whole, and no thread gets an error of a race.
#[test]
fn threads_race_for_names() {
    let (_bench, volume) = volume();
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (volume, barrier) = (&volume, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..200 {
                    let own = format!("/own{thread}");
                    volume.write(&own, format!("{thread}.{round}")).unwrap();
                    volume.rename(&own, "/common").unwrap();
                    let text = volume.read_to_string("/common").unwrap();
                    assert!(text.split_once('.').is_some(), "{text:?}");
                    assert!(volume.metadata("/common").unwrap().is_file());
                    volume.create_dir_all("/tree/a/b").unwrap();
                }
            });
        }
    });
    assert_eq!(listed(&volume, "/"), ["common", "tree"]);
}

/// A thread that closes waits for operations in progress, and the others learn of it.
#[test]
fn a_volume_is_closed_while_threads_use_it() {
    let (bench, volume) = volume();
    let is_closed = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (open, is_closed) = (file(&volume, &format!("/{thread}")), &is_closed);
                scope.spawn(move || {
                    let mut written = 0u64;
                    loop {
                        match open.append(&[7; 100]) {
                            Ok(_) => written += 100,
                            Err(Error::Closed) => break,
                            Err(error) => panic!("{error}"),
                        }
                        if written == 1000 && thread == 0 {
                            is_closed.store(true, Ordering::SeqCst);
                        }
                    }
                    written
                })
            })
            .collect();
        while !is_closed.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        volume.clone().close().unwrap();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    let volume = bench.open();
    for (thread, written) in done.into_iter().enumerate() {
        assert_eq!(volume.metadata(format!("/{thread}")).unwrap().len(), written);
    }
}

/// Appends that are larger than a transaction meet at the end of the space. What was acknowledged stays as it was.
#[test]
fn appends_that_find_no_space_overwrite_nothing() {
    const LONG: usize = (2 << 20) + 5000;
    let (_bench, volume) = volume();
    let log = file(&volume, "/log");
    let append = |byte: u8| {
        let mut done = Vec::new();
        loop {
            match log.append(&vec![byte; LONG]) {
                Ok(at) => done.push((at, byte)),
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
                    return done;
                }
            }
        }
    };
    let done: Vec<(u64, u8)> = std::thread::scope(|scope| {
        let append = &append;
        let threads: Vec<_> = (1..=THREADS as u8).map(|byte| scope.spawn(move || append(byte))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(done.len() > THREADS);
    for (at, byte) in done {
        let mut found = vec![0; LONG];
        log.read_exact_at(&mut found, at).unwrap();
        assert!(found.iter().all(|found| *found == byte), "at {at}");
    }
}
