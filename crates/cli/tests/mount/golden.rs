//! Volumes as earlier releases wrote them: an image of each format version and of each later set of features. All later
//! releases must read them.
//!
//! An image is taken of a volume whose daemon was killed, so that part of the contents is only in the log. With
//! `POLDER_WRITE_IMAGE` in the environment, the test of the newest image writes the image instead of reading it. This is
//! done once, when a version or a feature is introduced.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FallocateFlags, Timespec, Timestamps, utimensat};

use crate::cp_check_dump::{compare, fill};
use crate::{Bench, bench_or_skip};

/// An image, and its contents.
struct Image {
    path: &'static str,
    /// The incompatible features of the volume.
    features: u64,
    /// Files and directories, with the root.
    files: usize,
    fill: fn(&Path),
    /// Whether it has a copy of its header near the end.
    has_end_copy: bool,
}

const FIRST: Image =
    Image { path: "testdata/format-1.zlib", features: 0, files: 11, fill: fill_common, has_end_copy: false };
const DELTAS: Image = Image {
    path: "testdata/format-1-deltas.zlib",
    features: zone::format::FEATURE_KEPT_SPACE | zone::format::FEATURE_DELTAS,
    files: 13,
    fill: fill_and_keep,
    has_end_copy: false,
};
const REFERENCES: Image = Image {
    path: "testdata/format-1-references.zlib",
    features: DELTAS.features | zone::format::FEATURE_REFERENCES,
    files: 18,
    fill: fill_and_share,
    has_end_copy: false,
};
const PREPAID: Image = Image {
    path: "testdata/format-1-prepaid.zlib",
    features: REFERENCES.features | zone::format::FEATURE_PREPAID,
    files: 19,
    fill: fill_and_scatter,
    has_end_copy: false,
};
const END_COPY: Image = Image {
    path: "testdata/format-1-end-copy.zlib",
    features: PREPAID.features,
    files: 12,
    fill: fill_and_scatter_alone,
    has_end_copy: true,
};
const PATCHES: Image = Image {
    path: "testdata/format-1-patches.zlib",
    features: PREPAID.features | zone::format::FEATURE_PATCHES,
    files: 12,
    fill: fill_and_scatter_alone,
    has_end_copy: true,
};
const NEWEST: Image = PATCHES;
/// The largest size of an image in the repository.
const IMAGE_BYTES_MAX: usize = 64 << 10;
const VOLUME_BYTES: usize = 12 << 20;
const FS_ID: &str = "00112233-4455-6677-8899-aabbccddeeff";
/// 2001-09-09, a billion seconds after the Unix epoch.
const THEN: Timespec = Timespec { tv_sec: 1_000_000_000, tv_nsec: 123_456_789 };

/// Creates the files of every image.
fn fill_common(root: &Path) {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    fill(root, false);
    set_times(root);
}

/// Creates files with preallocated space: beyond the end, and between written blocks.
fn fill_and_keep(root: &Path) {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    fill(root, false);
    let beyond = fs::File::create(root.join("kept-beyond")).unwrap();
    rustix::fs::fallocate(&beyond, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    beyond.write_all_at(&[7; 5000], 0).unwrap();
    let within = fs::File::create(root.join("kept-within")).unwrap();
    rustix::fs::fallocate(&within, FallocateFlags::empty(), 0, 300_000).unwrap();
    within.write_all_at(&[8; 10_000], 100_000).unwrap();
    set_times(root);
}

/// Creates copies that share blocks. Some were overwritten since, and the source of one was deleted.
fn fill_and_share(root: &Path) {
    fill_and_keep(root);
    let contents: Vec<u8> = (0..200_000_u32).map(|at| (at / 4096) as u8).collect();
    for (name, copies) in [("shared", ["copy", "copy of a copy"]), ("gone", ["left", "left too"])] {
        fs::write(root.join(name), &contents).unwrap();
        fs::copy(root.join(name), root.join(copies[0])).unwrap();
        let written = OpenOptions::new().write(true).open(root.join(copies[0])).unwrap();
        written.write_all_at(&[9; 5000], 50_000).unwrap();
        drop(written);
        fs::copy(root.join(copies[0]), root.join(copies[1])).unwrap();
        fs::File::open(root.join(copies[1])).unwrap().sync_all().unwrap();
    }
    fs::remove_file(root.join("gone")).unwrap();
    set_times(root);
}

/// Creates a file in which every second block is a hole, so that its map needs more than one node.
fn fill_and_scatter(root: &Path) {
    fill_and_share(root);
    scatter(root);
}

/// The same with few other files, so that the image stays small.
fn fill_and_scatter_alone(root: &Path) {
    fill_common(root);
    scatter(root);
}

fn scatter(root: &Path) {
    let file = fs::File::create(root.join("scattered")).unwrap();
    for at in (0..240).step_by(2) {
        file.write_all_at(&[5; 4096], at * 4096).unwrap();
    }
    file.sync_all().unwrap();
    set_times(root);
}

fn set_times(path: &Path) {
    if fs::symlink_metadata(path).unwrap().is_dir() {
        crate::bench::names(path).iter().for_each(|name| set_times(&path.join(name)));
    }
    let times = Timestamps { last_access: THEN, last_modification: THEN };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

impl Image {
    fn file(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(self.path)
    }

    fn write(&self, bench: &Bench, volume: &Path) {
        let (volume, directory) = (volume.to_str().unwrap(), bench.directory());
        let directory = directory.to_str().unwrap();
        bench.succeed(&[
            "mkfs",
            volume,
            "--size",
            "12M",
            "--page-size",
            "4K",
            "--label",
            "golden",
            "--uuid",
            FS_ID,
        ]);
        let mount = || {
            bench.succeed(&["mount", volume, directory, "-o", "commit=3600"]);
            crate::Mounted { bench }
        };
        let mounted = mount();
        (self.fill)(&mounted.root());
        mounted.umount();
        // A second checkpoint writes leaves as delta records. Later changes are in the log.
        let mounted = mount();
        set_times(&mounted.root());
        mounted.umount();
        let mounted = mount();
        set_times(&mounted.root());
        bench.succeed(&["sync", directory]);
        mounted.daemon().kill();
        drop(mounted);
        let packed = miniz_oxide::deflate::compress_to_vec_zlib(&fs::read(volume).unwrap(), 10);
        fs::write(self.file(), packed).unwrap();
    }

    /// Unpacks the image into a file next to the bench's own volume.
    fn unpack(&self, bench: &Bench) -> PathBuf {
        let volume = bench.volume().with_file_name("golden");
        if self.path == NEWEST.path && std::env::var_os("POLDER_WRITE_IMAGE").is_some() {
            self.write(bench, &volume);
            fs::remove_file(&volume).unwrap();
        }
        let packed = fs::read(self.file()).unwrap();
        assert!(packed.len() <= IMAGE_BYTES_MAX, "{} bytes are too many for the repository", packed.len());
        let bytes = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(&packed, VOLUME_BYTES).unwrap();
        fs::write(&volume, bytes).unwrap();
        volume
    }

    fn verify(&self) {
        let bench = bench_or_skip!();
        let volume = self.unpack(&bench);
        let named = volume.to_str().unwrap();
        let checkpoint = newest_checkpoint(&bench, named);
        assert_eq!(checkpoint["features"], self.features);
        let counts = self.features & zone::format::FEATURE_PREPAID != 0;
        assert_eq!(checkpoint["prepaid"].as_u64().unwrap() > 1, counts, "{checkpoint}");
        let journal = bench.succeed(&["dump", "--json", named, "journal"]);
        let has_patches = self.features & zone::format::FEATURE_PATCHES != 0;
        assert_eq!(journal.contains("\"patch\""), has_patches, "changes of attributes are in the log alone");
        let then = bench.volume().with_file_name("then");
        fs::create_dir(&then).unwrap();
        (self.fill)(&then);

        let info: serde_json::Value =
            serde_json::from_str(&bench.succeed(&["info", "--json", named])).unwrap();
        assert_eq!((&info["label"], &info["id"]), (&"golden".into(), &FS_ID.into()));
        assert_eq!(info["copies"][2]["state"], if self.has_end_copy { "whole" } else { "absent" });
        assert_eq!(info["format_version"], 1);
        assert!(bench.succeed(&["check", "--data", named]).ends_with(": clean\n"));
        let copy = bench.volume().with_file_name("copy");
        bench.succeed(&["cp", "-r", named, "/", copy.to_str().unwrap()]);
        let mut count = 0;
        compare(&then, &copy, false, &mut count);
        assert_eq!(count, self.files);

        bench.succeed(&["mount", named, bench.directory().to_str().unwrap()]);
        let mounted = crate::Mounted { bench: &bench };
        compare(&then, &mounted.root(), false, &mut count);
        fs::write(mounted.path("new"), "by this release").unwrap();
        fs::remove_file(mounted.path("large")).unwrap();
        mounted.umount();
        assert!(bench.succeed(&["check", "--data", named]).ends_with(": clean\n"));
        assert_eq!(bench.succeed(&["cat", named, "new"]), "by this release");
        let info: serde_json::Value =
            serde_json::from_str(&bench.succeed(&["info", "--json", named])).unwrap();
        assert_eq!(info["copies"][2]["state"], "whole", "the first writable mount has added it");
        assert_eq!(
            newest_checkpoint(&bench, named)["features"],
            self.features | zone::format::FEATURES_DEFAULT
        );
        assert_eq!(has_delta_pages(&bench, named), self.features & zone::format::FEATURE_DELTAS != 0);
    }
}

/// Whether a metadata zone contains a page of delta records.
fn has_delta_pages(bench: &Bench, volume: &str) -> bool {
    let zones: serde_json::Value =
        serde_json::from_str(&bench.succeed(&["zones", "--json", volume])).unwrap();
    let zones = zones.as_array().unwrap().iter().filter(|zone| zone["role"] == "metadata");
    let kinds = zones.map(|zone| bench.succeed(&["dump", volume, "zone", &zone["zone"].to_string()]));
    kinds.into_iter().any(|zone| zone.contains("delta records"))
}

fn newest_checkpoint(bench: &Bench, volume: &str) -> serde_json::Value {
    let journal: serde_json::Value =
        serde_json::from_str(&bench.succeed(&["dump", "--json", volume, "journal"])).unwrap();
    let mut batches = journal["batches"].as_array().unwrap().iter().rev();
    batches.find(|batch| batch["kind"] == "checkpoint").unwrap().clone()
}

#[test]
fn an_image_of_format_1_is_readable() {
    FIRST.verify();
}

#[test]
fn an_image_with_references_is_readable() {
    REFERENCES.verify();
}

#[test]
fn an_image_with_prepaid_nodes_is_readable() {
    PREPAID.verify();
}

#[test]
fn an_image_with_an_end_copy_is_readable() {
    END_COPY.verify();
}

#[test]
fn an_image_with_patches_is_readable() {
    PATCHES.verify();
}

#[test]
fn an_image_with_deltas_is_readable() {
    DELTAS.verify();
}

/// The daemon is killed right after its first write. The next release that opens the volume must see that the log contains
/// records that a release without the feature cannot read.
#[test]
fn a_feature_is_recorded_before_it_is_used() {
    let bench = bench_or_skip!();
    let volume = FIRST.unpack(&bench);
    let (named, directory) = (volume.to_str().unwrap(), bench.directory());
    bench.succeed(&["mount", named, directory.to_str().unwrap(), "-o", "commit=3600"]);
    let mounted = crate::Mounted { bench: &bench };
    let file = fs::File::create(mounted.path("kept")).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    file.sync_all().unwrap();
    mounted.daemon().kill();
    drop(mounted);
    let checkpoint = newest_checkpoint(&bench, named);
    assert_eq!(
        (&checkpoint["features"], &checkpoint["counters"][0]),
        (&zone::format::FEATURES_DEFAULT.into(), &0.into())
    );
    assert!(bench.succeed(&["dump", "--json", volume.to_str().unwrap(), "journal"]).contains("counter"));
}

/// Changes the copies of the file's header, and updates their checksums.
fn rewrite_header(volume: &Path, change: impl Fn(&mut [u8])) {
    const HEADER_BYTES: usize = 4096;
    let file = OpenOptions::new().read(true).write(true).open(volume).unwrap();
    let end_copy = (file.metadata().unwrap().len() / 65536 - 2) * 65536;
    for offset in [0, HEADER_BYTES as u64, end_copy] {
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
fn a_later_format_is_refused_with_the_name_of_its_release() {
    let bench = bench_or_skip!();
    let volume = NEWEST.unpack(&bench);
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
    assert!(bench.fail(1, &["mkfs", named]).contains("--force"), "an unreadable volume is not overwritten");

    // A feature that a writer must know, and one that no program must know.
    rewrite_header(&volume, |header| (header[12], header[32], header[40]) = (1, header[32] | 2, 1));
    assert!(bench.fail(1, &["mount", named, directory]).contains("open it for reading only"));
    bench.succeed(&["mount", "-o", "ro", named, directory]);
    let mounted = crate::Mounted { bench: &bench };
    assert_eq!(fs::read(mounted.path("deep/small")).unwrap(), b"in the record");
    mounted.umount();
    // A feature that every program must know.
    rewrite_header(&volume, |header| (header[48], header[84]) = (4, 0));
    let said = bench.fail(1, &["mount", "-o", "ro", named, directory]);
    assert!(said.contains("features 0x4: needs a later release of Polder;"), "{said}");
}
