//! `polder top` without a terminal. The tests of the screen are beside it.

use std::fs;

use serde_json::Value;

use crate::bench_or_skip;

#[test]
fn top_without_a_terminal_names_the_alternatives() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    let said = bench.fail(2, &["top", mounted.root().to_str().unwrap()]);
    assert!(said.contains("terminal") && said.contains("--once") && said.contains("--json"), "{said}");
    mounted.umount();
}

#[test]
fn one_sample_is_printed_as_text_or_json() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    fs::write(mounted.path("file"), vec![1; 1 << 20]).unwrap();
    let directory = mounted.root();
    let directory = directory.to_str().unwrap();
    let text = bench.succeed(&["top", directory, "--once"]);
    for words in ["bench on ", "written ", "throttle ", "device health", "99.9 %"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let sample: Value = serde_json::from_str(&bench.succeed(&["top", directory, "--json"])).unwrap();
    assert!(sample["stats"]["written"]["user_bytes"].as_u64().unwrap() >= 1 << 20, "{sample}");
    let writes = sample["requests"].as_array().unwrap().iter().find(|of| of["kind"] == "write").unwrap();
    assert!(writes["count"].as_u64().unwrap() > 0, "{writes}");
    let zones = sample["zone_map"]["zones"].as_u64().unwrap();
    assert_eq!(sample["zone_map"]["cells"].as_str().unwrap().len() as u64, 2 * zones);
    mounted.umount();
    let said = bench.fail(1, &["top", bench.volume().to_str().unwrap(), "--once"]);
    assert!(said.contains("not mounted"), "{said}");
}

/// The map of a sample and that of `polder zones` are made in different ways.
#[test]
fn the_map_of_a_sample_agrees_with_the_map_of_zones() {
    let bench = bench_or_skip!();
    let mounted = bench.mount(&[]);
    fs::write(mounted.path("file"), vec![1; 20 << 20]).unwrap();
    bench.succeed(&["sync", mounted.root().to_str().unwrap()]);
    let directory = mounted.root();
    let letter = |zone: &Value| match zone["role"].as_str().unwrap() {
        "log" => 'L',
        "metadata" => 'M',
        "data" => 'D',
        "gc" => 'G',
        _ => '.',
    };
    let both = || {
        let sample = bench.succeed(&["top", directory.to_str().unwrap(), "--json"]);
        let sample: Value = serde_json::from_str(&sample).unwrap();
        let cells: Vec<char> = sample["zone_map"]["cells"].as_str().unwrap().chars().collect();
        let roles: String = cells.chunks(2).map(|cell| cell[0]).collect();
        let zones = mounted.report("zones");
        (roles, zones.as_array().unwrap().iter().map(letter).collect::<String>())
    };
    // A background task may change a zone between the two commands.
    let compared: Vec<(String, String)> = (0..5).map(|_| both()).collect();
    assert!(compared.iter().any(|(sample, zones)| sample == zones), "{compared:?}");
    mounted.umount();
}
