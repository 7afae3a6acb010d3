//! Volumes as earlier releases wrote them: an image of each version of the format, which has to be read for ever.
//!
//! An image is taken of a volume whose daemon was killed, so that part of what it holds is in the log only. With
//! `POLDER_WRITE_IMAGE` in the environment the test of the newest version writes its image instead of reading it:
//! once, when a version begins.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::inside::{compare, fill};
use crate::{Bench, bench_or_skip};

const IMAGE: &str = "testdata/format-1.zlib";
/// As large as an image in the repository may be.
const IMAGE_BYTES_MAX: usize = 64 << 10;
const VOLUME_BYTES: usize = 12 << 20;
const FS_ID: &str = "00112233-4455-6677-8899-aabbccddeeff";
/// 2001-09-09, when Unix had counted a billion seconds.
const THEN: Timespec = Timespec { tv_sec: 1_000_000_000, tv_nsec: 123_456_789 };

/// What every image holds.
fn fill_as_then(root: &Path) {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    fill(root, false);
    set_times(root);
}

fn set_times(path: &Path) {
    if fs::symlink_metadata(path).unwrap().is_dir() {
        crate::bench::names(path).iter().for_each(|name| set_times(&path.join(name)));
    }
    let times = Timestamps { last_access: THEN, last_modification: THEN };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn image() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(IMAGE)
}

fn write_image(bench: &Bench, volume: &Path) {
    let (volume, directory) = (volume.to_str().unwrap(), bench.directory());
    bench.succeed(&["mkfs", volume, "--size", "12M", "--label", "golden", "--uuid", FS_ID]);
    bench.succeed(&["mount", volume, directory.to_str().unwrap(), "-o", "commit=3600"]);
    let mounted = crate::Mounted { bench };
    fill_as_then(&mounted.root());
    bench.succeed(&["sync", directory.to_str().unwrap()]);
    mounted.daemon().kill();
    drop(mounted);
    let packed = miniz_oxide::deflate::compress_to_vec_zlib(&fs::read(volume).unwrap(), 10);
    fs::write(image(), packed).unwrap();
}

/// The image as a file beside the bench's own volume.
fn unpacked(bench: &Bench) -> PathBuf {
    let volume = bench.volume().with_file_name("golden");
    if std::env::var_os("POLDER_WRITE_IMAGE").is_some() {
        write_image(bench, &volume);
        fs::remove_file(&volume).unwrap();
    }
    let packed = fs::read(image()).unwrap();
    assert!(packed.len() <= IMAGE_BYTES_MAX, "{} bytes are too many for the repository", packed.len());
    let bytes = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(&packed, VOLUME_BYTES).unwrap();
    fs::write(&volume, bytes).unwrap();
    volume
}

#[test]
fn an_image_of_format_1_holds_what_was_written_then() {
    let bench = bench_or_skip!();
    let volume = unpacked(&bench);
    let named = volume.to_str().unwrap();
    let then = bench.volume().with_file_name("then");
    fs::create_dir(&then).unwrap();
    fill_as_then(&then);

    let info: serde_json::Value = serde_json::from_str(&bench.succeed(&["info", "--json", named])).unwrap();
    assert_eq!((&info["label"], &info["id"]), (&"golden".into(), &FS_ID.into()));
    assert_eq!(info["format_version"], 1);
    assert!(bench.succeed(&["check", "--data", named]).ends_with(": clean\n"));
    let copy = bench.volume().with_file_name("copy");
    bench.succeed(&["cp", "-r", named, "/", copy.to_str().unwrap()]);
    let mut count = 0;
    compare(&then, &copy, false, &mut count);
    assert_eq!(count, 11);

    bench.succeed(&["mount", named, bench.directory().to_str().unwrap()]);
    let mounted = crate::Mounted { bench: &bench };
    compare(&then, &mounted.root(), false, &mut count);
    fs::write(mounted.path("new"), "by this release").unwrap();
    fs::remove_file(mounted.path("large")).unwrap();
    mounted.umount();
    assert!(bench.succeed(&["check", "--data", named]).ends_with(": clean\n"));
    assert_eq!(bench.succeed(&["cat", named, "new"]), "by this release");
}

/// Changes both copies of the file's header, and their checksums with them.
fn rewrite_header(volume: &Path, change: impl Fn(&mut [u8])) {
    const HEADER_BYTES: usize = 4096;
    let file = OpenOptions::new().read(true).write(true).open(volume).unwrap();
    for offset in [0, HEADER_BYTES as u64] {
        let mut copy = vec![0; HEADER_BYTES];
        file.read_exact_at(&mut copy, offset).unwrap();
        change(&mut copy);
        copy[8..12].fill(0);
        let sum = zone::format::checksum(&[&copy]);
        copy[8..12].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&copy, offset).unwrap();
    }
}

#[test]
fn what_a_later_release_wrote_is_refused_with_the_name_of_that_release() {
    let bench = bench_or_skip!();
    let volume = unpacked(&bench);
    let (named, directory) = (volume.to_str().unwrap(), bench.directory());
    let directory = directory.to_str().unwrap();
    rewrite_header(&volume, |header| {
        header[12] = 2;
        header[84..100].copy_from_slice(b"0.7.3\0\0\0\0\0\0\0\0\0\0\0");
    });
    let this = env!("CARGO_PKG_VERSION");
    let needed =
        format!("format version 2, features 0x0: needs Polder 0.7.3 or later; this is Polder {this}");
    for (status, arguments) in
        [(1, vec!["mount", named, directory]), (1, vec!["info", named]), (8, vec!["check", named])]
    {
        let said = bench.fail(status, &arguments);
        assert!(said.contains(&needed) && said.lines().count() == 1, "{said}");
    }
    assert!(bench.fail(1, &["mkfs", named]).contains("--force"), "it is somebody's volume all the same");

    // A feature that must be known to write, and one that need not be known at all.
    rewrite_header(&volume, |header| (header[12], header[32], header[40]) = (1, 1, 1));
    assert!(bench.fail(1, &["mount", named, directory]).contains("open it for reading only"));
    bench.succeed(&["mount", "-o", "ro", named, directory]);
    let mounted = crate::Mounted { bench: &bench };
    assert_eq!(fs::read(mounted.path("deep/small")).unwrap(), b"in the record");
    mounted.umount();
    // One that must be known.
    rewrite_header(&volume, |header| (header[48], header[84]) = (4, 0));
    let said = bench.fail(1, &["mount", "-o", "ro", named, directory]);
    assert!(said.contains("features 0x4: needs a later release of Polder;"), "{said}");
}
