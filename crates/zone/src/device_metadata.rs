//! What a device keeps of itself beside its zones, and in how many copies.
//!
//! A device without zones of its own keeps a header and two tables of zone states. Each is there more than
//! once, so that no single damage takes the volume away; but only as long as somebody hears of the damage.

/// One copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetadataPart {
    /// The header at the very start.
    FirstHeader,
    /// The header behind it.
    SecondHeader,
    /// The header near the end.
    EndHeader,
    /// The states of the zones.
    FirstTable,
    /// The states of the zones before the newest, or the newest.
    SecondTable,
}

impl MetadataPart {
    /// What it is called in what programs read.
    pub fn key(self) -> &'static str {
        match self {
            MetadataPart::FirstHeader => "first_header",
            MetadataPart::SecondHeader => "second_header",
            MetadataPart::EndHeader => "end_header",
            MetadataPart::FirstTable => "first_zone_table",
            MetadataPart::SecondTable => "second_zone_table",
        }
    }

    /// Whether it is a copy of the header, and not a table.
    pub fn is_header(self) -> bool {
        self < MetadataPart::FirstTable
    }

    /// What it is called in messages.
    pub fn name(self) -> &'static str {
        match self {
            MetadataPart::FirstHeader => "the first copy of the header",
            MetadataPart::SecondHeader => "the second copy of the header",
            MetadataPart::EndHeader => "the copy of the header at the end",
            MetadataPart::FirstTable => "the first table of zone states",
            MetadataPart::SecondTable => "the second table of zone states",
        }
    }
}

/// What a copy was found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// What it should be.
    Whole,
    /// Not what it should be; why.
    Damaged(String),
    /// The volume has none; why, and whether it will get one.
    Absent(&'static str),
}

/// A copy, and what it was found to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataCopy {
    /// Which one.
    pub record: MetadataPart,
    /// What it was found to be.
    pub state: CopyState,
}

impl MetadataCopy {
    /// What is wrong with it, in a sentence, if anything is.
    pub fn damage(&self) -> Option<String> {
        match &self.state {
            CopyState::Damaged(why) => Some(format!("{} {why}", self.record.name())),
            CopyState::Whole | CopyState::Absent(_) => None,
        }
    }
}
