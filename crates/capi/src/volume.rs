//! Volumes: making, opening, closing, and what concerns all of a volume.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use libc::{size_t, statvfs};
use polder::{Caller, Mount, Volume, VolumeOptions};
use rt::sync::Mutex;

use crate::call::{Failure, Outcome, bytes, copy_out, message, output, path, run, sized, text};
use crate::handles::{Kind, Table};

/// Open for reading only. Nothing is written, not even a recovery.
pub const POLDER_OPEN_READ_ONLY: u32 = 1;
/// Keep other processes out: programs cannot attach to the volume, and a volume that a process has open is EBUSY.
pub const POLDER_OPEN_PRIVATE: u32 = 2;
/// Destroy what is in the file or on the device.
pub const POLDER_CREATE_OVERWRITE: u32 = 1;
/// Allocate all blocks of the file now, so that the host file system cannot run out of space later.
pub const POLDER_CREATE_PREALLOCATE: u32 = 2;

/// An open volume, or a view of it for a user. Any number of threads can use it at the same time. 0 is never open.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct polder_volume {
    /// Not to be interpreted.
    pub id: u64,
}

/// A mount that this process serves.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct polder_mount {
    /// Not to be interpreted.
    pub id: u64,
}

/// How a volume is opened. Begin with POLDER_OPEN_OPTIONS_INIT. 0 of any option is its default.
#[repr(C)]
pub struct polder_open_options {
    /// sizeof(struct polder_open_options).
    pub struct_size: size_t,
    /// POLDER_OPEN_READ_ONLY and POLDER_OPEN_PRIVATE, or 0.
    pub flags: u32,
    /// The time in milliseconds after which a change becomes durable without a sync. The default is 5000.
    pub commit_interval_ms: u32,
    /// Memory for metadata in bytes, at least 4 MiB. The default is 64 MiB.
    pub cache_bytes: u64,
}

/// How a volume is made. Begin with POLDER_CREATE_OPTIONS_INIT. 0 of any option is its default.
#[repr(C)]
pub struct polder_create_options {
    /// sizeof(struct polder_create_options).
    pub struct_size: size_t,
    /// POLDER_CREATE_OVERWRITE and POLDER_CREATE_PREALLOCATE, or 0.
    pub flags: u32,
    /// Bytes of a block: a power of two from 512 to 65536. The default is 4096, or that of the device.
    pub block_size: u32,
    /// The size in bytes. A file that does not exist needs it. It is created sparse.
    pub size: u64,
    /// A name for the volume, at most 64 bytes. NULL for none.
    pub label: *const c_char,
    /// Bytes of a zone: a multiple of the block size. Refused for zoned devices.
    pub zone_size: u64,
    /// Bytes of a page of metadata: a power of two from 4096 to 65536. The default is 16384.
    pub page_size: u32,
    /// The largest number of open zones, at least 6.
    pub max_open_zones: u32,
    /// Percent of the device that are never available to files. More makes garbage collection cheaper.
    pub reserve_percent: f64,
}

pub(crate) fn volumes() -> &'static Table<Opened> {
    static TABLE: OnceLock<Table<Opened>> = OnceLock::new();
    TABLE.get_or_init(|| Table::new(Kind::Volume))
}

fn mounts() -> &'static Table<Mutex<Mount>> {
    static TABLE: OnceLock<Table<Mutex<Mount>>> = OnceLock::new();
    TABLE.get_or_init(|| Table::new(Kind::Mount))
}

/// What a handle of a volume stands for.
pub(crate) struct Opened {
    pub(crate) volume: Volume,
    /// Closing it leaves the volume open.
    is_view: bool,
}

impl polder_volume {
    pub(crate) fn get(self) -> Outcome<Arc<Opened>> {
        volumes().get(self.id)
    }

    /// A view must not be a way to more rights.
    fn get_unrestricted(self) -> Outcome<Arc<Opened>> {
        match self.get()? {
            opened if opened.is_view => {
                Err(Failure::new(libc::EPERM, "the handle is a view with the rights of a user"))
            }
            opened => Ok(opened),
        }
    }

    fn set(&mut self, volume: Volume, is_view: bool) -> Outcome<()> {
        self.id = volumes().insert(Opened { volume, is_view })?;
        Ok(())
    }
}

/// The version of the library, for example "0.1.0". It is valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn polder_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The text of the last failure in this thread: one line that names the path and the cause. An empty text if there was
/// none. A function that succeeds does not change it. The pointer is valid until the thread ends, and the text until
/// the next failure in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn polder_message() -> *const c_char {
    message()
}

/// Frees what polder_read_file, polder_volume_stats or polder_list_xattrs has allocated. NULL is permitted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_free(memory: *mut c_void) {
    // SAFETY: these functions allocate by malloc, as the header says.
    unsafe { libc::free(memory) };
}

/// Makes a volume in a file or on a device, and opens it with `open` (NULL: the defaults). `options` may be NULL for a
/// device, or a file of the wanted size, that contains only zeros. *volume is set only on success.
///
/// EEXIST: it contains data, and POLDER_CREATE_OVERWRITE is not set. EINVAL: impossible options. EBUSY: a process has
/// it open, perhaps this one. ENOSPC: the host file system is full. Then nothing was written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_volume_create(
    path: *const c_char,
    options: *const polder_create_options,
    open: *const polder_open_options,
    volume: *mut polder_volume,
) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let (at, options, volume) = unsafe { (crate::call::path(path)?, sized(options)?, output(volume)?) };
        // SAFETY: as the header requires.
        let open_options = unsafe { open_options(open)? };
        refuse_flags(options.flags, POLDER_CREATE_OVERWRITE | POLDER_CREATE_PREALLOCATE)?;
        let mut create = Volume::create(at)
            .overwrite(options.flags & POLDER_CREATE_OVERWRITE != 0)
            .preallocate(options.flags & POLDER_CREATE_PREALLOCATE != 0)
            .open_options(open_options);
        if !options.label.is_null() {
            // SAFETY: it is not null, and a string as the header requires.
            let label = unsafe { text(options.label)? };
            create = create.label(label.to_str().ok_or_else(|| Failure::invalid("the label is not UTF-8"))?);
        }
        if options.size != 0 {
            create = create.size(options.size);
        }
        if options.block_size != 0 {
            create = create.block_size(options.block_size);
        }
        if options.zone_size != 0 {
            create = create.zone_size(options.zone_size);
        }
        if options.page_size != 0 {
            create = create.page_size(options.page_size);
        }
        if options.max_open_zones != 0 {
            create = create.max_open_zones(options.max_open_zones);
        }
        if options.reserve_percent != 0.0 {
            create = create.reserve_percent(options.reserve_percent);
        }
        volume.set(create.open()?, false)
    })
}

/// Opens the volume in a file or on a device. `options` may be NULL. *volume is set only on success. Recovers the
/// volume if it was not closed, and starts its threads. If a process of the same user has the volume open and shares
/// it, also this process, the volume is attached: all calls are carried out by that process. If it ends, they fail with
/// ENOTCONN.
///
/// ENOENT: there is no such file. EINVAL: it is no volume. EBUSY: a process has it open that does not share it, or
/// POLDER_OPEN_PRIVATE is set (after half a second of waiting). EUCLEAN or EIO: it is damaged; the text says what
/// helps. A volume whose log has lost its newest part can be opened with POLDER_OPEN_READ_ONLY to copy what is left,
/// and `polder check` reports the loss.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_volume_open(
    path: *const c_char,
    options: *const polder_open_options,
    volume: *mut polder_volume,
) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let (at, options, volume) =
            unsafe { (crate::call::path(path)?, open_options(options)?, output(volume)?) };
        volume.set(options.open(at)?, false)
    })
}

/// Makes everything durable, and closes the volume or the view. Closing a view leaves the volume open. Closing the
/// volume closes it for its views and open files as well: every other use of them fails with EBADF, and they should
/// still be closed to free their memory. The handle is not open any more when this returns, unless the result is EBUSY.
///
/// EIO: the device has failed. What was durable before still is. EBUSY: a mount of the volume exists.
#[unsafe(no_mangle)]
pub extern "C" fn polder_volume_close(volume: polder_volume) -> c_int {
    run(|| {
        let opened = volume.get()?;
        let closed = match opened.is_view {
            // Closing the volume has made everything durable.
            true => opened.volume.sync().or_else(|error| match error {
                polder::Error::Closed => Ok(()),
                error => Err(error),
            }),
            false => opened.volume.close(),
        };
        if !matches!(closed, Err(polder::Error::Mounted)) {
            volumes().remove(volume.id)?;
        }
        Ok(closed?)
    })
}

/// Makes a view of the volume with the rights of a user: `uid`, `gid` and `group_count` further `groups` (NULL if there
/// are none). Permissions restrict it as POSIX says. New files get the owner, and not the permission bits in `umask`. A
/// handle from polder_volume_open or polder_volume_create is not restricted by permissions. Close the view with
/// polder_volume_close. EPERM: the handle is itself a view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_volume_as_user(
    volume: polder_volume,
    uid: libc::uid_t,
    gid: libc::gid_t,
    groups: *const libc::gid_t,
    group_count: size_t,
    umask: libc::mode_t,
    view: *mut polder_volume,
) -> c_int {
    run(|| {
        let length = group_count
            .checked_mul(size_of::<libc::gid_t>())
            .ok_or_else(|| Failure::invalid("too many groups"))?;
        // SAFETY: as the header requires.
        let (groups, view) = unsafe { (bytes(groups.cast(), length)?, output(view)?) };
        let groups: Vec<u32> = groups
            .chunks_exact(4)
            .map(|group| u32::from_ne_bytes([group[0], group[1], group[2], group[3]]))
            .collect();
        let caller = Caller::user(uid, gid).groups(&groups).umask((umask & 0o777) as u16);
        view.set(volume.get_unrestricted()?.volume.as_caller(caller), true)
    })
}

/// Makes everything durable that was changed in the volume.
///
/// EIO: the device has failed. The volume accepts no changes until it is opened again.
#[unsafe(no_mangle)]
pub extern "C" fn polder_volume_sync(volume: polder_volume) -> c_int {
    run(|| Ok(volume.get()?.volume.sync()?))
}

/// The size of the volume, and the space that can be written, in units of f_frsize bytes. Garbage counts as available:
/// it is collected when its space is needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_volume_statvfs(volume: polder_volume, result: *mut statvfs) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let result = unsafe { output(result)? };
        let volume = &volume.get()?.volume;
        let (found, is_read_only) = (volume.statvfs()?, volume.is_read_only()?);
        // SAFETY: all fields are numbers, for which zeros are valid.
        let mut all = unsafe { std::mem::zeroed::<statvfs>() };
        all.f_bsize = found.block_size.into();
        all.f_frsize = found.block_size.into();
        all.f_blocks = found.blocks;
        all.f_bfree = found.free;
        all.f_bavail = found.available;
        all.f_files = found.files;
        all.f_ffree = found.files_free;
        all.f_favail = found.files_free;
        all.f_namemax = found.name_max.into();
        all.f_flag = if is_read_only { libc::ST_RDONLY } else { 0 };
        *result = all;
        Ok(())
    })
}

/// What was chosen when the volume was made.
#[repr(C)]
pub struct polder_info {
    /// The UUID as text.
    pub id: [c_char; 40],
    /// The name of the volume, empty if it has none.
    pub label: [c_char; 72],
    /// Bytes of a block.
    pub block_size: u32,
    /// The version of the disk format.
    pub format_version: u32,
}

/// The identity and the label of the volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_volume_info(volume: polder_volume, info: *mut polder_info) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let info = unsafe { output(info)? };
        let found = volume.get()?.volume.info()?;
        *info = polder_info {
            id: to_chars(found.fs_id.to_string()),
            label: to_chars(&found.label),
            block_size: found.block_size,
            format_version: found.format_version,
        };
        Ok(())
    })
}

/// A string with a zero at its end, cut if it is too long.
pub(crate) fn to_chars<const N: usize>(text: impl AsRef<[u8]>) -> [c_char; N] {
    let mut bytes = [0; N];
    copy_out(text.as_ref(), &mut bytes[..N - 1]);
    bytes.map(|byte| byte as c_char)
}

/// All counters as a JSON object with the keys of `polder stats --json`. *json is a string; free it with polder_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_volume_stats(volume: polder_volume, json: *mut *mut c_char) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let json = unsafe { output(json)? };
        let stats = volume.get()?.volume.stats()?;
        let encoded = serde_json::to_vec(&stats)
            .ok()
            .and_then(|text| CString::new(text).ok())
            .ok_or_else(|| Failure::new(libc::EIO, "the counters cannot be encoded"))?;
        *json = allocate(encoded.as_bytes_with_nul())?.cast();
        Ok(())
    })
}

/// Mounts the volume on a directory, and serves the mount from threads of this process. Needs /dev/fuse, and root or
/// the program fusermount3. Each operation of a program that uses the mount is a request to this process; `polder
/// mount` is faster, but shares the volume with no library. docs/library.md has the limits of such mounts.
///
/// EBUSY: it is mounted already. EPERM: the handle is a view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_mount_open(
    volume: polder_volume,
    directory: *const c_char,
    mount: *mut polder_mount,
) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let (directory, mount) = unsafe { (path(directory)?, output(mount)?) };
        let mounted = volume.get_unrestricted()?.volume.mount(directory)?;
        mount.id = mounts().insert(Mutex::new(mounted))?;
        Ok(())
    })
}

/// Ends a mount. The handle is not open any more, unless the result is EBUSY.
///
/// EBUSY: a program uses the mount.
#[unsafe(no_mangle)]
pub extern "C" fn polder_mount_close(mount: polder_mount) -> c_int {
    run(|| {
        let mounted = mounts().get(mount.id)?;
        let ended = mounted.lock().unmount();
        if ended.as_ref().is_err_and(|error| error.errno() == libc::EBUSY) {
            return Ok(ended?);
        }
        mounts().remove(mount.id)?;
        Ok(ended?)
    })
}

/// Writes what Polder logs to the standard error of the process: "error", "warn", "info", "debug" or "trace", or a
/// filter of the Rust crate tracing-subscriber. Without this call nothing is logged. It can be called once.
///
/// EINVAL: not a filter. EALREADY: it was called before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn polder_log_to_stderr(filter: *const c_char) -> c_int {
    run(|| {
        // SAFETY: as the header requires.
        let filter = unsafe { text(filter)? };
        let filter = filter.to_str().and_then(|filter| tracing_subscriber::EnvFilter::try_new(filter).ok());
        let filter = filter.ok_or_else(|| Failure::invalid("not a filter for log lines"))?;
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .try_init()
            .map_err(|_| Failure::new(libc::EALREADY, "the log has a destination already"))
    })
}

/// Memory of malloc with a copy of `contents`.
pub(crate) fn allocate(contents: &[u8]) -> Outcome<*mut c_void> {
    // SAFETY: malloc has no conditions.
    let memory = unsafe { libc::malloc(contents.len().max(1)) };
    if memory.is_null() {
        return Err(Failure::new(libc::ENOMEM, "no memory"));
    }
    // SAFETY: the memory is new and has at least this length.
    unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), memory.cast(), contents.len()) };
    Ok(memory)
}

/// Refuses flags that this version does not know.
pub(crate) fn refuse_flags(flags: u32, known: u32) -> Outcome<()> {
    match flags & !known {
        0 => Ok(()),
        unknown => Err(Failure::invalid(format!("the flags {unknown:#x} are not known"))),
    }
}

/// # Safety
/// As of [`sized`].
unsafe fn open_options(given: *const polder_open_options) -> Outcome<VolumeOptions> {
    // SAFETY: as required of the caller.
    let given = unsafe { sized(given)? };
    refuse_flags(given.flags, POLDER_OPEN_READ_ONLY | POLDER_OPEN_PRIVATE)?;
    let is_private = given.flags & POLDER_OPEN_PRIVATE != 0;
    let mut options = VolumeOptions::new()
        .read_only(given.flags & POLDER_OPEN_READ_ONLY != 0)
        .share(!is_private)
        .attach(!is_private);
    if given.cache_bytes != 0 {
        options = options.cache_bytes(given.cache_bytes);
    }
    if given.commit_interval_ms != 0 {
        options = options.commit_interval(Duration::from_millis(given.commit_interval_ms.into()));
    }
    Ok(options)
}
