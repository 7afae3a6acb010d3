//! A store that the crate `object_store` reaches: a bucket, or a directory of this machine.
//!
//! Credentials and the address of a server come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
//! `AWS_ENDPOINT_URL` and so on), never from a URL.
//!
//! The requests run in a runtime of its own, with two threads for all stores of the process. The crate repeats a
//! request that failed, if that may help.

use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use rt::sync::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use url::Url;

use crate::store::{Created, Creation, Result, Store, StoreError};

/// How many threads wait for replies.
const THREADS: usize = 2;

/// The runtime of all stores of the process, while there is one.
static RUNTIME: Mutex<std::sync::Weak<Runtime>> = Mutex::new(std::sync::Weak::new());

/// What a server wants to know of its client.
#[derive(Clone)]
pub struct Credentials {
    /// The address of the server; that of S3 if there is none.
    pub endpoint: Option<String>,
    /// The name of the key.
    pub access_key: String,
    /// The key.
    pub secret_key: String,
    /// The region.
    pub region: String,
}

/// A store at a URL.
pub struct Remote {
    runtime: Arc<Runtime>,
    client: Arc<dyn ObjectStore>,
    /// Where the objects are in the store.
    place: Path,
    url: Url,
}

impl Remote {
    /// Whether this is a URL, and no path.
    pub fn is_url(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| {
            !scheme.is_empty()
                && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        })
    }

    /// The store at a URL: `s3://bucket/place`, or `file:///directory`. The credentials are those of the environment.
    pub fn at_url(text: &str) -> Result<Remote> {
        let url = checked_url(text)?;
        match url.scheme() {
            "file" => match url.to_file_path() {
                Ok(directory) => Remote::in_directory(&directory),
                Err(()) => refused("it names no directory; write file:///directory, with three slashes"),
            },
            "s3" => Remote::in_bucket(url, AmazonS3Builder::from_env()),
            _ => refused("only s3://bucket/place and file:///directory are supported"),
        }
    }

    /// The bucket at a URL, with these credentials.
    pub fn with_credentials(text: &str, credentials: &Credentials) -> Result<Remote> {
        let builder = AmazonS3Builder::new()
            .with_access_key_id(&credentials.access_key)
            .with_secret_access_key(&credentials.secret_key)
            .with_region(&credentials.region);
        let builder = match &credentials.endpoint {
            Some(endpoint) => {
                builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"))
            }
            None => builder,
        };
        Remote::in_bucket(checked_url(text)?, builder)
    }

    /// A bucket of S3, or of another server with its protocol.
    fn in_bucket(url: Url, builder: AmazonS3Builder) -> Result<Remote> {
        let Some(bucket) = url.host_str() else {
            return refused("it names no bucket; write s3://bucket/place");
        };
        let place = Path::from_url_path(url.path()).map_err(|error| {
            StoreError::Refused(format!("the place in the bucket is not possible: {error}"))
        })?;
        // An error only says that there is a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = builder
            .with_bucket_name(bucket)
            .build()
            .map_err(|error| StoreError::Refused(error.to_string()))?;
        Ok(Remote { runtime: runtime()?, client: Arc::new(client), place, url })
    }

    /// A directory that is used as a store.
    pub fn in_directory(directory: &FilePath) -> Result<Remote> {
        let refused = |why: String| StoreError::Refused(format!("{}: {why}", directory.display()));
        let url = Url::from_directory_path(directory)
            .map_err(|()| refused("the path is not absolute".to_owned()))?;
        let client =
            LocalFileSystem::new_with_prefix(directory).map_err(|error| refused(error.to_string()))?;
        // Without this, a create may be lost with the power.
        let client = client.with_fsync(true).with_automatic_cleanup(true);
        Ok(Remote { runtime: runtime()?, client: Arc::new(client), place: Path::default(), url })
    }

    fn path(&self, name: &str) -> Path {
        self.place.parts().chain(Path::from(name).parts()).collect()
    }

    fn name(&self, path: &Path) -> String {
        match path.prefix_match(&self.place) {
            Some(parts) => parts.collect::<Path>().to_string(),
            None => path.to_string(),
        }
    }

    fn spawn_read(&self, name: &str, range: Option<Range<u64>>) -> JoinHandle<Result<Bytes>> {
        let (client, path, name) = (Arc::clone(&self.client), self.path(name), name.to_owned());
        self.runtime.spawn(async move {
            let options = GetOptions { range: range.map(Into::into), ..GetOptions::default() };
            let found = async { client.get_opts(&path, options).await?.bytes().await };
            found.await.map_err(|error| failure(&name, error))
        })
    }

    /// Waits for a task. A task that panicked is a failure of the request.
    fn wait<T>(&self, task: JoinHandle<Result<T>>) -> Result<T> {
        wait_in(&self.runtime, task)
    }
}

fn refused<T>(why: &str) -> Result<T> {
    Err(StoreError::Refused(why.to_owned()))
}

/// A URL without credentials and options.
fn checked_url(text: &str) -> Result<Url> {
    let Ok(url) = Url::parse(text) else { return refused("it is no URL; write s3://bucket/place") };
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return refused(
            "credentials and options do not belong into the URL; set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and \
             AWS_ENDPOINT_URL in the environment",
        );
    }
    Ok(url)
}

fn runtime() -> Result<Arc<Runtime>> {
    let mut known = RUNTIME.lock();
    if let Some(runtime) = known.upgrade() {
        return Ok(runtime);
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("polder-objects")
        .enable_all()
        .build()
        .map_err(|error| StoreError::Failed(format!("no threads for requests could be started: {error}")))?;
    let runtime = Arc::new(runtime);
    *known = Arc::downgrade(&runtime);
    Ok(runtime)
}

fn wait_in<T>(runtime: &Runtime, task: JoinHandle<Result<T>>) -> Result<T> {
    runtime
        .block_on(task)
        .unwrap_or_else(|error| Err(StoreError::Failed(format!("the request ended early: {error}"))))
}

fn failure(name: &str, error: object_store::Error) -> StoreError {
    match error {
        object_store::Error::NotFound { .. } => StoreError::NotFound(name.to_owned()),
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            StoreError::Refused(error.to_string())
        }
        error => StoreError::Failed(error.to_string()),
    }
}

/// A creation in a task of the runtime.
struct Task {
    runtime: Arc<Runtime>,
    task: JoinHandle<Result<Created>>,
}

impl Creation for Task {
    fn wait(self: Box<Self>) -> Result<Created> {
        wait_in(&self.runtime, self.task)
    }
}

impl Store for Remote {
    fn create(&self, name: &str, bytes: Bytes) -> Box<dyn Creation> {
        let (client, path, name) = (Arc::clone(&self.client), self.path(name), name.to_owned());
        let task = self.runtime.spawn(async move {
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match client.put_opts(&path, PutPayload::from(bytes), options).await {
                Ok(_) => Ok(Created::New),
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                    Ok(Created::Exists)
                }
                Err(error) => Err(failure(&name, error)),
            }
        });
        Box::new(Task { runtime: Arc::clone(&self.runtime), task })
    }

    fn read(&self, name: &str, range: Option<Range<u64>>) -> Result<Bytes> {
        self.wait(self.spawn_read(name, range))
    }

    fn read_many(&self, reads: &[(String, Range<u64>)]) -> Vec<Result<Bytes>> {
        let tasks: Vec<_> =
            reads.iter().map(|(name, range)| self.spawn_read(name, Some(range.clone()))).collect();
        tasks.into_iter().map(|task| self.wait(task)).collect()
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<String>> {
        let (client, path, start) = (Arc::clone(&self.client), self.path(prefix), self.path(after));
        let is_from_start = after.is_empty();
        let listed = prefix.to_owned();
        let task = self.runtime.spawn(async move {
            let found = match is_from_start {
                true => client.list(Some(&path)),
                false => client.list_with_offset(Some(&path), &start),
            };
            let found: Vec<_> = found
                .map_ok(|object| object.location)
                .try_collect()
                .await
                .map_err(|error| failure(&listed, error))?;
            Ok(found)
        });
        let mut names: Vec<String> = self.wait(task)?.iter().map(|path| self.name(path)).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn delete(&self, name: &str) -> Result<()> {
        let (client, path, name) = (Arc::clone(&self.client), self.path(name), name.to_owned());
        let task = self.runtime.spawn(async move {
            match client.delete(&path).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(failure(&name, error)),
            }
        });
        self.wait(task)
    }

    fn describe(&self) -> String {
        self.url.to_string()
    }
}
