//! The metadata that a device stores beside its zones, and the state of each copy.
//!
//! A device in a file or on an ordinary disk stores a header and two tables of zone states. Each is stored more than
//! once, so that no single damage makes the volume unusable. That helps only if damage is reported.

/// One of the stored copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetadataPart {
    /// The header at offset 0.
    FirstHeader,
    /// The header behind it.
    SecondHeader,
    /// The header near the end.
    EndHeader,
    /// The states of the zones.
    FirstTable,
    /// The other table: a state of a zone is written to both tables in turn.
    SecondTable,
}

impl MetadataPart {
    /// Its key in machine-readable output.
    pub fn key(self) -> &'static str {
        match self {
            MetadataPart::FirstHeader => "first_header",
            MetadataPart::SecondHeader => "second_header",
            MetadataPart::EndHeader => "end_header",
            MetadataPart::FirstTable => "first_zone_table",
            MetadataPart::SecondTable => "second_zone_table",
        }
    }

    /// Whether it is a copy of the header and not a table.
    pub fn is_header(self) -> bool {
        self < MetadataPart::FirstTable
    }

    /// Its name in messages.
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

/// The state of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// It is as it should be.
    Whole,
    /// It is damaged, with the reason.
    Damaged(String),
    /// The volume has no such copy, with the reason and whether it will get one.
    Absent(&'static str),
}

/// A copy and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataCopy {
    /// Which one.
    pub record: MetadataPart,
    /// Its state.
    pub state: CopyState,
}

impl MetadataCopy {
    /// A sentence that describes the damage, if there is any.
    pub fn damage(&self) -> Option<String> {
        match &self.state {
            CopyState::Damaged(why) => Some(format!("{} {why}", self.record.name())),
            CopyState::Whole | CopyState::Absent(_) => None,
        }
    }
}
