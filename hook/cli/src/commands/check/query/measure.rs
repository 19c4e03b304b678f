//! Queries one function between two queries of the yardstick, until the numbers stay constant.
//! Touches: the driver, through the function that it is given.

use super::apis::{Api, QueryTarget};
use super::devices::Current;
use super::dl::Symbol;
use super::row::Reading;
use std::time::Duration;

/// A query that is ready to run.
pub(super) struct Question {
    pub(super) api: &'static Api,
    pub(super) device: String,
    pub(super) symbol: Symbol,
    pub(super) target: QueryTarget,
    pub(super) current: Current,
}

pub(super) type Answer = Result<Reading, String>;

impl Question {
    pub(super) fn ask(&self) -> Answer {
        self.current.set()?;
        (self.api.ask)(self.symbol, self.target)
    }
}

/// The most times a query is repeated until the numbers stay constant.
const TRIES: u32 = 30;
/// The number of those repeats without a pause.
const AT_ONCE: u32 = 15;

/// The longest time for which the library reuses its value for the host's memory: 5 ms, plus 1 ms.
const CHARGE_KEPT: Duration = Duration::from_millis(6);
/// The most repeats, each after that time, of an answer that differs from the yardstick's.
const CHARGES: u32 = 3;

/// An answer, and the circumstances of its query.
pub(super) struct Measured {
    pub(super) answer: Answer,
    pub(super) beside: Option<u64>,
    pub(super) settled: bool,
}

impl Question {
    /// Queries between two queries of the yardstick, and repeats until those two are equal.
    /// `copies` says that the query and the yardstick use two copies of the library. Each copy
    /// measures the host's memory at its own time, and this process's memory may grow in between.
    /// If the answers differ, both are queried again after the copies' values have expired. A
    /// difference that remains is real.
    pub(super) fn measure(&self, yardstick: Option<&Question>, copies: bool) -> Measured {
        let (mut tried, mut charges) = (0, 0);
        loop {
            let before = yardstick.map(Question::ask);
            let answer = self.ask();
            let after = yardstick.map(Question::ask);
            let moves = answer.as_ref().is_ok_and(|reading| reading.free.is_some());
            let settled = match yardstick {
                _ if !moves => true,
                Some(_) => before == after,
                None => self.ask() == answer,
            };
            let free = |answer: Answer| answer.ok()?.free;
            let differs = copies && moves && self.differs(&answer, after.as_ref());
            if settled && differs && charges < CHARGES {
                charges = charges.saturating_add(1);
                std::thread::sleep(CHARGE_KEPT);
                continue;
            }
            if settled || tried >= TRIES {
                return Measured {
                    answer,
                    beside: after.and_then(free),
                    settled,
                };
            }
            tried = tried.saturating_add(1);
            if tried > AT_ONCE {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Checks whether the yardstick reports another amount as free.
    fn differs(&self, answer: &Answer, yardstick: Option<&Answer>) -> bool {
        let free = |answer: &Answer| Some(self.api.width.cut(answer.as_ref().ok()?.free?));
        let yardstick = yardstick.and_then(free);
        yardstick.is_some() && free(answer) != yardstick
    }
}
