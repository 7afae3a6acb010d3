//! `polder manual`: the manual pages, from the definitions of the command lines.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use crate::output::note;
use crate::{fsck, mount_helper, umount_helper};

/// The section of commands for administrators.
const SECTION: &str = "8";

/// The table of mount options comes from here, so that it is written once.
const MANUAL: &str = include_str!("../../../docs/manual.md");
const TABLE: &str = "| word | means |\n|---|---|\n";

/// Write the manual pages of all commands into a directory, for example /usr/local/share/man/man8.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The directory. It is created if it does not exist.
    directory: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let directory = &arguments.directory;
    fs::create_dir_all(directory).with_context(|| format!("{}: cannot be created", directory.display()))?;
    let pages = pages();
    for page in &pages {
        page.write(directory)?;
    }
    note!("{}: {} pages", directory.display(), pages.len())
}

/// A page, named like its command.
struct Page {
    name: String,
    command: Command,
    see_also: Vec<String>,
}

/// One page for the program, one for each of its commands, one for each name by which the system calls it.
fn pages() -> Vec<Page> {
    let mut program = crate::Arguments::command();
    program.build();
    let commands = program.get_subcommands().filter(|command| command.get_name() != "help").map(|command| {
        let name = format!("polder-{}", command.get_name());
        // The page is found by this name, and the command is called with a space.
        (name.clone(), command.clone().display_name(name))
    });
    let commands: Vec<(String, Command)> = commands.collect();
    let mut helpers =
        [crate::MkfsArguments::command(), fsck::command(), mount_helper::command(), umount_helper::command()];
    helpers.iter_mut().for_each(Command::build);
    let named = |command: Command| (command.get_name().to_owned(), command);
    let all = [named(program)].into_iter().chain(commands).chain(helpers.into_iter().map(named));
    let all: Vec<(String, Command)> = all.collect();
    let names: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
    let related = |name: &str| {
        let is_related = |other: &String| match name {
            "polder" => true,
            name => other == "polder" || is_same_task(name, other),
        };
        names.iter().filter(|other| *other != name && is_related(other)).cloned().collect()
    };
    all.into_iter().map(|(name, command)| Page { see_also: related(&name), name, command }).collect()
}

/// `polder-mkfs` and `mkfs.polder`.
fn is_same_task(name: &str, other: &str) -> bool {
    let task = |name: &str| match name.trim_start_matches("polder-").trim_end_matches(".polder") {
        "fsck" => "check".to_owned(),
        task => task.to_owned(),
    };
    task(name) == task(other)
}

impl Page {
    fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(format!("{}.{SECTION}", self.name));
        self.render().and_then(|text| Ok(fs::write(&path, text)?)).with_context(|| path.display().to_string())
    }

    fn render(&self) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        let page = Man::new(self.command.clone())
            .title(self.name.as_str())
            .section(SECTION)
            .source(format!("polder {}", env!("CARGO_PKG_VERSION")))
            .manual("Polder");
        page.render_title(&mut text)?;
        page.render_name_section(&mut text)?;
        page.render_synopsis_section(&mut text)?;
        page.render_description_section(&mut text)?;
        page.render_options_section(&mut text)?;
        if self.name == "polder" {
            self.commands().to_writer(&mut text)?;
        }
        if matches!(self.name.as_str(), "polder-mount" | "mount.polder") {
            mount_options().to_writer(&mut text)?;
        }
        if self.command.get_after_help().is_some() {
            page.render_extra_section(&mut text)?;
        }
        self.see_also().to_writer(&mut text)?;
        Ok(text)
    }

    /// The commands, each with the page that describes it.
    fn commands(&self) -> Roff {
        let mut section = Roff::new();
        section.control("SH", ["COMMANDS"]);
        for command in self.command.get_subcommands().filter(|command| command.get_name() != "help") {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            entry(&mut section, &format!("polder-{}({SECTION})", command.get_name()), vec![roman(about)]);
        }
        section
    }

    fn see_also(&self) -> Roff {
        let mut section = Roff::new();
        section.control("SH", ["SEE ALSO"]);
        let mut words = Vec::new();
        for name in &self.see_also {
            if !words.is_empty() {
                words.push(roman(", "));
            }
            words.extend([bold(name.as_str()), roman(format!("({SECTION})"))]);
        }
        section.text(words);
        section
    }
}

/// The words after `-o`.
fn mount_options() -> Roff {
    let mut section = Roff::new();
    section.control("SH", ["MOUNT OPTIONS"]);
    for (words, meaning) in option_table() {
        entry(&mut section, &words.replace('`', ""), marked(meaning));
    }
    section
}

/// The rows of the manual's table of mount options.
fn option_table() -> impl Iterator<Item = (&'static str, &'static str)> {
    let rows = MANUAL.split_once(TABLE).map_or("", |(_, rows)| rows);
    rows.lines().map_while(|row| row.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "))
}

fn entry(section: &mut Roff, term: &str, text: Vec<Inline>) {
    section.control("TP", []);
    section.text([bold(term)]);
    section.text(text);
}

/// Text of the manual. What is between backticks is printed bold.
fn marked(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate();
    parts.map(|(number, part)| if number % 2 == 1 { bold(part) } else { roman(part) }).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
mod tests {
    use super::*;

    fn rendered(name: &str) -> String {
        let pages = pages();
        let page = pages.iter().find(|page| page.name == name).unwrap();
        String::from_utf8(page.render().unwrap()).unwrap()
    }

    #[test]
    fn every_command_and_every_name_of_the_system_has_a_page() {
        let pages = pages();
        let names: Vec<&str> = pages.iter().map(|page| page.name.as_str()).collect();
        for command in crate::Arguments::command().get_subcommands() {
            assert!(names.contains(&format!("polder-{}", command.get_name()).as_str()), "{names:?}");
        }
        for name in crate::install::NAMES.iter().filter(|name| !name.contains(".fuse.")) {
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn the_page_of_mounting_has_all_mount_options() {
        let (page, rows) = (rendered("polder-mount"), option_table().count());
        assert!(rows > 15, "{rows}");
        assert_eq!(page.split_once("MOUNT OPTIONS").unwrap().1.matches(".TP").count(), rows);
        assert!(page.contains("commit=SECONDS") && rendered("mount.polder").contains("noxattr"));
    }

    #[test]
    fn pages_refer_to_each_other() {
        assert!(rendered("mkfs.polder").contains("polder\\-mkfs"));
        assert!(rendered("polder").contains("polder\\-salvage"));
        let check = rendered("polder-check");
        assert!(check.contains("fsck.polder") && !check.contains("polder\\-check\\fR(8)"));
    }
}
