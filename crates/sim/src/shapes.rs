//! The device shapes for scenarios. They are small, so that zones fill, are emptied by GC and reset within a few
//! hundred commands, and each has something that a careless calculation would get wrong.

use std::fmt;

use emulated::Spec;

/// A device shape, and the options of its volume.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Its name on the command line.
    pub name: &'static str,
    /// The device.
    pub spec: Spec,
    /// Bytes of a page of the metadata store.
    pub page_size: u32,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let capacities = &self.spec.capacities;
        let (most, least) =
            (capacities.iter().max().copied().unwrap_or(0), capacities.iter().min().copied().unwrap_or(0));
        let (zones, block) = (capacities.len(), self.spec.block_size);
        let range = if least == most { most.to_string() } else { format!("{least} to {most}") };
        let active = self.spec.max_active;
        write!(f, "{}: {zones} zones of {range} blocks of {block} bytes, {active} active", self.name)?;
        match self.spec.conventional {
            0 => Ok(()),
            conventional => write!(f, ", {conventional} conventional"),
        }
    }
}

/// All shapes.
pub fn all() -> Vec<Shape> {
    let mut odd = Spec::new(4096, 28, 77).max_append(15);
    odd.capacities.iter_mut().skip(3).step_by(5).for_each(|capacity| *capacity = 70);
    let odd = odd.last_zone(29);
    vec![
        Shape { name: "power-of-two", spec: Spec::new(4096, 28, 64).max_append(32), page_size: 4096 },
        Shape { name: "odd", spec: odd, page_size: 8192 },
        Shape { name: "blocks-512", spec: Spec::new(512, 28, 530).max_append(128), page_size: 4096 },
        Shape { name: "blocks-64k", spec: Spec::new(65536, 26, 24).max_append(16), page_size: 65536 },
        Shape {
            name: "six-active",
            spec: Spec::new(4096, 28, 64).limits(6, 6).max_append(32),
            page_size: 4096,
        },
        // Longer summaries and footers are appended in pieces.
        Shape { name: "one-block", spec: Spec::new(4096, 28, 64).max_append(1), page_size: 4096 },
        // So few other zones that data has to go there.
        Shape {
            name: "conventional",
            spec: Spec::new(4096, 28, 64).max_append(32).conventional(18),
            page_size: 4096,
        },
    ]
}
