//! Decides which signal is sent to whom, one candidate at a time.
//! Touches: its arguments.
//! Law: it allocates nothing. No second candidate is chosen while the first may still give its memory
//! back.

use super::rungs::{Level, Verdict};
use super::victim::{self, Facts};
use std::time::Duration;

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing.
    None,
    /// The candidate at this place is asked to end.
    Terminate(usize),
    /// The candidate at this place is killed.
    Kill(usize),
    /// A signal is due, but no candidate may get one. Returned once for each shortage.
    Nobody,
}

/// The candidate that was chosen.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    id: u64,
    bytes: u64,
    asked: Duration,
    killed: Option<Duration>,
    gone: Option<Duration>,
}

/// The state of a shortage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ladder {
    chosen: Option<Chosen>,
    nobody: bool,
}

/// The time that a process has to end by itself.
const PATIENCE: Duration = Duration::from_secs(2);
/// Memory comes back for a while after the end of a process: the driver frees it last.
const RETURNING: Duration = Duration::from_millis(500);

/// The time after which a killed candidate is not waited for any longer: one second, and half a
/// second for each GiB that it held.
fn longest(bytes: u64) -> Duration {
    let millis = (bytes >> 20).saturating_mul(500) / 1024;
    Duration::from_millis(millis.saturating_add(1000))
}

impl Ladder {
    /// Forgets the chosen candidate, so that another can be chosen: a while after its end, after
    /// [`PATIENCE`] if it was asked to end and lives, after `longest` if it was killed and lives.
    fn forget<I: Iterator<Item = (u64, Facts)>>(
        &mut self,
        at: Duration,
        candidates: impl Fn() -> I,
    ) {
        let Some(chosen) = &mut self.chosen else {
            return;
        };
        let lives = candidates().any(|(id, facts)| id == chosen.id && !facts.is_gone);
        let is_over = match (chosen.killed, lives) {
            (Some(killed), true) => at.saturating_sub(killed) >= longest(chosen.bytes),
            (None, true) => at.saturating_sub(chosen.asked) >= PATIENCE,
            (_, false) => {
                let gone = *chosen.gone.get_or_insert(at);
                at.saturating_sub(gone) >= RETURNING
            }
        };
        if is_over {
            self.chosen = None;
        }
    }

    /// Decides at a moment. Each candidate has an id that stays the same.
    pub(crate) fn decide<I: Iterator<Item = (u64, Facts)>>(
        &mut self,
        at: Duration,
        verdict: Verdict,
        candidates: impl Fn() -> I,
    ) -> Action {
        if verdict.level < Level::Terminate {
            self.nobody = false;
            self.forget(at, &candidates);
            return Action::None;
        }
        if let Some(mut chosen) = self.chosen {
            let mut found = candidates().enumerate();
            let found = found.find(|(_, (id, facts))| *id == chosen.id && !facts.is_gone);
            match (found, chosen.killed) {
                (Some((place, _)), None) => {
                    let waited = at.saturating_sub(chosen.asked);
                    if verdict.level < Level::Kill && waited < PATIENCE {
                        return Action::None;
                    }
                    chosen.killed = Some(at);
                    self.chosen = Some(chosen);
                    return Action::Kill(place);
                }
                (Some(_), Some(killed)) => {
                    if at.saturating_sub(killed) < longest(chosen.bytes) {
                        return Action::None;
                    }
                }
                (None, _) => {
                    let gone = *chosen.gone.get_or_insert(at);
                    self.chosen = Some(chosen);
                    let waited = at.saturating_sub(gone);
                    let is_returning = waited < RETURNING || verdict.slope < 0;
                    if is_returning && waited < longest(chosen.bytes) {
                        return Action::None;
                    }
                }
            }
        }
        let held = self.chosen.map(|chosen| chosen.id);
        let others = candidates().map(|(id, facts)| Facts {
            is_gone: facts.is_gone || Some(id) == held,
            ..facts
        });
        let Some(place) = victim::choose(others, verdict.slope) else {
            return match std::mem::replace(&mut self.nobody, true) {
                true => Action::None,
                false => Action::Nobody,
            };
        };
        let Some((id, facts)) = candidates().nth(place) else {
            return Action::None;
        };
        let kills = verdict.level == Level::Kill;
        self.chosen = Some(Chosen {
            id,
            bytes: facts.bytes,
            asked: at,
            killed: kills.then_some(at),
            gone: None,
        });
        match kills {
            true => Action::Kill(place),
            false => Action::Terminate(place),
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "the numbers of a test are small"
)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn verdict(level: Level, slope: i64) -> Verdict {
        Verdict {
            level,
            slope,
            is_pressure: false,
            next: Duration::ZERO,
        }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn beyond(bytes: u64) -> Facts {
        Facts {
            is_slice: true,
            bytes: bytes * GIB,
            promised: GIB,
            growth: 0,
            is_gone: false,
        }
    }

    #[test]
    fn a_candidate_has_two_seconds_to_end_by_itself() {
        let mut ladder = Ladder::default();
        let all = [(7, beyond(9)), (8, beyond(5))];
        let low = verdict(Level::Terminate, 0);
        let mut decide = |at, low| ladder.decide(at, low, || all.into_iter());
        assert_eq!(decide(ms(0), low), Action::Terminate(0));
        assert_eq!(decide(ms(5), low), Action::None);
        assert_eq!(decide(ms(1999), low), Action::None);
        assert_eq!(decide(ms(2000), low), Action::Kill(0));
        assert_eq!(decide(ms(2005), low), Action::None);
    }

    #[test]
    fn a_faster_collapse_kills_who_was_asked_to_end() {
        let mut ladder = Ladder::default();
        let all = [(7, beyond(9)), (8, beyond(5))];
        let mut decide = |at, level| ladder.decide(at, verdict(level, 1), || all.into_iter());
        assert_eq!(decide(ms(0), Level::Terminate), Action::Terminate(0));
        assert_eq!(decide(ms(10), Level::Kill), Action::Kill(0));
        // The kernel takes its time: 9 GiB have 5.5 seconds. Then the next one is chosen.
        assert_eq!(decide(ms(5000), Level::Kill), Action::None);
        assert_eq!(decide(ms(5510), Level::Kill), Action::Kill(1));
    }

    #[test]
    fn a_second_one_is_chosen_when_the_first_is_gone_and_nothing_comes_back() {
        let mut ladder = Ladder::default();
        let all = [(7, beyond(9)), (8, beyond(5))];
        let kill = |slope| verdict(Level::Kill, slope);
        let first = ladder.decide(ms(0), kill(1), || all.into_iter());
        assert_eq!(first, Action::Kill(0));
        let left = || all.into_iter().skip(1);
        assert_eq!(ladder.decide(ms(100), kill(1), left), Action::None);
        // Memory comes back.
        assert_eq!(ladder.decide(ms(700), kill(-1), left), Action::None);
        assert_eq!(ladder.decide(ms(800), kill(0), left), Action::Kill(0));
    }

    #[test]
    fn that_nobody_may_be_chosen_is_said_once_for_each_shortage() {
        let mut ladder = Ladder::default();
        let none = || std::iter::empty();
        let low = verdict(Level::Kill, 1);
        assert_eq!(ladder.decide(ms(0), low, none), Action::Nobody);
        assert_eq!(ladder.decide(ms(5), low, none), Action::None);
        let calm = verdict(Level::Warn, 0);
        assert_eq!(ladder.decide(ms(10), calm, none), Action::None);
        assert_eq!(ladder.decide(ms(15), low, none), Action::Nobody);
    }
}
