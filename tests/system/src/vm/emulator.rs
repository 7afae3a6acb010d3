//! The emulator: the machine's own, or a newer one for devices that it does not support, unpacked and never
//! installed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use support::packages::{Source, renew};
use support::shell::Line;

/// The machine's own emulator.
const PROGRAM: &str = "qemu-system-x86_64";
/// Newer packages for the release of the distribution whose own emulator is too old.
const SUITE: &str = "bookworm-backports";
/// The packages. Their other dependencies come with the machine's own emulator.
const PACKAGES: [&str; 4] = ["qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios"];
/// The folders of the firmware in them.
const FIRMWARE: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];

/// An emulator that can be started.
pub(super) struct Emulator {
    /// The root of the unpacked packages. `None` for the machine's own emulator.
    root: Option<PathBuf>,
}

impl Emulator {
    /// The machine's own emulator.
    pub(super) fn installed() -> Emulator {
        Emulator { root: None }
    }

    /// One with placement handles. Fetched now if the machine's own has none.
    pub(super) fn with_handles(home: &Path) -> Result<Emulator> {
        let installed = Emulator::installed();
        if installed.has_handles()? {
            return Ok(installed);
        }
        let kept = home.join("emulator");
        if !kept.is_dir() {
            renew(home, &kept, |work, made| {
                Ok(fs::rename(Source::of(SUITE, work)?.unpack(&PACKAGES)?, made)?)
            })?;
        }
        Ok(Emulator { root: Some(kept) })
    }

    /// Whether it has placement handles.
    pub(super) fn has_handles(&self) -> Result<bool> {
        Ok(Line::program(self.program()).args(["-device", "nvme-subsys,help"]).output()?.contains("fdp"))
    }

    /// The start of its command line. A command that is killed cannot end its guest itself.
    pub(super) fn line(&self) -> Line {
        let line = Line::new("setpriv --pdeathsig KILL").arg(self.program());
        let firmware = self.root.iter().flat_map(|root| FIRMWARE.map(|folder| root.join(folder)));
        firmware.fold(line, |line, folder| line.arg("-L").arg(folder))
    }

    fn program(&self) -> PathBuf {
        self.root.as_ref().map_or(PROGRAM.into(), |root| root.join("usr/bin").join(PROGRAM))
    }
}
