//! What is said of the lifetime of data, by the command and by an attribute.

use std::fs;
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::bench_or_skip;

const ATTRIBUTE: &str = "user.polder.lifetime";

fn value(path: &Path) -> Result<String, Errno> {
    let mut value = [0; 32];
    let length = rustix::fs::getxattr(path, ATTRIBUTE, &mut value)?;
    Ok(String::from_utf8(value[..length].to_vec()).unwrap())
}

#[test]
fn hints_are_attributes_that_directories_hand_down() {
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
fn hints_that_cannot_be_given_are_refused() {
    let bench = bench_or_skip!();
    let outside = bench.volume();
    let said = bench.fail(1, &["hint", outside.to_str().unwrap(), "long"]);
    assert!(said.contains("is not in a mounted volume of Polder"), "{said}");
    let said = bench.fail(2, &["hint", outside.to_str().unwrap(), "eternal"]);
    assert!(said.contains("'eternal'") && said.lines().count() == 1, "{said}");
    let mounted = bench.mount(&["-o", "ro"]);
    let said = bench.fail(1, &["hint", mounted.root().to_str().unwrap(), "long"]);
    assert!(said.contains("Read-only"), "{said}");
    let said = bench.fail(1, &["hint", mounted.path("nothing").to_str().unwrap()]);
    assert!(said.contains("No such file"), "{said}");
    mounted.umount();
}
