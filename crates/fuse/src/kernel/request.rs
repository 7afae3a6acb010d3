//! Decoding of requests.
//!
//! Every length, count and end of a name is checked against the received bytes before it is used. Numbers and flags
//! are passed on unchanged. Their meaning is not decided here.

use zerocopy::FromBytes;

use super::abi::{
    BatchForgetIn, CopyFileRangeIn, CreateIn, FallocateIn, ForgetIn, ForgetOne, FsyncIn, GetattrIn,
    GetxattrIn, InHeader, InitIn, LinkIn, LseekIn, MkdirIn, MknodIn, OpenIn, ReadIn, ReleaseIn, Rename2In,
    RenameIn, SetattrIn, SetxattrIn, StatxIn, WriteIn, init_flag, opcode,
};
use crate::request_times::RequestKind;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    pub(crate) origin: Origin,
    pub(crate) operation: Operation<'a>,
}

/// The sender of a request, and the node that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The number by which the kernel recognises the answer.
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

/// The requested operation. A parent directory is the node of the [`Origin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    Lookup(&'a [u8]),
    Forget(ForgetIn),
    /// The forgotten nodes.
    BatchForget(Forgotten<'a>),
    Getattr(GetattrIn),
    Setattr(SetattrIn),
    Statx(StatxIn),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod(MknodIn, &'a [u8]),
    Mkdir(MkdirIn, &'a [u8]),
    Unlink(&'a [u8]),
    Rmdir(&'a [u8]),
    Rename(Rename2In, &'a [u8], &'a [u8]),
    Link(LinkIn, &'a [u8]),
    Open(OpenIn),
    Create(CreateIn, &'a [u8]),
    Tmpfile(CreateIn),
    Read(ReadIn),
    Write(WriteIn, &'a [u8]),
    Statfs,
    Release(ReleaseIn),
    Fsync(FsyncIn),
    Setxattr(SetxattrIn, &'a [u8], &'a [u8]),
    Getxattr(GetxattrIn, &'a [u8]),
    Listxattr(GetxattrIn),
    Removexattr(&'a [u8]),
    Flush,
    Init(Init),
    Opendir(OpenIn),
    Readdir(ReadIn),
    Readdirplus(ReadIn),
    Releasedir(ReleaseIn),
    Fsyncdir(FsyncIn),
    Interrupt,
    Destroy,
    Fallocate(FallocateIn),
    Lseek(LseekIn),
    CopyFileRange(CopyFileRangeIn),
    Syncfs,
    /// The opcode.
    Unknown(u32),
}

impl Request<'_> {
    /// The kind under which its duration is counted. Nothing for requests of the protocol itself.
    pub(crate) fn kind(&self) -> Option<RequestKind> {
        Some(match self.operation {
            Operation::Read(_) | Operation::Lseek(_) => RequestKind::Read,
            Operation::Write(..) | Operation::Fallocate(_) | Operation::CopyFileRange(_) => {
                RequestKind::Write
            }
            Operation::Fsync(_) | Operation::Fsyncdir(_) | Operation::Syncfs => RequestKind::Sync,
            Operation::Lookup(_) => RequestKind::Lookup,
            Operation::Getattr(_)
            | Operation::Statx(_)
            | Operation::Statfs
            | Operation::Readlink
            | Operation::Getxattr(..)
            | Operation::Listxattr(_) => RequestKind::Attributes,
            Operation::Readdir(_) | Operation::Readdirplus(_) => RequestKind::List,
            Operation::Open(_) | Operation::Release(_) | Operation::Opendir(_) | Operation::Releasedir(_) => {
                RequestKind::Open
            }
            Operation::Setattr(_)
            | Operation::Symlink { .. }
            | Operation::Mknod(..)
            | Operation::Mkdir(..)
            | Operation::Unlink(_)
            | Operation::Rmdir(_)
            | Operation::Rename(..)
            | Operation::Link(..)
            | Operation::Create(..)
            | Operation::Tmpfile(_)
            | Operation::Setxattr(..)
            | Operation::Removexattr(_) => RequestKind::Change,
            Operation::Forget(_)
            | Operation::BatchForget(_)
            | Operation::Flush
            | Operation::Init(_)
            | Operation::Interrupt
            | Operation::Destroy
            | Operation::Unknown(_) => return None,
        })
    }

    /// The node whose data the request writes. Such a request may have to wait for garbage collection.
    pub(crate) fn writes_to(&self) -> Option<u64> {
        match &self.operation {
            Operation::Write(..) | Operation::Fallocate(_) => Some(self.origin.node),
            Operation::CopyFileRange(asked) => Some(asked.nodeid_out),
            _ => None,
        }
    }
}

/// Nodes that the kernel has forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgotten<'a>(&'a [u8]);

impl Forgotten<'_> {
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (u64, u64)> {
        let each = self.0.chunks_exact(size_of::<ForgetOne>());
        each.filter_map(|one| ForgetOne::read_from_bytes(one).ok()).map(|one| (one.nodeid, one.nlookup))
    }
}

/// The capabilities of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Init {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) max_readahead: u32,
    /// Including those of the second word.
    pub(crate) flags: u64,
}

/// A request that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{length} bytes of operation {opcode:?}")]
pub(crate) struct Malformed {
    /// The number of the request, if a thread waits for an answer.
    pub(crate) answer_to: Option<u64>,
    opcode: Option<u32>,
    length: usize,
}

impl<'a> Request<'a> {
    /// Decodes one request. Never panics, whatever the bytes are.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let length = bytes.len();
        let Ok((header, arguments)) = InHeader::read_from_prefix(bytes) else {
            return Err(Malformed { answer_to: None, opcode: None, length });
        };
        let arguments = (header.len as usize == length).then(|| before_extensions(&header, arguments));
        let operation =
            arguments.flatten().and_then(|arguments| operation(header.opcode, Arguments(arguments)));
        let is_answered = !matches!(header.opcode, opcode::FORGET | opcode::BATCH_FORGET);
        let malformed = Malformed {
            answer_to: is_answered.then_some(header.unique),
            opcode: Some(header.opcode),
            length,
        };
        let InHeader { unique, nodeid: node, uid, gid, pid, .. } = header;
        let origin = Origin { unique, node, uid, gid, pid };
        operation.map(|operation| Request { origin, operation }).ok_or(malformed)
    }
}

/// The arguments without the part that a kernel may append only if that was negotiated, which it was not.
fn before_extensions<'a>(header: &InHeader, arguments: &'a [u8]) -> Option<&'a [u8]> {
    let length = arguments.len().checked_sub(usize::from(header.total_extlen) * 8)?;
    Some(&arguments[..length])
}

/// The operation. None if the arguments are too short for it.
fn operation(number: u32, mut rest: Arguments<'_>) -> Option<Operation<'_>> {
    Some(match number {
        opcode::LOOKUP => Operation::Lookup(rest.name()?),
        opcode::FORGET => Operation::Forget(rest.structure()?),
        opcode::BATCH_FORGET => Operation::BatchForget(rest.forgotten()?),
        opcode::GETATTR => Operation::Getattr(rest.structure()?),
        opcode::SETATTR => Operation::Setattr(rest.structure()?),
        opcode::STATX => Operation::Statx(rest.structure()?),
        opcode::READLINK => Operation::Readlink,
        opcode::SYMLINK => Operation::Symlink { name: rest.name()?, target: rest.name()? },
        opcode::MKNOD => Operation::Mknod(rest.structure()?, rest.name()?),
        opcode::MKDIR => Operation::Mkdir(rest.structure()?, rest.name()?),
        opcode::UNLINK => Operation::Unlink(rest.name()?),
        opcode::RMDIR => Operation::Rmdir(rest.name()?),
        opcode::RENAME => Operation::Rename(rest.rename_without_flags()?, rest.name()?, rest.name()?),
        opcode::RENAME2 => Operation::Rename(rest.structure()?, rest.name()?, rest.name()?),
        opcode::LINK => Operation::Link(rest.structure()?, rest.name()?),
        opcode::OPEN => Operation::Open(rest.structure()?),
        opcode::CREATE => Operation::Create(rest.structure()?, rest.name()?),
        opcode::TMPFILE => Operation::Tmpfile(rest.structure()?),
        opcode::READ => Operation::Read(rest.structure()?),
        opcode::WRITE => rest.write()?,
        opcode::STATFS => Operation::Statfs,
        opcode::RELEASE => Operation::Release(rest.structure()?),
        opcode::FSYNC => Operation::Fsync(rest.structure()?),
        opcode::SETXATTR => rest.setxattr()?,
        opcode::GETXATTR => Operation::Getxattr(rest.structure()?, rest.name()?),
        opcode::LISTXATTR => Operation::Listxattr(rest.structure()?),
        opcode::REMOVEXATTR => Operation::Removexattr(rest.name()?),
        opcode::FLUSH => Operation::Flush,
        opcode::INIT => Operation::Init(rest.init()?),
        opcode::OPENDIR => Operation::Opendir(rest.structure()?),
        opcode::READDIR => Operation::Readdir(rest.structure()?),
        opcode::READDIRPLUS => Operation::Readdirplus(rest.structure()?),
        opcode::RELEASEDIR => Operation::Releasedir(rest.structure()?),
        opcode::FSYNCDIR => Operation::Fsyncdir(rest.structure()?),
        opcode::INTERRUPT => Operation::Interrupt,
        opcode::DESTROY => Operation::Destroy,
        opcode::FALLOCATE => Operation::Fallocate(rest.structure()?),
        opcode::LSEEK => Operation::Lseek(rest.structure()?),
        opcode::COPY_FILE_RANGE => Operation::CopyFileRange(rest.structure()?),
        opcode::SYNCFS => Operation::Syncfs,
        unknown => Operation::Unknown(unknown),
    })
}

/// The remaining arguments.
struct Arguments<'a>(&'a [u8]);

impl<'a> Arguments<'a> {
    fn structure<T: FromBytes>(&mut self) -> Option<T> {
        let (structure, rest) = T::read_from_prefix(self.0).ok()?;
        self.0 = rest;
        Some(structure)
    }

    /// The bytes up to a NUL, which must exist.
    fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let (name, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Some(name)
    }

    fn bytes(&mut self, count: u32) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count as usize)?;
        self.0 = rest;
        Some(bytes)
    }

    fn write(&mut self) -> Option<Operation<'a>> {
        let write: WriteIn = self.structure()?;
        Some(Operation::Write(write, self.bytes(write.size)?))
    }

    fn setxattr(&mut self) -> Option<Operation<'a>> {
        let set: SetxattrIn = self.structure()?;
        Some(Operation::Setxattr(set, self.name()?, self.bytes(set.size)?))
    }

    fn rename_without_flags(&mut self) -> Option<Rename2In> {
        let RenameIn { newdir } = self.structure()?;
        Some(Rename2In { newdir, ..Rename2In::default() })
    }

    fn forgotten(&mut self) -> Option<Forgotten<'a>> {
        let BatchForgetIn { count, .. } = self.structure()?;
        let length = (count as usize).checked_mul(size_of::<ForgetOne>())?;
        self.0.get(..length).map(Forgotten)
    }

    fn init(&mut self) -> Option<Init> {
        let InitIn { major, minor, max_readahead, flags } = self.structure()?;
        let mut flags = u64::from(flags);
        if flags & init_flag::INIT_EXT != 0 {
            flags |= u64::from(self.structure::<u32>()?) << 32;
        }
        Some(Init { major, minor, max_readahead, flags })
    }
}

#[cfg(test)]
mod tests;
