//! `cargo xtask space`: what a volume writes for what its users write, and how long they wait.
//!
//! Every cell is a run of `polder-space` in memory, in device time of a stated model, beside an ideal
//! cleaner; nothing depends on the machine. The full form rewrites `docs/space.md` and its plots; the
//! quick one writes the same into the build's folder (with `--docs` there too), for fewer cells. Each cell is recorded in the
//! build's folder as it ends, so that a run that was interrupted goes on with `--resume`.
//!
//! It fails when a bound does not hold, after everything has been written.

mod bounds;
mod cells;
mod plots;
mod row;
mod tables;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::shell::Line;
use crate::workspace;
use row::Row;

/// The seed of the recorded runs.
const SEED: u64 = 20_261_122;

/// `cargo xtask space [--quick] [--resume] [--docs] [--seed SEED] [--only WORKLOAD]`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fewer cells, in at most ten minutes.
    #[arg(long)]
    quick: bool,
    /// Keep the cells that were recorded before, by the same build of Polder.
    #[arg(long)]
    resume: bool,
    /// The seed of everything random.
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// Write the page and its plots into `docs`, from the quick form too.
    #[arg(long, conflicts_with = "only")]
    docs: bool,
    /// Only cells of this workload; the documents stay as they are.
    #[arg(long)]
    only: Option<String>,
}

/// Runs all cells, writes tables and plots, and judges.
pub(crate) fn run(args: &Args) -> Result<()> {
    Line::new("cargo build --release --locked --package polder-space").run()?;
    let target = workspace::target_dir()?;
    let form = if args.quick { "quick" } else { "full" };
    let folder = target.join("space");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let record = folder.join(format!("{form}.jsonl"));
    if !args.resume && record.exists() {
        std::fs::remove_file(&record).with_context(|| format!("cannot remove {}", record.display()))?;
    }
    let mut cells = if args.quick { cells::quick(args.seed) } else { cells::all(args.seed) };
    if let Some(only) = &args.only {
        cells.retain(|cell| cell.workload == only);
        let known: Vec<&str> = cells::WORKLOADS.iter().map(|workload| workload.name).collect();
        ensure!(!cells.is_empty(), "there is no workload `{only}`; there are: {}", known.join(", "));
    }
    println!("seed: {}\nrecord: {}", args.seed, record.display());
    let rows = cells::run(target.join("release/polder-space"), &cells, &record)?;
    let recorded = (!args.quick || args.docs) && args.only.is_none();
    let documents = if recorded { workspace::root().join("docs") } else { folder };
    let about = About { form, seed: args.seed, first: cells[0] };
    let (page, verdicts) = write(&rows, &about, &documents)?;
    println!("{page}\nwritten to {}", documents.join("space.md").display());
    let failed = verdicts.iter().filter(|bound| !bound.holds()).count();
    ensure!(!verdicts.is_empty(), "no bound was judged");
    ensure!(failed == 0, "{failed} of {} bounds do not hold", verdicts.len());
    println!("all {} bounds hold", verdicts.len());
    Ok(())
}

/// What the page says of the run.
struct About {
    form: &'static str,
    seed: u64,
    /// All cells write as much as this one, in percent of their level.
    first: cells::Cell,
}

/// Writes the page and its plots.
fn write(rows: &[Row], about: &About, documents: &Path) -> Result<(String, Vec<bounds::Bound>)> {
    let plots = documents.join("space");
    std::fs::create_dir_all(&plots).with_context(|| format!("cannot make {}", plots.display()))?;
    let verdicts = bounds::of(rows);
    let mut page = heading(rows, about)?;
    for (name, title, rows) in tables::by_workload(rows) {
        write!(page, "\n## {name}: {title}\n\n{}\n", tables::amplification(&rows))?;
        writeln!(page, "{}", tables::latencies(&rows))?;
        let drawn = [
            (
                plot(&plots, "amplification", name),
                plots::amplification as fn(&Path, &str, &[&Row]) -> Result<()>,
            ),
            (plot(&plots, "latency", name), plots::latencies),
        ];
        for (path, draw) in drawn {
            draw(&path, name, &rows)?;
            let file = path.file_name().expect("it was joined from one").to_string_lossy();
            writeln!(page, "![{name}](space/{file})")?;
        }
    }
    write!(page, "\n## Bounds\n\n{}", tables::bounds(&verdicts))?;
    let path = documents.join("space.md");
    std::fs::write(&path, &page).with_context(|| format!("cannot write {}", path.display()))?;
    Ok((page, verdicts))
}

fn plot(plots: &Path, what: &str, workload: &str) -> PathBuf {
    plots.join(format!("{what}-{workload}.svg"))
}

fn heading(rows: &[Row], about: &About) -> Result<String> {
    let commit = workspace::head_commit()?;
    let compared: u64 = rows.iter().map(|row| row.compared_blocks).sum();
    let mut offers: Vec<String> = Vec::new();
    for row in rows {
        let raw = u64::from(row.zones) * row.zone_bytes;
        let offer = row.offered_bytes as f64 / raw as f64 * 100.0;
        let said = format!("{}: {offer:.1} % of {} MiB", row.geometry(), raw >> 20);
        if !offers.contains(&said) {
            offers.push(said);
        }
    }
    Ok(format!(
        include_str!("space/heading.md"),
        form = about.form,
        commit = commit,
        seed = about.seed,
        warm = about.first.warm,
        measure = about.first.measure,
        cells = rows.len(),
        compared = compared,
        offers = offers.join("; "),
    ))
}

#[cfg(test)]
mod tests;
