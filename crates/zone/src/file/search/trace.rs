//! Tells a damaged volume from none, without reading all of a large disk.

use std::fs::File;

use super::{BYTES_FIRST, FIRST, PIECE, Remains, SECTOR, Search, next_data};

const PROBES: u32 = 128;

/// Whether there is anything of a volume, as far as can be told soon.
pub(in super::super) fn has_trace(file: &File, device_bytes: u64) -> bool {
    let mut search = Search::new(file, device_bytes, PROBES);
    search.usual_shapes();
    // One header where it is in a volume of the usual shape is a trace, one that would fit any shape is none.
    !search.found.is_empty() || search.has_volume_at_start()
}

impl Search<'_> {
    fn has_volume_at_start(&mut self) -> bool {
        let (mut at, mut read) = (FIRST, 0);
        let mut piece = vec![0; PIECE];
        while read < BYTES_FIRST && !self.found.iter().any(Remains::is_volume) {
            let Some(data) = next_data(self.file, at, self.device_bytes) else { break };
            at = data / SECTOR as u64 * SECTOR as u64;
            let length = self.look_at_piece(at, &mut piece);
            at += length;
            read += length;
        }
        self.found.iter().any(Remains::is_volume)
    }
}
