//! Commands that make, start, stop and remove devices, through `/dev/ublk-control`.

use std::fs::{File, OpenOptions};
use std::io::{self, Error};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::UblkError;
use super::abi::{ANY_DEVICE, ControlCommand, DeviceInfo, NO_QUEUE, Parameters, command};
use super::ring::wait;

pub(super) const PATH: &str = "/dev/ublk-control";

/// A ring whose entries are large enough for a command.
type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// The driver. Each command has a ring of its own: there are few, and some take long.
pub(super) struct Control(File);

impl Control {
    pub(super) fn open() -> Result<Control, UblkError> {
        let opened = OpenOptions::new().read(true).write(true).open(PATH);
        opened.map(Control).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => UblkError::NoDriver,
            io::ErrorKind::PermissionDenied => UblkError::NotPermitted,
            _ => UblkError::Refused("open the driver", error),
        })
    }

    /// Makes a device with the properties `wanted`; returns its actual properties.
    pub(super) fn add(&self, wanted: &DeviceInfo) -> io::Result<DeviceInfo> {
        let mut info = DeviceInfo { device: ANY_DEVICE, ..*wanted };
        self.run(command::ADD_DEV, ANY_DEVICE, 0, info.as_mut_bytes())?;
        Ok(info)
    }

    pub(super) fn set(&self, device: u32, parameters: &mut Parameters) -> io::Result<()> {
        self.run(command::SET_PARAMS, device, 0, parameters.as_mut_bytes())
    }

    /// Starts the device. Returns when the kernel has examined it, which sends requests that must be answered.
    pub(super) fn start(&self, device: u32) -> io::Result<()> {
        self.run(command::START_DEV, device, std::process::id().into(), &mut [])
    }

    /// Stops the device after its requests in flight; then its server learns that there will be no more.
    pub(super) fn stop(&self, device: u32) -> io::Result<()> {
        self.run(command::STOP_DEV, device, 0, &mut [])
    }

    /// The same, unless the device is open; this command exists since Linux 7.0.
    pub(super) fn stop_unused(&self, device: u32) -> io::Result<()> {
        self.run(command::TRY_STOP_DEV, device, 0, &mut [])
    }

    /// Frees the number of the device as soon as it is no longer open, as it is by `opened`: until then the number
    /// identifies no other device. Linux 6.6 cannot do that asynchronously, and waits until it was closed.
    pub(super) fn remove(&self, device: u32, opened: Option<Arc<File>>) -> io::Result<()> {
        let removed = match self.run(command::DEL_DEV_ASYNC, device, 0, &mut []) {
            Err(error) if is_unknown_command(&error) => {
                drop(opened);
                self.run(command::DEL_DEV, device, 0, &mut [])
            }
            removed => removed,
        };
        match removed {
            // Another process has freed it.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => Ok(()),
            removed => removed,
        }
    }

    pub(super) fn info(&self, device: u32) -> io::Result<DeviceInfo> {
        let mut bytes = [0; size_of::<DeviceInfo>()];
        self.run(command::GET_DEV_INFO, device, 0, &mut bytes)?;
        Ok(DeviceInfo::read_from_bytes(&bytes).expect("they are as many as the structure has"))
    }

    /// Executes a command, which may read and write `memory`, and waits for it.
    #[allow(unsafe_code, reason = "the command names memory that the kernel reads and writes")]
    fn run(&self, operation: u32, device: u32, data: u64, memory: &mut [u8]) -> io::Result<()> {
        let header = ControlCommand {
            device,
            queue: NO_QUEUE,
            length: u16::try_from(memory.len()).expect("structures of commands are short"),
            address: if memory.is_empty() { 0 } else { memory.as_mut_ptr().expose_provenance() as u64 },
            data,
            ..ControlCommand::default()
        };
        let mut command = [0; 80];
        command[..size_of::<ControlCommand>()].copy_from_slice(header.as_bytes());
        let mut ring: Ring = IoUring::builder().build(2)?;
        let file = types::Fd(self.0.as_raw_fd());
        let entry = opcode::UringCmd80::new(file, operation).cmd(command).build();
        // SAFETY: the memory that the command refers to is borrowed mutably by this function, which returns only
        // after the command's completion was seen (`wait` aborts the process rather than give up).
        unsafe { ring.submission().push(&entry) }.expect("the ring is empty");
        loop {
            wait(&mut ring);
            if let Some(completion) = ring.completion().next() {
                return match completion.result() {
                    0.. => Ok(()),
                    errno => Err(Error::from(Errno::from_raw_os_error(-errno))),
                };
            }
        }
    }
}
/// Whether the kernel does not know a command. Before Linux 6.13 it returns a number of its own, for which programs
/// have no name.
pub(super) fn is_unknown_command(error: &io::Error) -> bool {
    const ENOTSUPP: i32 = 524;
    matches!(error.raw_os_error(), Some(number) if [ENOTSUPP, Errno::OPNOTSUPP.raw_os_error()].contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_for_unknown_commands_are_recognised() {
        assert!([95, 524].iter().all(|&number| is_unknown_command(&io::Error::from_raw_os_error(number))));
        assert!([16, 19].iter().all(|&number| !is_unknown_command(&io::Error::from_raw_os_error(number))));
    }
}
