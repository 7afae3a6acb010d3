//! What every function has in common: errors become numbers, panics do not reach C, and pointers are checked.

use std::cell::UnsafeCell;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

use rt::sync::atomic::{AtomicBool, Ordering};

/// The result of the body of a function.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// Why a function failed.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: c_int,
    message: String,
}

impl Failure {
    pub(crate) fn new(errno: c_int, message: impl Into<String>) -> Failure {
        Failure { errno, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(libc::EINVAL, message)
    }

    pub(crate) fn errno(&self) -> c_int {
        self.errno
    }
}

impl From<polder::Error> for Failure {
    fn from(error: polder::Error) -> Failure {
        Failure::new(error.errno(), error.to_string())
    }
}

/// A result as C receives it: not negative.
pub(crate) trait Answer {
    fn answer(self) -> isize;
}

impl Answer for () {
    fn answer(self) -> isize {
        0
    }
}

impl Answer for bool {
    fn answer(self) -> isize {
        isize::from(self)
    }
}

impl Answer for usize {
    fn answer(self) -> isize {
        isize::try_from(self).unwrap_or(isize::MAX)
    }
}

impl Answer for u64 {
    fn answer(self) -> isize {
        isize::try_from(self).unwrap_or(isize::MAX)
    }
}

/// Bytes of the longest text of a failure, with the zero at its end.
const MESSAGE_BYTES: usize = 1024;

thread_local! {
    /// It stays in its place, so that a pointer to it can be read as long as the thread exists.
    static MESSAGE: UnsafeCell<[u8; MESSAGE_BYTES]> = const { UnsafeCell::new([0; MESSAGE_BYTES]) };
}

/// The text of the last failure in this thread.
pub(crate) fn message() -> *const c_char {
    MESSAGE.with(|message| message.get().cast())
}

/// Text in one line, cut if it is too long.
fn set_message(text: &str) {
    let end =
        (0..MESSAGE_BYTES.min(text.len() + 1)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    let mut bytes = [0; MESSAGE_BYTES];
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    bytes[..end].iter_mut().filter(|byte| byte.is_ascii_control()).for_each(|byte| *byte = b' ');
    // SAFETY: only this thread writes to it, and no reference to it exists.
    MESSAGE.with(|message| unsafe { *message.get() = bytes });
}

/// Runs the body of a function that returns 0 or a negative error number.
pub(crate) fn run<T: Answer>(body: impl FnOnce() -> Outcome<T>) -> c_int {
    c_int::try_from(run_long(body)).unwrap_or(c_int::MAX)
}

/// Runs the body of a function that returns a length or a negative error number.
pub(crate) fn run_long<T: Answer>(body: impl FnOnce() -> Outcome<T>) -> isize {
    let body = || {
        refuse_in_child()?;
        body()
    };
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value.answer(),
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(
            libc::ENOTRECOVERABLE,
            "an assertion of Polder failed (the text is on the standard error); please report it",
        ),
    };
    set_message(&failure.message);
    -(failure.errno as isize)
}

/// A child that was forked has the handles, but not the threads of its volumes, and locks may be held for ever.
fn refuse_in_child() -> Outcome<()> {
    static IS_CHILD: AtomicBool = AtomicBool::new(false);
    static WATCH: Once = Once::new();
    extern "C" fn in_child() {
        IS_CHILD.store(true, Ordering::Relaxed);
    }
    WATCH.call_once(|| {
        // SAFETY: the function stores to a static only, which a child may do.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    match IS_CHILD.load(Ordering::Relaxed) {
        false => Ok(()),
        true => Err(Failure::new(
            libc::ECHILD,
            "libpolder cannot be used in a child that was forked without exec",
        )),
    }
}

/// A path that C gave.
///
/// # Safety
/// `path` is null or points to a string that ends with a zero and does not change during `'a`.
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Outcome<&'a Path> {
    // SAFETY: as required of the caller.
    Ok(Path::new(unsafe { text(path) }?))
}

/// A string that C gave.
///
/// # Safety
/// As of [`path`].
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Outcome<&'a OsStr> {
    if text.is_null() {
        return Err(null());
    }
    // SAFETY: it is not null, and ends with a zero as required of the caller.
    Ok(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()))
}

/// An object that C lets this function write.
///
/// # Safety
/// `object` is null or points to a value that is not used elsewhere during `'a`.
pub(crate) unsafe fn output<'a, T>(object: *mut T) -> Outcome<&'a mut T> {
    // SAFETY: as required of the caller.
    unsafe { object.as_mut() }.ok_or_else(null)
}

/// Bytes that C gave.
///
/// # Safety
/// `bytes` points to `length` bytes that do not change during `'a`, unless `length` is 0.
pub(crate) unsafe fn bytes<'a>(bytes: *const libc::c_void, length: usize) -> Outcome<&'a [u8]> {
    check_length(length)?;
    match (length, bytes.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(null()),
        // SAFETY: it is not null, and has `length` bytes as required of the caller.
        _ => Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), length) }),
    }
}

/// Bytes that C lets this function write.
///
/// # Safety
/// `buffer` points to `length` bytes that are not used elsewhere during `'a`, unless `length` is 0. They may be
/// uninitialised in the sense of C.
pub(crate) unsafe fn buffer<'a>(buffer: *mut libc::c_void, length: usize) -> Outcome<&'a mut [u8]> {
    check_length(length)?;
    match (length, buffer.is_null()) {
        (0, _) => Ok(&mut []),
        (_, true) => Err(null()),
        // SAFETY: it is not null, and has `length` bytes as required of the caller. The library only writes them.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), length) }),
    }
}

/// Copies as much of a value as has room, and returns its complete length.
pub(crate) fn copy_out(value: &[u8], into: &mut [u8]) -> usize {
    let common = value.len().min(into.len());
    into[..common].copy_from_slice(&value[..common]);
    value.len()
}

fn check_length(length: usize) -> Outcome<()> {
    match isize::try_from(length) {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::invalid("the length is negative or impossible")),
    }
}

pub(crate) fn null() -> Failure {
    Failure::new(libc::EFAULT, "a pointer is null")
}

/// A structure whose first field is its size in the header with which the program was compiled. A later library knows
/// more fields, which are 0 then; an earlier one refuses fields that it does not know, unless they are 0.
///
/// # Safety
/// `T` begins with a `usize`, and zeros are valid for all its fields. `given` is null or points to a structure of the
/// size that its first field says.
pub(crate) unsafe fn sized<T>(given: *const T) -> Outcome<T> {
    // SAFETY: zeros are valid, as required of the caller.
    let mut known = unsafe { std::mem::zeroed::<T>() };
    if given.is_null() {
        return Ok(known);
    }
    // SAFETY: it is not null and begins with its size.
    let size = unsafe { given.cast::<usize>().read_unaligned() };
    if size < size_of::<usize>() {
        return Err(Failure::invalid("struct_size is not set: begin with the INIT macro of the structure"));
    }
    let (common, all) = (size.min(size_of::<T>()), check_length(size).map(|()| size)?);
    // SAFETY: both have at least `common` bytes, and do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(given.cast::<u8>(), (&raw mut known).cast(), common) };
    // SAFETY: the structure has `all` bytes, as its first field says.
    let unknown = unsafe { std::slice::from_raw_parts(given.cast::<u8>().add(common), all - common) };
    match unknown.iter().all(|&byte| byte == 0) {
        true => Ok(known),
        false => {
            Err(Failure::new(libc::E2BIG, "an option is set that this version of libpolder does not know"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_number() {
        assert_eq!(run(|| -> Outcome<()> { panic!("for this test") }), -libc::ENOTRECOVERABLE);
        // SAFETY: it ends with a zero.
        let text = unsafe { CStr::from_ptr(message()) };
        assert!(text.to_string_lossy().contains("please report"));
    }

    #[test]
    fn long_texts_are_cut_between_characters_and_stay_in_their_place() {
        let place = message();
        for length in [0, 1, 511, 512, 1022, 1023, 1024, 5000] {
            set_message(&format!("{}\n", "ü".repeat(length)));
            // SAFETY: it ends with a zero.
            let text = unsafe { CStr::from_ptr(message()) }.to_str().map(str::to_owned);
            assert!(
                text.is_ok_and(|text| text.starts_with(&"ü".repeat(length.min(511))) && !text.contains('\n'))
            );
        }
        assert_eq!(place, message());
    }

    #[test]
    fn null_pointers_are_refused() {
        // SAFETY: null is permitted.
        unsafe {
            assert_eq!(
                path(std::ptr::null()).map(|_| ()).map_err(|failure| failure.errno),
                Err(libc::EFAULT)
            );
            assert!(output::<u64>(std::ptr::null_mut()).is_err());
            assert!(bytes(std::ptr::null(), 1).is_err());
            assert!(matches!(bytes(std::ptr::null(), 0), Ok([])));
            assert!(buffer(std::ptr::null_mut(), usize::MAX).is_err());
        }
    }

    #[repr(C)]
    struct Options {
        size: usize,
        first: u64,
    }

    #[test]
    fn a_longer_structure_is_refused_only_if_it_says_more() {
        let options = |more: u64| [3 * size_of::<u64>() as u64, 5, more];
        for (more, is_refused) in [(0, false), (1, true)] {
            let given = options(more);
            // SAFETY: the first field is the size.
            let known = unsafe { sized(given.as_ptr().cast::<Options>()) };
            assert_eq!(known.is_err(), is_refused);
            assert!(known.is_err() || known.is_ok_and(|known| known.first == 5 && known.size == 24));
        }
        let short = [8_u64];
        // SAFETY: the first field is the size.
        let known = unsafe { sized(short.as_ptr().cast::<Options>()) };
        assert!(known.is_ok_and(|known| known.first == 0));
    }
}
