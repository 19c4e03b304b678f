//! Bounds the requests of one kind of report, and remembers that the API server refuses them.
//! Touches: its arguments, and the log.

use crate::api::ApiError;
use crate::base::log;
use std::time::{Duration, Instant};

/// How long nothing is sent after a refusal for want of a permission.
const FORBIDDEN: Duration = Duration::from_secs(600);

/// How long nothing is sent after a request that was not answered.
const UNANSWERED: Duration = Duration::from_secs(30);

/// The requests of one kind.
#[derive(Debug)]
pub struct Pace {
    /// The time in which one request is earned.
    interval: Duration,
    /// The time that requests may be ahead of those that were earned.
    ahead: Duration,
    /// The time at which all requests so far are earned.
    earned: Instant,
    /// Nothing is sent until then.
    paused: Option<Instant>,
    /// The reports, as log lines name them.
    what: &'static str,
    is_forbidden: bool,
}

impl Pace {
    /// One request in each interval, and after a pause so many at once.
    #[must_use]
    pub fn new(what: &'static str, interval: Duration, burst: u32, now: Instant) -> Pace {
        Pace {
            interval,
            ahead: interval.saturating_mul(burst.saturating_sub(1)),
            earned: now,
            paused: None,
            what,
            is_forbidden: false,
        }
    }

    /// Takes a request, if one may be sent now.
    pub fn take(&mut self, now: Instant) -> bool {
        let is_paused = self.paused.is_some_and(|until| now < until);
        let is_early = self.earned.saturating_duration_since(now) > self.ahead;
        if is_paused || is_early {
            return false;
        }
        let start = self.earned.max(now);
        self.earned = start.checked_add(self.interval).unwrap_or(start);
        true
    }

    /// Notes that a request was answered.
    pub fn worked(&mut self) {
        if self.is_forbidden {
            log::line(&format!("{} are written again", self.what));
        }
        (self.is_forbidden, self.paused) = (false, None);
    }

    /// Notes a request that failed for a reason that holds for others too. A missing permission is
    /// one log line, and not one for each attempt.
    pub fn failed(&mut self, error: &ApiError, now: Instant) {
        let pause = match error.code() {
            Some(403) => {
                if !self.is_forbidden {
                    log::line(&format!("{} are not written: {error}", self.what));
                }
                self.is_forbidden = true;
                FORBIDDEN
            }
            _ => UNANSWERED,
        };
        self.paused = now.checked_add(pause);
    }

    /// Whether a permission is missing.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.is_forbidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(5);

    fn refusal(code: u16) -> ApiError {
        ApiError::Refused {
            code,
            reason: String::new(),
            message: String::new(),
        }
    }

    #[test]
    fn a_burst_is_followed_by_one_request_in_each_interval() {
        let start = Instant::now();
        let mut pace = Pace::new("x", INTERVAL, 3, start);
        let taken = (0..1000_u32).filter(|tenth| {
            let now = start + Duration::from_millis(100) * *tenth;
            pace.take(now)
        });
        let taken: Vec<u32> = taken.collect();
        // Three at once, and 19 in the 99 seconds after the first has been earned.
        assert_eq!(taken[..4], [0, 1, 2, 50]);
        assert_eq!(taken.len(), 22);
        let later = start + Duration::from_secs(1000);
        let burst = (0..10).filter(|_| pace.take(later)).count();
        assert_eq!(burst, 3, "what was not used is not saved");
    }

    #[test]
    fn a_missing_permission_pauses_longer_than_a_server_that_is_away() {
        let start = Instant::now();
        let mut pace = Pace::new("x", INTERVAL, 100, start);
        let after = |seconds| start + Duration::from_secs(seconds);
        pace.failed(&ApiError::TimedOut, start);
        assert!(!pace.take(after(29)) && pace.take(after(30)));
        pace.failed(&refusal(403), after(30));
        assert!(!pace.take(after(629)) && pace.take(after(630)));
        assert!(pace.is_forbidden());
        pace.worked();
        assert!(!pace.is_forbidden() && pace.take(after(630)));
    }
}
