//! Stories of programs that use the library.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod attached;
mod attributes;
mod bench;
mod crashes;
mod deaths;
mod files;
mod hostile;
mod life;
mod locks;
mod mounted;
mod names;
#[cfg(feature = "objects")]
mod stored;
mod threads;

/// Threads share everything.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<polder::Volume>();
    shared::<polder::File>();
    shared::<polder::ReadDir>();
    shared::<polder::DirEntry>();
    shared::<polder::OpenOptions<'_>>();
    shared::<polder::VolumeOptions>();
    shared::<polder::CreateOptions>();
    shared::<polder::ReadRequest<'_>>();
    shared::<polder::Caller>();
    shared::<polder::Mount>();
    shared::<polder::Metadata>();
    shared::<polder::Stats>();
    shared::<polder::Error>();
};
