//! Why a set cannot be made or opened.

use crate::DeviceError;

/// Why a set cannot be made or opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SetError {
    /// The devices cannot be members of one set.
    #[error("the devices do not make a set: {0}")]
    Unsuitable(String),
    /// A device has no label that can be read.
    #[error("device {0} of the set has no label: it is no member of a set, or was emptied")]
    Unlabelled(usize),
    /// A device has a label that this release does not understand.
    #[error("device {0} of the set has a label that cannot be used: {1}")]
    Unknown(usize, String),
    /// The newest label of a device is lost, and an older one may say that stale members count.
    #[error("device {0} of the set has lost its newest label; leave it out to use the others")]
    LabelLost(usize),
    /// A device belongs to another volume or to another set.
    #[error("device {0} is a member of another set")]
    Foreign(usize),
    /// Two devices have the label of one member.
    #[error("devices {0} and {1} are copies of one member; remove one of them")]
    Duplicate(usize, usize),
    /// Two parts of the set were used without each other.
    #[error(
        "the members were used apart: {0} and {1} exclude each other, and each may have data that the other lacks"
    )]
    Divided(usize, usize),
    /// More members are missing than the caller permits or the layout tolerates.
    #[error("{missing} of {width} members are missing or stale{}", if *tolerated { "; permit degraded use to open it" } else { "" })]
    Missing {
        /// How many.
        missing: usize,
        /// Of how many.
        width: usize,
        /// Whether the layout tolerates that.
        tolerated: bool,
    },
    /// The devices were to become members, and did not.
    #[error(
        "no device is a member yet: it was to replace one; give the devices of the other members as well"
    )]
    NotJoined,
    /// A member cannot be replaced.
    #[error("the member cannot be replaced: {0}")]
    NotReplaceable(String),
    /// The sets are not those of one volume, each once.
    #[error("the sets do not make a volume: {0}")]
    NotOneVolume(String),
    /// A member failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
