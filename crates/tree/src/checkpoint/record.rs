//! The record of a checkpoint.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{I64, U32, U64};
use zone::Address;

use super::{Checkpoints, Cut};
use crate::format::{self, CheckpointHeader, ZonePatch, stored};
use crate::saving::Saving;

impl Checkpoints {
    /// About the size of the next checkpoint record without its user's bytes.
    pub(super) fn record_bytes(&self, saving: &Saving) -> usize {
        let directories =
            saving.tables.directories().iter().map(|directory| directory.len()).sum::<usize>() + 4;
        size_of::<CheckpointHeader>() + directories * 8 + 64 * size_of::<ZonePatch>()
    }

    pub(super) fn encode_checkpoint(
        &self,
        saving: &Saving,
        cut: &Cut,
        replay_from: Address,
        user: &[u8],
    ) -> Vec<u8> {
        let late = self.volume.pool.take_late();
        let header = CheckpointHeader {
            replay_from: U64::new(replay_from.bits()),
            ..self.checkpoint_header(saving, cut, late.len(), user.len())
        };
        let mut out = header.as_bytes().to_vec();
        for address in saving.tables.directories().into_iter().flatten() {
            out.extend_from_slice(&address.bits().to_le_bytes());
        }
        for (zone, entry) in late {
            out.extend_from_slice(ZonePatch { zone: U32::new(zone.0), entry: stored(&entry) }.as_bytes());
        }
        out.extend_from_slice(user);
        out
    }

    fn checkpoint_header(&self, saving: &Saving, cut: &Cut, patches: usize, user: usize) -> CheckpointHeader {
        let [mat, zit] = saving.tables.directories();
        let geometry = self.volume.device.geometry();
        let count = |count: usize| U32::new(u32::try_from(count).expect("parts of a checkpoint are small"));
        let mut label = [0; 64];
        let text = self.volume.info.label.text();
        let length = text.len().min(label.len());
        label[..length].copy_from_slice(&text.as_bytes()[..length]);
        CheckpointHeader {
            header_bytes: count(size_of::<CheckpointHeader>()),
            version: U32::new(zone::format::FORMAT_VERSION),
            features_compatible: U64::new(format::features_compatible(self.volume.info.reserve)),
            features_read_only: U64::new(format::FEATURES_READ_ONLY),
            features_incompatible: U64::new(self.volume.info.features),
            block_size: U32::new(geometry.block_size),
            zones: U32::new(geometry.zones),
            page_size: U32::new(self.volume.info.page_size),
            groups: U32::new(u32::from(self.volume.info.groups)),
            cut: U64::new(cut.lsn.0),
            epoch: U64::new(cut.epoch.0),
            number: U64::new(saving.number),
            replay_from: U64::ZERO,
            next_node: U64::new(cut.next_node),
            secret: self.volume.info.secret,
            label,
            created_ns: I64::new(self.volume.info.created_ns),
            mat_directories: count(mat.len()),
            zit_directories: count(zit.len()),
            patches: count(patches),
            user_bytes: count(user),
            counters: cut.counters.map(I64::new),
            reserve: U32::new(self.volume.info.reserve.0),
            prepaid: U64::new(match rt::is_planted("break-prepaid-cut") {
                true => self.trees.prepaid_nodes(),
                false => cut.prepaid,
            }),
            reserved: [0; 68],
        }
    }
}
