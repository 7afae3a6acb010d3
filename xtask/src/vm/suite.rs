//! What can be run in the guest.

use std::time::Duration;

/// A suite: a script that runs in the guest, in each boot of it.
pub(super) struct Suite {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) script: &'static str,
    /// How long all boots of it may take: several times what was seen on a machine that is busy.
    pub(super) limit: Duration,
}

/// All suites, the quickest first.
pub(super) const SUITES: [Suite; 7] = [
    Suite {
        name: "zones",
        about: "what the kernel says of the devices, and what mkfs refuses",
        script: include_str!("suites/zones.sh"),
        limit: Duration::from_secs(300),
    },
    Suite {
        name: "contract",
        about: "every device keeps the contract of the trait",
        script: include_str!("suites/contract.sh"),
        limit: Duration::from_secs(600),
    },
    Suite {
        name: "files",
        about: "mkfs, mount, files, kill -9 of the daemon, check, on every device",
        script: include_str!("suites/files.sh"),
        limit: Duration::from_secs(1200),
    },
    Suite {
        name: "doors",
        about: "one namespace through its block device and its generic device, in turn",
        script: include_str!("suites/doors.sh"),
        limit: Duration::from_secs(600),
    },
    Suite {
        name: "po2",
        about: "zones of 96 MiB offered as zones of 128 MiB, and one volume through both",
        script: include_str!("suites/po2.sh"),
        limit: Duration::from_secs(900),
    },
    Suite {
        name: "changes",
        about: "zones become read-only or go offline while they are used",
        script: include_str!("suites/changes.sh"),
        limit: Duration::from_secs(600),
    },
    Suite {
        name: "power-cut",
        about: "what was acknowledged is there when the machine was reset",
        script: include_str!("suites/power_cut.sh"),
        limit: Duration::from_secs(600),
    },
];
