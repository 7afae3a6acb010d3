//! Computes when commands are complete, with channels and links. Times are nanoseconds of one clock.

use zone::ZoneId;

/// The speed of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// The number of channels, over which zones are distributed by number.
    pub channels: u32,
    /// The write bandwidth of the whole device.
    pub write_bytes_per_s: u64,
    /// The read bandwidth of the whole device.
    pub read_bytes_per_s: u64,
    /// The shortest time of a write.
    pub write_ns_min: u64,
    /// The shortest time of a read.
    pub read_ns_min: u64,
    /// The time of a reset.
    pub reset_ns: u64,
    /// The time of a flush, which occupies no channel.
    pub flush_ns: u64,
    /// The longest additional time of a command that does not begin where the previous one on its channel ended. A
    /// place ahead in the same zone is reached in the time that reading up to it would take.
    pub seek_ns: u64,
}

impl Model {
    /// An SSD with 8 channels: appends of 1.2 GB/s, reads of 3 GB/s, 70 µs for a read of 4 KiB, 15 µs for
    /// a write or a flush, 3 ms for a reset.
    pub fn ssd() -> Model {
        Model {
            channels: 8,
            write_bytes_per_s: 1_200_000_000,
            read_bytes_per_s: 3_000_000_000,
            write_ns_min: 15_000,
            read_ns_min: 70_000,
            reset_ns: 3_000_000,
            flush_ns: 15_000,
            seek_ns: 0,
        }
    }

    /// An SMR disk: one arm, 250 MB/s for reads and writes, at least 100 µs for each command, 8 ms for a seek or a
    /// flush, 10 ms for a reset.
    pub fn shingled() -> Model {
        Model {
            channels: 1,
            write_bytes_per_s: 250_000_000,
            read_bytes_per_s: 250_000_000,
            write_ns_min: 100_000,
            read_ns_min: 100_000,
            reset_ns: 10_000_000,
            flush_ns: 8_000_000,
            seek_ns: 8_000_000,
        }
    }

    /// How long the bytes occupy the link of their direction.
    fn transfer_ns(&self, kind: CommandClass, bytes: u64) -> u64 {
        let per_second = match kind {
            CommandClass::Read => self.read_bytes_per_s,
            CommandClass::Write => self.write_bytes_per_s,
            CommandClass::Reset | CommandClass::Flush => return 0,
        };
        (u128::from(bytes) * 1_000_000_000 / u128::from(per_second)) as u64
    }

    /// How long a command takes without queueing.
    fn service_ns(&self, kind: CommandClass, bytes: u64) -> u64 {
        let least = match kind {
            CommandClass::Read => self.read_ns_min,
            CommandClass::Write => self.write_ns_min,
            CommandClass::Reset => self.reset_ns,
            CommandClass::Flush => self.flush_ns,
        };
        least.max(self.transfer_ns(kind, bytes))
    }
}

/// The classes of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandClass {
    /// Reads.
    Read,
    /// Appends.
    Write,
    /// Empties a zone.
    Reset,
    /// Makes durable.
    Flush,
}

/// The times of the commands of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassTimes {
    /// The number of commands.
    pub commands: u64,
    /// The bytes that they transferred.
    pub bytes: u64,
    /// Their time without queueing.
    pub service_ns: u64,
    /// Their time in queues.
    pub waited_ns: u64,
    /// The longest time in queues of one command.
    pub waited_ns_max: u64,
}

/// The times of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTimes {
    spent: [ClassTimes; 4],
}

impl DeviceTimes {
    /// The times of one class.
    pub fn of(&self, kind: CommandClass) -> ClassTimes {
        self.spent[kind as usize]
    }
}

/// The resources that a command needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// `None`: no channel is occupied.
    pub(super) zone: Option<ZoneId>,
    pub(super) kind: CommandClass,
    pub(super) bytes: u64,
    /// Its start in the zone; `None`: the end of the last append to the zone.
    pub(super) at: Option<u64>,
}

/// The place where a channel's last command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    zone: ZoneId,
    at: Option<u64>,
}

/// The queues of a device.
pub(super) struct Schedule {
    model: Model,
    /// The time at which each channel becomes idle.
    channels: Vec<u64>,
    heads: Vec<Option<Head>>,
    /// The time at which each link becomes idle: reads, writes.
    links: [u64; 2],
    times: DeviceTimes,
}

impl Schedule {
    pub(super) fn new(model: Model, now: u64) -> Schedule {
        assert!(model.channels > 0 && model.write_bytes_per_s > 0 && model.read_bytes_per_s > 0, "{model:?}");
        Schedule {
            model,
            channels: vec![now; model.channels as usize],
            heads: vec![None; model.channels as usize],
            links: [now; 2],
            times: DeviceTimes::default(),
        }
    }

    /// Issues commands together and returns the time at which the last is complete. Calls must be in the order of
    /// time.
    pub(super) fn issue(&mut self, now: u64, demands: &[Demand]) -> u64 {
        demands.iter().map(|demand| self.issue_one(now, demand)).max().unwrap_or(now)
    }

    fn issue_one(&mut self, now: u64, demand: &Demand) -> u64 {
        let service = self.model.service_ns(demand.kind, demand.bytes) + self.seek_ns(demand);
        let transfer = self.model.transfer_ns(demand.kind, demand.bytes);
        let mut complete = now + service;
        if let Some(zone) = demand.zone {
            let index = zone.0 as usize % self.channels.len();
            let channel = &mut self.channels[index];
            *channel = now.max(*channel) + service;
            complete = *channel;
        }
        if transfer > 0 {
            let link = &mut self.links[demand.kind as usize];
            *link = now.max(*link) + transfer;
            complete = complete.max(*link);
        }
        let spent = &mut self.times.spent[demand.kind as usize];
        let waited = complete - now - service;
        spent.commands += 1;
        spent.bytes += demand.bytes;
        spent.service_ns += service;
        spent.waited_ns += waited;
        spent.waited_ns_max = spent.waited_ns_max.max(waited);
        complete
    }

    /// The seek time of a command. Moves the head to the end of the command.
    fn seek_ns(&mut self, demand: &Demand) -> u64 {
        let Some(zone) =
            demand.zone.filter(|_| matches!(demand.kind, CommandClass::Read | CommandClass::Write))
        else {
            return 0;
        };
        let index = zone.0 as usize % self.heads.len();
        let ends = Head { zone, at: demand.at.map(|at| at + demand.bytes) };
        let was = self.heads[index].replace(ends);
        match was.filter(|head| head.zone == zone).map(|head| (head.at, demand.at)) {
            Some((None, None)) => 0,
            Some((Some(from), Some(to))) if from <= to => {
                self.model.seek_ns.min(self.model.transfer_ns(CommandClass::Read, to - from))
            }
            _ => self.model.seek_ns,
        }
    }

    pub(super) fn times(&self) -> DeviceTimes {
        self.times
    }
}
