//! Contents of open files.

use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};

use polder::{Error, FallocateMode, FsError, ReadRequest};

use crate::bench::{cause, file, volume};

const BLOCK: u64 = 4096;

#[test]
fn files_are_read_and_written_at_offsets() {
    let (_bench, volume) = volume();
    let open = file(&volume, "/file");
    assert_eq!(open.write_at(b"hello", 3).unwrap(), 5);
    open.write_all_at(&[9; 3 << 20], 1 << 20).unwrap();
    let mut bytes = [1; 10];
    assert_eq!(open.read_at(&mut bytes, 0).unwrap(), 10);
    assert_eq!(&bytes, b"\0\0\0hello\0\0");
    assert_eq!(open.read_at(&mut bytes, (4 << 20) - 4).unwrap(), 4);
    assert_eq!(open.read_at(&mut bytes, 1 << 40).unwrap(), 0);
    let error = open.read_exact_at(&mut bytes, (4 << 20) - 4).unwrap_err();
    assert!(matches!(error, Error::EndOfFile));
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::UnexpectedEof);
    open.set_len(5).unwrap();
    assert_eq!(volume.read("/file").unwrap(), b"\0\0\0he");
    open.set_len(7).unwrap();
    assert_eq!(volume.read("/file").unwrap(), b"\0\0\0he\0\0");
    open.sync_data().unwrap();
    open.sync_all().unwrap();
    assert_eq!(cause(open.write_at(b"x", u64::MAX)), FsError::TooLarge);
}

#[test]
fn whole_files_are_replaced() {
    let (_bench, volume) = volume();
    let long: Vec<u8> = (0..5_000_000u32).map(|number| (number % 251) as u8).collect();
    volume.write("/file", &long).unwrap();
    assert!(volume.read("/file").unwrap() == long);
    volume.write("/file", "short ÄÖ").unwrap();
    assert_eq!(volume.read_to_string("/file").unwrap(), "short ÄÖ");
    volume.write("/file", [0xff]).unwrap();
    let error = volume.read_to_string("/file").unwrap_err();
    assert!(matches!(error, Error::NotText(_)));
    assert_eq!(
        (error.kind(), io::Error::from(error).kind()),
        (io::ErrorKind::InvalidData, io::ErrorKind::InvalidData)
    );
    assert_eq!(cause(volume.read("/")), FsError::IsDirectory);
    // More than any memory.
    volume.options().write(true).open("/file").unwrap().set_len(1 << 60).unwrap();
    assert_eq!(cause(volume.read("/file")), FsError::NoMemory);
}

#[test]
fn files_do_only_what_they_were_opened_for() {
    let (_bench, volume) = volume();
    volume.write("/file", b"text").unwrap();
    let options = volume.options();
    for refused in [
        options.clone().open("/file"),
        options.clone().read(true).create(true).open("/new"),
        options.clone().read(true).truncate(true).open("/file"),
        options.clone().append(true).truncate(true).open("/file"),
    ] {
        assert_eq!(cause(refused), FsError::Invalid);
    }
    let reader = volume.options().read(true).open("/file").unwrap();
    for refused in [
        reader.write_at(b"x", 0).map(drop),
        reader.append(b"x").map(drop),
        reader.set_len(0),
        reader.allocate(0, 1),
        reader.punch_hole(0, 1),
    ] {
        assert_eq!(cause(refused), FsError::BadHandle);
    }
    let writer = volume.options().write(true).truncate(true).open("/file").unwrap();
    assert_eq!(cause(writer.read_at(&mut [0; 1], 0)), FsError::BadHandle);
    assert_eq!(reader.metadata().unwrap().len(), 0);
    let directory = volume.options().read(true).open("/").unwrap();
    assert_eq!(cause(directory.read_at(&mut [0; 1], 0)), FsError::IsDirectory);
    directory.sync_all().unwrap();
    assert_eq!(cause(volume.options().read(true).open("/missing")), FsError::NotFound);
    volume
        .options()
        .write(true)
        .create_new(true)
        .sync(true)
        .open("/new")
        .unwrap()
        .append(b"durable")
        .unwrap();
    assert_eq!(cause(volume.options().write(true).create_new(true).open("/new")), FsError::Exists);
    let found = volume.options().write(true).create(true).permissions(0o777).open("/run").unwrap();
    assert_eq!(found.metadata().unwrap().permissions(), 0o755);
}

#[test]
fn space_is_allocated_and_freed() {
    let (_bench, volume) = volume();
    let open = file(&volume, "/file");
    open.allocate(0, 100 * BLOCK).unwrap();
    assert_eq!(open.metadata().unwrap().len(), 100 * BLOCK);
    open.write_all_at(&[1; 20 * BLOCK as usize], 10 * BLOCK).unwrap();
    open.punch_hole(15 * BLOCK, 2 * BLOCK).unwrap();
    assert_eq!(open.seek_hole(10 * BLOCK).unwrap(), 15 * BLOCK);
    assert_eq!(open.seek_data(15 * BLOCK).unwrap(), 17 * BLOCK);
    assert_eq!(open.seek_hole(17 * BLOCK).unwrap(), 30 * BLOCK);
    assert_eq!(cause(open.seek_data(100 * BLOCK)), FsError::NoData);
    assert_eq!(cause(open.seek_hole(100 * BLOCK)), FsError::NoData);
    open.fallocate(FallocateMode::CollapseRange, 10 * BLOCK, 5 * BLOCK).unwrap();
    assert_eq!(open.seek_data(12 * BLOCK).unwrap(), 12 * BLOCK);
    assert_eq!(cause(open.allocate(0, 0)), FsError::Invalid);
    assert_eq!(cause(open.punch_hole(0, u64::MAX)), FsError::TooLarge);
    assert_eq!(cause(open.fallocate(FallocateMode::InsertRange, 1, BLOCK)), FsError::Invalid);
}

#[test]
fn copies_share_their_blocks() {
    let (_bench, volume) = volume();
    let data = vec![5; 8 << 20];
    volume.write("/one", &data).unwrap();
    volume.set_permissions("/one", 0o750).unwrap();
    let before = volume.stats().unwrap().stored.live_bytes;
    assert_eq!(volume.copy("/one", "/two").unwrap(), 8 << 20);
    assert!(volume.read("/two").unwrap() == data);
    assert_eq!(volume.metadata("/two").unwrap().permissions(), 0o750);
    assert!(
        volume.stats().unwrap().stored.live_bytes < before + (1 << 20),
        "the copy takes hardly any space"
    );

    let (from, to) = (file(&volume, "/one"), file(&volume, "/three"));
    assert_eq!(from.copy_range(1, &to, 0, 10).unwrap(), 10);
    from.clone_range(0, &to, BLOCK, BLOCK).unwrap();
    assert_eq!(to.metadata().unwrap().len(), 2 * BLOCK);
    assert_eq!(cause(from.clone_range(1, &to, 0, BLOCK)), FsError::Invalid);
    assert_eq!(cause(from.copy_range(0, &from, 1, 10)), FsError::Invalid);
    assert_eq!(cause(volume.copy("/one", "/one")), FsError::Invalid);
    assert_eq!(cause(volume.copy("/missing", "/four")), FsError::NotFound);
    assert_eq!(cause(volume.copy("/", "/one")), FsError::IsDirectory);
    assert_eq!(cause(volume.copy("/", "/four")), FsError::IsDirectory);
    assert!(!volume.exists("/four").unwrap());
    assert_eq!(volume.metadata("/one").unwrap().len(), 8 << 20);
    let (_other, elsewhere) = self::volume();
    let foreign = file(&elsewhere, "/file");
    let error = from.copy_range(0, &foreign, 0, 1).unwrap_err();
    assert!(matches!(error, Error::OtherVolume) && error.kind() == ErrorKind::CrossesDevices);
}

#[test]
fn many_pieces_are_read_by_one_call() {
    let (_bench, volume) = volume();
    volume.write("/one", b"0123456789").unwrap();
    volume.write("/two", vec![7; 100_000]).unwrap();
    let (one, two) = (file(&volume, "/one"), file(&volume, "/two"));
    let mut buffers = [[0; 4]; 4];
    let places = [(&one, 8), (&two, 50_000), (&one, 0), (&two, 200_000)];
    let requests = places.into_iter().zip(&mut buffers);
    let mut requests: Vec<_> =
        requests.map(|((file, offset), into)| ReadRequest::new(file, offset, into)).collect();
    volume.read_many(&mut requests).unwrap();
    assert_eq!(requests.iter().map(|request| request.read).collect::<Vec<_>>(), [2, 4, 4, 0]);
    assert_eq!(buffers, [*b"89\0\0", [7; 4], *b"0123", [0; 4]]);

    let writer = volume.options().write(true).open("/one").unwrap();
    let (mut first, mut second, mut third) = ([0; 1], [0; 1], [0; 1]);
    let mut requests = [
        ReadRequest::new(&one, 0, &mut first),
        ReadRequest::new(&writer, 0, &mut second),
        ReadRequest::new(&one, 0, &mut third),
    ];
    assert_eq!(cause(volume.read_many(&mut requests)), FsError::BadHandle);
    assert_eq!(requests.map(|request| request.read), [1, 0, 0]);
    volume.read_many(&mut []).unwrap();
}

#[test]
fn the_traits_of_the_standard_library_use_a_cursor() {
    let (_bench, volume) = volume();
    let mut open = file(&volume, "/file");
    writeln!(open, "one").unwrap();
    let mut buffered = BufWriter::new(&open);
    for number in 2..1000 {
        writeln!(buffered, "{number}").unwrap();
    }
    buffered.flush().unwrap();
    drop(buffered);
    open.rewind().unwrap();
    let lines: Vec<String> = BufReader::new(&open).lines().map(Result::unwrap).collect();
    assert_eq!((lines.len(), lines[0].as_str(), lines[998].as_str()), (999, "one", "999"));
    assert_eq!(open.seek(SeekFrom::End(-4)).unwrap(), open.metadata().unwrap().len() - 4);
    let mut rest = String::new();
    open.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "999\n");
    assert_eq!(open.seek(SeekFrom::Current(-2)).unwrap(), open.metadata().unwrap().len() - 2);
    assert_eq!(open.seek(SeekFrom::Start(0)).unwrap(), 0);
    assert_eq!(open.seek(SeekFrom::Current(-1)).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(open.stream_position().unwrap(), 0, "a refused seek moves nothing");
    let mut target = file(&volume, "/copy");
    assert_eq!(io::copy(&mut open, &mut target).unwrap(), open.metadata().unwrap().len());
    assert_eq!(volume.read("/copy").unwrap(), volume.read("/file").unwrap());
}

#[test]
fn an_appending_file_writes_at_its_end() {
    let (_bench, volume) = volume();
    volume.write("/log", b"one ").unwrap();
    let mut log = volume.options().append(true).read(true).open("/log").unwrap();
    log.write_all(b"two ").unwrap();
    log.rewind().unwrap();
    assert_eq!((log.write(b"").unwrap(), log.stream_position().unwrap()), (0, 0), "nothing is written");
    log.write_all(b"three ").unwrap();
    assert_eq!(log.stream_position().unwrap(), 14);
    assert_eq!(log.write_at(b"four ", 0).unwrap(), 5, "the offset does not count");
    assert_eq!(log.append(b"five").unwrap(), 19);
    assert_eq!(volume.read("/log").unwrap(), b"one two three four five");
    let plain = file(&volume, "/log");
    assert_eq!(plain.append(b"!").unwrap(), 23);
}

#[test]
fn a_full_volume_reports_it() {
    let (_bench, volume) = volume();
    let open = file(&volume, "/file");
    let space = volume.statvfs().unwrap();
    let available = space.available * u64::from(space.block_size);
    let piece = vec![3; 1 << 20];
    let mut written = 0;
    let error = loop {
        match open.write_at(&piece, written) {
            Ok(count) => written += count as u64,
            Err(error) => break error,
        }
    };
    assert_eq!((error.kind(), error.errno()), (ErrorKind::StorageFull, 28));
    assert!(written >= available, "{written} of {available}");
    volume.remove_file("/file").unwrap();
    drop(open);
    volume.write("/again", &piece).unwrap();
}
