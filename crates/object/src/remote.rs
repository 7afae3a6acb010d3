//! A store that the crate `object_store` reaches: a bucket, or a directory of this machine.
//!
//! Credentials and the address of a server come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
//! `AWS_ENDPOINT_URL` and so on), never from a URL.
//!
//! The requests run in a runtime of its own, with two threads for all stores of the process. The crate repeats a
//! request that failed, if that may help: for minutes, but only for seconds as long as the store has never answered,
//! because then its address is likely to be wrong.

mod failure;

use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Key, S3ConditionalPut};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, RetryConfig};
use rt::sync::Mutex;
use rt::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use url::Url;

use self::failure::failure;
use crate::store::{Created, Creation, Result, Store, StoreError};

/// How many threads wait for replies.
const THREADS: usize = 2;

/// How often, and for how long, a request is repeated as long as the store has never answered.
const FIRST_RETRIES: usize = 3;
const FIRST_PATIENCE: Duration = Duration::from_secs(10);

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
    /// The same with little patience.
    first_client: Arc<dyn ObjectStore>,
    has_answered: Arc<AtomicBool>,
    /// Where the objects are in the store.
    place: Path,
    url: Url,
}

impl Remote {
    /// The URL in the form that all names of a place have in common.
    pub fn normal_url(text: &str) -> Result<String> {
        let url = checked_url(text)?;
        match url.scheme() {
            "file" => directory_at(&url).and_then(|directory| Remote::url_of_directory(&directory)),
            "s3" => normal_place(url),
            _ => refused("only s3://bucket/place and file:///directory are supported"),
        }
    }

    /// The directory that a URL names, if it does.
    pub fn directory_of_url(text: &str) -> Option<PathBuf> {
        let url = checked_url(text).ok().filter(|url| url.scheme() == "file")?;
        directory_at(&url).ok()
    }

    /// The URL of a directory of this machine, whose path is absolute.
    pub fn url_of_directory(directory: &FilePath) -> Result<String> {
        match Url::from_directory_path(directory) {
            Ok(url) => Ok(shown(&url)),
            Err(()) => refused("the path of the directory is not absolute"),
        }
    }

    /// The store at a URL: `s3://bucket/place`, or `file:///directory`. The credentials are those of the environment.
    pub fn at_url(text: &str) -> Result<Remote> {
        let url = checked_url(text)?;
        match url.scheme() {
            "file" => Remote::in_directory(&directory_at(&url)?),
            "s3" => {
                bucket_of(&url)?;
                Remote::in_bucket(url, from_environment()?)
            }
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
        let bucket = bucket_of(&url)?.to_owned();
        let place = place_in_bucket(&url)?;
        // An error only says that there is a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let build = |builder: AmazonS3Builder| match builder.build() {
            Ok(client) => Ok(Arc::new(client) as Arc<dyn ObjectStore>),
            Err(error) => Err(StoreError::Refused(error.to_string())),
        };
        // The environment could turn off the condition on which ownership depends.
        let builder = builder.with_bucket_name(bucket).with_conditional_put(S3ConditionalPut::ETagMatch);
        let first = RetryConfig {
            max_retries: FIRST_RETRIES,
            retry_timeout: FIRST_PATIENCE,
            ..RetryConfig::default()
        };
        let first_client = build(builder.clone().with_retry(first))?;
        let (client, has_answered) = (build(builder)?, Arc::default());
        Ok(Remote { runtime: runtime()?, client, first_client, has_answered, place, url })
    }

    /// A directory that is used as a store.
    pub fn in_directory(directory: &FilePath) -> Result<Remote> {
        let refused = |why: &str| StoreError::Refused(format!("{}: {why}", directory.display()));
        let url = Url::from_directory_path(directory).map_err(|()| refused("the path is not absolute"))?;
        if !directory.is_dir() {
            return Err(refused("there is no such directory; correct the URL, or create it first (mkdir)"));
        }
        let client =
            LocalFileSystem::new_with_prefix(directory).map_err(|error| refused(&error.to_string()))?;
        // Without this, a create may be lost with the power.
        let client: Arc<dyn ObjectStore> = Arc::new(client.with_fsync(true).with_automatic_cleanup(true));
        let (first_client, has_answered) = (Arc::clone(&client), Arc::default());
        Ok(Remote { runtime: runtime()?, client, first_client, has_answered, place: Path::default(), url })
    }

    /// The URLs of the directories directly below the place.
    pub fn directories(&self) -> Result<Vec<String>> {
        let (client, place, answers) = (self.client(), self.place.clone(), self.answers());
        let task = self
            .runtime
            .spawn(async move { answers.note("the list", client.list_with_delimiter(Some(&place)).await) });
        let found = self.wait(task)?;
        let mut names: Vec<String> = found.common_prefixes.iter().map(|path| self.name(path)).collect();
        names.sort_unstable();
        Ok(names.iter().map(|name| self.below(name)).collect())
    }

    /// The URL of a directory below the place.
    fn below(&self, name: &str) -> String {
        let mut url = self.url.clone();
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.pop_if_empty().push(name);
        }
        shown(&url)
    }

    fn client(&self) -> Arc<dyn ObjectStore> {
        let has_answered = self.has_answered.load(Ordering::Relaxed);
        Arc::clone(if has_answered { &self.client } else { &self.first_client })
    }

    fn answers(&self) -> Answers {
        Answers(Arc::clone(&self.has_answered))
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
        let (client, path, name) = (self.client(), self.path(name), name.to_owned());
        let answers = self.answers();
        self.runtime.spawn(async move {
            let options = GetOptions { range: range.map(Into::into), ..GetOptions::default() };
            let found = async { client.get_opts(&path, options).await?.bytes().await };
            answers.note(&name, found.await)
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

/// A URL without the slash at its end.
fn shown(url: &Url) -> String {
    let is_root = url.scheme() == "file" && url.path() == "/";
    let text = url.as_str();
    if is_root { text.to_owned() } else { text.trim_end_matches('/').to_owned() }
}

/// The URL with each part of the place written in the same way. The parts are encoded again.
fn normal_place(mut url: Url) -> Result<String> {
    bucket_of(&url)?;
    let place = place_in_bucket(&url)?;
    if let Ok(mut parts) = url.path_segments_mut() {
        parts.clear().extend(place.parts().map(|part| part.as_ref().to_owned()));
    }
    Ok(shown(&url))
}

fn place_in_bucket(url: &Url) -> Result<Path> {
    Path::from_url_path(url.path()).map_err(|error| {
        StoreError::Refused(format!("the place in the bucket is not possible ({error}); name another one"))
    })
}

fn bucket_of(url: &Url) -> Result<&str> {
    match url.host_str().filter(|bucket| !bucket.is_empty()) {
        Some(bucket) => Ok(bucket),
        None => refused("it names no bucket; write s3://bucket/place"),
    }
}

fn directory_at(url: &Url) -> Result<PathBuf> {
    match url.to_file_path() {
        Ok(directory) => Ok(directory),
        Err(()) => refused("it names no directory; write file:///directory, with three slashes"),
    }
}

/// The client that the environment describes. A store without TLS is used if its address says so. Servers that hand
/// out credentials are asked only if the environment names one: to wait for one that does not exist takes long.
fn from_environment() -> Result<AmazonS3Builder> {
    let builder = AmazonS3Builder::from_env();
    let has = |key: Key| builder.get_config_value(&key).is_some_and(|value| !value.is_empty());
    let sources = [
        Key::AccessKeyId,
        Key::SecretAccessKey,
        Key::WebIdentityTokenFile,
        Key::ContainerCredentialsRelativeUri,
        Key::ContainerCredentialsFullUri,
        Key::MetadataEndpoint,
    ];
    let is_unsigned = builder.get_config_value(&Key::SkipSignature).is_some_and(|value| value == "true");
    if !is_unsigned && !sources.into_iter().any(has) {
        return refused(
            "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment (files \
             below ~/.aws are not read)",
        );
    }
    let endpoint = [Key::S3Endpoint, Key::Endpoint].iter().find_map(|key| builder.get_config_value(key));
    let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    Ok(if is_plain { builder.with_allow_http(true) } else { builder })
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
    if url.fragment().is_some() {
        return refused("`#` has no meaning in it; write %23 if it is a part of the name");
    }
    if url.port().is_some() {
        return refused(
            "it has a port; write s3://bucket/place, and set AWS_ENDPOINT_URL in the environment to the address of \
             the server",
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

/// Whether the store has ever answered.
struct Answers(Arc<AtomicBool>);

impl Answers {
    fn note<T>(&self, name: &str, result: object_store::Result<T>) -> Result<T> {
        let is_known = self.0.load(Ordering::Relaxed);
        let result = result.map_err(|error| failure(name, error, !is_known));
        if !is_known && !matches!(result, Err(StoreError::Failed(_))) {
            self.0.store(true, Ordering::Relaxed);
        }
        result
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
        let (client, path, name) = (self.client(), self.path(name), name.to_owned());
        let answers = self.answers();
        let task = self.runtime.spawn(async move {
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            let created = match client.put_opts(&path, PutPayload::from(bytes), options).await {
                Ok(_) => Ok(Created::New),
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                    Ok(Created::Exists)
                }
                Err(error) => Err(error),
            };
            match answers.note(&name, created) {
                Err(StoreError::NotFound(_)) => Err(StoreError::Refused(failure::NO_BUCKET.to_owned())),
                created => created,
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
        let (client, path, start) = (self.client(), self.path(prefix), self.path(after));
        let answers = self.answers();
        let is_from_start = after.is_empty();
        let listed = prefix.to_owned();
        let task = self.runtime.spawn(async move {
            let found = match is_from_start {
                true => client.list(Some(&path)),
                false => client.list_with_offset(Some(&path), &start),
            };
            let found = found.map_ok(|object| object.location).try_collect::<Vec<_>>().await;
            answers.note(&listed, found)
        });
        let mut names: Vec<String> = self.wait(task)?.iter().map(|path| self.name(path)).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn delete(&self, name: &str) -> Result<()> {
        let (client, path, name) = (self.client(), self.path(name), name.to_owned());
        let answers = self.answers();
        let task = self.runtime.spawn(async move {
            match answers.note(&name, client.delete(&path).await) {
                Err(StoreError::NotFound(_)) => Ok(()),
                deleted => deleted,
            }
        });
        self.wait(task)
    }

    fn describe(&self) -> String {
        shown(&self.url)
    }
}
