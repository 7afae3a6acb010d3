use super::*;

fn ended(passed: bool, printed: &str) -> Ended {
    Ended { target: "nodes".to_owned(), line: Line::new("offer"), passed, printed: printed.to_owned() }
}

#[test]
fn inputs_are_counted_and_none_is_a_failure() {
    let printed =
        "Done 409197 runs in 46 second(s)\nstat::number_of_executed_units: 409197\nstat::peak_rss_mb: 31\n";
    assert_eq!(ended(true, printed).judge().unwrap(), 409_197);
    assert!(ended(true, "stat::number_of_executed_units: 0\n").judge().is_err());
    assert!(ended(true, "Done\n").judge().is_err());
}

#[test]
fn a_harmful_input_is_reported_with_the_command_that_repeats_it() {
    let printed = "INFO: Seed: 1\nthread '<unnamed>' panicked at crates/tree/src/page.rs:1:2:\n\
                ==7== ERROR: libFuzzer: deadly signal\n\
                artifact_prefix='a/'; Test unit written to target/fuzz/found-nodes-crash-12\n";
    let error = ended(false, printed).judge().expect_err("it failed").to_string();
    assert!(error.contains("page.rs:1:2") && !error.contains("INFO"), "{error}");
    assert!(error.ends_with("fuzz --target nodes --input target/fuzz/found-nodes-crash-12"), "{error}");
}

#[test]
fn memory_is_limited_and_the_corpus_is_only_read() {
    let folder = PathBuf::from("target/fuzz");
    let fuzzer = Fuzzer { program: "offer".into(), folder, seconds: 2, seed: 1 };
    let line = fuzzer.line("mount", Path::new("corpus")).to_string();
    assert!(line.contains(&format!("--data={}", MOUNT_MIB << 20)), "{line}");
    // libFuzzer writes into the first folder.
    let (new, kept) = (line.find(" corpus/mount").unwrap(), line.find("fuzz/corpus/mount").unwrap());
    assert!(new < kept, "{line}");
    let line = fuzzer.line("nodes", Path::new("corpus")).to_string();
    assert!(line.contains(&format!("--data={}", DECODER_MIB << 20)), "{line}");
}

#[test]
fn short_inputs_are_printed() {
    assert!(shown(&[0, 0xab]).ends_with("\n    00ab"));
    assert_eq!((shown(&[]), shown(&[0; SHOWN_MAX + 1])), (String::new(), String::new()));
}
