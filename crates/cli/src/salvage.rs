//! `polder salvage`: saves names and data of a volume whose log is unreadable, or that cannot be opened for another reason.
//!
//! The volume is opened for reading only and never written. If no header is left, the geometry is derived from the zones.
//! All files go into a directory that is new or empty: no existing file is overwritten, and no existing link is followed,
//! whatever names the volume contains. Each file that is not saved, or that is doubtful, is reported by its name.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use fs::{InodeNo, Kind};
use indicatif::ProgressBar;
use salvage::{Item, Paths, Problem, Salvage, Unsaved};
use serde::Serialize;
use zone::{Device, FsId};

use crate::check::exit_status;
use crate::copy_target::{
    CopyAttributes, Descent, ends_all, make_file, make_node, set_owner, set_permissions_and_times, set_xattrs,
};
use crate::name::AnyPath;
use crate::output::{line, note};
use crate::{progress, volume, way};

/// Save names and data of a volume whose journal and checkpoints are lost into a directory.
///
/// The volume is never written. The exit status is 0 if everything of the last checkpoint was saved, 4 if something
/// was not, 8 if nothing could be saved.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file, block device or URL. It must not be mounted.
    source: PathBuf,
    /// The target: a directory that is empty or does not exist yet.
    target: PathBuf,
    /// The ID of the volume to save, if there are zones of several volumes. An error lists their IDs.
    #[arg(long, value_name = "ID", value_parser = crate::mkfs::fs_id)]
    volume: Option<FsId>,
    /// Write the report as JSON.
    #[arg(long)]
    json: bool,
}

/// The report on saved and unsaved files.
#[derive(Default, Serialize)]
struct Report {
    /// Whether everything was saved.
    complete: bool,
    /// Whether no damaged part can contain a later checkpoint.
    newest: bool,
    files: u64,
    directories: u64,
    /// Symbolic links, devices, pipes, sockets.
    others: u64,
    bytes: u64,
    metadata_pages: u64,
    metadata_pages_damaged: u64,
    metadata_nodes_lost: u64,
    /// Owners, permissions, times and extended attributes that the target refuses.
    attributes_refused: u64,
    problems: Vec<ReportedProblem>,
}

#[derive(Serialize)]
struct ReportedProblem {
    path: AnyPath,
    inode: u64,
    /// `older`, `entries`, `no-inode`, `attributes`, `lost-bytes`, `older-bytes`, `unknown-bytes`, `name`,
    /// `not-created`, `refused`.
    kind: &'static str,
    description: String,
    /// The affected byte ranges, as start and end.
    ranges: Vec<(u64, u64)>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    exit_status(salvage(arguments))
}

/// Returns true if everything was saved.
fn salvage(arguments: &Arguments) -> Result<bool> {
    let shown = arguments.source.display();
    let source = volume::resolve(&arguments.source)?;
    way::refuse_silent(&arguments.target)?;
    let device: Arc<dyn Device> = volume::open_for_salvage(&source, arguments.volume)?.into_device();
    let bar = progress::parts(0, "metadata zones read");
    let opened = Salvage::open(device, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let salvage = opened.with_context(|| shown.to_string())?;
    make_target(&arguments.target)?;
    let mut saving = Saving::new(&salvage, &arguments.target)?;
    let walked = salvage.walk(&mut |item, names| saving.save(item, names));
    saving.bar.finish_and_clear();
    let (problems, names) = walked.with_context(|| arguments.target.display().to_string())?;
    let report = saving.finish(problems, &names)?;
    if arguments.json {
        line!("{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        report.show(&arguments.source)?;
    }
    Ok(report.complete)
}

fn make_target(target: &Path) -> Result<()> {
    let shown = target.display();
    match std::fs::read_dir(target).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => bail!("{shown}: is not empty; name a directory that is empty or does not exist yet"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            DirBuilder::new().mode(0o700).create(target).with_context(|| shown.to_string())
        }
        Err(error) => Err(anyhow!(error).context(shown.to_string())),
    }
}

/// The state while files are saved.
struct Saving<'a> {
    salvage: &'a Salvage,
    target: &'a Path,
    is_root: bool,
    report: Report,
    /// The directory in which files are now created.
    descent: Descent,
    /// This directory and its parents, from the root on. They get their attributes when they are complete, because new
    /// files change the attributes, and the attributes may forbid new files.
    directories: Vec<Item>,
    /// Files that could not be created. Files below them are not created either.
    failed: BTreeSet<InodeNo>,
    bar: ProgressBar,
}

impl<'a> Saving<'a> {
    fn new(salvage: &'a Salvage, target: &'a Path) -> Result<Self> {
        let counts = salvage.tables().counts();
        let report = Report {
            newest: salvage.tables().is_newest(),
            metadata_pages: counts.pages,
            metadata_pages_damaged: counts.pages_damaged,
            metadata_nodes_lost: counts.nodes_lost,
            ..Report::default()
        };
        let is_root = rustix::process::geteuid().is_root();
        let bar = progress::waiting("saving");
        let descent = Descent::begin(target, InodeNo::ROOT.0)?;
        let (directories, failed) = (Vec::new(), BTreeSet::new());
        Ok(Saving { salvage, target, is_root, report, descent, directories, failed, bar })
    }

    /// Saves one item. A refusal of the target is reported. An error that prevents all further copies is returned.
    fn save(&mut self, item: &Item, names: &Paths) -> Result<()> {
        if item.parent.is_some_and(|parent| self.failed.contains(&parent)) {
            self.not_saved(item, names, "its directory was not created");
            return Ok(());
        }
        while item.parent.is_some_and(|parent| parent.0 != self.descent.key()) {
            self.leave(names)?;
        }
        if let Err(error) = self.make(item, names) {
            if ends_all(&error) || error.is::<fs::FsError>() {
                return Err(error);
            }
            self.not_saved(item, names, &format!("{error:#}"));
        }
        Ok(())
    }

    fn not_saved(&mut self, item: &Item, names: &Paths, reason: &str) {
        if !item.is_link {
            self.failed.insert(item.inode);
        }
        self.report_problem(item, names, "not-created", format!("was not created: {reason}"));
    }

    fn report_problem(&mut self, item: &Item, names: &Paths, kind: &'static str, description: String) {
        let path = AnyPath::from(names.path_in(item.parent, &item.name));
        let inode = item.inode.0;
        self.report.problems.push(ReportedProblem { path, inode, kind, description, ranges: Vec::new() });
    }

    /// Completes the current directory.
    fn leave(&mut self, names: &Paths) -> Result<()> {
        let item = self.directories.pop().expect("each item is in a saved directory");
        let to = match item.parent {
            Some(_) => {
                let name = self.descent.leave()?;
                self.descent.at(&name)
            }
            None => self.target.to_owned(),
        };
        self.attributes(&item, &to, names);
        Ok(())
    }

    fn make(&mut self, item: &Item, names: &Paths) -> Result<()> {
        let name = OsStr::from_bytes(&item.name);
        let to = self.descent.at(name);
        if item.is_link {
            if self.failed.contains(&item.inode) {
                bail!("its first name was not created either");
            }
            return self.link(item.inode, names, &to);
        }
        match item.record.kind {
            Kind::Directory => {
                if item.parent.is_some() {
                    DirBuilder::new().mode(0o700).create(&to)?;
                    self.descent.enter(name, item.inode.0)?;
                }
                self.report.directories += 1;
                self.directories.push(item.clone());
                return Ok(());
            }
            Kind::File => self.file(item, names, &to)?,
            Kind::Symlink => symlink(OsStr::from_bytes(&item.record.content), &to)?,
            kind => make_node(kind, item.record.device, &to)?,
        }
        self.report.files += u64::from(item.record.kind == Kind::File);
        self.report.others += u64::from(item.record.kind != Kind::File);
        self.attributes(item, &to, names);
        Ok(())
    }

    /// Creates a further name of a saved file.
    fn link(&self, inode: InodeNo, names: &Paths, to: &Path) -> Result<()> {
        let Some((Some(directory), name)) = names.first(inode) else {
            bail!("it was not saved under any name")
        };
        let name = OsStr::from_bytes(name);
        if directory.0 == self.descent.key() {
            return Ok(std::fs::hard_link(self.descent.at(name), to)?);
        }
        let (mut way, mut above) = (Vec::new(), directory);
        while let Some((Some(parent), name)) = names.first(above) {
            way.push(OsStr::from_bytes(name));
            above = parent;
        }
        Ok(std::fs::hard_link(self.descent.elsewhere(way.into_iter().rev())?.at(name), to)?)
    }

    fn file(&mut self, item: &Item, names: &Paths, to: &Path) -> Result<()> {
        let (problems, bytes) = make_file(to, |file| {
            if item.has_record {
                file.set_len(item.record.size)?;
            }
            let (mut written, mut bytes) = (Ok(()), 0);
            let problems = self.salvage.contents(item, &mut |offset, data| {
                if written.is_ok() {
                    written = file.write_all_at(data, offset);
                    bytes += data.len() as u64;
                }
            })?;
            written?;
            Ok((problems, bytes))
        })?;
        self.report.bytes += bytes;
        self.bar.set_message(format!("saving: {} files", self.report.files));
        self.report.problems.extend(problems.into_iter().map(|what| {
            let path = names.path_in(item.parent, &item.name);
            ReportedProblem::new(&Problem { path, inode: item.inode, what })
        }));
        Ok(())
    }

    fn attributes(&mut self, item: &Item, to: &Path, names: &Paths) {
        let (attributes, mut refused) = (CopyAttributes::from(&item.record), Vec::new());
        if self.is_root && item.has_record {
            set_owner(&attributes, to, &mut refused);
        }
        set_xattrs(&item.xattrs, to, &mut refused);
        if item.has_record {
            set_permissions_and_times(&attributes, to, &mut refused);
        }
        self.report.attributes_refused += refused.len() as u64;
        for refused in refused {
            self.report_problem(
                item,
                names,
                "refused",
                format!("{} cannot be set there: {}", refused.attribute, refused.error),
            );
        }
    }

    fn finish(mut self, problems: Vec<Problem>, names: &Paths) -> Result<Report> {
        while !self.directories.is_empty() {
            self.leave(names)?;
        }
        let mut report = self.report;
        report.problems.extend(problems.iter().map(ReportedProblem::new));
        report.problems.sort_by(|one, other| one.path.cmp(&other.path));
        report.complete = report.newest && report.problems.is_empty();
        Ok(report)
    }
}

impl Report {
    fn show(&self, source: &Path) -> Result<()> {
        let source = source.display();
        for problem in &self.problems {
            let root = if problem.path.as_os_str().is_empty() { "/" } else { "" };
            line!("{source}: {}{root}: {}", problem.path, problem.description)?;
        }
        if !self.newest {
            line!(
                "{source}: a later checkpoint may be among the damaged pages: everything may be older than the last state"
            )?;
        }
        note!(
            "{source}: saved {} files, {} directories, {} others, {} bytes",
            self.files,
            self.directories,
            self.others,
            self.bytes
        )?;
        note!(
            "{source}: {} pages of metadata read, {} damaged, {} nodes lost, {} attributes refused",
            self.metadata_pages,
            self.metadata_pages_damaged,
            self.metadata_nodes_lost,
            self.attributes_refused
        )?;
        line!(
            "{source}: changes since the last checkpoint, if there were any, were in the journal and are missing"
        )?;
        match self.problems.len() {
            0 if self.newest => note!("{source}: everything of the last checkpoint was saved"),
            1 => line!("{source}: 1 problem"),
            count => line!("{source}: {count} problems"),
        }
    }
}

impl ReportedProblem {
    fn new(problem: &Problem) -> Self {
        let none: &[Range<u64>] = &[];
        let (kind, description, ranges) = match &problem.what {
            Unsaved::Older => ("older", "may be older than its last state".to_owned(), none),
            Unsaved::Entries { found, stored: Some(stored) } => {
                ("entries", format!("{found} of {stored} entries were found"), none)
            }
            Unsaved::Entries { found, stored: None } => {
                ("entries", format!("{found} entries were found; there may have been more"), none)
            }
            Unsaved::NoInode => {
                ("no-inode", "its size, owner, permissions and times are lost".to_owned(), none)
            }
            Unsaved::Attributes => ("attributes", "extended attributes are missing".to_owned(), none),
            Unsaved::Name => ("name", "is not a valid file name".to_owned(), none),
            Unsaved::LostBytes(ranges) => ("lost-bytes", affected("cannot be read", ranges), &ranges[..]),
            Unsaved::OlderBytes(ranges) => {
                ("older-bytes", affected("may be of another version", ranges), &ranges[..])
            }
            Unsaved::UnknownBytes(ranges) => ("unknown-bytes", affected("may be lost", ranges), &ranges[..]),
        };
        ReportedProblem {
            path: problem.path.clone().into(),
            inode: problem.inode.0,
            kind,
            description,
            ranges: ranges.iter().map(|range| (range.start, range.end)).collect(),
        }
    }
}

fn affected(condition: &str, ranges: &[Range<u64>]) -> String {
    let ranges: Vec<String> =
        ranges.iter().map(|range| format!("{} to {}", range.start, range.end)).collect();
    format!("bytes {} {condition}", ranges.join(", "))
}
