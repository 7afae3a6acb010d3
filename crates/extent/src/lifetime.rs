//! The names of lifetimes, and which of them share a zone.

use crate::Lifetime;

impl Lifetime {
    /// All lifetimes, in the order of their stored numbers.
    pub const ALL: [Lifetime; 5] =
        [Lifetime::Unknown, Lifetime::Short, Lifetime::Medium, Lifetime::Long, Lifetime::Extreme];

    /// The name in attributes, on the command line and on screens.
    pub fn name(self) -> &'static str {
        match self {
            Lifetime::Unknown => "none",
            Lifetime::Short => "short",
            Lifetime::Medium => "medium",
            Lifetime::Long => "long",
            Lifetime::Extreme => "extreme",
        }
    }

    /// The lifetime with this name.
    pub fn from_name(name: &[u8]) -> Option<Lifetime> {
        Self::ALL.into_iter().find(|lifetime| lifetime.name().as_bytes() == name)
    }

    /// The stored number.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The lifetime with this stored number.
    pub fn from_number(number: u8) -> Option<Lifetime> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether data of the two lifetimes may share a zone while each class can have one: equal lifetimes, and short
    /// with unknown, since most unknown data dies soon. Long-lived data shares with no other lifetime, so that its
    /// zones stay live as a whole.
    pub(crate) fn shares_with(self, other: Lifetime) -> bool {
        let is_short = |lifetime| matches!(lifetime, Lifetime::Unknown | Lifetime::Short);
        self == other || is_short(self) && is_short(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_identify_lifetimes() {
        for (number, lifetime) in (0..).zip(Lifetime::ALL) {
            assert_eq!(Lifetime::from_name(lifetime.name().as_bytes()), Some(lifetime));
            assert_eq!((lifetime.number(), Lifetime::from_number(number)), (number, Some(lifetime)));
        }
        for name in ["", "Short", "short ", "unknown", "5"] {
            assert_eq!(Lifetime::from_name(name.as_bytes()), None, "{name}");
        }
        assert_eq!(Lifetime::from_number(5), None);
    }

    #[test]
    fn only_short_lived_data_shares_with_another_lifetime() {
        let sharing: Vec<(Lifetime, Lifetime)> = Lifetime::ALL
            .into_iter()
            .flat_map(|a| Lifetime::ALL.map(|b| (a, b)))
            .filter(|(a, b)| a < b && a.shares_with(*b))
            .collect();
        assert_eq!(sharing, [(Lifetime::Unknown, Lifetime::Short)]);
    }
}
