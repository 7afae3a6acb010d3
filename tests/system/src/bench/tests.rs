use super::*;

/// All operations, each at `ratio` of every peer.
fn page(ratio: f64, reasons: &str) -> Page {
    let mut measured = Measured::default();
    for (operation, _) in OPERATIONS {
        OURS.iter().for_each(|ours| measured.read(&format!("measured {ours} {operation}: {ratio}")));
        PEERS.iter().for_each(|peer| measured.read(&format!("measured {peer} {operation}: 1.0")));
    }
    let table = page::table(&rows(&measured).unwrap(), &[("create", 2048.0)], "a machine");
    let empty = "# Title\n<!-- written by `cargo system bench` -->\n<!-- the rest is written by hand -->\n";
    Page::of(&format!("{empty}{reasons}")).with_table(&table).unwrap()
}

#[test]
fn a_row_below_half_of_a_peer_needs_its_reason() {
    page(0.5, "").check_reasons().unwrap();
    let printed = page(0.49, "* **mount: stat**: so it is\n").check_reasons().unwrap_err().to_string();
    assert!(printed.contains("library: sequential write; ") && !printed.contains("mount: stat"), "{printed}");
    let all: Vec<String> = OURS
        .iter()
        .flat_map(|ours| {
            OPERATIONS.iter().map(move |(operation, _)| format!("* **{ours}: {operation}**: so\n"))
        })
        .collect();
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
