use std::io::Write;

use super::*;

#[test]
fn traffic_is_that_of_one_disk() {
    let reply = "info blockstats\r\n\
        disk1: rd_bytes=1 wr_bytes=2 rd_operations=3 wr_operations=4 flush_operations=5 wr_merged=9\r\n\
        disk11: rd_bytes=0 wr_bytes=0 rd_operations=0 wr_operations=0 flush_operations=0\r\n(qemu) ";
    let expected = Traffic { read_bytes: 1, written_bytes: 2, reads: 3, writes: 4 };
    assert_eq!(traffic(reply, "disk1").unwrap(), expected);
    assert!(traffic(reply, "disk").is_err());
    assert!(traffic("disk1: rd_bytes=1\r\n", "disk1").is_err(), "half a line is none");
}

/// A log that is written while it is read.
struct Log(tempfile::NamedTempFile);

impl Log {
    fn write(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    fn send(&mut self, queue: u32, number: u32, namespace: u32, what: &str) {
        let opcode = format!("nsid {namespace:#x} sqid {queue} opc 0x7d opname 'ANY'");
        self.write(&format!("pci_nvme_io_cmd cid {number} {opcode}\n{what}\n"));
    }

    fn append(&mut self, queue: u32, number: u32, namespace: u32, zone: u32) {
        let what =
            format!("opname 'NVME_ZONED_CMD_ZONE_APPEND' nsid {namespace} nlb 2 count 8192 lba {zone:#x}");
        self.send(queue, number, namespace, &format!("pci_nvme_write cid {number} {what}"));
    }

    fn complete(&mut self, queue: u32, number: u32, status: u32) {
        let what = format!("cid {number} cqid {queue} dw0 0x0 dw1 0x0 status {status:#x}");
        self.write(&format!("pci_nvme_enqueue_req_completion {what}\n"));
    }
}

#[test]
fn appends_are_in_flight_until_they_are_completed() {
    let mut log = Log(tempfile::NamedTempFile::new().unwrap());
    let mut commands = Commands::new(log.0.path());
    // The same number in two queues identifies two commands.
    log.append(1, 7, 1, 0);
    log.append(2, 7, 1, 0);
    log.append(1, 8, 1, 0x1000);
    log.append(1, 9, 2, 0);
    log.complete(1, 7, 0);
    log.append(1, 7, 1, 0);
    let expected = Done { in_flight: 2, appends: 1, append_bytes: 8192, ..Done::default() };
    assert_eq!(commands.since(1).unwrap(), expected);
    log.complete(2, 7, 0);
    log.complete(1, 7, 0x1bd);
    log.complete(1, 8, 0);
    log.write("pci_nvme_enqueue_req_completion cid 9 cq");
    let expected = Done { appends: 2, append_bytes: 16384, failed: 1, ..Done::default() };
    assert_eq!(commands.since(1).unwrap(), expected);
    log.write("id 1 dw0 0x0 dw1 0x0 status 0x0\n");
    let expected = Done { in_flight: 1, appends: 1, append_bytes: 8192, ..Done::default() };
    assert_eq!(commands.since(2).unwrap(), expected);
    assert_eq!(commands.since(2).unwrap(), Done::default());
}

#[test]
fn commands_are_counted_by_kind() {
    let mut log = Log(tempfile::NamedTempFile::new().unwrap());
    let mut commands = Commands::new(log.0.path());
    log.send(1, 1, 1, "pci_nvme_write cid 1 opname 'NVME_NVM_CMD_WRITE' nsid 1 nlb 1 count 4096 lba 0x10");
    log.send(1, 2, 1, "pci_nvme_read cid 2 nsid 1 nlb 4 count 16384 lba 0x10");
    log.send(1, 3, 1, "pci_nvme_flush_ns 1");
    log.write("pci_nvme_enqueue_req_completion cid 3 cqid 0 dw0 0x0 dw1 0x0 status 0x0\n");
    (1..4).for_each(|number| log.complete(1, number, 0));
    let expected = Done { writes: 1, write_bytes: 4096, reads: 1, read_bytes: 16384, ..Done::default() };
    assert_eq!(commands.since(1).unwrap(), expected);
    log.complete(1, 3, 0);
    assert!(commands.since(1).is_err(), "it was completed before");
}
