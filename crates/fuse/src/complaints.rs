//! Errors of the volume in the log: the first of each kind.

use rt::Complaints;

/// Of this process, which serves one mount.
pub(crate) static COMPLAINTS: Complaints = Complaints::new();
