//! The table of a suite that tells figures: written into `docs/performance.md`, between two marks.

use anyhow::{Context, Result};

use crate::workspace;

const PATH: &str = "docs/performance.md";
const END: &str = "<!-- the rest is written by hand -->";

/// A table of figures, each with its row and column, in the order in which these came first.
pub(super) fn of(figures: &[[String; 3]]) -> String {
    let (mut rows, mut columns): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for [row, column, _] in figures {
        add(&mut rows, row);
        add(&mut columns, column);
    }
    let mut table = format!("| | {} |\n|---|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
    for row in rows {
        let words = |column: &&str| {
            let found = figures.iter().find(|figure| figure[0] == row && figure[1] == **column);
            found.map_or("", |figure| figure[2].as_str())
        };
        let cells: Vec<&str> = columns.iter().map(words).collect();
        table += &format!("| {row} | {} |\n", cells.join(" | "));
    }
    table
}

fn add<'a>(names: &mut Vec<&'a str>, name: &'a str) {
    if !names.contains(&name) {
        names.push(name);
    }
}

/// Puts the table of a suite into the page.
pub(super) fn write(suite: &str, table: &str) -> Result<()> {
    let path = workspace::root().join(PATH);
    let page = std::fs::read_to_string(&path).context(PATH)?;
    std::fs::write(&path, with(&page, suite, table)?)?;
    println!("written to {PATH}");
    Ok(())
}

fn with(page: &str, suite: &str, table: &str) -> Result<String> {
    let begin = format!("<!-- written by `cargo xtask vm {suite}` -->");
    let around = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = around
        .with_context(|| format!("{PATH} has no place for the table: between `{begin}` and `{END}`"))?;
    Ok(format!("{before}{begin}\n{table}{END}{after}"))
}

#[cfg(test)]
mod tests;
