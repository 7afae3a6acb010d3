//! The table of a suite with figures.

/// A table of figures, each with its row and column, in the order of their first appearance.
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

#[cfg(test)]
mod tests;
