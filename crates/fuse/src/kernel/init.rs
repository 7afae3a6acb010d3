//! The handshake: the first request of a mount, which negotiates the protocol version and the capabilities.

use std::io;

use rustix::io::Errno;

use super::abi::{InitOut, MAJOR, MINOR, MINOR_FORGETTING, MINOR_MIN, MINOR_WAITING, init_flag};
use super::channel::Received;
use super::request::Init;
use super::{Channel, Operation, Reply, Request, RequestBuffer};

/// The smallest page. With larger ones the kernel's limit in bytes applies first.
const PAGE_BYTES: u32 = 4096;

/// The largest congestion threshold: with this many background requests, the kernel starts no optional ones.
const CONGESTED_MAX: u16 = 48;

/// The terms that we request from the kernel.
pub(crate) struct Terms {
    /// Capabilities, including those without which Polder works too.
    pub(crate) wanted: u64,
    /// The largest write. Its number of pages limits all other requests.
    pub(crate) max_write: u32,
    /// How many requests for readahead and write-back may be in progress.
    pub(crate) max_background: u16,
}

/// The result of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// The requested capabilities that the kernel has.
    pub(crate) granted: u64,
    /// Whether an invalidation waits for write-back in progress.
    pub(crate) waits_for_writes: bool,
    /// Whether the kernel sends FORGET for every file that has lost its last name.
    pub(crate) forgets: bool,
}

/// Negotiates with the kernel.
pub(crate) fn shake_hands(channel: &Channel, terms: &Terms) -> io::Result<Agreed> {
    let mut buffer = RequestBuffer::new();
    loop {
        let length = match channel.receive(&mut buffer)? {
            Received::Request(length) => length,
            Received::Nothing => {
                channel.wait()?;
                continue;
            }
            Received::End => {
                return Err(io::Error::new(
                    io::ErrorKind::NotConnected,
                    "the mount was removed before it was used",
                ));
            }
        };
        let request = Request::decode(buffer.bytes(length))
            .map_err(|malformed| io::Error::other(malformed.to_string()))?;
        let reply = Reply::new(request.origin.unique, channel);
        let Operation::Init(init) = request.operation else {
            return Err(io::Error::other("the kernel did not send its version first"));
        };
        if init.major > MAJOR {
            // The kernel asks again with this version.
            reply.structure(&InitOut { major: MAJOR, minor: MINOR, ..InitOut::default() });
            continue;
        }
        if (init.major, init.minor) < (MAJOR, MINOR_MIN) {
            reply.error(Errno::PROTO);
            let versions = format!(
                "the kernel has version {}.{}, and Polder needs {MAJOR}.{MINOR_MIN} or later",
                init.major, init.minor
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, versions));
        }
        let granted = terms.wanted & init.flags;
        tracing::debug!("FUSE version {}.{} of the kernel, features {granted:#x}", init.major, init.minor);
        reply.structure(&agreement(&init, granted, terms));
        let waits_for_writes = init.minor >= MINOR_WAITING;
        return Ok(Agreed { granted, waits_for_writes, forgets: init.minor >= MINOR_FORGETTING });
    }
}

fn agreement(init: &Init, granted: u64, terms: &Terms) -> InitOut {
    let flags = granted | init.flags & init_flag::INIT_EXT;
    InitOut {
        major: MAJOR,
        minor: init.minor.min(MINOR),
        max_readahead: init.max_readahead,
        flags: flags as u32,
        max_background: terms.max_background,
        congestion_threshold: (terms.max_background / 4 * 3).min(CONGESTED_MAX),
        max_write: terms.max_write,
        time_gran: 1,
        max_pages: u16::try_from(terms.max_write.div_ceil(PAGE_BYTES)).unwrap_or(u16::MAX),
        flags2: (flags >> 32) as u32,
        ..InitOut::default()
    }
}

#[cfg(test)]
mod tests;
