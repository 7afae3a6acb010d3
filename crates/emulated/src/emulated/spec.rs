//! The specification of an emulated device.

use zone::{Blocks, Geometry};

/// The shape of an emulated device, and the seed of all its random choices.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Bytes of a logical block.
    pub block_size: u32,
    /// The capacity of each zone, in blocks. Capacities may differ.
    pub capacities: Vec<Blocks>,
    /// How many zones may be open at once.
    pub max_open: u32,
    /// How many zones may be active at once.
    pub max_active: u32,
    /// The largest append, in blocks.
    pub max_append: Blocks,
    /// The number of zones, the last ones, that have no pointer after a power loss.
    pub conventional: u32,
    /// How many bytes could be read in the time of one seek.
    pub seek_bytes: u32,
    /// Determines where appends of one batch land, and the contents of lost blocks.
    pub seed: u64,
}

impl Spec {
    /// `zones` zones of `capacity` blocks each, 14 of them open and active, appends of up to 256 KiB.
    pub fn new(block_size: u32, zones: u32, capacity: Blocks) -> Self {
        Spec {
            block_size,
            capacities: vec![capacity; zones as usize],
            max_open: 14,
            max_active: 14,
            max_append: ((256 << 10) / block_size).max(1),
            conventional: 0,
            seek_bytes: Geometry::SEEK_BYTES,
            seed: 1,
        }
    }

    /// One more zone at the end, with another capacity.
    pub fn last_zone(mut self, capacity: Blocks) -> Self {
        self.capacities.push(capacity);
        self
    }

    /// Other limits on open and active zones.
    pub fn limits(mut self, max_open: u32, max_active: u32) -> Self {
        (self.max_open, self.max_active) = (max_open, max_active);
        self
    }

    /// Another largest append.
    pub fn max_append(mut self, blocks: Blocks) -> Self {
        self.max_append = blocks;
        self
    }

    /// The last zones are conventional.
    pub fn conventional(mut self, zones: u32) -> Self {
        self.conventional = zones;
        self
    }

    /// A disk, which has to seek.
    pub fn disk(mut self) -> Self {
        self.seek_bytes = Geometry::SEEK_BYTES_OF_DISK;
        self
    }

    /// Another seed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// 32 zones of 1 MiB in blocks of 4 KiB: powers of two throughout.
    pub fn power_of_two() -> Self {
        Spec::new(4096, 32, 256)
    }

    /// A small version of a device with 96-MiB zones: no size is a power of two, the capacities differ, and the last
    /// zone is smaller.
    pub fn odd() -> Self {
        let mut spec = Spec::new(4096, 30, 240).max_append(60).last_zone(77);
        spec.capacities.iter_mut().skip(3).step_by(5).for_each(|capacity| *capacity = 231);
        spec
    }

    /// Blocks of 512 bytes.
    pub fn blocks_of_512() -> Self {
        Spec::new(512, 40, 1536)
    }

    /// Blocks of 64 KiB.
    pub fn blocks_of_64k() -> Self {
        Spec::new(65536, 32, 40).max_append(16)
    }

    /// The smallest supported limit of active zones: 6.
    pub fn six_active() -> Self {
        Spec::new(4096, 32, 256).limits(6, 6)
    }

    /// Few and small zones, for scenarios with a crash at every command.
    pub fn tiny() -> Self {
        Spec::new(4096, 24, 64).limits(8, 8).max_append(32)
    }

    /// A small version of zoned flash: some of its zones have no persistent pointer.
    pub fn with_conventional() -> Self {
        Spec::new(4096, 30, 128).conventional(6)
    }

    /// All typical shapes with their names.
    pub fn all() -> Vec<(&'static str, Spec)> {
        vec![
            ("power of two", Spec::power_of_two()),
            ("odd", Spec::odd()),
            ("blocks of 512", Spec::blocks_of_512()),
            ("blocks of 64 KiB", Spec::blocks_of_64k()),
            ("six active", Spec::six_active()),
            ("conventional", Spec::with_conventional()),
            ("tiny", Spec::tiny()),
        ]
    }

    /// The geometry of the device.
    pub fn geometry(&self) -> Geometry {
        assert!(
            self.block_size.is_power_of_two() && (512..=65536).contains(&self.block_size),
            "a block is a power of two from 512 to 65536, not {}",
            self.block_size
        );
        assert!(self.conventional as usize <= self.capacities.len(), "no more than all are conventional");
        assert!(self.max_active >= self.max_open && self.max_append > 0, "limits that make sense: {self:?}");
        Geometry {
            block_size: self.block_size,
            zones: self.capacities.len() as u32,
            zone_blocks: *self.capacities.iter().max().expect("a device has at least one zone"),
            max_open: self.max_open,
            max_active: self.max_active,
            max_append: self.max_append,
            conventional: self.conventional,
            seek_bytes: self.seek_bytes,
        }
    }
}
