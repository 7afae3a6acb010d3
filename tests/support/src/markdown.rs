//! Commands in documents.

/// The lines inside fenced blocks, each with its number (from 1) and without a leading prompt.
pub fn fenced_lines(markdown: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    markdown.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.trim();
        if line.starts_with("```") {
            inside = !inside;
            return None;
        }
        inside.then(|| (index + 1, line.strip_prefix("$ ").unwrap_or(line)))
    })
}
