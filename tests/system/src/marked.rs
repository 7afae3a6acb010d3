//! Tables in the documents that a command writes, between two marks. Everything else there is written manually.

use anyhow::{Context, Result};
use support::workspace;

/// The page of figures.
pub(crate) const PERFORMANCE: &str = "docs/results/performance.md";

const BEGIN: &str = "<!-- written by `cargo system ";
const END: &str = "<!-- the rest is written by hand -->";

/// Puts the table of `cargo system COMMAND` into the page at `path`.
pub(crate) fn write(path: &str, command: &str, table: &str) -> Result<()> {
    let file = workspace::root().join(path);
    let page = std::fs::read_to_string(&file).with_context(|| path.to_owned())?;
    let page = with(&page, command, table).with_context(|| path.to_owned())?;
    std::fs::write(file, page)?;
    println!("written to {path}");
    Ok(())
}

/// Refuses a page without a place for the table, before hours are spent on it.
pub(crate) fn check(path: &str, command: &str) -> Result<()> {
    let page = std::fs::read_to_string(workspace::root().join(path)).with_context(|| path.to_owned())?;
    with(&page, command, "").map(drop).with_context(|| path.to_owned())
}

/// The page with this table instead of the old table of that command.
pub(crate) fn with(page: &str, command: &str, table: &str) -> Result<String> {
    let begin = format!("{BEGIN}{command}` -->");
    let around = page.split_once(&begin).and_then(|(before, rest)| {
        let (old, after) = rest.split_once(END)?;
        (!old.contains(BEGIN)).then_some((before, after))
    });
    let (before, after) =
        around.with_context(|| format!("there is no place for the table: between `{begin}` and `{END}`"))?;
    Ok(format!("{before}{begin}\n{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gets_the_table_between_its_marks() {
        let mark = "<!-- written by `cargo system vm x` -->";
        let page = format!("before\n{mark}\nold\n{END}\nafter\n{END}\n");
        let written = with(&page, "vm x", "new\n").unwrap();
        assert_eq!(written, format!("before\n{mark}\nnew\n{END}\nafter\n{END}\n"));
        assert!(with(&page, "vm y", "new\n").is_err());
        assert!(with(mark, "vm x", "new\n").is_err());
        let other = format!("{mark}\nno end\n<!-- written by `cargo system vm y` -->\n{END}\n");
        assert!(with(&other, "vm x", "new\n").is_err(), "that end is another's");
    }
}
