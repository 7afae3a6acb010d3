//! Each rule is shown a repository in which what it forbids is planted, and must see it.

use serde_json::json;

use super::rust::mask;
use super::*;

/// A repository of these files, with no packages.
fn repository(files: &[(&str, &str)]) -> Repository {
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    Repository { files, metadata: Value::Null }
}

/// What a rule says of a repository.
fn findings(rule: Rule, repository: &Repository) -> Vec<String> {
    let mut findings = Vec::new();
    rule(repository, &mut findings);
    findings.iter().map(Finding::to_string).collect()
}

/// The rule finds exactly one thing in these files, and its message has `expected` in it.
#[track_caller]
fn assert_finds(rule: Rule, files: &[(&str, &str)], expected: &str) {
    let found = findings(rule, &repository(files));
    assert!(found.len() == 1 && found[0].contains(expected), "expected `{expected}`, found {found:#?}");
}

#[track_caller]
fn assert_clean(rule: Rule, files: &[(&str, &str)]) {
    let found = findings(rule, &repository(files));
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_repository_is_tidy() {
    let repository = Repository::of_checkout().unwrap();
    let found: Vec<String> =
        RULES.iter().flat_map(|(_, rule)| apply(&repository, *rule).1).map(|f| f.to_string()).collect();
    assert!(found.is_empty(), "`cargo xtask tidy` finds:\n{}", found.join("\n"));
}

#[test]
fn a_rule_that_looked_at_nothing_fails() {
    let (said, findings) = apply(&repository(&[]), words::check);
    assert_eq!(said, "0 files");
    assert_eq!(findings.len(), 1);
}

mod lexer {
    use super::*;

    #[test]
    fn comments_and_literals_are_told_from_code() {
        let masked =
            mask("a(\"b // c\"); // d \"e\n/* f /* g */ h */ i('\"', '\\'', 'j'); k::<'l>(r#\"m\"n\"#)");
        let words = |text: &str| text.split(|c: char| !c.is_alphabetic()).collect::<String>();
        assert_eq!(words(&masked.code), "aiklr".replace('r', ""));
        assert_eq!(words(&masked.comments), "defgh");
    }

    #[test]
    fn every_byte_and_line_keeps_its_place() {
        let source = "let ä = \"ö\n\"; // ü\nlet x = b\"\\\"\"; x";
        let masked = mask(source);
        assert_eq!(masked.code.len(), source.len());
        assert_eq!(masked.comments.len(), source.len());
        assert_eq!(masked.code.lines().count(), 3);
        assert!(masked.code.contains("let ä") && masked.code.ends_with("; x"), "{}", masked.code);
        assert!(masked.comments.contains("// ü"));
    }

    #[test]
    fn what_is_left_open_ends_with_the_file() {
        for source in ["\"abc", "/* abc", "r##\"abc\"#", "'", "\"\\"] {
            assert_eq!(mask(source).code.len(), source.len(), "{source}");
        }
    }
}

mod words_rule {
    use super::*;

    const FILE: &str = "crates/fs/src/lib.rs";

    #[test]
    fn banned_calls_are_found_with_what_to_use() {
        assert_finds(words::check, &[(FILE, "fn f() {\n    todo!()\n}")], "lib.rs:2: `todo!`");
        assert_finds(words::check, &[(FILE, "fn f() { unimplemented!(\"x\") }")], "typed error");
        assert_finds(words::check, &[(FILE, "fn f() { dbg!(1); }")], "use tracing");
        assert_finds(words::check, &[(FILE, "fn f() { std::thread::sleep(d); }")], "rt::sync::Condvar");
        assert_finds(words::check, &[(FILE, "#[test]\n#[ignore = \"slow\"]\nfn f() {}")], "acceptance point");
    }

    #[test]
    fn words_in_comments_and_literals_are_no_calls() {
        assert_clean(words::check, &[(FILE, "// no todo!() here\nfn f() { g(\"thread::sleep\"); }")]);
        assert_clean(words::check, &[(FILE, "fn f() { not_todo!(); }")]);
    }

    #[test]
    fn work_left_over_names_its_issue() {
        assert_finds(words::check, &[(FILE, "fn f() {}\n// TODO: later")], "lib.rs:2: TODO without");
        assert_finds(words::check, &[("run.sh", "# TODO(#)")], "TODO without");
        assert_finds(words::check, &[(FILE, "// FIXME: broken")], "repair it");
        assert_finds(words::check, &[(FILE, "// HACK around it")], "say why");
        assert_clean(words::check, &[(FILE, "// TODO(#12): later")]);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for path in ["/home/someone/x", "/root/x", "/work/x"] {
            assert_finds(words::check, &[("docs/a.md", path)], "make it relative");
        }
        assert_finds(words::check, &[(FILE, "fn f() { open(\"/tmp/x\"); }")], "use tempfile");
        assert_clean(words::check, &[("docs/a.md", "network/x, lib/roots/x")]);
    }

    #[test]
    fn hosts_of_registries_are_found() {
        assert_finds(words::check, &[("deny.toml", "allow = [\"https://index.crates.io\"]")], "no registry");
        assert_finds(words::check, &[("README.md", "see docs.rs for more")], "no registry");
    }

    #[test]
    fn silenced_lints_have_reasons() {
        assert_finds(
            words::check,
            &[(FILE, "\n#[allow(dead_code)]\nfn f() {}")],
            "lib.rs:2: a silenced lint",
        );
        assert_finds(words::check, &[(FILE, "#![expect(unused)]")], "a silenced lint");
        assert_clean(words::check, &[(FILE, "#[allow(dead_code, reason = \"this is why\")]\nfn f() {}")]);
    }
}

mod unsafe_rule {
    use super::*;

    const FORBIDDEN: &str = "#![forbid(unsafe_code)]";

    #[test]
    fn unsafe_outside_the_fence_is_found() {
        let files = [("crates/fs/src/lib.rs", FORBIDDEN), ("crates/fs/src/a.rs", "unsafe { f() }")];
        assert_finds(unsafety::check, &files, "crates/fs/src/a.rs:1: `unsafe` belongs into");
        assert_clean(unsafety::check, &[("crates/fs/src/a.rs", "// unsafe\nfn f() { g(\"unsafe\") }")]);
        assert_clean(unsafety::check, &[("crates/zone/src/a.rs", "unsafe { f() }")]);
    }

    #[test]
    fn a_root_that_does_not_forbid_it_is_found() {
        for root in ["crates/fs/src/lib.rs", "crates/cli/src/main.rs", "crates/sim/src/bin/sim.rs"] {
            assert_finds(
                unsafety::check,
                &[(root, "// #![forbid(unsafe_code)]")],
                "no `#![forbid(unsafe_code)]`",
            );
            assert_clean(unsafety::check, &[(root, FORBIDDEN)]);
        }
        assert_clean(unsafety::check, &[("crates/zone/src/lib.rs", "")]);
    }

    #[test]
    fn a_crate_with_a_fenced_part_denies_the_rest() {
        let part = ("crates/fuse/src/kernel/channel.rs", "unsafe { f() }");
        assert_finds(
            unsafety::check,
            &[part, ("crates/fuse/src/lib.rs", FORBIDDEN)],
            "no `#![deny(unsafe_code)]`",
        );
        assert_clean(unsafety::check, &[part, ("crates/fuse/src/lib.rs", "#![deny(unsafe_code)]")]);
    }
}

mod modules_rule {
    use super::*;

    /// A repository whose only target is `crates/fs/src/lib.rs`.
    fn of(files: &[(&str, &str)]) -> Vec<String> {
        let mut repository = repository(files);
        let targets = json!([{ "src_path": "/somewhere/crates/fs/src/lib.rs" }]);
        let packages = json!([{ "name": "polder-fs", "targets": targets }]);
        repository.metadata = json!({ "workspace_root": "/somewhere", "packages": packages });
        findings(modules::check, &repository)
    }

    #[test]
    fn a_file_that_nobody_imports_is_found() {
        let found = of(&[
            ("crates/fs/src/lib.rs", "pub mod used;\n// mod orphan;\n"),
            ("crates/fs/src/used.rs", ""),
            ("crates/fs/src/orphan.rs", "mod below;"),
            ("crates/fs/src/orphan/below.rs", ""),
        ]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/fs/src/orphan.rs: no module imports"), "{found:?}");
    }

    #[test]
    fn nested_moved_and_included_files_are_reached() {
        let found = of(&[
            ("crates/fs/src/lib.rs", "pub(crate) mod a;\n#[path = \"../moved.rs\"]\nmod b;"),
            ("crates/fs/moved.rs", ""),
            ("crates/fs/src/a.rs", "#[cfg(test)] mod tests;\nfn f() { include!(\"a/list.rs\") }"),
            ("crates/fs/src/a/tests.rs", "mod deep;"),
            ("crates/fs/src/a/tests/deep/mod.rs", ""),
            ("crates/fs/src/a/list.rs", ""),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}

#[test]
fn files_that_are_too_long_are_found() {
    let long = "\n".repeat(901);
    assert_finds(size::check, &[("crates/fs/src/a.rs", &long)], "901 lines, more than 900");
    assert_clean(size::check, &[("crates/fs/src/a.rs", &long[1..]), ("Cargo.lock", &long)]);
}

#[test]
fn decision_records_that_are_too_long_are_found() {
    let long = "word ".repeat(401);
    assert_finds(size::check, &[("docs/decisions/0002-a.md", &long)], "401 words, more than 400");
    let others = [("docs/decisions/0002-a.md", &long[5..]), ("docs/decisions/README.md", long.as_str())];
    assert_clean(size::check, &others);
}

mod graph_rule {
    use super::*;

    fn of(name: &str, dependency: &str) -> Vec<String> {
        of_kind(name, dependency, json!("dev"))
    }

    fn of_kind(name: &str, dependency: &str, kind: Value) -> Vec<String> {
        let dependencies = json!([{ "name": dependency, "kind": kind }]);
        let mut repository = repository(&[]);
        repository.metadata = json!({ "packages": [{ "name": name, "dependencies": dependencies }] });
        findings(graph::check, &repository)
    }

    #[test]
    fn dependencies_to_the_right_are_found() {
        for (name, dependency) in [
            ("polder-rt", "polder-zone"),
            ("polder-zone", "polder-tree"),
            ("polder-tree", "polder-extent"),
            ("polder-extent", "polder-fs"),
            ("polder-fs", "polder-fuse"),
            ("polder-fuse", "polder"),
            ("polder-sim", "polder"),
            ("polder-sim", "polder-fuse"),
            ("xtask", "polder-fs"),
            ("polder-system-tests", "polder-zone"),
            ("polder-support", "polder-rt"),
        ] {
            let found = of(name, dependency);
            assert!(found.len() == 1 && found[0].contains("to its right"), "{name}: {found:?}");
        }
    }

    #[test]
    fn dependencies_to_the_left_are_fine() {
        for (name, dependency) in [
            ("polder-zone", "polder-rt"),
            ("polder-fuse", "polder-fs"),
            ("polder", "polder-fuse"),
            ("polder-cli", "polder"),
            ("polder-cli", "polder-fuse"),
            ("polder-capi", "polder"),
            ("polder-sim", "polder-zone"),
            ("xtask", "polder-support"),
            ("polder-system-tests", "polder-rt"),
            ("polder-system-tests", "polder-support"),
        ] {
            assert!(of(name, dependency).is_empty(), "{name} -> {dependency}");
        }
    }

    #[test]
    fn devices_for_tests_are_for_tests_and_for_crates_that_do_not_ship() {
        let uses = |name| of_kind(name, "polder-emulated", Value::Null);
        assert!(uses("polder-sim").is_empty() && uses("polder-space").is_empty());
        for name in ["polder-zone", "polder-fs", "polder-cli"] {
            assert!(uses(name)[0].contains("is in no release"), "{name}");
            assert!(of(name, "polder-emulated").is_empty(), "the tests of {name}");
        }
        assert!(of("polder-rt", "polder-emulated")[0].contains("is in no release"));
        assert!(of("xtask", "polder-emulated")[0].contains("is in no release"));
        assert!(of("polder-emulated", "polder-zone").is_empty());
        assert!(of("polder-emulated", "polder-tree")[0].contains("to its right"));
    }

    #[test]
    fn the_view_is_for_the_command_alone() {
        assert!(of_kind("polder-cli", "polder-po2", Value::Null).is_empty());
        assert!(of_kind("polder-fs", "polder-po2", Value::Null)[0].contains("a volume does not need it"));
        assert!(of("polder-sim", "polder-po2")[0].contains("is for polder-cli: "), "a test is no exception");
        assert!(of("polder-po2", "polder-zone").is_empty());
        assert!(of("polder-po2", "polder-emulated").is_empty(), "its tests may use it");
    }

    #[test]
    fn salvage_is_for_the_command_and_for_tests_above_it() {
        assert!(of_kind("polder-cli", "polder-salvage", Value::Null).is_empty());
        for name in ["polder-fs", "polder-fuse", "polder-sim"] {
            let uses = of_kind(name, "polder-salvage", Value::Null);
            assert!(uses[0].contains("a mount does not need it"), "{name}");
            assert!(of(name, "polder-salvage").is_empty(), "the tests of {name}");
        }
        assert!(of("polder-extent", "polder-salvage")[0].contains("a mount does not need it"));
        assert!(of("polder-salvage", "polder-fs").is_empty());
        assert!(of("polder-salvage", "polder-fuse")[0].contains("to its right"));
    }

    #[test]
    fn crates_without_a_place_and_users_of_consumers_are_found() {
        assert!(of("polder-new", "thiserror")[0].contains("no place in the graph"));
        assert!(of("polder-fs", "polder-sim")[0].contains("used by nobody"));
        assert!(of("xtask", "polder-system-tests")[0].contains("used by nobody"));
        assert!(of("polder-fs", "polder-support")[0].contains("the project's own commands"));
    }

    #[test]
    fn outside_dependencies_stay_behind_their_fences() {
        assert!(of("polder-fs", "anyhow")[0].contains("errors are typed"));
        assert!(of("polder-extent", "io-uring")[0].contains("I-ZONE-1"));
        assert!(of("polder-zone", "io-uring").is_empty());
        assert!(of("polder-po2", "io-uring").is_empty());
    }
}

mod decoders_rule {
    use super::*;

    const TARGETS: (&str, &str) = (
        "crates/tree/src/hostile.rs",
        "fn a(b: &[u8]) { decode_one(b); Two::decode(b); } // decode_three(b)",
    );

    #[test]
    fn a_decoder_that_nobody_offers_bytes_to_is_found() {
        let with = |text| [TARGETS, ("crates/tree/src/format.rs", text)];
        assert_finds(
            decoders::check,
            &with("\npub(crate) fn decode_three(b: &[u8]) {}"),
            "format.rs:2: `decode_three(",
        );
        assert_finds(decoders::check, &with("pub fn decode(b: &[u8]) {}"), "`decode(");
        assert_finds(decoders::check, &with("pub fn decode_on(b: &[u8]) {}"), "`decode_on(");
        assert_finds(
            decoders::check,
            &with("impl<'a> Of<'a> {\n    pub fn decode(b: &[u8]) {}\n}"),
            "`Of::decode(",
        );
        assert_finds(
            decoders::check,
            &[TARGETS, ("crates/fs/src/a.rs", "pub fn decode_one(b: &[u8]) {}")],
            "crates/fs",
        );
    }

    #[test]
    fn decoders_that_have_targets_or_are_private_are_clean() {
        let text =
            "pub fn decode_one(b: &[u8]) {}\nfn decode_four() {}\nimpl Two {\n    pub fn decode() {}\n}";
        assert_clean(decoders::check, &[TARGETS, ("crates/tree/src/format.rs", text)]);
    }
}

mod features_rule {
    use super::*;

    fn of(features: Value, dependencies: Value) -> Vec<String> {
        let package = json!({ "name": "polder-fs", "features": features, "dependencies": dependencies });
        let mut repository = repository(&[]);
        repository.metadata = json!({ "packages": [package] });
        findings(features::check, &repository)
    }

    #[test]
    fn bugs_that_are_on_by_default_are_found() {
        let planted = json!({ "default": ["extras"], "extras": ["default", "polder-tree/planted"] });
        let found = of(planted, json!([]));
        assert!(found.len() == 1 && found[0].contains("`polder-tree/planted`"), "{found:?}");
    }

    #[test]
    fn bugs_that_a_dependency_switches_on_are_found() {
        let found = of(json!({}), json!([{ "name": "polder-zone", "features": ["planted"] }]));
        assert!(found.len() == 1 && found[0].contains("a dependency's features"), "{found:?}");
    }

    #[test]
    fn locks_for_tests_that_are_on_by_default_are_found() {
        for feature in ["polder-rt/shuttle", "polder-rt?/shuttle", "dep:shuttle"] {
            let found = of(json!({ "default": [feature] }), json!([]));
            assert!(found.len() == 1 && found[0].contains(feature), "{found:?}");
        }
    }

    #[test]
    fn a_power_that_can_be_cut_by_default_is_found() {
        let found = of(json!({ "default": ["knife"] }), json!([]));
        assert!(found.len() == 1 && found[0].contains("`knife`"), "{found:?}");
    }

    #[test]
    fn what_waits_for_its_name_is_fine() {
        assert!(of(json!({ "default": [], "planted": ["polder-tree/planted"] }), json!([])).is_empty());
        assert!(of(json!({ "shuttle": ["dep:shuttle", "polder-rt/planted"] }), json!([])).is_empty());
    }
}

mod invariants_rule {
    use super::*;

    const DESIGN: (&str, &str) = ("docs/design.md", "- I-ZONE-1 Nothing above.\n- I-TREE-2 Any bytes.");

    #[test]
    fn an_invariant_that_no_source_cites_is_found() {
        let source = ("crates/zone/src/lib.rs", "assert!(ok, \"I-ZONE-1\");");
        assert_finds(invariants::check, &[DESIGN, source], "docs/design.md:2: no source cites I-TREE-2");
    }

    #[test]
    fn an_invariant_that_no_document_states_is_found() {
        let source = ("crates/zone/src/lib.rs", "// I-ZONE-1, I-TREE-2\n\n// (I-ZONE-11)");
        assert_finds(invariants::check, &[DESIGN, source], "lib.rs:3: no document states I-ZONE-11");
    }

    #[test]
    fn this_command_cites_nothing() {
        let elsewhere = ("crates/zone/src/lib.rs", "// I-ZONE-1");
        assert_finds(invariants::check, &[DESIGN, elsewhere, ("xtask/src/a.rs", "// I-TREE-2")], "I-TREE-2");
    }

    #[test]
    fn words_that_look_alike_are_no_names() {
        let files = [DESIGN, ("crates/a/src/lib.rs", "// I-ZONE-1 I-TREE-2 API-X-1 I-x-1 I-ABC I-ABC- I-")];
        assert_clean(invariants::check, &files);
    }
}

mod commands_rule {
    use super::*;

    #[test]
    fn a_command_that_does_not_exist_is_found() {
        let text =
            "`cargo xtask nothing` in prose\n```sh\n$ cargo xtask frobnicate\n```\ncargo xtask nothing\n";
        assert_finds(commands::check, &[("README.md", text)], "README.md:3: `cargo xtask frobnicate`");
        assert_finds(commands::check, &[("README.md", "```\ncargo xtask ci --fast\n```")], "'--fast'");
        assert_finds(
            commands::check,
            &[("README.md", "```\ncargo xtask soak\n```")],
            "write `cargo system …`",
        );
    }

    #[test]
    fn commands_that_exist_are_fine() {
        let text =
            "```sh\ncargo xtask ci   # all of it\ncargo xtask setup --packages x\ncargo system vm\n```";
        assert_clean(commands::check, &[("README.md", text)]);
    }
}

mod links_rule {
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let files = [("docs/a.md", "[b](b.md) and\n[gone](../gone.md#part), [b](b.md)"), ("docs/b.md", "")];
        assert_finds(links::check, &files, "docs/a.md:2: the link to `../gone.md` leads nowhere");
    }

    #[test]
    fn a_citation_of_a_function_that_is_not_there_is_found() {
        let source = ("crates/a/src/tests.rs", "fn it_holds_twice() {}\n#[test]\nfn it_is_kept() {}\n");
        let with = |text| [("docs/a.md", text), source];
        let fine = "| bug | `it_is_kept` (crates/a/src/tests.rs); see `a` (and b), `it_is_kept` (tests.rs) |";
        assert_clean(links::check, &with(fine));
        let renamed = "\n`it_is_kept` (crates/a/src/tests.rs), `it_holds` (crates/a/src/tests.rs)";
        assert_finds(
            links::check,
            &with(renamed),
            "docs/a.md:2: `it_holds` is no function of crates/a/src/tests.rs",
        );
        let moved = "`it_is_kept` (crates/b/src/tests.rs)";
        assert_finds(links::check, &with(moved), "is no function of crates/b/src/tests.rs");
    }

    #[test]
    fn files_folders_parts_and_other_sites_are_fine() {
        let text = "[a](docs/b.md#part) [b](docs) [c](#part) [d](https://example.invalid/x)";
        let files = [("README.md", text), ("docs/b.md", "## Part\n[up](../README.md)")];
        assert_finds(links::check, &files, "README.md has no heading with the anchor `part`");
        let text = format!("{text}\n# Part");
        assert_clean(links::check, &[("README.md", &text), ("docs/b.md", "## Part\n[up](../README.md)")]);
    }

    #[test]
    fn a_heading_that_is_not_there_is_found() {
        let headings = "# It's `polder mkfs PATH`: a\u{2026} [link](x.rs)\n```sh\n# no heading\n```\n";
        let with = |anchor: &str| format!("[a](b.md#{anchor})");
        let found = |anchor: &str| {
            let mut findings = Vec::new();
            let text = with(anchor);
            links::check(&repository(&[("docs/a.md", &text), ("docs/b.md", headings)]), &mut findings);
            findings.iter().filter(|finding| finding.path == "docs/a.md").count()
        };
        assert_eq!(found("its-polder-mkfs-path-a-link"), 0);
        assert_eq!(found("no-heading"), 1);
        assert_eq!(found("polder-mkfs"), 1);
    }
}

mod book_rule {
    use super::*;

    const SUMMARY: (&str, &str) = (
        "docs/SUMMARY.md",
        "# Summary\n- [One](one.md)\n  - [Two](more/two.md)\n<!-- [Three](three.md) -->\n",
    );
    const ONE: (&str, &str) = ("docs/one.md", "[two](more/two.md), [here](#x), [a picture](a.svg)");
    const TWO: (&str, &str) = ("docs/more/two.md", "[one](../one.md)");

    #[test]
    fn a_document_that_the_book_lacks_is_found() {
        assert_clean(book::check, &[SUMMARY, ONE, TWO, ("README.md", "")]);
        let three = ("docs/three.md", "");
        assert_finds(
            book::check,
            &[SUMMARY, ONE, TWO, three],
            "docs/three.md: is in no line of docs/SUMMARY.md",
        );
        let twice = ("docs/SUMMARY.md", "[One](one.md)\n[Two](more/two.md)\n[One](one.md)\n");
        assert_finds(
            book::check,
            &[twice, ONE, TWO],
            "docs/SUMMARY.md:3: docs/one.md is in the book already",
        );
    }

    #[test]
    fn a_chapter_from_elsewhere_has_no_links() {
        let two = ("docs/more/two.md", "{{#include ../../CHANGES.md}}");
        assert_clean(book::check, &[SUMMARY, ONE, two, ("CHANGES.md", "[here](#x) and [there](https://x)")]);
        assert_finds(
            book::check,
            &[SUMMARY, ONE, two],
            "docs/more/two.md:1: includes CHANGES.md, which is not there",
        );
        let changes = ("CHANGES.md", "\n[one](docs/one.md)");
        assert_finds(
            book::check,
            &[SUMMARY, ONE, two, changes],
            "CHANGES.md:2: `docs/one.md`: docs/more/two.md",
        );
    }

    #[test]
    fn a_link_out_of_the_book_is_found() {
        let two = ("docs/more/two.md", "[one](../one.md)\n[out](../../README.md)");
        assert_finds(
            book::check,
            &[SUMMARY, ONE, two],
            "docs/more/two.md:2: `../../README.md` is not in the book",
        );
    }
}

mod manual_rule {
    use super::*;

    const CLI: (&str, &str) = (
        "crates/cli/src/main.rs",
        "#[derive(Debug, Subcommand)]\nenum Task {\n    /// Makes, and more.\n    #[command(alias = \"make\")]\n    \
         Mkfs(mkfs::Args),\n    DumpZone { zone: [u8; 4], to: String },\n    Info,\n}\n",
    );

    #[test]
    fn a_subcommand_without_a_section_is_found() {
        let manual =
            ("docs/manual.md", "# Polder\n## `polder mkfs`\n## `polder info FILE`\npolder dump-zone\n");
        assert_finds(manual::check, &[CLI, manual], "no section on `polder dump-zone`");
    }

    #[test]
    fn a_whole_manual_is_fine() {
        let text = "## polder mkfs\n## polder dump-zone\n## polder info\n";
        assert_clean(manual::check, &[CLI, ("docs/manual.md", text)]);
        let looked = manual::check(&repository(&[CLI, ("docs/manual.md", text)]), &mut Vec::new());
        assert_eq!(looked, Looked::At(3, "subcommands"));
    }

    #[test]
    fn what_is_not_there_yet_is_said() {
        assert!(matches!(manual::check(&repository(&[CLI]), &mut Vec::new()), Looked::Skipped(_)));
        assert!(matches!(manual::check(&repository(&[]), &mut Vec::new()), Looked::Skipped(_)));
    }
}

mod walls {
    use super::*;

    /// A file with methods of `Store`.
    const METHODS: &str = "impl Store {\n    fn f(&self) {}\n}\n";

    /// The findings of the rule about `crates/rt`. The repository has no other crate, so all exceptions seem to be unneeded.
    fn findings_of_rt(files: &[(&str, &str)]) -> Vec<String> {
        let found = findings(super::super::walls::check, &repository(files));
        found.into_iter().filter(|finding| finding.starts_with("crates/rt/")).collect()
    }

    #[test]
    fn methods_of_a_type_are_in_three_files() {
        let of = |paths: &[&'static str]| {
            let mut files = vec![("crates/rt/src/store.rs", "pub struct Store;\nimpl Store {\n}\n")];
            files.extend(paths.iter().map(|path| (*path, METHODS)));
            findings_of_rt(&files)
        };
        let (a, b, c) = ("crates/rt/src/store/a.rs", "crates/rt/src/b.rs", "crates/rt/src/c.rs");
        assert_eq!(of(&[a, b]), [""; 0]);
        assert_eq!(of(&[a, b, "crates/rt/src/store/tests.rs"]), [""; 0], "tests do not count");
        let found = of(&[a, b, c]);
        assert!(
            found.len() == 1 && found[0].contains("methods of `store::Store` are in 4 files and not 3"),
            "{found:?}"
        );
    }

    /// Every crate has walls, so a new one needs no entry in a list.
    #[test]
    fn the_rule_is_for_every_crate() {
        let names = ["", "/a", "/b", "/c"].map(|name| format!("crates/new/src/store{name}.rs"));
        let mut files: Vec<_> = names.iter().map(|path| (path.as_str(), METHODS)).collect();
        files.push(("crates/new/src/lib.rs", "pub struct Store;\n"));
        let found = findings(super::super::walls::check, &repository(&files));
        let found: Vec<_> = found.iter().filter(|finding| finding.starts_with("crates/new/")).collect();
        assert!(found.len() == 1 && found[0].contains("`Store` are in 4 files"), "{found:?}");
    }

    #[test]
    fn implementations_of_traits_do_not_count() {
        let of_trait = "impl Clone for Store {\n}\nimpl<T> From<T> for Store {\n}\n";
        let names = ["a", "b", "c", "d"].map(|name| format!("crates/rt/src/{name}.rs"));
        let mut files: Vec<_> = names.iter().map(|path| (path.as_str(), of_trait)).collect();
        files.push(("crates/rt/src/store.rs", "pub struct Store;\nimpl Store {\n}\n"));
        assert_eq!(findings_of_rt(&files), [""; 0]);
    }

    /// In every command of `polder` a type is called `Arguments`.
    #[test]
    fn types_of_one_name_are_told_apart_by_their_modules() {
        const DEFINED: &str = "struct Store;\nimpl Store {\n}\n";
        let each = ["a", "b", "c", "d", "a/deep"].map(|name| format!("crates/rt/src/{name}.rs"));
        let each: Vec<_> = each.iter().map(|path| (path.as_str(), DEFINED)).collect();
        assert_eq!(findings_of_rt(&each), [""; 0]);
        let parts = ["/e", "/f", "/g/h"].map(|name| format!("crates/rt/src/a{name}.rs"));
        let parts = parts.iter().map(|path| (path.as_str(), "impl super::Store {\n}\n"));
        let files: Vec<_> = each.into_iter().chain(parts).collect();
        let found = findings_of_rt(&files);
        assert!(found.len() == 1 && found[0].contains("`a::Store` are in 4 files and not 3"), "{found:?}");
    }

    #[test]
    fn methods_count_for_each_type_that_is_equally_near() {
        let files = ["a", "b", "c", "d"].map(|name| format!("crates/rt/src/other/{name}.rs"));
        let mut files: Vec<_> = files.iter().map(|path| (path.as_str(), METHODS)).collect();
        files.extend([
            ("crates/rt/src/one.rs", "enum Store {}\n"),
            ("crates/rt/src/two.rs", "enum Store {}\n"),
        ]);
        let found = findings_of_rt(&files);
        assert!(found.len() == 2 && found.iter().all(|finding| finding.contains("in 4 files")), "{found:?}");
    }

    #[test]
    fn modules_do_not_import_each_other_in_cycles() {
        let files = |c: &'static str| {
            [
                ("crates/rt/src/a.rs", "use crate::{\n    b::{self, c},\n    d,\n};\n"),
                ("crates/rt/src/b/e.rs", "fn f() { crate::c::g() }\n"),
                ("crates/rt/src/c.rs", c),
                ("crates/rt/src/d.rs", "// crate::a\n"),
            ]
        };
        assert_eq!(findings_of_rt(&files("use crate::d;\n")), [""; 0]);
        let found = findings_of_rt(&files("use crate::a;\n"));
        assert!(
            found.len() == 1 && found[0].contains("3 modules") && found[0].contains("(a, b, c)"),
            "{found:?}"
        );
    }

    #[test]
    fn an_exception_that_is_not_needed_is_removed() {
        let found = findings(super::super::walls::check, &repository(&[]));
        assert!(found.iter().any(|finding| finding.contains("`volume::Fs` needs no exception")), "{found:?}");
        assert!(
            found.iter().any(|finding| finding.contains("0 modules") && finding.contains("lower")),
            "{found:?}"
        );
    }
}
