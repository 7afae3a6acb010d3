//! The bytes of what was learned: rows of the table [`LEARNED`]. `docs/format.md`, section "Data (extent)", is the
//! same in words. Rows that mean nothing are passed over: what they said is learned anew.

use tree::Table;
use zerocopy::little_endian::{F64, I64, U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Learned;
use super::ages::{AGES, STREAMS, Seen};
use super::kinds::Lives;

/// The table of what was learned of lifetimes.
pub const LEARNED: Table = Table(3);

/// More rows than there ever are.
pub(crate) const ROWS_MAX: usize = 1024;
/// The version at the start of every value.
const VERSION: u8 = 2;
/// The first byte of a key: what the row is about.
const GENERAL: u8 = 0;
const BY_AGE: u8 = 1;
const BY_KIND: u8 = 2;
/// Ages, or slots of kinds, that are in one row.
const IN_ROW: usize = 16;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct GeneralRow {
    version: u8,
    /// 1: short lives of blocks follow short ones.
    tells: u8,
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
struct KindPart {
    slot: U16,
    live: I64,
    exposure: F64,
    died: F64,
}

/// A sum that was stored, if it can be one.
fn sum(stored: F64) -> Option<f64> {
    let sum = stored.get();
    (sum.is_finite() && sum >= 0.0).then_some(sum)
}

impl AgePart {
    fn seen(&self) -> Option<Seen> {
        Some(Seen { exposure: sum(self.exposure)?, died: sum(self.died)? })
    }
}

impl KindPart {
    fn lives(&self) -> Option<(usize, Lives)> {
        let (live, exposure, died) = (self.live.get(), sum(self.exposure)?, sum(self.died)?);
        (live >= 0).then_some((usize::from(self.slot.get()), Lives { live, exposure, died }))
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
        let (clock, stay) = (self.now().into(), self.rewrites.stay().into());
        let tells = u8::from(self.rewrites.tells());
        let general = GeneralRow { version: VERSION, tells, reserved: [0; 6], clock, stay };
        let mut rows = vec![(vec![GENERAL], general.as_bytes().to_vec())];
        let book = self.book.lock();
        let ages: Vec<AgePart> = book
            .ages
            .seen()
            .map(|seen| AgePart { exposure: seen.exposure.into(), died: seen.died.into() })
            .collect();
        for (number, part) in (0_u8..).zip(ages.chunks(IN_ROW)) {
            rows.push((vec![BY_AGE, number], row(part.as_bytes())));
        }
        for (number, lives) in (0_u16..).zip(book.kinds.lives().chunks(IN_ROW)) {
            let first = usize::from(number) * IN_ROW;
            let known = (first..).zip(lives).filter(|(_, lives)| **lives != Lives::default());
            let parts: Vec<KindPart> = known
                .map(|(slot, lives)| KindPart {
                    slot: (slot as u16).into(),
                    live: lives.live.into(),
                    exposure: lives.exposure.into(),
                    died: lives.died.into(),
                })
                .collect();
            if !parts.is_empty() {
                let [high, low] = number.to_be_bytes();
                rows.push((vec![BY_KIND, high, low], row(parts.as_bytes())));
            }
        }
        rows
    }

    /// Goes on from such rows.
    pub(super) fn remember<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, rows: &[(K, V)]) {
        let mut ages = vec![Seen::default(); STREAMS * AGES];
        let mut kinds = Vec::new();
        for (key, value) in rows {
            let value = value.as_ref();
            match key.as_ref() {
                [GENERAL] => {
                    let general = GeneralRow::ref_from_bytes(value).ok();
                    let Some(general) = general.filter(|row| row.version == VERSION) else { continue };
                    self.clock.fetch_max(general.clock.get(), rt::sync::atomic::Ordering::Relaxed);
                    self.rewrites.remember(general.stay.get(), general.tells == 1);
                }
                [BY_AGE, number] => {
                    let first = usize::from(*number) * IN_ROW;
                    let into = ages.iter_mut().skip(first);
                    let stored = parts::<AgePart>(value).unwrap_or_default();
                    into.zip(stored).for_each(|(seen, part)| *seen = part.seen().unwrap_or_default());
                }
                [BY_KIND, ..] => {
                    let stored = parts::<KindPart>(value).unwrap_or_default();
                    kinds.extend(stored.iter().filter_map(KindPart::lives));
                }
                _ => {}
            }
        }
        let mut book = self.book.lock();
        book.ages.remember(self.moment(), ages.into_iter());
        book.kinds.remember(&self.kinds, &kinds);
    }
}
