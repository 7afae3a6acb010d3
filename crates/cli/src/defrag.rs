//! `polder defrag`: defragments files.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::files::{FileLayout, Files, Named};
use crate::fragments::describe;
use crate::interrupt::Interrupt;
use crate::name::AnyPath;
use crate::output::note;
use crate::unmounted::UnmountedVolume;
use crate::{bytes, output, progress};

/// Defragment files, if that saves reads.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Files and directories of a mounted volume; or a volume that is not mounted, and paths inside it.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Only list the files that would be defragmented.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

/// The work done so far.
#[derive(Default)]
struct Done {
    /// Fragmented files.
    scattered: usize,
    /// Those of them that are less fragmented now.
    files: usize,
    bytes: u64,
}

impl Done {
    fn message(&self, all: usize) -> String {
        match self.scattered {
            0 => format!("none of {all} files is scattered, nothing to do"),
            _ => format!("{} of {all} files defragmented, {} moved", self.files, bytes::show(self.bytes)),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.dry_run {
        let mut files = Files::find(&arguments.paths, UnmountedVolume::open)?;
        let scattered = find_scattered(&mut files, &|| false)?;
        let line = |(file, layout): &(Named, FileLayout)| {
            format!("{}: {}\n", AnyPath::from(&*file.path), describe(layout))
        };
        return output::say(scattered.iter().map(line).collect::<String>());
    }
    let interrupt = Interrupt::watch()?;
    let mut files = Files::find(&arguments.paths, UnmountedVolume::open_to_change)?;
    files.refuse_read_only()?;
    let mut done = Done::default();
    let worked = defragment_all(&mut files, &interrupt, &mut done);
    files.close()?;
    worked?;
    if done.scattered > 0 || !interrupt.has_arrived() {
        note!("{}", done.message(files.files.len()))?;
    }
    if interrupt.has_arrived() {
        bail!("interrupted; completed work stays, run the command again to continue");
    }
    Ok(())
}

/// The files that are worth defragmenting.
fn find_scattered(files: &mut Files, stop: &dyn Fn() -> bool) -> Result<Vec<(Named, FileLayout)>> {
    let waiting = progress::waiting("searching for scattered files");
    let mut scattered = Vec::new();
    for file in files.files.clone() {
        if stop() {
            break;
        }
        if let Some(layout) = files.layout(&file)?
            && layout.scattered
        {
            scattered.push((file, layout));
        }
    }
    waiting.finish_and_clear();
    Ok(scattered)
}

fn defragment_all(files: &mut Files, interrupt: &Interrupt, done: &mut Done) -> Result<()> {
    let scattered = find_scattered(files, &|| interrupt.has_arrived())?;
    done.scattered = scattered.len();
    let bar = progress::moving(scattered.iter().map(|(_, layout)| layout.bytes()).sum());
    let mut before_this = 0;
    for (file, before) in scattered {
        let mut from = Some(0);
        while let Some(at) = from.filter(|_| !interrupt.has_arrived()) {
            let piece = files.defragment(&file, at)?;
            done.bytes += piece.blocks_moved * u64::from(before.block_size);
            from = piece.next;
            let passed = piece.next.map_or(before.bytes(), |next| next * u64::from(before.block_size));
            bar.set_position(before_this + passed.min(before.bytes()));
        }
        before_this += before.bytes();
        if let Some(after) = files.layout(&file)?.filter(|after| is_better(&before, after)) {
            done.files += 1;
            bar.suspend(|| note!("{}: {}", AnyPath::from(&*file.path), change(&before, &after)))?;
        }
        if interrupt.has_arrived() {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn is_better(before: &FileLayout, after: &FileLayout) -> bool {
    (after.reads, after.fragments) < (before.reads, before.fragments)
}

/// The message about the layout before and after.
fn change(before: &FileLayout, after: &FileLayout) -> String {
    let FileLayout { fragments, reads, .. } = before;
    format!("{fragments} fragments and {reads} reads, now {} and {}", after.fragments, after.reads)
}
