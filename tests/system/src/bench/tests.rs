use super::figures::{Key, RATE};
use super::rows::{FACTS, Ours, ROWS};
use super::*;

/// All rows in two rounds, each at `ratio` of every peer. The machine was ten times slower in the second round.
fn figures(ratio: f64) -> Figures {
    let mut figures = Figures::default();
    for row in &ROWS {
        let ours = if row.ours == Ours::Library { "library" } else { "dev" };
        for (round, speed) in [(0, 100.0), (1, 10.0)] {
            figures.add(&Key::of(row.id, ours, false), round, RATE, ratio * speed);
            for peer in ["raw", "ext4", "xfs", "fresh"] {
                figures.add(&Key::of(row.id, peer, false), round, RATE, speed);
            }
        }
    }
    figures
}

fn page(ratio: f64, reasons: &str) -> Page {
    let tables = page::tables(&figures(ratio), 2, "a machine");
    let empty = "# Title\n<!-- written by `cargo system bench` -->\n<!-- the rest is written by hand -->\n";
    Page::of(&format!("{empty}{reasons}")).with_tables(&tables).unwrap()
}

#[test]
fn a_row_below_half_of_a_peer_needs_its_reason() {
    page(0.5, "").check_reasons().unwrap();
    let printed = page(0.49, "* **mount: unlink**: so it is\n").check_reasons().unwrap_err().to_string();
    assert!(
        printed.contains("library: sequential write; ") && !printed.contains("mount: unlink"),
        "{printed}"
    );
    let title = |row: &rows::Row| match row.ours {
        Ours::Library => format!("library: {}", row.title),
        Ours::Mount => format!("mount: {}", row.title),
    };
    let all: Vec<String> = ROWS.iter().map(|row| format!("* **{}**: so\n", title(row))).collect();
    page(0.49, &all.concat()).check_reasons().unwrap();
}

#[test]
fn a_reason_for_nothing_is_refused() {
    assert!(page(1.0, "* **mount: mkdir**: so it is\n").check_reasons().is_err());
    assert!(Page::of("no table").check_reasons().is_err());
}

#[test]
fn the_page_gives_its_reasons() {
    Page::read().unwrap().check_reasons().unwrap();
}

#[test]
fn ratios_are_judged_by_the_target_of_the_transport() {
    // 0.24 is 1.7 times what it was; through another transport it would have to be 0.5.
    let verdict = |ratio: f64, title: &str| {
        let tables = page::tables(&figures(ratio), 2, "a machine");
        let line = tables.lines().find(|line| line.starts_with(&format!("| {title} |"))).unwrap().to_owned();
        line.trim_end_matches(" |").rsplit("| ").next().unwrap().to_owned()
    };
    assert_eq!([0.23, 0.24].map(|ratio| verdict(ratio, "mount: untar")), ["missed", "met"]);
    assert_eq!([0.89, 0.9].map(|ratio| verdict(ratio, "mount: buffered read, cold")), ["missed", "met"]);
    assert_eq!([4.9, 5.0].map(|ratio| verdict(ratio, "library: create")), ["missed", "met"]);
    assert_eq!(
        [0.94, 0.95].map(|ratio| verdict(ratio, "mount: cold read of all files after that")),
        ["missed", "met"]
    );
}

#[test]
fn the_faster_of_two_peers_counts_in_each_round() {
    let mut figures = Figures::default();
    let add = |figures: &mut Figures, place: &str, rates: [f64; 2]| {
        (0..)
            .zip(rates)
            .for_each(|(round, rate)| figures.add(&Key::of("append-1", place, false), round, RATE, rate));
    };
    add(&mut figures, "dev", [100.0, 100.0]);
    add(&mut figures, "ext4", [200.0, 50.0]);
    add(&mut figures, "xfs", [50.0, 200.0]);
    let ratio = figures.ratio(&Key::of("append-1", "dev", false), &["ext4", "xfs"], RATE).unwrap();
    assert_eq!((ratio.median, ratio.quartiles), (0.5, (0.5, 0.5)));
    assert!(figures.ratio(&Key::of("append-1", "dev", false), &["ext4", "raw"], RATE).is_none());
}

#[test]
fn figures_are_read_as_they_were_written() {
    let mut figures = figures(0.3);
    figures.add(&Key::of("untar", "dev", true), 0, "requests LOOKUP", 2.125);
    assert_eq!(Figures::parse(&figures.csv()).unwrap(), figures);
    assert_eq!(figures.parts(&Key::of("untar", "dev", true), "requests"), [("LOOKUP", 2.125)]);
    assert!(Figures::parse("row,place\n").is_err());
}

#[test]
fn a_baseline_shows_ratios_and_costs_that_changed() {
    let (mut before, mut now) = (figures(0.2), figures(0.3));
    for (figures, [untar, cp]) in [(&mut before, [8.0, 4.0]), (&mut now, [6.0, 4.1])] {
        figures.add(&Key::of("untar", "dev", false), 0, "requests", untar);
        figures.add(&Key::of("cp", "dev", false), 0, "requests", cp);
        figures.add_fact("idle-bytes", 0.0);
    }
    let table = baseline::table(&before, &now);
    assert!(table.contains("| untar (dev): rate ÷ ext4 | 0.200 | 0.300 | +50.0 % |"), "{table}");
    assert!(table.contains("| untar (dev): requests | 8.000 | 6.000 | -25.0 % |"), "{table}");
    assert!(!table.contains("| cp (dev): requests |"), "2.5 % is no change: {table}");
    assert!(table.contains("written by an idle mount | 0.000 | 0.000 | +0.0 % |"), "{table}");
}

#[test]
fn every_row_is_measured_by_its_group() {
    let host = tempfile::tempdir().unwrap();
    let scale = &scale::QUICK;
    let material = Material::make(host.path(), scale, false).unwrap();
    let mut groups = groups::of_trees(&material);
    groups.extend(groups::of_calls(scale));
    let steps =
        groups.iter().flat_map(|group| group.steps.iter().map(|step| (step.row.unwrap(), group.name)));
    let measured: Vec<(&str, &str)> = steps.collect();
    let elsewhere = [rows::CHURN, rows::LIBRARY];
    let wanted = ROWS.iter().filter(|row| !elsewhere.contains(&row.group)).map(|row| (row.id, row.group));
    assert_eq!(measured.len(), wanted.clone().count());
    wanted.for_each(|row| assert!(measured.contains(&row), "nothing measures {row:?}"));
}

#[test]
fn names_of_rows_and_groups_are_known() {
    let mut ids: Vec<&str> = ROWS.iter().map(|row| row.id).chain(FACTS.iter().map(|fact| fact.id)).collect();
    ids.sort_unstable();
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    let selection = Selection::of(&["untar".to_owned(), "names".to_owned()], &["git"]).unwrap();
    assert!(selection.has_group("trees") && selection.has_group("names") && !selection.has_group("git"));
    assert!(Selection::of(&["mkdir".to_owned()], &[]).is_err());
    assert!(Selection::of(&[], &[]).unwrap().has_group("binary"));
    let quick = Selection::of(&[], scale::QUICK.groups).unwrap();
    assert!(quick.has_group("names") && !quick.has_group("churn"));
}
