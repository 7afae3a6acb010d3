//! Commands to an NVMe controller, through the kernel's generic device (`linux/nvme_ioctl.h`).

use std::ffi::c_void;
use std::fs::File;
use std::io::{Error, Result};

use rt::waits::{WaitFor, about_to_wait};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};
use zerocopy::{Immutable, IntoBytes};

/// `struct nvme_passthru_cmd64`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
struct Raw {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_length: u32,
    length: u32,
    words_10_15: [u32; 6],
    timeout_ms: u32,
    reserved_too: u32,
    result: u64,
}

const _: () = assert!(size_of::<Raw>() == 80);

/// Bytes of `struct nvme_uring_cmd`, which has the same fields without the result.
const RING_BYTES: usize = 72;

impl Raw {
    fn new(namespace: u32, words: Words, address: usize, length: usize) -> Raw {
        Raw {
            opcode: words.opcode,
            namespace,
            address: address as u64,
            length: u32::try_from(length).expect("no command is larger than a few MiB"),
            words_10_15: words.words,
            ..Raw::default()
        }
    }
}

const GROUP: u8 = b'N';
const NAMESPACE: Opcode = opcode::none(GROUP, 0x40);
const ADMIN: Opcode = opcode::read_write::<Raw>(GROUP, 0x47);
const IO: Opcode = opcode::read_write::<Raw>(GROUP, 0x48);

/// The number of the ring command that passes a command on.
pub(super) const RING: u32 = opcode::read_write::<[u8; RING_BYTES]>(GROUP, 0x80) as u32;

/// A command in a ring's entry. It refers to the memory of its data.
pub(super) fn ring_bytes(namespace: u32, words: Words, data: &mut Data<'_>) -> [u8; 80] {
    let (address, length) = data.place();
    let raw = Raw::new(namespace, words, address, length);
    let mut bytes = [0; 80];
    bytes[..RING_BYTES].copy_from_slice(&raw.as_bytes()[..RING_BYTES]);
    bytes
}

/// A command without its data: an opcode and the last six of its double words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) opcode: u8,
    /// Words 10 to 15.
    pub(super) words: [u32; 6],
}

/// The queue of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    Admin,
    Io,
}

/// The data of a command.
pub(super) enum Data<'a> {
    None,
    In(&'a mut [u8]),
    Out(&'a [u8]),
}

impl Data<'_> {
    fn place(&mut self) -> (usize, usize) {
        match self {
            Data::None => (0, 0),
            Data::In(into) => (into.as_mut_ptr().expose_provenance(), into.len()),
            Data::Out(from) => (from.as_ptr().expose_provenance(), from.len()),
        }
    }
}

/// The number of the namespace of a generic device.
pub(super) fn namespace_of(device: &File) -> Result<u32> {
    // SAFETY: the command takes no argument.
    Ok(unsafe { ioctl(device, AskNamespace) }?)
}

/// Executes a command, waits for it and returns its result.
///
/// If the words of a command say that it reads, its data must be `Data::In` with at least as many bytes as they say.
pub(super) fn run(
    device: &File,
    namespace: u32,
    queue: Queue,
    words: Words,
    mut data: Data<'_>,
) -> Result<u64> {
    let (address, length) = data.place();
    let opcode = if queue == Queue::Admin { ADMIN } else { IO };
    let command = Passthrough { opcode, raw: Raw::new(namespace, words, address, length) };
    about_to_wait(WaitFor::Device);
    // SAFETY: the memory of the command is borrowed by this function, mutably if the controller writes to it, and the
    // command has completed when the call returns.
    let (status, result) = unsafe { ioctl(device, command) }?;
    if status == 0 { Ok(result) } else { Err(refusal(status)) }
}

/// The error for a status of a controller. Some have an errno.
pub(super) fn refusal(status: i32) -> Error {
    match status & 0x7ff {
        0x1bd => Errno::OVERFLOW.into(),
        0x1be => Errno::TOOMANYREFS.into(),
        0x1b8 => Error::other("the command leaves its zone (NVMe status 0x1b8)"),
        0x1b9 => Error::other("the zone is full (NVMe status 0x1b9)"),
        0x1ba => Error::other("the zone is read-only (NVMe status 0x1ba)"),
        0x1bb => Error::other("the zone is offline (NVMe status 0x1bb)"),
        0x1bc => Error::other("the write is not at the pointer (NVMe status 0x1bc)"),
        0x1bf => Error::other("the zone is in another state (NVMe status 0x1bf)"),
        status => Error::other(format!("NVMe status {status:#x}")),
    }
}

struct AskNamespace;

// SAFETY: the command takes no argument and returns its answer as its result.
unsafe impl Ioctl for AskNamespace {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        NAMESPACE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<u32> {
        Ok(out.unsigned_abs())
    }
}

struct Passthrough {
    opcode: Opcode,
    raw: Raw,
}

// SAFETY: both commands read and write one `Raw`, which is where `as_ptr` points.
unsafe impl Ioctl for Passthrough {
    /// The controller's status and the command's result.
    type Output = (i32, u64);
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.raw).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, raw: *mut c_void) -> rustix::io::Result<(i32, u64)> {
        // SAFETY: `raw` is what `as_ptr` gave, and the command has completed.
        let raw = unsafe { raw.cast::<Raw>().read() };
        Ok((out, raw.result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_its_name() {
        assert_eq!(Errno::from_io_error(&refusal(0x41bd)), Some(Errno::OVERFLOW));
        assert_eq!(Errno::from_io_error(&refusal(0x1be)), Some(Errno::TOOMANYREFS));
        assert!(refusal(0x41bc).to_string().contains("not at the pointer"));
        assert_eq!(refusal(0x4002).to_string(), "NVMe status 0x2");
    }

    #[test]
    fn a_file_that_is_no_namespace_is_refused_by_the_system() {
        let file = tempfile::tempfile().unwrap();
        assert!(namespace_of(&file).is_err());
        let words = Words { opcode: 2, words: [0; 6] };
        assert!(run(&file, 1, Queue::Io, words, Data::In(&mut [0; 512])).is_err());
    }
}
