//! An application with a volume of its own: a small store of documents that several threads use.
//!
//! `cargo run -p polder --example embed -- [VOLUME]`. Run it twice with the same volume: the second run finds the
//! documents of the first. Kill it in between: every document that was stored is there.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use polder::{Error, FsError, Lifetime, Result, Volume};

/// Documents with numbers. A document that was stored survives any crash.
struct Documents {
    volume: Volume,
    next: AtomicU64,
}

impl Documents {
    /// Opens the store, or makes it.
    fn open(path: &Path) -> Result<Documents> {
        let volume = match path.exists() {
            true => Volume::open(path)?,
            false => Volume::create(path).size(1 << 30).label("documents").open()?,
        };
        volume.create_dir_all("/documents")?;
        // Remains of documents that a crash has interrupted.
        if volume.exists("/new")? {
            volume.remove_dir_all("/new")?;
        }
        volume.create_dir("/new")?;
        // A hint, which new files inherit: their data is stored apart from data that dies soon.
        volume.set_lifetime("/new", Lifetime::Long)?;
        let numbers = volume.read_dir("/documents")?.map(|entry| {
            Ok(entry?.file_name().to_str().and_then(|name| name.parse::<u64>().ok()).unwrap_or(0))
        });
        let last = numbers.collect::<Result<Vec<u64>>>()?.into_iter().max();
        Ok(Documents { volume, next: AtomicU64::new(last.map_or(0, |last| last + 1)) })
    }

    /// Stores a document and returns its number. It is durable when this returns.
    fn store(&self, text: &str) -> Result<u64> {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let draft = format!("/new/{number}");
        let file = self.volume.options().write(true).create_new(true).open(&draft)?;
        file.append(text.as_bytes())?;
        self.volume.rename(&draft, format!("/documents/{number}"))?;
        // The name and the contents together.
        file.sync_data()?;
        Ok(number)
    }

    /// The text of a document, if it exists.
    fn find(&self, number: u64) -> Result<Option<String>> {
        match self.volume.read_to_string(format!("/documents/{number}")) {
            Err(Error::Path { cause: FsError::NotFound, .. }) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Ends the use of the store. Dropping it would do the same, but could not report an error.
    fn close(self) -> Result<()> {
        self.volume.close()
    }
}

fn main() -> Result<()> {
    let place = tempfile::tempdir().expect("the system has a directory for temporary files");
    let path =
        std::env::args_os().nth(1).map_or_else(|| place.path().join("documents.polder"), PathBuf::from);
    let documents = Documents::open(&path)?;
    println!("{} documents before this run", documents.next.load(Ordering::SeqCst));
    let stored: Vec<u64> = std::thread::scope(|scope| {
        let documents = &documents;
        let store = |thread| move || documents.store(&format!("a document of thread {thread}"));
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(store(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect::<Result<_>>()
    })?;
    for number in stored {
        println!("{number}: {}", documents.find(number)?.unwrap_or_default());
    }
    assert_eq!(documents.find(u64::MAX)?, None);
    documents.close()
}
