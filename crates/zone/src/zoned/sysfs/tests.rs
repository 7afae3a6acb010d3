use super::*;

/// A device's directory with these files in its queue.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("queue")).unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join("queue").join(name), format!("{text}\n")).unwrap();
    }
    folder
}

const NVME: [(&str, &str); 6] = [
    ("logical_block_size", "512"),
    ("physical_block_size", "4096"),
    ("zone_write_granularity", "512"),
    ("max_sectors_kb", "127"),
    ("max_open_zones", "14"),
    ("max_active_zones", "0"),
];

#[test]
fn limits_are_read_from_sysfs() {
    let limits = limits(folder(&NVME).path()).unwrap();
    let expected = Limits {
        block_size: 4096,
        max_open: Some(14),
        max_active: None,
        transfer_bytes: 124 << 10,
        append_bytes: None,
        seeks: false,
    };
    assert_eq!(limits, expected);
}

#[test]
fn physical_blocks_determine_the_block_size() {
    let mut smr = NVME;
    smr[1].1 = "512";
    smr[2].1 = "4096";
    smr[3].1 = "2147483647";
    let smr = [&smr[..], &[("rotational", "1")]].concat();
    let limits = limits(folder(&smr).path()).unwrap();
    assert_eq!((limits.block_size, limits.transfer_bytes, limits.seeks), (4096, 1 << 20, true));
}

#[test]
fn missing_files_of_old_kernels_are_accepted() {
    let found = limits(folder(&[NVME[0], NVME[3]]).path()).unwrap();
    assert_eq!((found.block_size, found.max_open, found.max_active), (512, None, None));
}

#[test]
fn errors_name_the_missing_or_invalid_file() {
    let error = limits(folder(&NVME[1..]).path()).unwrap_err().to_string();
    assert!(error.contains("logical_block_size"), "{error}");
    let mut odd = NVME;
    odd[4].1 = "many";
    let error = limits(folder(&odd).path()).unwrap_err().to_string();
    assert!(error.contains("max_open_zones") && error.contains("\"many\" is no number"), "{error}");
}
