//! The time limit of a route.
//! Touches: its arguments.

use crate::inventory::ask;
use std::time::Duration;

/// The least that a route is given, where the first was quick.
const LEAST: Duration = Duration::from_secs(10);

/// How many times what the first took.
const TIMES: u32 = 3;

/// After so many routes in a row that crash or hang it is the driver, not the route.
const GIVE_UP: usize = 3;

/// How long each is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// What the caller says.
    given: Option<Duration>,
    /// What the first route took.
    first: Option<Duration>,
}

impl Patience {
    /// Before the first.
    pub(super) fn new(given: Option<Duration>) -> Patience {
        Patience { given, first: None }
    }

    /// How long the next is waited for. The first may have to load the driver, and where nothing
    /// keeps it loaded so must each other.
    pub(super) fn of_next(&self) -> Duration {
        let measured = || {
            let first = self.first.map(|first| first.saturating_mul(TIMES));
            first.map_or(ask::PATIENCE, |first| first.clamp(LEAST, ask::PATIENCE))
        };
        self.given.unwrap_or_else(measured)
    }

    /// How long the last took, which may have been the first.
    pub(super) fn took(&mut self, time: Duration) {
        self.first.get_or_insert(time);
    }

    /// After how many routes in a row without an answer no more are asked: one is enough where the
    /// first has had all the time that a driver may take.
    pub(super) fn gives_up_after(&self) -> usize {
        let hung = self.first.is_some_and(|first| first >= ask::PATIENCE);
        match self.given.is_none() && hung {
            true => 1,
            false => GIVE_UP,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_driver_that_takes_long_to_load_is_given_that_time_by_every_route() {
        let mut patience = Patience::new(None);
        assert_eq!(patience.of_next(), ask::PATIENCE);
        patience.took(SECOND * 30);
        patience.took(SECOND);
        assert_eq!(patience.of_next(), SECOND * 90);
        assert_eq!(patience.gives_up_after(), 3);
        let mut quick = Patience::new(None);
        quick.took(SECOND);
        assert_eq!(quick.of_next(), SECOND * 10);
    }

    #[test]
    fn a_driver_that_hangs_is_waited_for_once_unless_the_caller_says_how_long() {
        let mut patience = Patience::new(None);
        patience.took(ask::PATIENCE);
        assert_eq!(patience.gives_up_after(), 1);
        let mut given = Patience::new(Some(SECOND));
        given.took(SECOND);
        assert_eq!((given.of_next(), given.gives_up_after()), (SECOND, 3));
    }
}
