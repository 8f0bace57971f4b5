//! Oddities of a dump: each kind is reported once, with its first place, if that is known, and its count.

use std::collections::BTreeMap;
use std::fmt;

/// A kind of oddity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Odd {
    /// The file ends early: a length announces more bytes.
    Cut,
    /// The record that ends a dump is missing.
    NoEnd,
    /// An unknown record in a heap: the rest of its segment is lost.
    UnknownObject(u8),
    /// An unknown record: skipped by its length.
    UnknownRecord(u8),
    /// An object extends beyond its segment.
    Crosses,
    /// A heap of 4 GiB or more, whose length does not fit its field.
    Wrapped,
    /// A heap without a length: it reaches to the end of the file.
    NoLength,
    /// More than one heap: the last one counts.
    ManyHeaps,
    /// Two objects with one id: the first one counts.
    SameId,
    /// An instance that is shorter than its class says: its references are left out.
    Short,
    /// An instance of a class that is missing.
    NoClass,
    /// A root that refers to no object.
    RootOfNothing,
    /// A class that is its own superclass, or has more than a thousand superclasses.
    Hierarchy,
    /// A text of more than 64 KiB: its beginning is kept.
    LongText,
    /// Collections that contain each other repeatedly. They are no longer read as collections.
    Collections,
}

impl Odd {
    /// Is a part of the heap missing?
    const fn truncates(self) -> bool {
        matches!(self, Self::Cut | Self::NoEnd | Self::UnknownObject(_))
    }
}

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut => f.write_str("it ends in the middle"),
            Self::NoEnd => f.write_str("its last record is not the end of a heap dump"),
            Self::UnknownObject(tag) => {
                write!(f, "an object of an unknown kind (0x{tag:02x}): the rest of its segment is lost")
            }
            Self::UnknownRecord(tag) => write!(f, "a record of an unknown kind (0x{tag:02x}), left out"),
            Self::Crosses => f.write_str("an object that reaches out of its segment"),
            Self::Wrapped => f.write_str("a heap whose length does not fit its field"),
            Self::NoLength => f.write_str("a heap without a length: read to the end of the file"),
            Self::ManyHeaps => f.write_str("more than one heap: the last one counts"),
            Self::SameId => f.write_str("two objects with one id: the first one counts"),
            Self::Short => f.write_str("an instance shorter than its class: its references are left out"),
            Self::NoClass => f.write_str("an instance of a class that is not in the dump"),
            Self::RootOfNothing => f.write_str("a root of an object that is not in the dump"),
            Self::Hierarchy => f.write_str("a class that is above itself, or below a thousand others"),
            Self::LongText => f.write_str("a text of more than 64 KiB: its beginning is kept"),
            Self::Collections => {
                f.write_str("collections that hold each other over and over: read as plain objects")
            }
        }
    }
}

/// All oddities: one entry per kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Oddities(BTreeMap<Odd, Seen>);

/// How often, and where first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    count: u64,
    at: Option<u64>,
}

impl Oddities {
    /// Adds an oddity at byte `at`.
    pub fn add(&mut self, odd: Odd, at: u64) {
        self.join(odd, Seen { count: 1, at: Some(at) });
    }

    /// Adds `count` oddities that are found when the file has been read: their places are not known.
    pub(crate) fn add_found_later(&mut self, odd: Odd, count: u64) {
        self.join(odd, Seen { count, at: None });
    }

    /// Adds those of another pass.
    pub(crate) fn add_all(&mut self, others: &Self) {
        for (odd, seen) in &others.0 {
            self.join(*odd, *seen);
        }
    }

    fn join(&mut self, odd: Odd, more: Seen) {
        let Seen { count, at } = self.0.entry(odd).or_default();
        *count = count.saturating_add(more.count);
        *at = at.or(more.at);
    }

    /// The kinds that were seen.
    pub fn kinds(&self) -> impl Iterator<Item = Odd> + '_ {
        self.0.keys().copied()
    }

    /// Is a part of the heap missing?
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.0.keys().any(|odd| odd.truncates())
    }

    /// Is there no oddity?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each oddity as a sentence without a full stop.
    pub fn sentences(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().map(|(odd, Seen { count, at })| match (count, at) {
            (1, Some(at)) => format!("byte {at}: {odd}"),
            (_, Some(at)) => format!("byte {at} and {} more: {odd}", count.saturating_sub(1)),
            (1, None) => odd.to_string(),
            (_, None) => format!("{count} times: {odd}"),
        })
    }
}
