//! Mutations of inputs: a few changes of one, or one spliced onto another.

use rt::random::Rng;

use super::INPUT_MAX;

/// Numbers at which decoders decide.
const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    7,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// Changes one of these inputs in a few places.
pub(super) fn mutate(inputs: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut input = rng.choice(inputs).cloned().unwrap_or_default();
    for _ in 0..1 << rng.u32(0..4) {
        change(&mut input, inputs, rng);
    }
    input.truncate(INPUT_MAX);
    input
}

fn change(input: &mut Vec<u8>, inputs: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.usize(0..=input.len());
    let length = rng.usize(0..=32).min(input.len() - at);
    match rng.u32(0..8) {
        0 if at < input.len() => input[at] ^= 1 << rng.u32(0..8),
        1 if at < input.len() => input[at] = rng.u8(..),
        2 | 3 => {
            let width = 1 << rng.u32(0..4);
            let number = NUMBERS[rng.usize(..NUMBERS.len())].to_le_bytes();
            // Fields are aligned more often than not.
            let at = if rng.bool() { at / width * width } else { at };
            input.iter_mut().skip(at).zip(&number[..width]).for_each(|(byte, new)| *byte = *new);
        }
        4 => drop(
            input.splice(at..at + length, (0..rng.usize(0..=16)).map(|_| rng.u8(..)).collect::<Vec<_>>()),
        ),
        5 => drop(input.drain(at..at + length)),
        6 => {
            let copied = input[at..at + length].to_vec();
            let to = rng.usize(0..=input.len());
            input.splice(to..to, copied);
        }
        _ => {
            let other = rng.choice(inputs).map_or(&[][..], Vec::as_slice);
            let from = rng.usize(0..=other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
    }
}
