//! Tables of the documents that a command writes, between two marks; all else there is written by hand.

use anyhow::{Context, Result};

use crate::workspace;

/// The page of figures.
pub(crate) const PERFORMANCE: &str = "docs/performance.md";

const END: &str = "<!-- the rest is written by hand -->";

/// Puts the table of `cargo xtask COMMAND` into the page at `path`.
pub(crate) fn write(path: &str, command: &str, table: &str) -> Result<()> {
    let file = workspace::root().join(path);
    let page = std::fs::read_to_string(&file).with_context(|| path.to_owned())?;
    let page = with(&page, command, table).with_context(|| path.to_owned())?;
    std::fs::write(file, page)?;
    println!("written to {path}");
    Ok(())
}

/// The page with this table instead of the one of that command.
pub(crate) fn with(page: &str, command: &str, table: &str) -> Result<String> {
    let begin = format!("<!-- written by `cargo xtask {command}` -->");
    let around = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) =
        around.with_context(|| format!("there is no place for the table: between `{begin}` and `{END}`"))?;
    Ok(format!("{before}{begin}\n{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gets_the_table_between_its_marks() {
        let mark = "<!-- written by `cargo xtask vm x` -->";
        let page = format!("before\n{mark}\nold\n{END}\nafter\n{END}\n");
        let written = with(&page, "vm x", "new\n").unwrap();
        assert_eq!(written, format!("before\n{mark}\nnew\n{END}\nafter\n{END}\n"));
        assert!(with(&page, "vm y", "new\n").is_err());
        assert!(with(mark, "vm x", "new\n").is_err());
    }
}
