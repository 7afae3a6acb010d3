//! Volumes that this release must not open, or not for writing. One line of the error says why, and what to do.

use emulated::{CommandKind, Effect, Fault};
use zerocopy::{FromBytes, IntoBytes};
use zone::format::{FEATURES, FORMAT_VERSION, ZoneIdentity};
use zone::{Life, Role, ZoneId, ZoneState};

use super::*;
use crate::StoreError;
use crate::format::{self, BatchHeader, BatchKind, CheckpointHeader, FEATURES_READ_ONLY, FRAME, Identity};
use crate::scan::LogZone;

/// A copy of the device with all checkpoints changed, their checksums right.
fn changed(device: &Arc<Emulated>, change: impl Fn(&mut CheckpointHeader)) -> Arc<Emulated> {
    let copy = Arc::new(Emulated::new(device.spec().clone()));
    let size = device.geometry().block_size as usize;
    for (number, info) in device.report().unwrap().into_iter().enumerate().filter(|(_, i)| i.pointer > 0) {
        let zone = ZoneId(number as u32);
        let mut bytes = vec![0; info.pointer as usize * size];
        device.read(zone, 0, &mut bytes).unwrap();
        let (identity, _) = zone::format::decode_header(&bytes[..size]).unwrap();
        if identity.role == Role::Log {
            let log = LogZone::new(&**device, identity.fs_id, zone, identity.life, info);
            for found in log.batches(1).unwrap().iter().filter(|found| found.kind == BatchKind::Checkpoint) {
                let at = found.at.block() as usize * size;
                let count = log.count_at(found.at.block()).unwrap().unwrap() as usize;
                change_batch(&mut bytes[at..at + count * size], size, &log.identity, &change);
            }
        }
        let most = device.geometry().max_append as usize * size;
        for piece in bytes.chunks(most) {
            copy.append(zone, piece).unwrap();
        }
    }
    copy
}

fn change_batch(bytes: &mut [u8], size: usize, log: &Identity, change: &impl Fn(&mut CheckpointHeader)) {
    let frames: Vec<_> = bytes.chunks(size).map(|block| format::decode_frame(block, log).unwrap()).collect();
    let parts = bytes.chunks(size).zip(&frames);
    let mut payload: Vec<u8> =
        parts.flat_map(|(block, frame)| block[FRAME..][..frame.payload.get() as usize].to_vec()).collect();
    let (_, body) = BatchHeader::read_from_prefix(&payload).unwrap();
    let (mut header, rest) = CheckpointHeader::read_from_prefix(body).unwrap();
    let at = payload.len() - body.len();
    let end = payload.len() - rest.len();
    change(&mut header);
    payload[at..end].copy_from_slice(header.as_bytes());
    let sum = format::checksum(&[&payload[4..]]);
    payload[..4].copy_from_slice(&sum.to_le_bytes());
    for ((block, part), frame) in bytes.chunks_mut(size).zip(payload.chunks(size - FRAME)).zip(frames) {
        block[FRAME..FRAME + part.len()].copy_from_slice(part);
        format::seal_block(block, frame);
    }
}

fn refusal(device: &Arc<Emulated>, read_only: bool) -> String {
    let before = device.digest();
    let opened = open_with(device, &Config { read_only, ..config() });
    let error = opened.err().expect("it is refused");
    assert!(matches!(error, StoreError::NoVolume(_)), "{error:?}");
    let message = error.to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    assert_eq!(device.digest(), before, "nothing was written");
    message
}

#[test]
fn a_checkpoint_of_another_release_is_refused() {
    let device = formatted(Spec::tiny(), &options());
    assert!(open(&changed(&device, |_| {})).is_ok(), "a copy is as good");
    let newer = changed(&device, |header| header.version.set(FORMAT_VERSION + 1));
    let unknown = changed(&device, |header| header.features_incompatible.set(FEATURES | 1 << 63));
    for read_only in [false, true] {
        let message = refusal(&newer, read_only);
        assert!(message.contains(&(FORMAT_VERSION + 1).to_string()), "{message}");
        let message = refusal(&unknown, read_only);
        assert!(message.contains("feature"), "{message}");
    }
}

#[test]
fn a_volume_with_features_that_can_only_be_read_is_read() {
    let device = formatted(Spec::tiny(), &options());
    let device = changed(&device, |header| header.features_read_only.set(FEATURES_READ_ONLY | 1 << 63));
    let message = refusal(&device, false);
    assert!(message.contains("-o ro"), "{message}");
    let (store, _) = open_with(&device, &Config { read_only: true, ..config() }).unwrap();
    assert_eq!(contents(&store), Contents::new());
    let mut tx = Tx::new();
    tx.put(Group(0), Table(1), *b"key", *b"value");
    assert!(matches!(store.commit(tx), Err(StoreError::ReadOnly)));
}

#[test]
fn log_zones_of_different_volumes_are_refused() {
    let device = formatted(Spec::tiny(), &options());
    let zone = (0..3).map(ZoneId).find(|zone| device.report_zone(*zone).unwrap().pointer == 0).unwrap();
    let identity = ZoneIdentity { fs_id: FsId([8; 16]), zone, life: Life(1), role: Role::Log };
    device.append(zone, &zone::format::encode_header(&identity, device.geometry())).unwrap();
    let message = refusal(&device, false);
    assert!(
        message.contains("different volumes") && message.contains("salvage") && !message.contains("mkfs"),
        "{message}"
    );
}

/// A log zone of another volume, of any geometry, or one that cannot even be read. It cannot be removed.
#[test]
fn a_volume_can_be_made_where_a_log_zone_of_another_can_only_be_read() {
    let make = |zone: ZoneId, is_readable: bool, shape: &zone::Geometry| {
        let device = Arc::new(Emulated::new(Spec::tiny()));
        let identity = ZoneIdentity { fs_id: FsId([8; 16]), zone, life: Life(1), role: Role::Log };
        device.append(zone, &zone::format::encode_header(&identity, shape)).unwrap();
        device.set_zone_state(zone, ZoneState::ReadOnly);
        if !is_readable {
            let (effect, times) = (Effect::Error, u64::MAX);
            device.inject(Fault { kind: CommandKind::Read, zone: Some(zone), after: 0, times, effect });
        }
        let as_device: Arc<dyn Device> = device.clone();
        Store::format(&as_device, &options()).unwrap();
        let (store, _) = open(&device).unwrap();
        store.close().unwrap();
    };
    let same = Emulated::new(Spec::tiny()).geometry().clone();
    let other = zone::Geometry { zones: same.zones + 1, ..same.clone() };
    for zone in (0..3).map(ZoneId) {
        make(zone, true, &same);
        make(zone, true, &other);
        make(zone, false, &same);
    }
}

/// For a volume whose log zones had been emptied, the error advised to make a new volume, although salvage would have
/// saved all other zones.
#[test]
fn a_volume_whose_log_was_emptied_is_not_reported_as_none() {
    let device = formatted(Spec::tiny(), &options());
    let reset = |is_meant: &dyn Fn(Role) -> bool| {
        for (zone, info) in (0..).map(ZoneId).zip(device.report().unwrap()) {
            let mut block = vec![0; device.geometry().block_size as usize];
            if info.pointer > 0 {
                device.read(zone, 0, &mut block).unwrap();
                if is_meant(zone::format::decode_header(&block).unwrap().0.role) {
                    device.reset(zone).unwrap();
                }
            }
        }
        device.flush().unwrap();
    };
    reset(&|role| role == Role::Log);
    let message = refusal(&device, true);
    assert!(
        message.contains("salvage")
            && !message.contains("mkfs")
            && message.contains(&FsId([7; 16]).to_string()),
        "{message}"
    );
    reset(&|_| true);
    assert!(refusal(&device, true).contains("no zone has data of a Polder volume"));
}
