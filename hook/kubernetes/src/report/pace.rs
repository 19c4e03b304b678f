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
    /// The time between two requests, in the long run.
    interval: Duration,
    /// How far the schedule may run ahead of the clock (the burst).
    burst: Duration,
    /// The time of the next request, if requests came evenly.
    scheduled: Instant,
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
            burst: interval.saturating_mul(burst.saturating_sub(1)),
            scheduled: now,
            paused: None,
            what,
            is_forbidden: false,
        }
    }

    /// Takes a request, if one may be sent now.
    pub fn take(&mut self, now: Instant) -> bool {
        let is_paused = self.paused.is_some_and(|until| now < until);
        let is_early = self.scheduled.saturating_duration_since(now) > self.burst;
        if is_paused || is_early {
            return false;
        }
        let start = self.scheduled.max(now);
        self.scheduled = start.checked_add(self.interval).unwrap_or(start);
        true
    }

    /// Notes the outcome of a request. An error that holds for all requests pauses them. After any
    /// other answer, also a refusal of one object, requests go on. A missing permission is one log
    /// line, and not one for each attempt.
    pub fn note<T>(&mut self, outcome: &Result<T, ApiError>, now: Instant) {
        let Some(error) = outcome.as_ref().err().filter(|error| error.is_general()) else {
            if self.is_forbidden {
                log::line(&format!("{} are written again", self.what));
            }
            (self.is_forbidden, self.paused) = (false, None);
            return;
        };
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

    fn refusal(code: u16, message: &str) -> Result<(), ApiError> {
        Err(ApiError::Refused {
            code,
            reason: String::new(),
            message: message.to_owned(),
        })
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
        // Three at once, and 19 in the 99 seconds that follow.
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
        pace.note::<()>(&Err(ApiError::TimedOut), start);
        assert!(!pace.take(after(29)) && pace.take(after(30)));
        let missing = "events is forbidden: User \"x\" cannot create resource \"events\"";
        pace.note(&refusal(403, missing), after(30));
        assert!(!pace.take(after(629)) && pace.take(after(630)));
        assert!(pace.is_forbidden());
        pace.note(&Ok(()), after(630));
        assert!(!pace.is_forbidden() && pace.take(after(630)));
    }

    #[test]
    fn a_refusal_of_one_object_pauses_no_other() {
        let start = Instant::now();
        let mut pace = Pace::new("x", INTERVAL, 100, start);
        for (code, message) in [(403, "denied by a policy"), (429, ""), (500, ""), (503, "")] {
            pace.note(&refusal(code, message), start);
            assert!(!pace.is_forbidden() && pace.take(start), "{code}");
        }
    }
}
