//! Runs every command of the book, in `docs/start`, `docs/operating` and the README.
//!
//! Each chapter runs in a directory and in namespaces of its own (`book/prepare.sh`), with a loop device as the disk
//! `/dev/sdb`. When the chapter has ended, or the test has, all its processes and mounts are gone.
//!
//! The rules for chapters:
//!
//! * In a block of `console`, a line that begins with `$ ` or `# ` is a command, and `> ` continues it. The other lines
//!   are the expected output, errors included.
//! * `…` stands for any characters in a line. A line that consists of it stands for any lines. A UUID stands for any
//!   UUID. Spaces at the end of a line do not count.
//! * A command must succeed, unless it prints an error (`program: …`), or the next command is `echo $?`.
//! * A chapter unmounts everything that it mounts.
//! * Commands that cannot run here are in a block of `text`, below a comment `<!-- not run: … -->` with the reason.
//!   [`NOT_RUN`] counts them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::block_device::Loop;
use crate::skip;

/// The number of blocks that are not run. Let it shrink.
const NOT_RUN: [(&str, usize); 5] = [
    ("README.md", 3),
    ("docs/operating/failing-device.md", 3),
    ("docs/start/install.md", 4),
    ("docs/start/program.md", 1),
    ("docs/start/zoned.md", 5),
];
/// The languages of blocks without commands.
const WITHOUT_COMMANDS: [&str; 3] = ["c", "rust", "yaml"];
const FOLDERS: [&str; 2] = ["docs/start", "docs/operating"];
const PREPARE: &str = include_str!("book/prepare.sh");
/// No chapter takes longer, not even on a busy machine.
const SECONDS_MAX: &str = "300";
/// The size of the disk.
const DISK_BYTES: u64 = 1 << 30;
/// Begins the line between the outputs of two commands.
const MARK: char = '\u{1e}';
/// Prints the directories of all mounts of Polder.
const MOUNTED: &str =
    r"sed -n 's/^[^ ]* [^ ]* [^ ]* [^ ]* \([^ ]*\) .* - fuse.polder.*/\1/p' /proc/self/mountinfo";

/// A chapter, with its path below the root of the sources.
struct Chapter {
    path: String,
    text: String,
}

/// A command of a chapter.
struct Step {
    /// The number of its line.
    line: usize,
    command: String,
    expected: Vec<String>,
}

/// The result of a command.
struct Outcome {
    status: i32,
    printed: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All chapters, sorted by their paths.
fn chapters() -> Vec<Chapter> {
    let in_folder = |folder: &str| {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.map(|name| format!("{folder}/{name}")).collect::<Vec<_>>()
    };
    let mut paths: Vec<String> = FOLDERS.into_iter().flat_map(in_folder).collect();
    paths.push("README.md".to_owned());
    paths.sort();
    paths
        .into_iter()
        .map(|path| Chapter { text: fs::read_to_string(root().join(&path)).unwrap(), path })
        .collect()
}

impl Chapter {
    /// The commands with the output that the chapter shows.
    fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        let mut is_inside = false;
        for (index, line) in self.text.lines().enumerate() {
            if let Some(language) = line.strip_prefix("```") {
                is_inside = language == "console";
                continue;
            }
            if !is_inside {
                continue;
            }
            if let Some(command) = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ")) {
                steps.push(Step { line: index + 1, command: command.to_owned(), expected: Vec::new() });
                continue;
            }
            let step = steps.last_mut().unwrap_or_else(|| panic!("{}:{}: no command", self.path, index + 1));
            match line.strip_prefix("> ") {
                Some(more) if step.expected.is_empty() => step.command = format!("{}\n{more}", step.command),
                _ => step.expected.push(line.to_owned()),
            }
        }
        steps
    }

    /// The mistakes in the blocks, and the number of blocks that are not run.
    fn blocks(&self) -> (Vec<String>, usize) {
        let (mut wrong, mut not_run, mut is_inside) = (Vec::new(), 0, false);
        let lines: Vec<&str> = self.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let Some(language) = line.strip_prefix("```") else { continue };
            is_inside = !is_inside;
            match language {
                _ if !is_inside => {}
                "console" => {}
                "text" => {
                    not_run += 1;
                    let above = index.checked_sub(1).map_or("", |above| lines[above]);
                    if !(above.starts_with("<!-- not run") && above.contains(": ") && above.ends_with("-->"))
                    {
                        wrong.push(format!("{}:{}: no reason why it is not run", self.path, index + 1));
                    }
                }
                other if WITHOUT_COMMANDS.contains(&other) => {}
                other => wrong.push(format!("{}:{}: a block of `{other}`", self.path, index + 1)),
            }
        }
        (wrong, not_run)
    }

    /// Runs all commands. The second result lists the directories that the chapter leaves mounted.
    fn run(&self, steps: &[Step]) -> (Vec<Outcome>, String) {
        let place = tempfile::tempdir().unwrap();
        let backing = place.path().join("disk");
        fs::File::create(&backing).unwrap().set_len(DISK_BYTES).unwrap();
        let disk = Loop::new(&backing, &[]).unwrap();
        let script = place.path().join("script");
        fs::write(&script, script_of(steps)).unwrap();
        let done = Command::new("timeout")
            .args(["--signal=KILL", SECONDS_MAX])
            .args(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "bash"])
            .arg(&script)
            .args([place.path(), Path::new(env!("CARGO_BIN_EXE_polder")), &disk.device])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&done.stdout).into_owned();
        self.outcomes(&printed, steps)
            .unwrap_or_else(|| panic!("{}: the shell ended early ({}):\n{printed}", self.path, done.status))
    }

    /// Divides the output of the script.
    fn outcomes(&self, printed: &str, steps: &[Step]) -> Option<(Vec<Outcome>, String)> {
        let mut parts = printed.split(MARK);
        let before = parts.next()?;
        assert_eq!(before.trim(), "", "{}: preparing the machine", self.path);
        let mut parts: Vec<(i32, &str)> = parts
            .map(|part| {
                let (status, printed) = part.split_once('\n')?;
                Some((status.parse().ok()?, printed))
            })
            .collect::<Option<_>>()?;
        let (mut status, left) = parts.pop()?;
        let mut outcomes = Vec::new();
        for (before, printed) in parts.into_iter().rev() {
            let printed = printed.strip_suffix('\n').unwrap_or(printed);
            outcomes.push(Outcome { status, printed: lines(printed) });
            status = before;
        }
        outcomes.reverse();
        (outcomes.len() == steps.len()).then(|| (outcomes, left.trim().to_owned()))
    }
}

/// The script that runs the commands in one shell. Before each one, a line with the status of the one before.
fn script_of(steps: &[Step]) -> String {
    let mark = format!("printf '\\n{MARK}%s\\n' \"$book_status\"\n");
    let mut script = format!("exec 2>&1\n{PREPARE}\nbook_status=0\n");
    for step in steps {
        script += &format!("{mark}(exit $book_status)\n{}\nbook_status=$?\n", step.command);
    }
    script + &mark + MOUNTED + "\n"
}

/// The lines without empty ones at the end.
fn lines(text: &str) -> Vec<String> {
    text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Whether these lines are the expected ones.
fn lines_match(expected: &[String], found: &[String]) -> bool {
    match expected.split_first() {
        None => found.is_empty(),
        Some((any, rest)) if any == "…" => (0..=found.len()).any(|at| lines_match(rest, &found[at..])),
        Some((first, rest)) => found.split_first().is_some_and(|(line, more)| {
            line_matches(&without_ids(first), &without_ids(line)) && lines_match(rest, more)
        }),
    }
}

fn line_matches(expected: &str, found: &str) -> bool {
    match expected.split_once('…') {
        None => expected == found,
        Some((before, behind)) => found.strip_prefix(before).is_some_and(|rest| {
            let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.into_iter().any(|at| line_matches(behind, &rest[at..]))
        }),
    }
}

/// The line with one word for every UUID.
fn without_ids(line: &str) -> String {
    let mut text = line.trim_end().to_owned();
    let id = |text: &str| {
        let is_id = |part: &str| {
            part.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })
        };
        (0..text.len().saturating_sub(35)).find(|&at| text.get(at..at + 36).is_some_and(is_id))
    };
    while let Some(at) = id(&text) {
        text.replace_range(at..at + 36, "UUID");
    }
    text
}

/// The difference between the result of a command and the chapter.
fn difference(step: &Step, next: Option<&Step>, outcome: &Outcome) -> Option<String> {
    let expected = lines(&step.expected.join("\n"));
    let is_error = |line: &String| {
        line.split_once(": ").is_some_and(|(program, _)| !program.contains(' ') && !program.is_empty())
    };
    let may_fail = expected.iter().any(is_error) || next.is_some_and(|next| next.command == "echo $?");
    if outcome.status != 0 && !may_fail {
        return Some(format!("ends with {}:\n{}", outcome.status, outcome.printed.join("\n")));
    }
    let same = lines_match(&expected, &outcome.printed);
    (!same).then(|| format!("prints\n{}\ninstead of\n{}", outcome.printed.join("\n"), expected.join("\n")))
}

/// The reason why the commands cannot be run here.
fn hindrance() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("only root can run the book, which mounts disks".to_owned());
    }
    fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map_err(|error| format!("/dev/fuse: {error}"))?;
    let place = tempfile::tempdir().unwrap();
    let backing = place.path().join("disk");
    fs::File::create(&backing).unwrap().set_len(DISK_BYTES).unwrap();
    Loop::new(&backing, &[]).map(drop)
}

#[test]
fn every_command_of_the_book_prints_what_the_book_shows() {
    if let Err(reason) = hindrance() {
        return skip(&reason);
    }
    let (mut wrong, mut count) = (Vec::new(), 0);
    for chapter in chapters() {
        let steps = chapter.steps();
        let (outcomes, mounted) = chapter.run(&steps);
        count += steps.len();
        for (index, (step, outcome)) in steps.iter().zip(&outcomes).enumerate() {
            if let Some(difference) = difference(step, steps.get(index + 1), outcome) {
                wrong.push(format!("{}:{}: `{}` {difference}", chapter.path, step.line, step.command));
            }
        }
        if !mounted.is_empty() {
            wrong.push(format!("{}: left mounted: {mounted}", chapter.path));
        }
    }
    println!("{count} commands of the book");
    assert!(count > 100, "the chapters have {count} commands");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn blocks_that_are_not_run_have_a_reason_and_do_not_become_more() {
    let (mut wrong, mut counts) = (Vec::new(), Vec::new());
    for chapter in chapters() {
        let (of_chapter, not_run) = chapter.blocks();
        wrong.extend(of_chapter);
        if not_run > 0 {
            counts.push((chapter.path, not_run));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let expected: Vec<(String, usize)> =
        NOT_RUN.iter().map(|&(path, count)| (path.to_owned(), count)).collect();
    assert_eq!(counts, expected, "let a command run, or say why it cannot, and change the number");
}

/// The sources of messages, with the parts of each string in one line.
fn sources() -> String {
    fn collect(folder: &Path, into: &mut String) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "tests") {
                collect(&path, into);
            } else if path.extension().is_some_and(|found| found == "rs") && !path.ends_with("tests.rs") {
                let text = fs::read_to_string(path).unwrap();
                let mut parts = text.split("\\\n");
                into.push_str(parts.next().unwrap_or_default());
                parts.for_each(|part| into.push_str(part.trim_start()));
            }
        }
    }
    let mut text = String::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path().join("src");
        if folder.is_dir() {
            collect(&folder, &mut text);
        }
    }
    text
}

/// Messages of the kernel and of other programs.
const OF_OTHERS: [&str; 5] = [
    "wrong fs type, bad option, bad superblock",
    "Transport endpoint is not connected",
    "Input/output error",
    "No space left on device",
    "Read-only file system",
];

#[test]
fn every_message_of_the_troubleshooting_chapter_is_in_the_sources() {
    let chapter = fs::read_to_string(root().join("docs/operating/troubleshooting.md")).unwrap();
    let sources = sources();
    let headings = chapter.lines().filter_map(|line| line.strip_prefix("### "));
    let messages: Vec<&str> = headings
        .flat_map(|heading| heading.trim_matches('`').split("`, `").flat_map(|part| part.split("` and `")))
        .collect();
    assert!(messages.len() > 50, "{} messages", messages.len());
    let is_known = |message: &&str| {
        OF_OTHERS.contains(message) || message.split('…').all(|part| sources.contains(part.trim()))
    };
    let unknown: Vec<&&str> = messages.iter().filter(|message| !is_known(message)).collect();
    assert!(unknown.is_empty(), "no source has these messages: {unknown:#?}");
}

/// A rule with the name of a metric that does not exist never alerts.
#[test]
fn the_alert_rules_are_those_of_the_chapter_and_name_metrics_of_the_manual() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let (rules, manual) = (read("contrib/prometheus/polder.yml"), read("docs/manual.md"));
    let block = format!("```yaml\n{rules}```\n");
    assert!(read("docs/operating/monitoring.md").contains(&block), "the chapter shows other rules");
    let names = rules.split("polder_").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        format!("`polder_{}", &rest[..end])
    });
    let is_metric = |name: &String| ["`", "{"].iter().any(|end| manual.contains(&format!("{name}{end}")));
    let unknown: Vec<String> = names.filter(|name| !is_metric(name)).collect();
    assert!(unknown.is_empty(), "the manual has no such metrics: {unknown:?}");
    // A mirror without a member is a warning.
    for level in ["critical", "warning"] {
        assert!(rules.contains(&format!("polder_alerts{{level=\"{level}\"}} > 0")), "{level}");
    }
}

/// The description for file(1) names the places in which a volume has its identity and geometry.
#[test]
fn the_description_for_file_fits_a_volume() {
    let place = tempfile::tempdir().unwrap();
    let volume = place.path().join("volume");
    let run = |arguments: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_polder")).args(arguments).arg(&volume).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        done.stdout
    };
    run(&["mkfs", "--size", "64M"]);
    let info: serde_json::Value = serde_json::from_slice(&run(&["info", "--json"])).unwrap();
    let header = fs::read(&volume).unwrap();
    let described = fs::read_to_string(root().join("contrib/magic/polder")).unwrap();
    let number = |text: &str| {
        let line = described.lines().find(|line| line.starts_with('>') && line.ends_with(text)).unwrap();
        let offset: usize = line[1..].split_whitespace().next().unwrap().parse().unwrap();
        u64::from(u32::from_le_bytes(header[offset..offset + 4].try_into().unwrap()))
    };
    assert!(described.contains(&format!("0\tstring\t\t{}\t", String::from_utf8_lossy(&header[..8]))));
    assert_eq!(number("version %u"), info["format_version"].as_u64().unwrap());
    assert_eq!(number("%u zones"), info["zones"].as_u64().unwrap());
    assert_eq!(number("blocks of %u bytes"), info["block_size"].as_u64().unwrap());
}

/// Outputs that must not pass.
#[test]
fn a_difference_is_noticed() {
    let all = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
    let matches = |expected: &[&str], found: &[&str]| lines_match(&all(expected), &all(found));
    assert!(matches(&["a … c", "…", "z"], &["a b c", "d", "e", "z"]));
    assert!(matches(&["…"], &[]));
    assert!(matches(
        &["id 0a000000-0000-0000-0000-00000000000f!"],
        &["id 123e4567-e89b-12d3-a456-426614174000!"]
    ));
    assert!(!matches(&["id …", "z"], &["id 1"]));
    assert!(!matches(&["a"], &["a", "b"]));
    assert!(!matches(&[], &["a"]));
    assert!(!matches(&["a … c"], &["a c"]));
    let chapter =
        Chapter { path: "x".to_owned(), text: "```console\n$ a\n# b\nshown\n```\n```text\n```\n".to_owned() };
    let steps = chapter.steps();
    let outcome = |status, printed: &[&str]| Outcome { status, printed: all(printed) };
    assert!(difference(&steps[0], None, &outcome(1, &[])).unwrap().contains("ends with 1"));
    assert!(difference(&steps[0], None, &outcome(0, &["x"])).unwrap().contains("prints"));
    assert!(difference(&steps[1], None, &outcome(0, &["shown"])).is_none());
    assert_eq!(chapter.blocks(), (vec!["x:6: no reason why it is not run".to_owned()], 1));
}
