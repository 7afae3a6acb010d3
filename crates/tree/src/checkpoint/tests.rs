use emulated::Spec;

use super::*;
use crate::tests::{formatted, open, options};

/// The record names each page of the directories. A volume with terabytes of metadata has hundreds of them. If the log
/// reserved less, there might be no space for the record after the cut, which shuts the volume down.
#[test]
fn the_log_has_space_for_a_record_with_hundreds_of_directories() {
    let (store, _) = open(&formatted(Spec::tiny(), &options())).unwrap();
    let core = &store.core;
    let mut saving = core.checkpoints.saving.lock();
    let cut = core.checkpoints.cut(0);
    core.volume.pool.encode_changed(|_| Vec::new());
    saving.tables.load(Vec::new(), &[Address::NONE; 300], &[]);
    let record = core.checkpoints.encode_checkpoint(&saving, &cut, Address::NONE, b"");
    let room = core.checkpoints.record_bytes(&saving);
    assert!((record.len()..record.len() + 4096).contains(&room), "{} bytes in {room}", record.len());
}
