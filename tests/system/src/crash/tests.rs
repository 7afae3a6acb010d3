use clap::Parser;

use super::*;
use crate::{Command, System};

fn parsed(words: &str) -> Args {
    let words = std::iter::once("system").chain(words.split_whitespace());
    match System::try_parse_from(words).unwrap().command {
        Command::Crash(args) => args,
        _ => panic!("another command"),
    }
}

fn all_sections(words: &str, kills: u64) -> Vec<Section> {
    let args = parsed(words);
    sections(&args, &chosen(args.only.as_deref()).unwrap(), kills, 1)
}

#[test]
fn the_crashes_are_shared_and_no_fewer_than_asked_for() {
    for kills in [1, 30, 500] {
        let sections = all_sections("crash", kills);
        assert_eq!(sections.len(), 2 * APPLICATIONS.len());
        assert!(sections.iter().all(|section| section.crashes > 0));
        assert!(sections.iter().map(|section| section.crashes).sum::<u64>() >= kills);
    }
}

#[test]
fn each_mode_has_a_canary_in_the_short_form_too() {
    let canaries = |words| all_sections(words, 30).iter().filter(|section| section.canary).count();
    assert_eq!(canaries("crash --quick"), 2);
    assert_eq!(canaries("crash --mode cut --only git --quick"), 1);
    assert_eq!(canaries("crash"), 2 * APPLICATIONS.len());
}

#[test]
fn the_printed_command_repeats_that_section() {
    for quick in ["", " --quick"] {
        let args = parsed(&format!("crash --seed 7{quick}"));
        for section in sections(&args, &chosen(None).unwrap(), 500, 7) {
            let line = repeat(&args, &section).to_string();
            let again = parsed(line.strip_prefix("cargo system ").unwrap());
            let found = sections(&again, &chosen(again.only.as_deref()).unwrap(), again.kills.unwrap(), 7);
            let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!((shown, again.seed, again.quick), (vec![section.to_string()], Some(7), args.quick));
        }
    }
}

#[test]
fn an_application_that_is_not_there_is_refused() {
    assert!(chosen(Some("oracle")).is_err());
}

/// A save that loses a file is rare, and every crash interrupts only a few of them.
#[test]
fn saved_files_see_two_hundred_crashes_half_of_them_losses_of_power() {
    let (_, kills, _) = shares().find(|(name, ..)| *name == "saves").unwrap();
    let sections = all_sections("crash --only saves", kills);
    let crashes: Vec<(Mode, u64)> = sections.iter().map(|section| (section.mode, section.crashes)).collect();
    let [(Mode::Kill, killed), (Mode::Cut, cut)] = crashes[..] else { panic!("{crashes:?}") };
    assert!(kills >= 200 && killed >= 100 && cut >= 100, "{crashes:?}");
}

/// Suites run each application alone, with the same total number of crashes as one command.
#[test]
fn an_application_alone_has_its_share_of_all_crashes() {
    for (name, kills, quick_kills) in shares() {
        for (words, all, own) in [("crash", KILLS, kills), ("crash --quick", QUICK_KILLS, quick_kills)] {
            let crashes = |words: &str, kills| -> u64 {
                let sections = all_sections(words, kills);
                sections
                    .iter()
                    .filter(|section| section.entry.name == name)
                    .map(|section| section.crashes)
                    .sum()
            };
            assert_eq!(crashes(words, all), own);
            assert_eq!(crashes(&format!("{words} --only {name}"), own), own);
        }
    }
}
