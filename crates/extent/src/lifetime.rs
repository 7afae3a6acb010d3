//! The words for lifetimes, and which of them share a zone.

use crate::Lifetime;

impl Lifetime {
    /// All of them, in the order of the numbers by which they are stored.
    pub const ALL: [Lifetime; 5] =
        [Lifetime::Unknown, Lifetime::Short, Lifetime::Medium, Lifetime::Long, Lifetime::Extreme];

    /// The word for it in attributes, on the command line and on screens.
    pub fn name(self) -> &'static str {
        match self {
            Lifetime::Unknown => "none",
            Lifetime::Short => "short",
            Lifetime::Medium => "medium",
            Lifetime::Long => "long",
            Lifetime::Extreme => "extreme",
        }
    }

    /// What the word stands for; nothing else is understood.
    pub fn from_name(name: &[u8]) -> Option<Lifetime> {
        Self::ALL.into_iter().find(|lifetime| lifetime.name().as_bytes() == name)
    }

    /// The number by which it is stored.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// What is stored under this number.
    pub fn from_number(number: u8) -> Option<Lifetime> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether data of the two may share a zone before others have to: medium with medium; short with
    /// what nothing is known of, since most of that dies soon. What lives long goes with nothing else: a
    /// zone of it is to stay whole for as long.
    pub(crate) fn shares_with(self, other: Lifetime) -> bool {
        let is_brief = |lifetime| matches!(lifetime, Lifetime::Unknown | Lifetime::Short);
        self == other || is_brief(self) && is_brief(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_lead_back() {
        for (number, lifetime) in (0..).zip(Lifetime::ALL) {
            assert_eq!(Lifetime::from_name(lifetime.name().as_bytes()), Some(lifetime));
            assert_eq!((lifetime.number(), Lifetime::from_number(number)), (number, Some(lifetime)));
        }
        for word in ["", "Short", "short ", "unknown", "5"] {
            assert_eq!(Lifetime::from_name(word.as_bytes()), None, "{word}");
        }
        assert_eq!(Lifetime::from_number(5), None);
    }

    #[test]
    fn only_what_dies_soon_shares_with_others() {
        let sharing: Vec<(Lifetime, Lifetime)> = Lifetime::ALL
            .into_iter()
            .flat_map(|a| Lifetime::ALL.map(|b| (a, b)))
            .filter(|(a, b)| a < b && a.shares_with(*b))
            .collect();
        assert_eq!(sharing, [(Lifetime::Unknown, Lifetime::Short)]);
    }
}
