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
use salvage::{Item, Paths, Salvage, Trouble, Unsaved};
use serde::Serialize;
use zone::{Device, FsId};

use crate::check::exit_status;
use crate::copy_target::{
    CopyAttributes, Descent, ends_all, make_file, make_node, set_owner, set_permissions_and_times, set_xattrs,
};
use crate::name::AnyPath;
use crate::output::line;
use crate::{progress, volume, way};

/// Save names and data of a volume whose journal and checkpoints are lost into a directory.
///
/// The volume is never written. The exit status is 0 when everything was saved that the last checkpoint had, 4
/// when something was not, 8 when nothing could be.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The volume's file or block device; not mounted.
    source: PathBuf,
    /// Where files go: a directory that is empty, or is not there yet.
    target: PathBuf,
    /// Whose files to save, where zones of several volumes are left: an identity, as a refusal names them.
    #[arg(long, value_name = "ID", value_parser = crate::mkfs::fs_id)]
    volume: Option<FsId>,
    /// Write what was saved and what was not as JSON.
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
    troubles: Vec<ReportedTrouble>,
}

#[derive(Serialize)]
struct ReportedTrouble {
    path: AnyPath,
    inode: u64,
    /// `older`, `entries`, `no-inode`, `attributes`, `lost-bytes`, `older-bytes`, `unknown-bytes`, `name`,
    /// `not-made`, `refused`.
    kind: &'static str,
    what: String,
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
    let bar = progress::parts(0, "zones of metadata read");
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
    let (troubles, names) = walked.with_context(|| arguments.target.display().to_string())?;
    let report = saving.finish(troubles, &names)?;
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
        Ok(false) => bail!("{shown}: is not empty; name a directory that is, or one that is not there yet"),
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
            self.not_saved(item, names, "the directory that it is in was not made");
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

    fn not_saved(&mut self, item: &Item, names: &Paths, why: &str) {
        if !item.is_link {
            self.failed.insert(item.inode);
        }
        self.report_trouble(item, names, "not-made", format!("was not made: {why}"));
    }

    fn report_trouble(&mut self, item: &Item, names: &Paths, kind: &'static str, what: String) {
        let path = AnyPath::from(names.path_in(item.parent, &item.name));
        let inode = item.inode.0;
        self.report.troubles.push(ReportedTrouble { path, inode, kind, what, ranges: Vec::new() });
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
                bail!("nor was the first of its names");
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
        let Some((Some(directory), name)) = names.first(inode) else { bail!("it was saved nowhere") };
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
        let (troubles, bytes) = make_file(to, |file| {
            if item.has_record {
                file.set_len(item.record.size)?;
            }
            let (mut written, mut bytes) = (Ok(()), 0);
            let troubles = self.salvage.contents(item, &mut |offset, data| {
                if written.is_ok() {
                    written = file.write_all_at(data, offset);
                    bytes += data.len() as u64;
                }
            })?;
            written?;
            Ok((troubles, bytes))
        })?;
        self.report.bytes += bytes;
        self.bar.set_message(format!("saving: {} files", self.report.files));
        self.report.troubles.extend(troubles.into_iter().map(|what| {
            let path = names.path_in(item.parent, &item.name);
            ReportedTrouble::new(&Trouble { path, inode: item.inode, what })
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
            self.report_trouble(
                item,
                names,
                "refused",
                format!("{} cannot be set there: {}", refused.what, refused.why),
            );
        }
    }

    fn finish(mut self, troubles: Vec<Trouble>, names: &Paths) -> Result<Report> {
        while !self.directories.is_empty() {
            self.leave(names)?;
        }
        let mut report = self.report;
        report.troubles.extend(troubles.iter().map(ReportedTrouble::new));
        report.troubles.sort_by(|one, other| one.path.cmp(&other.path));
        report.complete = report.newest && report.troubles.is_empty();
        Ok(report)
    }
}

impl Report {
    fn show(&self, source: &Path) -> Result<()> {
        let source = source.display();
        for trouble in &self.troubles {
            let root = if trouble.path.as_os_str().is_empty() { "/" } else { "" };
            line!("{source}: {}{root}: {}", trouble.path, trouble.what)?;
        }
        if !self.newest {
            line!(
                "{source}: a later state may be among what is damaged: everything may be older than it was last"
            )?;
        }
        line!(
            "{source}: saved {} files, {} directories, {} others, {} bytes",
            self.files,
            self.directories,
            self.others,
            self.bytes
        )?;
        line!(
            "{source}: {} pages of metadata read, {} damaged, {} nodes lost, {} attributes refused",
            self.metadata_pages,
            self.metadata_pages_damaged,
            self.metadata_nodes_lost,
            self.attributes_refused
        )?;
        line!("{source}: what was changed since the last checkpoint stood in the journal and is not there")?;
        match self.troubles.len() {
            0 if self.newest => line!("{source}: all of the last checkpoint was saved"),
            1 => line!("{source}: 1 thing is not as it was"),
            count => line!("{source}: {count} things are not as they were"),
        }
    }
}

impl ReportedTrouble {
    fn new(trouble: &Trouble) -> Self {
        let none: &[Range<u64>] = &[];
        let (kind, what, ranges) = match &trouble.what {
            Unsaved::Older => ("older", "may be older than it was last".to_owned(), none),
            Unsaved::Entries { found, stored: Some(stored) } => {
                ("entries", format!("{found} of {stored} entries were found"), none)
            }
            Unsaved::Entries { found, stored: None } => {
                ("entries", format!("{found} entries were found, there may have been more"), none)
            }
            Unsaved::NoInode => {
                ("no-inode", "its size, owner, permissions and times are lost".to_owned(), none)
            }
            Unsaved::Attributes => ("attributes", "extended attributes are missing".to_owned(), none),
            Unsaved::Name => ("name", "no file can have this name".to_owned(), none),
            Unsaved::LostBytes(ranges) => ("lost-bytes", said("cannot be read", ranges), &ranges[..]),
            Unsaved::OlderBytes(ranges) => {
                ("older-bytes", said("may be of another version", ranges), &ranges[..])
            }
            Unsaved::UnknownBytes(ranges) => ("unknown-bytes", said("may be lost", ranges), &ranges[..]),
        };
        ReportedTrouble {
            path: trouble.path.clone().into(),
            inode: trouble.inode.0,
            kind,
            what,
            ranges: ranges.iter().map(|range| (range.start, range.end)).collect(),
        }
    }
}

fn said(what: &str, ranges: &[Range<u64>]) -> String {
    let ranges: Vec<String> =
        ranges.iter().map(|range| format!("{} to {}", range.start, range.end)).collect();
    format!("bytes {} {what}", ranges.join(", "))
}
