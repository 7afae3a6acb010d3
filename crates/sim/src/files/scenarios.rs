//! The scenarios of the file system. Each is small enough to be cut at every command.

use emulated::Effect;
use zone::Role;

use super::driver::Driver;
use super::script::Script;
use crate::model::Operation;
use crate::shapes::Shape;
use crate::shows::Sign;
use crate::store::ZoneFailure;

/// The most bytes of writes that are delayed, in scenarios that delay them.
const DELAYED_BYTES: u64 = 1 << 20;

/// A scenario: operations, and their circumstances.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// Signs that must rise in the part that is cut.
    pub shows: &'static [Sign],
    /// Groups of the volume.
    pub groups: u16,
    /// Memory for nodes.
    pub cache_bytes: u64,
    /// Limit for background steps between two operations.
    pub steps_between: u32,
    /// Take background steps only in the part that is cut, so that there is work left.
    pub idle_before: bool,
    /// While the part that is cut writes, a second thread looks for zones that can be reset.
    pub reclaims_amid: bool,
    /// The client is a kernel, which references files by their numbers.
    pub for_kernel: bool,
    /// The volume delays writes. Then only the crash contract holds.
    pub delays: bool,
    /// The operations, for a device shape and a seed.
    pub plan: fn(&Shape, u64) -> Plan,
}

impl Scenario {
    /// The driver as the client of this scenario.
    pub fn client(&self, driver: Driver) -> Driver {
        let driver = if self.for_kernel { driver.as_kernel() } else { driver };
        if self.delays { driver.delaying(DELAYED_BYTES) } else { driver }
    }
}

/// The operations before the recording, and those that are cut.
pub struct Plan {
    /// Before the recording. Everything is durable when it begins.
    pub prepare: Vec<Operation>,
    /// The operations that are cut.
    pub cut: Vec<Operation>,
    /// More operations to cut: as many as are needed until the signs of the scenario have risen.
    pub until_shown: Vec<Operation>,
}

const fn usual(name: &'static str, plan: fn(&Shape, u64) -> Plan) -> Scenario {
    Scenario {
        name,
        shows: &[Sign::Batches],
        groups: 2,
        cache_bytes: 8 << 20,
        steps_between: 1,
        idle_before: false,
        reclaims_amid: false,
        for_kernel: false,
        delays: false,
        plan,
    }
}

/// All scenarios of the file system.
pub fn all() -> Vec<Scenario> {
    let showing = |shows, scenario: Scenario| Scenario { shows, ..scenario };
    let cleaning =
        Scenario { steps_between: 3, idle_before: true, ..usual("metadata-cleaning", metadata_gc) };
    let evicting = Scenario { cache_bytes: 64 << 10, groups: 4, ..usual("eviction", eviction) };
    vec![
        usual("create", create),
        usual("allocate", allocate),
        usual("append-fsync", append_fsync),
        usual("group-commit", group_commit),
        usual("rename-over", rename_over),
        usual("link-unlink", link_unlink),
        usual("truncate", truncate),
        usual("truncate-many", truncate_many),
        usual("same-hash", same_hash),
        showing(&[Sign::Amid], usual("ranges", ranges)),
        showing(&[Sign::Amid], usual("ranges-big", ranges_big)),
        showing(&[Sign::Amid], usual("clones", clones)),
        showing(&[Sign::Amid], usual("clones-many", clones_many)),
        showing(&[Sign::Batches, Sign::Checkpoints], usual("small-fsync", small_fsync)),
        showing(&[Sign::Moved, Sign::Resets], Scenario { steps_between: 2, ..usual("gc", gc) }),
        showing(&[Sign::Checkpoints, Sign::NodesWritten], usual("checkpoint", checkpoint)),
        showing(&[Sign::NodesMoved, Sign::Resets], cleaning),
        showing(&[Sign::LogZones], usual("log-switch", log_switch)),
        showing(&[Sign::Failures, Sign::LogZones], usual("log-failure", log_failure)),
        showing(&[Sign::Failures, Sign::ReadOnly, Sign::DataZones], usual("data-failure", data_failure)),
        showing(&[Sign::NodesRead, Sign::NodesWritten], evicting),
        showing(&[Sign::Batches, Sign::Checkpoints], usual("orphans", orphans)),
        showing(
            &[Sign::Batches, Sign::Checkpoints],
            Scenario { for_kernel: true, ..usual("unlinked-known", unlinked_known) },
        ),
        usual("directories", directories),
        usual("attributes", attributes),
        usual("commit-interval", commit_interval),
        showing(&[Sign::DataZones, Sign::Resets], usual("big-files", big_files)),
        showing(&[Sign::DataZones], Scenario { reclaims_amid: true, ..usual("zones-amid", zones_amid) }),
        usual("delete-many", delete_many),
        // Steps are in the plan, as otherwise little would stay delayed.
        Scenario { delays: true, steps_between: 0, ..usual("delayed", delayed) },
    ]
}

fn plan(shape: &Shape, seed: u64, prepare: impl Fn(&mut Script), cut: impl Fn(&mut Script)) -> Plan {
    let mut script = Script::new(shape, seed);
    prepare(&mut script);
    let prepare = script.take();
    cut(&mut script);
    Plan { prepare, cut: script.take(), until_shown: Vec::new() }
}

fn create(shape: &Shape, seed: u64) -> Plan {
    let cut = |script: &mut Script| {
        script.make_directory("d").create("a").create("d/b").fsync("d/b").create("d/c");
        script.write("a", 0, 10).create("e").fsync_directory("d").create("f").create("a");
        script.make_directory("d/g").create("d/g/h").sync().create("i");
    };
    plan(shape, seed, |_| {}, cut)
}

fn append_fsync(shape: &Shape, seed: u64) -> Plan {
    let cut = |script: &mut Script| {
        let block = script.block;
        script.create("log").fsync("log");
        for length in [block, 2 * block, 100, block - 100, 3 * block + 17, 1, block, 5 * block] {
            script.append("log", length).fdatasync("log");
        }
        script.append("log", block).append("log", block).read_back("log").fsync("log").append("log", 7);
    };
    plan(shape, seed, |_| {}, cut)
}

/// Ranges of files with holes are collapsed and inserted, so that there are many steps. Then the files are used.
fn ranges(shape: &Shape, seed: u64) -> Plan {
    let prepare = |script: &mut Script| {
        let block = script.block;
        for name in ["f", "g", "held"] {
            script.create(name).write(name, 0, 3 * block).write(name, 5 * block, 2 * block);
            script.write(name, 9 * block, block).write(name, 20 * block, block + 77);
        }
        script.hold("held", 0);
    };
    let cut = |script: &mut Script| {
        let block = script.block;
        script.collapse("f", 1, 3).read_back("f").fsync("f").insert("f", 2, 2).read_back("f");
        script.append("f", 100).sync().insert("f", 0, 30).write("f", 31 * block, 10).collapse("f", 0, 29);
        script.truncate("f", 4 * block + 5).fsync("f").collapse("g", 4, 1).insert("g", 4, 1).steps(2);
        script.fsync("g").unlink("held").insert("#0", 6, 1).collapse("#0", 0, 2).read_back("#0");
        script.collapse("g", 40, 1).insert("g", 1, 1).rename("g", "f").sync().release(0).steps(3);
    };
    plan(shape, seed, prepare, cut)
}

/// More extents follow the range than one transaction moves.
fn ranges_big(shape: &Shape, seed: u64) -> Plan {
    let prepare = |script: &mut Script| {
        // A transaction takes a mebibyte.
        let length = (script.block * (script.device_blocks / 5)).min(9 << 18);
        script.create("big").write("big", 0, length + 5);
    };
    let cut = |script: &mut Script| {
        script.insert("big", 1, 2).fsync("big").collapse("big", 0, 2).steps(2).collapse("big", 7, 1).sync();
    };
    plan(shape, seed, prepare, cut)
}

/// Files are cloned, and clones of them, before and after writes to them. The last file with the blocks is deleted.
fn clones(shape: &Shape, seed: u64) -> Plan {
    let prepare = |script: &mut Script| {
        let block = script.block;
        script.create("f").write("f", 0, 3 * block).write("f", 5 * block, 2 * block);
        script.write("f", 9 * block + 10, 30).append("f", 50).create("g").create("short").append("short", 40);
        script.create("kept").write("kept", 0, 2 * block).allocate("kept", block, 6 * block, true);
        script.create("held").hold("held", 0);
    };
    let cut = |script: &mut Script| {
        let block = script.block;
        script.clone(("f", 0), ("g", 0), 0).read_back("g").fsync("g").write("f", block, block).fsync("f");
        script.clone(("f", 0), ("g", 1), 4).clone(("g", 0), ("#0", 0), 0).read_back("#0").steps(2).sync();
        script.truncate("g", 2 * block + 9).truncate("g", 4 * block).read_back("g").fsync("g");
        script.unlink("f").sync().write("#0", 0, 6 * block).read_back("g").checkpoint();
        script.clone(("short", 0), ("held", 20), 0).clone(("kept", 0), ("short", 0), 0).read_back("short");
        script.clone(("g", 0), ("g", 9), 3).fsync("g").unlink("held").release(0).steps(3).sync();
        script
            .punch("g", 0, 10 * block)
            .clone(("kept", 0), ("kept", 4), 2)
            .unlink("short")
            .unlink("g")
            .sync();
    };
    plan(shape, seed, prepare, cut)
}

/// A file has more extents than one transaction refers to. They are preallocated, because that takes no writes.
fn clones_many(shape: &Shape, seed: u64) -> Plan {
    const EXTENTS: u64 = 270;
    let prepare = |script: &mut Script| {
        let block = script.block;
        // An equal number is preallocated for a moment.
        let extents = EXTENTS.min(script.device_blocks / 6);
        script.create("f").write("f", 0, 2 * block).create("g").append("g", 10);
        for number in 1..extents {
            script.allocate("f", 3 * number * block, block, false);
        }
        script.append("f", block + 3);
    };
    let cut = |script: &mut Script| {
        let block = script.block;
        script.clone(("f", 0), ("g", 0), 0).read_back("g").fsync("g").write("f", 6 * block, block).fsync("f");
        script
            .clone(("f", 0), ("g", 1), 30)
            .truncate("f", block)
            .steps(3)
            .sync()
            .unlink("f")
            .unlink("g")
            .sync();
    };
    plan(shape, seed, prepare, cut)
}

/// Four threads write and commit, one waits for all.
fn group_commit(shape: &Shape, seed: u64) -> Plan {
    let names = ["w0", "w1", "w2", "w3"];
    let prepare = |script: &mut Script| {
        for (handle, name) in (0..).zip(names) {
            script.create(name).hold(name, handle);
        }
    };
    let cut = |script: &mut Script| {
        let block = script.block;
        for round in 0..5 {
            for handle in 0..4 {
                script.append(&format!("#{handle}"), block + handle * 100);
                script.write(&format!("#{handle}"), 0, block / 2);
            }
            match round % 2 {
                0 => script.sync(),
                _ => script.fsync("#2"),
            };
        }
    };
    plan(shape, seed, prepare, cut)
}

/// How editors and databases replace a file.
fn rename_over(shape: &Shape, seed: u64) -> Plan {
    let prepare = |script: &mut Script| {
        script.create("config").write("config", 0, 5000).create("other").write("other", 0, 100);
    };
    let cut = |script: &mut Script| {
        let block = script.block;
        for round in 0..5 {
            script.create("new").write("new", 0, 2 * block + round).append("new", 50);
            if round % 2 == 0 {
                script.fsync("new");
            }
            script.rename("new", "config");
            if round == 3 {
                script.fsync_directory("").rename("config", "other").create("config");
            }
        }
        script.read_back("config").sync();
    };
    plan(shape, seed, prepare, cut)
}

fn link_unlink(shape: &Shape, seed: u64) -> Plan {
    let prepare = |script: &mut Script| {
        script.make_directory("d").create("a").write("a", 0, 9000).create("b").write("b", 0, 300);
    };
    let cut = |script: &mut Script| {
        let block = script.block;
        script.link("a", "d/a2").unlink("a").fsync("d/a2").link("d/a2", "a").write("a", 0, block);
        script.unlink("d/a2").unlink("a").fsync_directory("").create("a").write("a", 0, 3 * block);
        script.link("b", "d/b").rename("d/b", "a").unlink("b").link("missing", "x").sync().unlink("a");
        script.create("a").write("a", 0, 40).fsync("a").unlink("a").sync();
    };
    plan(shape, seed, prepare, cut)
}

fn truncate(shape: &Shape, seed: u64) -> Plan {
    let prepare = |script: &mut Script| {
        let block = script.block;
        script.create("t").write("t", 0, 12 * block).create("s").write("s", 0, 8 * block);
    };
    let cut = |script: &mut Script| {
        let block = script.block;
        script.truncate("t", 5 * block + 100).fsync("t").truncate("t", 9 * block).write(
            "t",
            7 * block,
            block,
        );
        script.truncate("t", 0).write("t", block, 2 * block).fsync("t").truncate("t", 100).append("t", 10);
        script.punch("s", block / 2, 3 * block).fsync("s").punch("s", 6 * block, 2 * block);
        script.truncate("s", 20 * block).write("s", 19 * block, 10).read_back("s").sync();
        script.truncate("s", block + 1).truncate("s", 3 * block).read_back("s").fsync("s");
        // The truncated bytes stay in the last block, and no write behind the end may make them visible.
        script
            .write("t", 0, 4 * block)
            .truncate("t", 2 * block + 9)
            .write("t", 2 * block + 300, 20)
            .fsync("t");
    };
    plan(shape, seed, prepare, cut)
}

/// More extents are truncated than one transaction removes, so the rest is an intent. They are preallocated, because
/// that takes no writes.
fn truncate_many(shape: &Shape, seed: u64) -> Plan {
    const EXTENTS: u64 = 270;
    let prepare = |script: &mut Script| {
        let block = script.block;
        script.create("t").write("t", 0, 2 * block);
        for number in 1..EXTENTS {
            script.allocate("t", 3 * number * block, block, false);
        }
    };
    let cut = |script: &mut Script| {
        let block = script.block;
        script.truncate("t", block + 7).fsync("t").create("u").sync().truncate("t", 9 * block).read_back("t");
        script.write("t", 6 * block, block).fsync("t").steps(3).sync();
    };
    plan(shape, seed, prepare, cut)
}

/// Files with more extents than one transaction removes lose their last name, or their last handle, and are deleted
/// step by step.
fn delete_many(shape: &Shape, seed: u64) -> Plan {
    const EXTENTS: u64 = 300;
    let prepare = |script: &mut Script| {
        let block = script.block;
        let extents = EXTENTS.min(script.device_blocks / 6);
        for name in ["named", "held"] {
            script.create(name).write(name, 0, 2 * block);
            for number in 1..extents {
                script.allocate(name, 3 * number * block, block, false);
            }
        }
        script.hold("held", 0);
    };
    let cut = |script: &mut Script| {
        script.unlink("named").create("u").fsync("u").unlink("held").steps(2).sync().append("#0", 10);
        script.release(0).create("v").fsync("v").steps(3).sync();
    };
    plan(shape, seed, prepare, cut)
}

/// Two names that have one hash under the secret of every simulated volume.
pub(super) const SAME_HASH: [&str; 2] = ["t1plaurpaqa", "gtpnipwp4ox"];

/// Names with one hash, which differ only in the number behind it, are created and deleted in both orders.
fn same_hash(shape: &Shape, seed: u64) -> Plan {
    let cut = |script: &mut Script| {
        let [one, other] = SAME_HASH;
        script.create(one).create(other).write(one, 0, 10).write(other, 0, 20).sync().read_back(one);
        script
            .unlink(one)
            .fsync(other)
            .read_back(other)
            .create(one)
            .append(one, 30)
            .rename(other, "x")
            .sync();
        script.rename(one, other).make_directory(one).create("y").rename("x", other).fsync(other);
        script.exchange(one, other).remove_directory(other).symlink("y", other).sync().unlink(other);
    };
    plan(shape, seed, |_| {}, cut)
}

/// Preallocated space is used by large and small writes, and freed, with checkpoints in between.
fn allocate(shape: &Shape, seed: u64) -> Plan {
    let prepare = |script: &mut Script| {
        let block = script.block;
        script.create("a").write("a", 0, 4 * block).create("z").write("z", 0, 6 * block);
    };
    let cut = |script: &mut Script| {
        let block = script.block;
        script.allocate("a", 2 * block, 12 * block, false).write("a", 5 * block, 2 * block).fsync("a");
        script.write("a", 8 * block + 9, 30).write("a", block + 5, 20).fsync("a").steps(2);
        script.allocate("a", 10 * block, 20 * block, true).append("a", block + 1).checkpoint();
        script.write("a", 8 * block, 2 * block).punch("a", 3 * block, 2 * block).fsync("a").steps(2);
        script.zero("z", block / 2, 3 * block, true).fsync("z").zero("z", 5 * block, 4 * block, false);
        script.write("z", 6 * block, block).read_back("z").sync().truncate("a", 6 * block).steps(2);
        script.create("new").allocate("new", 0, 9 * block, true).append("new", 3 * block).fsync("new");
        script.unlink("z").read_back("a").truncate("new", 3 * block).checkpoint().sync();
    };
    plan(shape, seed, prepare, cut)
}

/// Writes of less than a block, each with its fsync. Their data may be inline in the journal.
fn small_fsync(shape: &Shape, seed: u64) -> Plan {
    let cut = |script: &mut Script| {
        script.create("wal").create("db");
        for round in 0..12_u64 {
            script.append("wal", 24 + round).fdatasync("wal");
            if round % 3 == 0 {
                script.write("db", round * 700, 200).steps(2);
            }
            if round % 5 == 4 {
                script.fsync("db").write("wal", 10, 5);
            }
        }
        script.checkpoint().append("wal", 30).fsync("wal").read_back("wal").read_back("db").steps(4);
    };
    plan(shape, seed, |_| {}, cut)
}

/// A device that is nearly full of files that are overwritten.
fn gc(shape: &Shape, seed: u64) -> Plan {
    const FILES: u64 = 12;
    // Four fifths of the space available on these volumes when they are empty: 57 % of the blocks of the device, and
    // 42 % where blocks are very small (more metadata for each byte) or very large (fewer in a zone).
    let percent = if shape.spec.block_size == 4096 { 45 } else { 34 };
    let blocks = |script: &Script| script.device_blocks * percent / 100 / FILES;
    let longest = (u64::from(shape.spec.capacities[0]) / 8).max(8);
    let overwrite = |script: &mut Script, count: u64| {
        let (block, blocks) = (script.block, blocks(script));
        for round in 0..count {
            let (file, length) = (script.rng.u64(0..FILES), script.rng.u64(1..=longest.min(blocks)));
            let at = script.rng.u64(0..=blocks - length);
            script.write(&format!("f{file}"), at * block, length * block);
            if round % 6 == 5 {
                script.fsync(&format!("f{file}"));
            }
        }
    };
    let prepare = |script: &mut Script| {
        let (block, blocks) = (script.block, blocks(script));
        for file in 0..FILES {
            script.create(&format!("f{file}")).write(&format!("f{file}"), 0, blocks * block);
        }
        let once = script.device_blocks * 8 / longest / 5;
        overwrite(script, once);
    };
    let mut script = Script::new(shape, seed);
    prepare(&mut script);
    let prepare = script.take();
    overwrite(&mut script, 10);
    let cut = script.take();
    overwrite(&mut script, 100);
    Plan { prepare, cut, until_shown: script.take() }
}

fn checkpoint(shape: &Shape, seed: u64) -> Plan {
    let prepare = |script: &mut Script| {
        for file in 0..20 {
            script.create(&format!("old{file}")).write(&format!("old{file}"), 0, 300);
        }
    };
    let cut = |script: &mut Script| {
        let block = script.block;
        for round in 0..6 {
            script.create(&format!("n{round}")).write(&format!("n{round}"), 0, block + round);
            script.write(&format!("old{round}"), 0, 2 * block).unlink(&format!("old{}", round + 10));
            match round % 3 {
                0 => script.checkpoint(),
                1 => script.fsync(&format!("n{round}")).checkpoint(),
                _ => script.sync(),
            };
        }
    };
    plan(shape, seed, prepare, cut)
}

/// Some nodes are rewritten again and again, between others that stay. Metadata zones fill with dead nodes, and no
/// zone dies completely.
fn metadata_gc(shape: &Shape, seed: u64) -> Plan {
    let churn = |script: &mut Script, rounds: std::ops::Range<u64>| {
        let large = vec![7; script.page as usize / 4];
        for round in rounds {
            let (new, gone) = (format!("d{}/n{round}", round % 3), format!("d{}/n{}", round % 3, round - 30));
            script.create(&new).permissions(&new, 0o600).unlink(&gone);
            match round % 4 {
                0 => script.create(&format!("stays{round}")).xattr(
                    &format!("stays{round}"),
                    "user.large",
                    &large,
                ),
                1 => script.checkpoint(),
                _ => script,
            };
        }
    };
    let prepare = |script: &mut Script| {
        for directory in 0..3 {
            script.make_directory(&format!("d{directory}"));
        }
        for name in 0..30 {
            script.create(&format!("d{}/n{name}", name % 3));
        }
        churn(script, 30..270);
    };
    let Plan { prepare, cut, .. } = plan(shape, seed, prepare, |script| churn(script, 270..278));
    let Plan { cut: until_shown, .. } = plan(shape, seed + 1, |_| {}, |script| churn(script, 278..318));
    Plan { prepare, cut, until_shown }
}

/// Names and small writes, each made durable, until the log zone is full.
fn log_switch(shape: &Shape, seed: u64) -> Plan {
    let fill = |script: &mut Script, names: std::ops::Range<u32>| {
        for name in names {
            let path = format!("file-{:03}", name % 40);
            match name / 40 % 2 {
                0 => {
                    script.create(&path).append(&path, 64).xattr(&path, "user.large", &[3; 6000]).fsync(&path)
                }
                _ => script.fsync(&path).unlink(&path).fsync_directory(""),
            };
        }
    };
    plan(shape, seed, |script| fill(script, 0..20), |script| fill(script, 20..90))
}

fn log_failure(shape: &Shape, seed: u64) -> Plan {
    let prepare = |script: &mut Script| {
        script.create("a").write("a", 0, 5000).create("b");
    };
    let cut = |script: &mut Script| {
        let block = script.block;
        script.append("a", 2 * block).fsync("a").append("b", block).create("c");
        script.fail(ZoneFailure { step: 0, role: Role::Log, effect: Effect::Error });
        script.append("a", 10).fsync("a").create("d").append("b", block).steps(6).sync();
        script.unlink("c").append("a", block).fsync("a").steps(6).checkpoint().create("e").sync();
    };
    plan(shape, seed, prepare, cut)
}

fn data_failure(shape: &Shape, seed: u64) -> Plan {
    let prepare = |script: &mut Script| {
        script.create("a").write("a", 0, 5000).create("b");
    };
    let cut = |script: &mut Script| {
        let block = script.block;
        script.append("a", 2 * block).fsync("a").append("b", block);
        script.fail(ZoneFailure { step: 0, role: Role::Data, effect: Effect::TurnReadOnly(1) });
        script.append("a", 3 * block).fsync("a").append("b", 2 * block).steps(6).sync().read_back("a");
        script.fail(ZoneFailure { step: 0, role: Role::Metadata, effect: Effect::Error });
        script.create("c").checkpoint().append("b", 2 * block).fsync("b").steps(6).read_back("b");
    };
    plan(shape, seed, prepare, cut)
}

/// More nodes than fit into the cache.
fn eviction(shape: &Shape, seed: u64) -> Plan {
    const FILES: u32 = 32;
    let prepare = |script: &mut Script| {
        let page = vec![5; script.page as usize - 256];
        for number in 0..FILES {
            let path = format!("a-rather-long-name-{number:04}");
            script.create(&path).xattr(&path, "user.page", &page);
        }
    };
    let cut = |script: &mut Script| {
        for round in 0..40_u32 {
            let path = format!("a-rather-long-name-{:04}", script.rng.u32(0..FILES));
            match round % 4 {
                0 => script.create(&format!("new-{round}")),
                1 => script.write(&path, 0, 700),
                2 => script.xattr(&path, "user.page", &vec![round as u8; script.page as usize / 2]),
                _ => script.rename(&path, &format!("moved-{round}")),
            };
            if round % 7 == 6 {
                script.sync();
            }
        }
    };
    plan(shape, seed, prepare, cut)
}

/// Files that lose their last name while they are open.
fn orphans(shape: &Shape, seed: u64) -> Plan {
    let prepare = |script: &mut Script| {
        let block = script.block;
        for handle in 0..3 {
            let name = format!("o{handle}");
            script.create(&name).write(&name, 0, 4 * block).hold(&name, handle);
        }
    };
    let cut = |script: &mut Script| {
        let block = script.block;
        script.unlink("o0").append("#0", block).fsync("#0").unlink("o1").create("o1").write("o1", 0, block);
        script.rename("o1", "o2").sync().write("#2", 0, 2 * block).release(0).steps(3).fsync("#1");
        script.temporary(5).write("#5", 0, 3 * block).fsync("#5").release(1).create("last").fsync("last");
        script.release(2).steps(3).checkpoint().release(5).steps(3).sync();
    };
    plan(shape, seed, prepare, cut)
}

/// Files and directories lose their last name while a kernel knows them by their numbers, and are used and forgotten
/// afterwards. Some have rows then, some get rows again, and some exist in memory alone.
fn unlinked_known(shape: &Shape, seed: u64) -> Plan {
    let prepare = |script: &mut Script| {
        let block = script.block;
        let files = ["small", "large", "named", "grows", "over", "empty"];
        for (handle, name) in (0..).zip(files) {
            script.create(name).write(name, 0, 50).hold(name, handle);
        }
        script.write("large", 0, 4 * block).xattr("named", "user.a", b"one").truncate("empty", 0);
        for (handle, name) in (6..).zip(["d", "x", "under"]) {
            script.make_directory(name).hold(name, handle);
        }
        script.xattr("x", "user.a", b"one").make_directory("above");
    };
    let cut = |script: &mut Script| {
        let block = script.block;
        script.unlink("small").fsync_directory("").read_back("#0").append("#0", 10).sync().read_back("#0");
        script.unlink("grows").permissions("#3", 0o600).sync().write("#3", 0, 3 * block).fsync("#3");
        script.unlink("large").append("#1", block).fsync("#1").unlink("named").read_back("#2").sync();
        script.remove_directory("d").remove_directory("x").sync().permissions("#6", 0o700).sync();
        script.xattr("#6", "user.b", b"two").permissions("#7", 0o700).remove_xattr("#7", "user.a").sync();
        script.create("new").write("new", 0, 2 * block).rename("new", "over").rename("above", "under");
        script.xattr("#0", "user.c", b"three").read_back("#0").fsync("#0").truncate("#3", 0).read_back("#3");
        script.remove_xattr("#2", "user.a").append("#4", block).read_back("#4").sync().release(6).steps(2);
        script.unlink("empty").append("#5", 30).fsync_directory("").release(5).release(3).steps(3).sync();
        // What nothing holds is forgotten at any time.
        for name in ["p", "q", "r"] {
            script.create(name).append(name, 20).unlink(name).make_directory(name).remove_directory(name);
        }
        script.checkpoint().release(0).release(1).release(2).release(4).release(7).release(8).steps(3).sync();
    };
    plan(shape, seed, prepare, cut)
}

fn directories(shape: &Shape, seed: u64) -> Plan {
    let prepare = |script: &mut Script| {
        script.make_directory("a").make_directory("a/b").make_directory("c").create("a/b/f");
    };
    let cut = |script: &mut Script| {
        script.make_directory("a/b/d").rename("a/b", "c/b").create("c/b/d/g").fsync("c/b/d/g");
        script.rename("c", "a/c").remove_directory("a/c").make_directory("c").rename("a/c/b", "c");
        script.exchange("c", "a/c").remove_directory("c").rename("a", "a/c/x").symlink("../nowhere", "a/s");
        script.fsync_directory("a").make_directory("e").make_directory("e/e").make_directory("e/e/e");
        script.rename("e/e", "a/e").sync().remove_directory("a/e/e").remove_directory("a/e").unlink("a/s");
        script.remove_directory("e").rename("a/c/f", "f").fsync("f").create("missing/x");
        // Directories exchange places, each with another parent, and stay.
        script
            .make_directory("p")
            .make_directory("p/q")
            .make_directory("r")
            .exchange("r", "p/q")
            .fsync_directory("p");
        script.create("p/q/in").exchange("p/q", "r").sync();
    };
    plan(shape, seed, prepare, cut)
}

fn attributes(shape: &Shape, seed: u64) -> Plan {
    let prepare = |script: &mut Script| {
        script.create("f").make_directory("d");
    };
    let cut = |script: &mut Script| {
        script.permissions("f", 0o600).fsync("f").xattr("f", "user.a", b"one").xattr("d", "user.b", b"two");
        script.fsync_directory("d").xattr("f", "user.a", &[9; 300]).remove_xattr("d", "user.b");
        script
            .remove_xattr("d", "user.c")
            .fsync("f")
            .permissions("d", 0o1777)
            .symlink("f", "s")
            .link("f", "g");
        script.sync().remove_xattr("f", "user.a").unlink("f").xattr("g", "user.z", b"").fsync("g");
        // A value takes several rows, then fewer, then one.
        let rows = |script: &Script, count: usize| vec![5; count * script.page as usize / 3];
        let (three, two) = (rows(script, 3), rows(script, 2));
        script.xattr("d", "user.rows", &three).fsync_directory("d").xattr("d", "user.rows", &two);
        script.xattr("d", "user.rows", b"one").fsync_directory("d").remove_xattr("d", "user.rows").sync();
        script.xattr("d", "user.rows", b"again").fsync_directory("d");
    };
    plan(shape, seed, prepare, cut)
}

/// A write that has not committed yet fills zones. They have no live blocks, and are needed.
fn zones_amid(shape: &Shape, seed: u64) -> Plan {
    let cut = |script: &mut Script| {
        let (block, blocks) = (script.block, script.device_blocks / 6);
        script.create("a").write("a", 0, blocks * block).read_back("a").write("a", 5, blocks / 2 * block);
        script.create("b").write("b", 7 * block, blocks / 2 * block).fsync("b").read_back("a").read_back("b");
    };
    plan(shape, seed, |_| {}, cut)
}

/// Files become durable only through the commit interval.
fn commit_interval(shape: &Shape, seed: u64) -> Plan {
    let cut = |script: &mut Script| {
        let block = script.block;
        for round in 0..4 {
            let name = format!("f{round}");
            script.create(&name).write(&name, 0, block + 100).append("f0", block).wait_seconds(6).steps(3);
        }
    };
    plan(shape, seed, |_| {}, cut)
}

/// Whole blocks in any order, to several files. Some files get other names, are truncated or deleted meanwhile. The files
/// are held, because a look-up of a name inserts delayed writes.
fn delayed(shape: &Shape, seed: u64) -> Plan {
    let prepare = |script: &mut Script| {
        let block = script.block;
        for (handle, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            script.create(name).write(name, 0, 9 * block).hold(name, handle as u8);
        }
    };
    let cut = |script: &mut Script| {
        let block = script.block;
        script.write("#0", 2 * block, block).write("#1", 0, 2 * block).write("#0", 5 * block, 3 * block);
        script.write("#0", 2 * block, block).read_back("#0").write("#0", 4 * block, block);
        script
            .write("#1", 7 * block, block)
            .fsync("#0")
            .write("#0", 9 * block, 4 * block)
            .write("#0", 0, block);
        script.write("#0", block, 2 * block).steps(1).write("#0", 8 * block, block).create("new");
        script
            .write("new", 0, block)
            .hold("new", 4)
            .write("#4", block, 7 * block)
            .rename("new", "c")
            .steps(1);
        script.write("#4", 3 * block, block).exchange("b", "c").fdatasync("#3").write("#3", 4 * block, block);
        script.link("d", "e").write("#3", 8 * block, 4 * block).truncate("#3", 9 * block + 7).read_back("#3");
        script.write("#3", 6 * block, block).fsync("#3").write("#3", 6 * block, block).sync().release(2);
        script.write("#1", block, block).write("#4", 2 * block, block).unlink("b").write(
            "#4",
            block,
            3 * block,
        );
        script
            .fsync("#1")
            .write("#0", 3 * block, 2 * block)
            .write("#0", 12 * block, 3 * block)
            .read_back("#4");
        script.release(4).write("#1", 0, 9 * block).wait_seconds(6).steps(3).write("#1", 5 * block, block);
        script
            .write("#0", 0, block)
            .permissions("a", 0o600)
            .write("#0", 4 * block, block)
            .append("#0", block);
        script.write("#1", 3 * block, block).fsync_directory("").release(0).release(1).release(3);
    };
    plan(shape, seed, prepare, cut)
}

/// Writes of many blocks, in several appends, and files that are deleted in many steps.
fn big_files(shape: &Shape, seed: u64) -> Plan {
    let prepare = |script: &mut Script| {
        let length = script.block * (script.device_blocks / 20);
        script.create("big").write("big", 0, length);
    };
    let cut = |script: &mut Script| {
        let (block, blocks) = (script.block, script.device_blocks / 20);
        script.write("big", block * 3 + 5, blocks / 2 * block).fsync("big").create("more");
        script.write("more", 0, blocks * block).write("big", 10, 20).sync().truncate("big", 7).steps(3);
        script.fsync("big").rename("more", "big").steps(4).sync().unlink("big").steps(4).sync();
    };
    plan(shape, seed, prepare, cut)
}
