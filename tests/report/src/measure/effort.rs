//! How much a report measures: all of it, or a sample of everything in two minutes.

use std::time::Duration;

/// The size of a report.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// At most 40 minutes.
    Full,
    /// About two minutes: shows that everything can be measured.
    Quick,
}

/// How often the variants of a section are measured.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    /// The rounds, in each of which every variant has its turn.
    pub(crate) rounds: usize,
    /// The time after which no further round begins.
    pub(crate) limit: Duration,
    /// Whether the first variant is what the others are compared with.
    pub(crate) compares: bool,
}

impl Effort {
    /// One of two values.
    pub(crate) fn of<T>(self, full: T, quick: T) -> T {
        match self {
            Effort::Full => full,
            Effort::Quick => quick,
        }
    }

    /// A plan with these rounds, or three.
    pub(crate) fn plan(self, rounds: usize) -> Plan {
        Plan {
            rounds: self.of(rounds, 3),
            limit: Duration::from_secs(self.of(100, 8)),
            compares: true,
        }
    }

    /// What the report says of it.
    pub(crate) fn name(self) -> &'static str {
        self.of("full", "quick")
    }
}
