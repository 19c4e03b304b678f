//! Sets the time limit of each route.
//! Touches: its arguments.

use crate::driver::ask;
use std::time::Duration;

/// The shortest time limit, which applies after a quick first route.
const LEAST: Duration = Duration::from_secs(10);

/// The factor between the first route's duration and the time limit of the others.
const TIMES: u32 = 3;

/// The number of consecutive routes that crash or hang after which the driver counts as the cause.
const GIVE_UP: usize = 3;

/// The time limit of each route.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeout {
    /// The limit given by the user.
    given: Option<Duration>,
    /// The duration of the first route.
    first: Option<Duration>,
}

impl Timeout {
    /// Creates the limits before the first route has run.
    pub(super) fn new(given: Option<Duration>) -> Timeout {
        Timeout { given, first: None }
    }

    /// Returns the time limit of the next route. The first route may have to load the driver. If no
    /// process keeps the driver loaded, each other route must load it too.
    pub(super) fn of_next(&self) -> Duration {
        let measured = || {
            let first = self.first.map(|first| first.saturating_mul(TIMES));
            first.map_or(ask::PATIENCE, |first| first.clamp(LEAST, ask::PATIENCE))
        };
        self.given.unwrap_or_else(measured)
    }

    /// Records the duration of a route; only the first one counts.
    pub(super) fn took(&mut self, time: Duration) {
        self.first.get_or_insert(time);
    }

    /// Returns the number of consecutive routes without an answer after which `check` gives up.
    /// That number is one if the first route took all the time that a driver may take.
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
        let mut timeout = Timeout::new(None);
        assert_eq!(timeout.of_next(), ask::PATIENCE);
        timeout.took(SECOND * 30);
        timeout.took(SECOND);
        assert_eq!(timeout.of_next(), SECOND * 90);
        assert_eq!(timeout.gives_up_after(), 3);
        let mut quick = Timeout::new(None);
        quick.took(SECOND);
        assert_eq!(quick.of_next(), SECOND * 10);
    }

    #[test]
    fn a_driver_that_hangs_is_waited_for_once_unless_the_caller_says_how_long() {
        let mut timeout = Timeout::new(None);
        timeout.took(ask::PATIENCE);
        assert_eq!(timeout.gives_up_after(), 1);
        let mut given = Timeout::new(Some(SECOND));
        given.took(SECOND);
        assert_eq!((given.of_next(), given.gives_up_after()), (SECOND, 3));
    }
}
