//! Hints about the lifetime of data, set by the command and by an extended attribute.

use std::fs;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use rustix::io::Errno;

use crate::bench_or_skip;

const ATTRIBUTE: &str = "user.polder.lifetime";

fn value(path: &Path) -> Result<String, Errno> {
    let mut value = [0; 32];
    let length = rustix::fs::getxattr(path, ATTRIBUTE, &mut value)?;
    Ok(String::from_utf8(value[..length].to_vec()).unwrap())
}

#[test]
fn hints_are_attributes_that_new_files_inherit_from_directories() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let logs = mounted.path("logs");
    fs::create_dir(&logs).unwrap();
    let shown = |path: &Path| bench.succeed(&["hint", path.to_str().unwrap()]);
    assert_eq!(shown(&logs), "none\n");
    assert_eq!(value(&logs), Err(Errno::NODATA));
    assert_eq!(bench.succeed(&["hint", logs.to_str().unwrap(), "short"]), "");
    fs::write(logs.join("file"), "made later").unwrap();
    assert_eq!(value(&logs.join("file")).as_deref(), Ok("short"));

    let set = |value: &[u8]| rustix::fs::setxattr(&logs, ATTRIBUTE, value, XattrFlags::empty());
    assert_eq!(set(b"extreme"), Ok(()));
    assert_eq!(set(b"eternal"), Err(Errno::INVAL));
    mounted.umount();
    let mounted = bench.mount(&[]);
    assert_eq!(shown(&logs), "extreme\n");
    assert_eq!(shown(&logs.join("file")), "short\n");
    bench.succeed(&["hint", logs.to_str().unwrap(), "none"]);
    assert_eq!(value(&logs), Err(Errno::NODATA));
    mounted.umount();
    bench.check();
}

#[test]
fn impossible_hints_are_refused() {
    let bench = bench_or_skip!();
    let outside = bench.volume();
    let said = bench.fail(1, &["hint", outside.to_str().unwrap(), "long"]);
    assert!(said.contains("is a volume; mount it, and name a file or directory"), "{said}");
    let said = bench.fail(1, &["hint", "/proc/self/status"]);
    assert!(said.contains("is not in a mounted Polder volume; name a file or directory"), "{said}");
    let said = bench.fail(2, &["hint", outside.to_str().unwrap(), "eternal"]);
    assert!(said.contains("'eternal'") && said.lines().count() == 1, "{said}");
    let mounted = bench.mount(&["-o", "ro"]);
    let said = bench.fail(1, &["hint", mounted.root().to_str().unwrap(), "long"]);
    assert!(said.contains("read-only: mount it with rw"), "{said}");
    let said = bench.fail(1, &["hint", mounted.path("nothing").to_str().unwrap()]);
    assert!(said.contains("no such file or directory; name one in a mounted Polder volume"), "{said}");
    mounted.umount();
    let mounted = bench.mount(&[]);
    let pipe = mounted.path("pipe");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
    for command in ["hint", "fragments", "defrag"] {
        let said = bench.fail(1, &[command, pipe.to_str().unwrap()]);
        assert!(said.contains("is a pipe, which has no"), "{said}");
    }
    mounted.umount();
}
