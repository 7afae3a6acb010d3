//! The suites of the guest, and the programs and devices that they need.

use std::time::Duration;

/// A suite: a script that runs in the guest, in each boot.
pub(super) struct Suite {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) script: &'static str,
    pub(super) devices: &'static Devices,
    pub(super) programs: &'static [Program],
    /// Whether it also creates the kernel's own file systems.
    pub(super) peers: bool,
    /// Time limit for all boots: several times the longest observed time on a busy machine.
    pub(super) limit: Duration,
}

/// A program that a suite runs, besides the shell.
#[derive(Clone, Copy, Debug)]
pub(super) enum Program {
    /// With the assertions of a debug build.
    Polder,
    /// The released form, which the gate has already built.
    PolderReleased,
    /// The public tests of the crate `zone`.
    ZoneTests,
    /// The unit tests of the crate `zone`.
    ZoneUnitTests,
    /// The unit tests of the crate `po2`.
    Po2UnitTests,
    Pjdfstest,
    Fsx,
    /// The simulator, for its workloads on any mounted file system.
    Simulator,
    /// The system's own tool for zones.
    Blkzone,
}

/// The devices of the guest: the namespaces of its NVMe controller, and those that its first process creates.
pub(super) struct Devices {
    /// The name of this set in the first process.
    pub(super) name: &'static str,
    pub(super) namespaces: &'static [Namespace],
    /// Whether writes to the namespaces may name a placement handle.
    pub(super) handles: bool,
    /// Whether the emulator logs every command, so that a suite can query them.
    pub(super) are_logged: bool,
    /// The largest append is 4 KiB times two to this power, and so is Polder's largest write.
    pub(super) append_shift: u32,
}

/// A namespace of NVMe; its blocks have 4 KiB.
pub(super) struct Namespace {
    pub(super) size: &'static str,
    /// `None`: a namespace without zones.
    pub(super) zones: Option<Zones>,
}

/// Zone size, zone capacity, and the limits for open and active zones; 0: no limit.
pub(super) struct Zones {
    pub(super) size: &'static str,
    pub(super) capacity: &'static str,
    pub(super) open: u32,
    pub(super) active: u32,
}

/// Devices that can be bought: zones with a capacity below their size, and zones whose size is no power of two. The
/// first process adds zoned flash and a host-managed disk.
const BOUGHT: Devices = Devices {
    name: "bought",
    namespaces: &[
        Namespace { size: "2G", zones: Some(Zones { size: "32M", capacity: "24M", open: 14, active: 14 }) },
        Namespace { size: "1536M", zones: Some(Zones { size: "96M", capacity: "96M", open: 8, active: 10 }) },
    ],
    handles: false,
    are_logged: false,
    append_shift: 5,
};

/// One device of each kind, as small as volumes for long runs may be: zones whose size is a power of two, zones with
/// a smaller capacity, zones whose size is no power of two, and a disk without zones. The first process adds zoned
/// flash with four conventional zones and a shorter last one.
const SMALL: Devices = Devices {
    name: "small",
    namespaces: &[
        Namespace { size: "256M", zones: Some(Zones { size: "8M", capacity: "8M", open: 14, active: 14 }) },
        Namespace { size: "256M", zones: Some(Zones { size: "8M", capacity: "6M", open: 8, active: 8 }) },
        Namespace { size: "264M", zones: Some(Zones { size: "11M", capacity: "11M", open: 8, active: 10 }) },
        Namespace { size: "256M", zones: None },
    ],
    handles: false,
    are_logged: false,
    append_shift: 5,
};

/// One namespace, for a quick boot.
const ONE: Devices = Devices {
    name: "one",
    namespaces: &[Namespace {
        size: "512M",
        zones: Some(Zones { size: "16M", capacity: "12M", open: 14, active: 14 }),
    }],
    handles: false,
    are_logged: false,
    append_shift: 5,
};

/// Two namespaces for the generic device. The zones of the second are no power of two.
const GENERIC: Devices = Devices {
    name: "generic",
    namespaces: &[
        Namespace { size: "512M", zones: Some(Zones { size: "16M", capacity: "12M", open: 14, active: 14 }) },
        Namespace { size: "440M", zones: Some(Zones { size: "11M", capacity: "11M", open: 8, active: 10 }) },
    ],
    handles: false,
    are_logged: true,
    append_shift: 5,
};

/// Zones of 128 MiB and of 96 MiB, as few as a volume may have. If Linux creates no block device for a namespace, it
/// limits commands to 127.5 KiB, whatever the device accepts. Here both accept 64 KiB.
const LARGE: Devices = Devices {
    name: "large",
    namespaces: &[
        Namespace { size: "2G", zones: Some(Zones { size: "128M", capacity: "128M", open: 8, active: 10 }) },
        Namespace { size: "1536M", zones: Some(Zones { size: "96M", capacity: "96M", open: 8, active: 10 }) },
    ],
    handles: false,
    are_logged: false,
    append_shift: 4,
};

/// Limits for active zones: the least that Polder needs, the usual number, and no limit.
const LIMITED: Devices = Devices {
    name: "limited",
    namespaces: &[
        Namespace { size: "256M", zones: Some(Zones { size: "4M", capacity: "4M", open: 6, active: 6 }) },
        Namespace { size: "256M", zones: Some(Zones { size: "4M", capacity: "4M", open: 14, active: 14 }) },
        Namespace { size: "256M", zones: Some(Zones { size: "4M", capacity: "4M", open: 0, active: 0 }) },
    ],
    handles: false,
    are_logged: true,
    append_shift: 5,
};

/// Equal bytes for each of four file systems. Two of them need a part without zones, and have that much less in
/// zones.
const PEERS_FEW: Devices = Devices {
    name: "peers",
    namespaces: &[
        peer("512M", Some("8M")),
        peer("512M", Some("8M")),
        peer("448M", Some("8M")),
        peer("64M", None),
        peer("448M", Some("8M")),
        peer("64M", None),
    ],
    handles: false,
    are_logged: false,
    append_shift: 5,
};

/// The same with more and smaller zones, the smallest that all four can use.
const PEERS_MANY: Devices = Devices {
    name: "peers",
    namespaces: &[
        peer("1024M", Some("4M")),
        peer("1024M", Some("4M")),
        peer("960M", Some("4M")),
        peer("64M", None),
        peer("960M", Some("4M")),
        peer("64M", None),
    ],
    handles: false,
    are_logged: false,
    append_shift: 5,
};

const fn peer(size: &'static str, zone: Option<&'static str>) -> Namespace {
    let zones = match zone {
        Some(size) => Some(Zones { size, capacity: size, open: 14, active: 14 }),
        None => None,
    };
    Namespace { size, zones }
}

/// An SSD without zones, with placement handles.
const HANDLES: Devices = Devices {
    name: "handles",
    namespaces: &[Namespace { size: "256M", zones: None }],
    handles: true,
    are_logged: false,
    append_shift: 5,
};

/// All suites, the quickest first.
pub(super) const SUITES: [Suite; 19] = [
    Suite {
        name: "gate",
        about: "mkfs, mount, write, kill -9, mount, check on one ZNS namespace: what the gate runs",
        script: include_str!("suites/gate.sh"),
        devices: &ONE,
        programs: &[Program::PolderReleased, Program::Blkzone],
        peers: false,
        limit: Duration::from_secs(300),
    },
    Suite {
        name: "zones",
        about: "what the kernel says of the devices, and what mkfs refuses",
        script: include_str!("suites/zones.sh"),
        devices: &BOUGHT,
        programs: &[Program::Polder],
        peers: false,
        limit: Duration::from_secs(300),
    },
    Suite {
        name: "contract",
        about: "every device keeps the contract of the trait",
        script: include_str!("suites/contract.sh"),
        devices: &BOUGHT,
        programs: &[Program::ZoneTests],
        peers: false,
        limit: Duration::from_secs(600),
    },
    Suite {
        name: "files",
        about: "mkfs, mount, files, kill -9 of the daemon, check, on every device",
        script: include_str!("suites/files.sh"),
        devices: &BOUGHT,
        programs: &[Program::Polder, Program::Blkzone],
        peers: false,
        limit: Duration::from_secs(1200),
    },
    Suite {
        name: "doors",
        about: "one namespace through its block device and its generic device, in turn",
        script: include_str!("suites/doors.sh"),
        devices: &BOUGHT,
        programs: &[Program::Polder],
        peers: false,
        limit: Duration::from_secs(600),
    },
    Suite {
        name: "po2",
        about: "zones of 96 MiB offered as zones of 128 MiB, and one volume through both",
        script: include_str!("suites/po2.sh"),
        devices: &BOUGHT,
        programs: &[Program::Polder, Program::ZoneTests, Program::Po2UnitTests, Program::Blkzone],
        peers: false,
        limit: Duration::from_secs(900),
    },
    Suite {
        name: "appends",
        about: "appends in flight on generic devices, and bytes written as the emulator counts them",
        script: include_str!("suites/appends.sh"),
        devices: &GENERIC,
        programs: &[Program::PolderReleased, Program::Simulator],
        peers: false,
        limit: Duration::from_secs(1800),
    },
    Suite {
        name: "sizes",
        about: "zones of 96 MiB beside zones of 128 MiB, and the view beside the device: commands, bytes, time",
        script: include_str!("suites/sizes.sh"),
        devices: &LARGE,
        programs: &[Program::PolderReleased, Program::Simulator],
        peers: false,
        limit: Duration::from_secs(3600),
    },
    Suite {
        name: "changes",
        about: "zones become read-only or go offline while they are used",
        script: include_str!("suites/changes.sh"),
        devices: &BOUGHT,
        programs: &[Program::Polder],
        peers: false,
        limit: Duration::from_secs(600),
    },
    Suite {
        name: "offline",
        about: "a zone goes offline under load and another becomes read-only: what is lost, moved and named",
        script: include_str!("suites/offline.sh"),
        devices: &BOUGHT,
        programs: &[Program::Polder],
        peers: false,
        limit: Duration::from_secs(900),
    },
    Suite {
        name: "resets",
        about: "another program resets and finishes zones of a volume, mounted and not, through both its devices",
        script: include_str!("suites/resets.sh"),
        devices: &ONE,
        programs: &[Program::Polder, Program::Blkzone],
        peers: false,
        limit: Duration::from_secs(600),
    },
    Suite {
        name: "limits",
        about: "namespaces that let 6, 14 and any number of zones be active, under load",
        script: include_str!("suites/limits.sh"),
        devices: &LIMITED,
        programs: &[Program::PolderReleased, Program::Simulator, Program::Blkzone],
        peers: false,
        limit: Duration::from_secs(1800),
    },
    Suite {
        name: "power-cut",
        about: "what was acknowledged is there when the machine was reset, on each kind of namespace",
        script: include_str!("suites/power_cut.sh"),
        devices: &SMALL,
        programs: &[Program::Polder, Program::Blkzone],
        peers: false,
        limit: Duration::from_secs(2400),
    },
    Suite {
        name: "beside-64",
        about: "Polder, Zoned XFS, f2fs and btrfs on 64 zones: space, write amplification, mounts",
        script: include_str!("suites/beside.sh"),
        devices: &PEERS_FEW,
        programs: &[Program::PolderReleased, Program::Simulator],
        peers: true,
        limit: Duration::from_secs(7200),
    },
    Suite {
        name: "beside-256",
        about: "Polder, Zoned XFS, f2fs and btrfs on 256 zones: space, write amplification, mounts",
        script: include_str!("suites/beside.sh"),
        devices: &PEERS_MANY,
        programs: &[Program::PolderReleased, Program::Simulator],
        peers: true,
        limit: Duration::from_secs(7200),
    },
    Suite {
        name: "pjdfstest",
        about: "POSIX by the letter, on a volume on each kind of device",
        script: include_str!("suites/pjdfstest.sh"),
        devices: &SMALL,
        programs: &[Program::Polder, Program::Pjdfstest],
        peers: false,
        limit: Duration::from_secs(1800),
    },
    Suite {
        name: "churn",
        about: "a volume on each kind of device, at 90 %, is overwritten twice, killed, mounted and checked",
        script: include_str!("suites/churn.sh"),
        devices: &SMALL,
        programs: &[Program::Polder, Program::Simulator, Program::Blkzone],
        peers: false,
        limit: Duration::from_secs(5400),
    },
    Suite {
        name: "fsx",
        about: "random operations on a file on each kind of device, beside a file that stays unchanged",
        script: include_str!("suites/fsx.sh"),
        devices: &SMALL,
        programs: &[Program::Polder, Program::Fsx],
        peers: false,
        limit: Duration::from_secs(21_600),
    },
    Suite {
        name: "handles",
        about: "on an SSD with placement handles each role is written to a handle of its own",
        script: include_str!("suites/handles.sh"),
        devices: &HANDLES,
        programs: &[Program::ZoneUnitTests],
        peers: false,
        limit: Duration::from_secs(300),
    },
];
