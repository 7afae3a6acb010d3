//! `cargo system space`: write amplification and latency of volumes.
//!
//! Every cell is a run of `polder-space` in memory, in the device time of a stated model, with an ideal GC for
//! comparison. Nothing depends on the machine. Further runs measure how much of a device files can use, the effect of
//! GC on a fragmented file, and the latencies of other clients beside a writer. The full form rewrites
//! `docs/results/space.md` and its plots. The quick form writes the same for fewer cells into the build's folder (with
//! `--docs` into `docs/results`). Each run is recorded in the build's folder as it ends, so that `--resume` continues an
//! interrupted run.
//!
//! The command fails if a bound does not hold, after everything has been written. It fails before that if no reason
//! is known for the violation.

mod again;
mod beside;
mod bounds;
mod cells;
mod pieces;
mod plots;
mod reasons;
mod row;
mod runs;
mod tables;
mod usable;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use support::shell::Line;
use support::workspace;

use row::Row;
use runs::Case;

/// The seed of the recorded cells.
const SEED: u64 = 20_270_101;
/// The folder of the page and its plots in the sources.
const RESULTS: &str = "docs/results";
/// The seed of the runs that fill devices, and of the fragmented file. It only determines what is overwritten, and
/// has little effect.
const SEED_OF_DEVICES: u64 = 20_261_218;

/// Draws the rows of one workload, with its name, into a file.
type Draw = fn(&Path, &str, &[&Row]) -> Result<()>;

/// The plots of each workload, by the prefix of their file names.
const PLOTS: [(&str, Draw); 5] = [
    ("amplification", plots::amplification),
    ("causes", plots::causes),
    ("metadata", plots::causes_of_metadata),
    ("latency", plots::latencies),
    ("half-rate", plots::latencies_at_half_rate),
];

/// `cargo system space [--quick] [--resume [--again N]] [--docs] [--seed SEED] [--only WORKLOAD]`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fewer cells, in at most ten minutes.
    #[arg(long)]
    quick: bool,
    /// Keep the cells that were recorded before.
    #[arg(long)]
    resume: bool,
    /// Repeat this many of them, drawn from all, and fail if one differs.
    #[arg(long, requires = "resume", default_value_t = 0)]
    again: usize,
    /// The seed of everything random in cells, and in the runs beside a writer.
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// Write the page and its plots into `docs/results`, also from the quick form.
    #[arg(long, conflicts_with = "only")]
    docs: bool,
    /// Only cells of this workload, or only `usable`, `pieces` or `beside`. The documents are not changed.
    #[arg(long)]
    only: Option<String>,
}

/// The parts that can be run alone.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let workloads = cells::WORKLOADS.iter().map(|workload| workload.name);
    workloads.chain([usable::NAME, pieces::NAME, beside::NAME])
}

/// The command that builds the measuring program.
pub(crate) fn build_line() -> Line {
    Line::new("cargo build --release --locked --package polder-space")
}

/// Runs everything, writes tables and plots, and checks the bounds.
pub(crate) fn run(args: &Args) -> Result<()> {
    let chosen = Chosen::by(args)?;
    build_line().run()?;
    let folder = workspace::target_dir()?.join("space");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    println!("seed: {}", args.seed);
    let seen = chosen.run(args, &folder)?;
    let recorded = (!args.quick || args.docs) && args.only.is_none();
    let documents = if recorded { workspace::root().join(RESULTS) } else { folder };
    let (page, verdicts) = write(&seen, args, &documents)?;
    println!("{page}\nwritten to {}", documents.join("space.md").display());
    let failed = verdicts.iter().filter(|bound| !bound.holds()).count();
    ensure!(!verdicts.is_empty(), "no bound was checked");
    ensure!(failed == 0, "{failed} of {} bounds do not hold", verdicts.len());
    println!("all {} bounds hold", verdicts.len());
    Ok(())
}

/// The runs to do.
struct Chosen {
    cells: Vec<cells::Cell>,
    usable: Vec<usable::Usable>,
    pieces: Vec<pieces::Pieces>,
    beside: Vec<beside::Beside>,
}

/// The results.
struct Seen {
    cells: Vec<Row>,
    usable: Vec<usable::Row>,
    pieces: Vec<pieces::Row>,
    beside: Vec<beside::Row>,
}

impl Chosen {
    fn by(args: &Args) -> Result<Chosen> {
        let (mut cells, mut usable) = match args.quick {
            true => (cells::quick(args.seed), usable::quick(SEED_OF_DEVICES)),
            false => (cells::all(args.seed), usable::all(SEED_OF_DEVICES)),
        };
        let mut pieces = vec![pieces::Pieces { seed: SEED_OF_DEVICES }];
        let mut beside = beside::all(args.seed, args.quick);
        if let Some(only) = &args.only {
            cells.retain(|cell| cell.workload == only);
            usable.retain(|_| usable::NAME == only);
            pieces.retain(|_| pieces::NAME == only);
            beside.retain(|_| beside::NAME == only);
            let known: Vec<&str> = names().collect();
            ensure!(known.contains(&only.as_str()), "there is no `{only}`; there are: {}", known.join(", "));
        }
        Ok(Chosen { cells, usable, pieces, beside })
    }

    /// Runs the cases. Recorded rows are kept if that is requested.
    fn run(&self, args: &Args, folder: &Path) -> Result<Seen> {
        let cells = run_all(&self.cells, args, &folder.join(format!("{}.jsonl", form(args))))?;
        again::compare(&self.cells, &cells, args, folder)?;
        Ok(Seen {
            cells,
            usable: run_all(&self.usable, args, &folder.join(format!("{}-usable.jsonl", form(args))))?,
            pieces: run_all(&self.pieces, args, &folder.join(format!("{}-pieces.jsonl", form(args))))?,
            beside: run_all(&self.beside, args, &folder.join(format!("{}-beside.jsonl", form(args))))?,
        })
    }
}

fn form(args: &Args) -> &'static str {
    if args.quick { "quick" } else { "full" }
}

fn run_all<C: Case>(cases: &[C], args: &Args, record: &Path) -> Result<Vec<C::Row>> {
    if cases.is_empty() {
        return Ok(Vec::new());
    }
    if !args.resume && record.exists() {
        std::fs::remove_file(record).with_context(|| format!("cannot remove {}", record.display()))?;
    }
    runs::run(&program()?, cases, record)
}

/// The measuring program.
fn program() -> Result<PathBuf> {
    Ok(workspace::target_dir()?.join("release/polder-space"))
}

/// Writes the page and its plots.
fn write(seen: &Seen, args: &Args, documents: &Path) -> Result<(String, Vec<bounds::Bound>)> {
    let plots = documents.join("space");
    std::fs::create_dir_all(&plots).with_context(|| format!("cannot make {}", plots.display()))?;
    let mut verdicts = bounds::of(&seen.cells);
    let mut page = heading(&seen.cells, args)?;
    for (name, title, rows) in tables::by_workload(&seen.cells) {
        write!(page, "\n## {name}: {title}\n\n{}\n", tables::amplification(&rows))?;
        writeln!(page, "{}", tables::latencies(&rows))?;
        for (what, draw) in PLOTS {
            let file = format!("{what}-{name}.svg");
            draw(&plots.join(&file), name, &rows)?;
            writeln!(page, "![{name}: {what}](space/{file})")?;
        }
    }
    let usable = (!seen.usable.is_empty()).then(|| usable::section(&seen.usable));
    let pieces = (!seen.pieces.is_empty()).then(|| pieces::section(&seen.pieces));
    let beside = (!seen.beside.is_empty()).then(|| beside::section(&seen.beside));
    for (section, bounds) in usable.into_iter().chain(pieces).chain(beside) {
        page += &section;
        verdicts.extend(bounds);
    }
    write!(page, "\n## Bounds\n\n{}{}", tables::bounds(&verdicts), reasons::section(&verdicts)?)?;
    let path = documents.join("space.md");
    std::fs::write(&path, &page).with_context(|| format!("cannot write {}", path.display()))?;
    Ok((page, verdicts))
}

fn heading(rows: &[Row], args: &Args) -> Result<String> {
    let compared: u64 = rows.iter().map(|row| row.compared_blocks).sum();
    let mut offers: Vec<String> = Vec::new();
    for row in rows {
        let raw = u64::from(row.zones) * row.zone_bytes;
        let offer = row.offered_bytes as f64 / raw as f64 * 100.0;
        let printed = format!("{}: {offer:.1} % of {} MiB", row.geometry(), raw >> 20);
        if !offers.contains(&printed) {
            offers.push(printed);
        }
    }
    Ok(format!(
        include_str!("space/heading.md"),
        form = form(args),
        commits = commits(rows.iter().map(|row| &*row.commit)),
        again = again::sentence(rows.len(), args)?,
        seed = args.seed,
        warm = cells::WARM,
        measure = cells::MEASURE,
        cells = rows.len(),
        compared = compared,
        full = rows.iter().filter(|row| bounds::is_asked_of_ideal(row) && row.ideal.is_none()).count(),
        offers = if offers.is_empty() { "no cell was run".to_owned() } else { offers.join("; ") },
    ))
}

/// The commits at which the rows were made, and how many at each.
fn commits<'a>(rows: impl Iterator<Item = &'a str>) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for commit in rows {
        let changes = if commit.ends_with(workspace::CHANGED) { workspace::CHANGED } else { "" };
        let commit = commit.get(..7).unwrap_or("an unknown commit").to_owned() + changes;
        match counts.iter_mut().find(|(known, _)| *known == commit) {
            Some((_, count)) => *count += 1,
            None => counts.push((commit, 1)),
        }
    }
    counts.iter().map(|(commit, count)| format!("{count} at {commit}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
