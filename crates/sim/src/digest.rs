//! Hashes of states: fast, the same on every machine, not cryptographic.

/// Combines bytes and numbers into one number.
#[derive(Clone, Copy, Debug)]
pub struct Digest(u64);

impl Digest {
    /// An empty digest.
    pub fn new() -> Self {
        Digest(0x243f_6a88_85a3_08d3)
    }

    /// Adds a number.
    pub fn number(&mut self, number: u64) -> &mut Self {
        let mixed = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 29;
        self
    }

    /// Adds bytes, and their number.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len() as u64);
        for word in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            self.number(u64::from_le_bytes(padded));
        }
        self
    }

    /// The result.
    pub fn finish(&self) -> u64 {
        self.0
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

/// Combines several numbers into one, so that each bit of each counts.
pub fn mix(numbers: &[u64]) -> u64 {
    let mut digest = Digest::new();
    for &number in numbers {
        digest.number(number);
    }
    digest.finish()
}
