//! The bytes of what was learned: rows of the table [`LEARNED`]. See `docs/format.md`, section "Data (extent)". Rows that
//! are not valid are skipped, and their contents learned anew.

use tree::Table;
use zerocopy::little_endian::{F64, I64, U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Learned;
use super::ages::{AGES, Observed, STREAMS};
use super::file_classes::ObservedClass;

/// The table of learned lifetimes.
pub const LEARNED: Table = Table(3);

/// More than the number of rows.
pub(crate) const ROWS_MAX: usize = 1024;
/// The version at the start of every value.
const VERSION: u8 = 2;
/// The first byte of a key is the type of the row.
const GENERAL: u8 = 0;
const BY_AGE: u8 = 1;
const BY_FILE_CLASS: u8 = 2;
/// Ages, or slots of file classes, in one row.
const IN_ROW: usize = 16;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct GeneralRow {
    version: u8,
    /// 1: short lives of blocks follow short ones, so predictions are made.
    is_predictive: u8,
    reserved: [u8; 6],
    clock: U64,
    stay: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct AgePart {
    exposure: F64,
    died: F64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct FileClassPart {
    slot: U16,
    live: I64,
    exposure: F64,
    died: F64,
}

/// A stored sum, if it is a valid one.
fn sum(stored: F64) -> Option<f64> {
    let sum = stored.get();
    (sum.is_finite() && sum >= 0.0).then_some(sum)
}

impl AgePart {
    fn observed(&self) -> Option<Observed> {
        Some(Observed { exposure: sum(self.exposure)?, died: sum(self.died)? })
    }
}

impl FileClassPart {
    fn observed(&self) -> Option<(usize, ObservedClass)> {
        let (live, exposure, died) = (self.live.get(), sum(self.exposure)?, sum(self.died)?);
        (live >= 0).then_some((usize::from(self.slot.get()), ObservedClass { live, exposure, died }))
    }
}

fn row(parts: &[u8]) -> Vec<u8> {
    [&[VERSION], parts].concat()
}

fn parts<T: FromBytes + Immutable + KnownLayout + Unaligned>(value: &[u8]) -> Option<&[T]> {
    let (&version, rest) = value.split_first()?;
    if version != VERSION {
        return None;
    }
    <[T]>::ref_from_bytes(rest).ok()
}

impl Learned {
    /// Keys and values.
    pub(super) fn rows(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (clock, stay) = (self.now().into(), self.overwrite_history.stay().into());
        let is_predictive = u8::from(self.overwrite_history.is_predictive());
        let general = GeneralRow { version: VERSION, is_predictive, reserved: [0; 6], clock, stay };
        let mut rows = vec![(vec![GENERAL], general.as_bytes().to_vec())];
        let observations = self.observations.lock();
        let ages: Vec<AgePart> = observations
            .ages
            .observed()
            .map(|observed| AgePart { exposure: observed.exposure.into(), died: observed.died.into() })
            .collect();
        for (number, part) in (0_u8..).zip(ages.chunks(IN_ROW)) {
            rows.push((vec![BY_AGE, number], row(part.as_bytes())));
        }
        for (number, observed) in (0_u16..).zip(observations.file_classes.slots().chunks(IN_ROW)) {
            let first = usize::from(number) * IN_ROW;
            let known =
                (first..).zip(observed).filter(|(_, observed)| **observed != ObservedClass::default());
            let parts: Vec<FileClassPart> = known
                .map(|(slot, observed)| FileClassPart {
                    slot: (slot as u16).into(),
                    live: observed.live.into(),
                    exposure: observed.exposure.into(),
                    died: observed.died.into(),
                })
                .collect();
            if !parts.is_empty() {
                let [high, low] = number.to_be_bytes();
                rows.push((vec![BY_FILE_CLASS, high, low], row(parts.as_bytes())));
            }
        }
        rows
    }

    /// Loads such rows.
    pub(super) fn load<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, rows: &[(K, V)]) {
        let mut ages = vec![Observed::default(); STREAMS * AGES];
        let mut file_classes = Vec::new();
        for (key, value) in rows {
            let value = value.as_ref();
            match key.as_ref() {
                [GENERAL] => {
                    let general = GeneralRow::ref_from_bytes(value).ok();
                    let Some(general) = general.filter(|row| row.version == VERSION) else { continue };
                    self.clock.fetch_max(general.clock.get(), rt::sync::atomic::Ordering::Relaxed);
                    self.overwrite_history.load(general.stay.get(), general.is_predictive == 1);
                }
                [BY_AGE, number] => {
                    let first = usize::from(*number) * IN_ROW;
                    let into = ages.iter_mut().skip(first);
                    let stored = parts::<AgePart>(value).unwrap_or_default();
                    into.zip(stored)
                        .for_each(|(observed, part)| *observed = part.observed().unwrap_or_default());
                }
                [BY_FILE_CLASS, ..] => {
                    let stored = parts::<FileClassPart>(value).unwrap_or_default();
                    file_classes.extend(stored.iter().filter_map(FileClassPart::observed));
                }
                _ => {}
            }
        }
        let mut observations = self.observations.lock();
        observations.ages.load(self.clocks(), ages.into_iter());
        observations.file_classes.load(&self.file_classes, &file_classes);
    }
}
