//! Repeats recorded cells: the same seed gives the same row on every machine, unless the code behaves differently.

use std::path::Path;

use anyhow::{Result, ensure};
use rt::random::Rng;
use serde_json::Value;
use support::workspace;

use super::cells::Cell;
use super::row::Row;
use super::{Args, program, runs};

/// Tolerance for figures that were added up in another order.
const ROUNDING: f64 = 1e-9;

/// Repeats the requested number of cells, and compares.
pub(super) fn compare(cells: &[Cell], rows: &[Row], args: &Args, folder: &Path) -> Result<()> {
    if args.again == 0 || cells.is_empty() {
        return Ok(());
    }
    let record = folder.join("again.jsonl");
    if record.exists() {
        std::fs::remove_file(&record)?;
    }
    let mut drawn: Vec<usize> = (0..cells.len()).collect();
    Rng::with_seed(args.seed ^ args.again as u64).shuffle(&mut drawn);
    drawn.truncate(args.again);
    let again: Vec<Cell> = drawn.iter().map(|&index| cells[index]).collect();
    let found = runs::run(&program()?, &again, &record)?;
    for (row, &index) in found.iter().zip(&drawn) {
        let differs = first_difference(&value(row)?, &value(&rows[index])?, "");
        ensure!(differs.is_none(), "{:?} has changed: {}", cells[index], differs.unwrap_or_default());
    }
    println!("{} repeated cells are the same", found.len());
    Ok(())
}

/// The page's sentence about that.
pub(super) fn sentence(cells: usize, args: &Args) -> Result<String> {
    let again = args.again.min(cells);
    if again == 0 {
        return Ok(String::new());
    }
    let commit = workspace::head_commit()?;
    Ok(format!("; {} of them, drawn, were made again at {}, and are the same", again, &commit[..7]))
}

/// A row without its commit.
fn value(row: &Row) -> Result<Value> {
    Ok(serde_json::to_value(Row { commit: String::new(), ..row.clone() })?)
}

/// The first figure that differs, and both values.
fn first_difference(now: &Value, before: &Value, at: &str) -> Option<String> {
    match (now, before) {
        (Value::Object(now), Value::Object(before)) => {
            let at_key = |key: &String| format!("{at}/{key}");
            let before = |key: &String| before.get(key).unwrap_or(&Value::Null);
            now.keys().find_map(|key| first_difference(&now[key], before(key), &at_key(key)))
        }
        (Value::Array(now), Value::Array(before)) if now.len() == before.len() => {
            let mut pairs = now.iter().zip(before).enumerate();
            pairs.find_map(|(index, (now, before))| first_difference(now, before, &format!("{at}/{index}")))
        }
        _ if are_same(now, before) => None,
        _ => Some(format!("{at} is {now}, and was {before}")),
    }
}

fn are_same(now: &Value, before: &Value) -> bool {
    match (now.as_f64(), before.as_f64()) {
        (Some(now), Some(before)) => (now - before).abs() <= ROUNDING * now.abs().max(before.abs()),
        _ => now == before,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_figure_that_differs_is_reported() {
        let row = json!({"a": 1, "b": {"c": [1.0, 2.0]}});
        let differs = |other: Value| first_difference(&other, &row, "");
        assert_eq!(differs(row.clone()), None);
        assert_eq!(differs(json!({"a": 1, "b": {"c": [1.0, 2.000_000_000_000_1]}})), None);
        assert_eq!(differs(json!({"a": 1, "b": {"c": [1.0, 2.1]}})).unwrap(), "/b/c/1 is 2.1, and was 2.0");
        assert!(differs(json!({"a": 1, "b": {"c": [1.0]}})).is_some());
        assert_eq!(differs(json!({"a": 1, "d": 2})).unwrap(), "/d is 2, and was null");
    }
}
