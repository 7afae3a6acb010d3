use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::machine::is_static;

/// A machine that has no programs but these shell scripts.
struct Fake {
    folder: tempfile::TempDir,
}

impl Fake {
    fn of(programs: &[(&str, &str)]) -> Fake {
        let fake = Fake { folder: tempfile::tempdir().unwrap() };
        programs.iter().for_each(|(name, script)| fake.put(name, script));
        fake
    }

    /// Another process writes it: a program that this one has open for writing, or a child of another test, cannot be
    /// started.
    fn put(&self, name: &str, script: &str) {
        let text = self.folder.path().join(format!("{name}.text"));
        std::fs::write(&text, format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")).unwrap();
        Line::new("install --mode 755").arg(text).arg(self.folder.path().join(name)).run().unwrap();
    }

    fn machine(&self) -> Machine {
        Machine::of(self.folder.path())
    }

    /// Why a check fails; the reason names the program unless there is none.
    #[track_caller]
    fn refuses(&self, check: impl Fn(&Machine) -> Shown, expected: &str) {
        let reason = check(&self.machine()).expect_err("the program does not do");
        assert!(reason.contains(expected), "expected `{expected}`, found `{reason}`");
    }
}

#[test]
fn a_program_that_is_not_there_or_cannot_be_run_is_missing() {
    let fake = Fake::of(&[]);
    std::fs::write(fake.folder.path().join("git"), "no program").unwrap();
    fake.refuses(|machine| machine.runs("git --version"), "there is no program `git`");
    fake.put("git", "exit 0");
    fake.machine().runs("git --version").unwrap();
}

/// `rustup` has a program for each component, which fails where the component is not installed.
#[test]
fn a_program_that_fails_is_missing() {
    let fake = Fake::of(&[("cargo-fmt", "echo 'the component is not installed' >&2; exit 1")]);
    fake.refuses(GATE[0].check, "fails with");
    fake.refuses(GATE[0].check, "the component is not installed");
}

#[test]
fn an_emulator_without_zones_is_missing() {
    let fake = Fake::of(&[("qemu-system-x86_64", "echo 'zoned=<bool>'")]);
    fake.refuses(emulator, "does not know `zoned.zone_size`");
    let knows = "case $1 in -device) echo zoned.zone_size zoned.zone_capacity zoned.max_open zoned.max_active \
                 zoned.zasl;; -accel) echo kvm;; esac";
    fake.put("qemu-system-x86_64", knows);
    fake.refuses(emulator, "does not know `tcg`");
    fake.refuses(emulator, &fake.folder.path().display().to_string());
}

#[test]
fn a_tool_of_another_version_is_missing() {
    let fake = Fake::of(&[]);
    let says = |version: &str| fake.put("cargo-deny", &format!("echo cargo-deny {version}"));
    let compatible = |machine: &Machine| machine.compatible("cargo-deny --version", "0.20.2");
    for wrong in ["0.20.1", "0.19.9", "0.21.0", "1.20.2"] {
        says(wrong);
        fake.refuses(compatible, &format!("says {wrong}, 0.20.2 is needed"));
    }
    for right in ["0.20.2", "0.20.10", "0.20.3-beta"] {
        says(right);
        compatible(&fake.machine()).unwrap();
    }
    fake.put("cargo-deny", "echo no number");
    fake.refuses(compatible, "names no version");
    let compatible = |machine: &Machine| machine.compatible("cargo-deny --version", "27.1.0");
    says("27.0.9");
    fake.refuses(compatible, "27.1.0 is needed");
    says("27.2.0");
    compatible(&fake.machine()).unwrap();
}

/// The program of the book puts a letter before its version, and older releases of it know less.
#[test]
fn a_maker_of_books_of_another_version_is_missing() {
    let fake = Fake::of(&[("mdbook", "echo mdbook v0.4.52")]);
    fake.refuses(BOOK.check, &format!("says 0.4.52, {MDBOOK} is needed"));
    fake.put("mdbook", &format!("echo mdbook v{MDBOOK}"));
    (BOOK.check)(&fake.machine()).unwrap();
}

#[test]
fn a_client_without_the_protocol_is_missing() {
    let fake = Fake::of(&[("curl", "echo 'Protocols: file'"), ("ip", "exit 1")]);
    fake.refuses(CURL.check, "does not know `http`");
    fake.refuses(IPROUTE2.check, "fails with");
    fake.put("curl", "echo 'Protocols: file http'");
    (CURL.check)(&fake.machine()).unwrap();
}

#[test]
fn a_compiler_that_is_too_old_is_missing() {
    let fake = Fake::of(&[("rustc", "echo 'rustc 1.94.1-nightly (0123456789 2026-01-01)'")]);
    fake.refuses(|machine| machine.at_least("rustc +nightly --version", "1.95"), "says 1.94.1-nightly");
    fake.put("rustc", "echo 'rustc 1.100.0-nightly'");
    fake.machine().at_least("rustc +nightly --version", "1.95").unwrap();
}

#[test]
fn a_compiler_that_compiles_nothing_is_missing() {
    let fake = Fake::of(&[("clang", "exit 0")]);
    fake.refuses(CLANG.check, "does not run (it is");
    fake.put("clang", "echo 'stdio.h: not found' >&2; exit 1");
    fake.refuses(CLANG.check, "stdio.h: not found");
    // The fourth word is the file that it writes.
    fake.put("clang", "printf '#!/bin/sh\\necho hello\\n' > \"$4\"; chmod +x \"$4\"");
    (CLANG.check)(&fake.machine()).unwrap();
}

/// Others make another file system by the same name, and a file of zeros is none.
#[test]
fn a_program_that_makes_another_file_system_is_missing() {
    let fake = Fake::of(&[("mkfs.xfs", "exit 0"), ("mkfs.ext4", "exit 0")]);
    for need in [EXT4, XFS] {
        fake.refuses(need.check, "makes another file system");
    }
    fake.put("mkfs.xfs", "for file; do :; done; printf XFSB | dd of=\"$file\" conv=notrunc 2> /dev/null");
    (XFS.check)(&fake.machine()).unwrap();
}

#[test]
fn a_program_that_copies_nothing_is_missing() {
    let fake = Fake::of(&[("rsync", "exit 0")]);
    fake.refuses(PROGRAMS[0].check, "copies nothing");
    fake.put("rsync", "cp \"$2\" \"$3\"");
    (PROGRAMS[0].check)(&fake.machine()).unwrap();
}

#[test]
fn a_helper_that_is_not_set_uid_is_missing_for_others_than_root() {
    let fake = Fake::of(&[("fusermount3", "echo 'fusermount3 version: 3.14.0'")]);
    let is_set_uid = |machine: &Machine| machine.is_set_uid("fusermount3");
    fake.refuses(is_set_uid, "is not set-uid");
    let program = fake.folder.path().join("fusermount3");
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    is_set_uid(&fake.machine()).unwrap();
    fake.put("fusermount3", "echo 'fusermount version: 2.9.9'");
    fake.refuses(FUSE.check, "does not know `version: 3`");
}

#[test]
fn an_interpreter_without_the_module_is_missing() {
    let fake = Fake::of(&[("python3", "exit 1")]);
    fake.refuses(|machine| machine.imports("python3", "lmdb"), "cannot import `lmdb`");
    fake.put("python3", "[ \"$2\" = 'import lmdb' ]");
    fake.machine().imports("python3", "lmdb").unwrap();
}

#[test]
fn tools_of_the_same_name_that_know_less_are_missing() {
    let fake = Fake::of(&[("blkzone", "echo ' -f, --force'"), ("setpriv", "echo '-d,--dump'")]);
    fake.refuses(util_linux, "`setpriv --help` does not know `--pdeathsig`");
    fake.put("setpriv", "echo '--pdeathsig keep|clear'");
    util_linux(&fake.machine()).unwrap();
}

#[test]
fn a_program_is_static_that_asks_for_no_interpreter() {
    // The header of a program for x86-64 with two segments, and these kinds of segments behind it.
    let program = |kinds: [u8; 2]| {
        let mut bytes = vec![0; 64 + 2 * 56];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        (bytes[18], bytes[32], bytes[54], bytes[56]) = (62, 64, 56, 2);
        (bytes[64], bytes[64 + 56]) = (kinds[0], kinds[1]);
        bytes
    };
    assert_eq!(is_static(&program([1, 1])), Ok(()));
    assert_eq!(is_static(&program([1, 3])), Err("it is linked dynamically".to_owned()));
    assert!(is_static(&program([1, 1])[..100]).is_err());
    assert!(is_static(b"#!/bin/sh\n").is_err());
    let mut other = program([1, 1]);
    other[18] = 183;
    assert!(is_static(&other).is_err());
}

#[test]
fn an_unsuitable_program_is_named_with_the_reason_and_the_one_command() {
    let fake = Fake::of(&[("clang", "exit 0")]);
    let error = require_on(&fake.machine(), [&CLANG, &XFS], false).expect_err("neither does");
    assert!(error.is::<Lacks>(), "{error}");
    assert!(error.to_string().contains("sudo apt-get update && "), "{error}");
    assert!(
        error.to_string().ends_with("apt-get install --yes --no-install-recommends clang xfsprogs"),
        "{error}"
    );
}

#[test]
fn a_part_of_the_kernel_is_not_installed() {
    const BROKEN: Need =
        kernel("loop devices", "modprobe loop", |_| Err("there are none".to_owned()), "this test");
    let error = require_on(&Fake::of(&[]).machine(), [&BROKEN], true).expect_err("no package has it");
    assert_eq!(
        error.to_string(),
        "loop devices: there are none; no package has it, try (as root, on the host): modprobe loop"
    );
}

/// Another program of the same name may come first in PATH.
#[test]
fn a_program_that_hides_an_installed_one_is_named() {
    const HIDDEN: Need = component("rustc", |machine| machine.runs("hidden"), "this test");
    let fake = Fake::of(&[("hidden", "exit 1")]);
    let needs = [&HIDDEN];
    let missing: Vec<_> = needs.iter().filter_map(|need| need.missing(&fake.machine())).collect();
    let error = after_installing(&fake.machine(), &missing).expect_err("it still fails");
    assert!(error.to_string().contains(&fake.folder.path().display().to_string()), "{error}");
    fake.put("hidden", "exit 0");
    after_installing(&fake.machine(), &missing).unwrap();
}

#[test]
fn an_ordinary_user_is_given_one_command() {
    let missing: Vec<&Need> = GATE.iter().collect();
    let command = one_command(&install_lines(&missing));
    assert!(command.starts_with("sudo apt-get update && sudo DEBIAN_FRONTEND=noninteractive apt-get"));
    assert!(
        command.contains(
            "acl attr clang curl e2fsprogs fuse3 g++ git iproute2 libacl1-dev pkg-config python3 valgrind xfsprogs && rustup component add clippy rustfmt && "
        ),
        "{command}"
    );
    assert!(command.ends_with(&format!("mdbook --version {MDBOOK}")), "{command}");
}

#[test]
fn a_need_that_is_met_is_not_installed_again() {
    const CARGO: Need = package("cargo", |machine| machine.runs("cargo --version"), "this test");
    require(&[CARGO]).unwrap();
    assert!(install_lines(&[]).is_empty());
}

#[test]
fn every_need_has_its_reason() {
    for need in GATE.iter().chain(&PROGRAMS).chain(&GUEST).chain(&MUTANTS).chain(&COVERAGE) {
        assert!(!need.why.is_empty(), "{} has none", need.name);
    }
}

#[test]
fn suites_are_kept_by_their_version() {
    let line = FSX.install_line(Path::new("tools/fsx-1"), Path::new("tools/build")).to_string();
    assert!(line.contains(&format!("fsx --version {} --root tools/fsx-1", FSX.version)), "{line}");
}
