//! Chooses the slice or program that is made to give memory back.
//! Touches: its arguments.
//! Law: a slice that is within its promise is never chosen, and a process outside the slices only if
//! the operator's list allows it.

/// The facts about a candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Whether it is a slice; otherwise a process outside the slices that the list allows.
    pub(crate) is_slice: bool,
    /// The memory that it holds.
    pub(crate) bytes: u64,
    /// The memory that it was promised; 0 outside the slices.
    pub(crate) promised: u64,
    /// The growth in the last second; negative if it has shrunk.
    pub(crate) growth: i64,
    /// Whether it has ended, as far as is known.
    pub(crate) is_gone: bool,
}

/// The excess from which a slice counts as beyond its promise: its figures are of different moments.
pub(crate) const SLACK: u64 = 256 << 20;

impl Facts {
    fn beyond(&self) -> u64 {
        self.bytes.saturating_sub(self.promised)
    }

    fn is_eligible(&self) -> bool {
        !self.is_gone && self.bytes > 0 && (!self.is_slice || self.beyond() > SLACK)
    }

    /// Whether its growth is at least a quarter of the host's loss.
    fn grows(&self, slope: i64) -> bool {
        self.growth > 0 && self.growth >= slope / 4
    }
}

/// Chooses among candidates, while the host loses `slope` bytes in a second. Returns the place of
/// the one to act on; None if none may be.
///
/// Growing ones come before others: overshoot is the rate times the time to act, so who grows
/// matters more than who is large. Among these, slices come before other processes, and the one
/// furthest beyond its promise comes first.
pub(crate) fn choose(candidates: impl Iterator<Item = Facts>, slope: i64) -> Option<usize> {
    let key = |facts: &Facts| (facts.grows(slope), facts.is_slice, facts.beyond());
    let mut best: Option<(usize, Facts)> = None;
    for (place, facts) in candidates.enumerate() {
        if !facts.is_eligible() {
            continue;
        }
        if best.is_none_or(|(_, known)| key(&facts) > key(&known)) {
            best = Some((place, facts));
        }
    }
    best.map(|(place, _)| place)
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "the numbers of a test are small"
)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn slice(bytes: u64, promised: u64, growth: i64) -> Facts {
        Facts {
            is_slice: true,
            bytes: bytes * GIB,
            promised: promised * GIB,
            growth: growth * (GIB as i64),
            is_gone: false,
        }
    }

    fn host(bytes: u64, growth: i64) -> Facts {
        Facts {
            is_slice: false,
            ..slice(bytes, 0, growth)
        }
    }

    fn chosen(candidates: &[Facts]) -> Option<usize> {
        choose(candidates.iter().copied(), 2 * GIB as i64)
    }

    #[test]
    fn a_slice_within_its_promise_is_left_alone_even_if_it_grows() {
        assert_eq!(chosen(&[slice(40, 48, 2)]), None);
        assert_eq!(chosen(&[slice(40, 48, 2), host(3, 0)]), Some(1));
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn the_one_that_grows_is_chosen_before_a_larger_one() {
        assert_eq!(chosen(&[slice(60, 40, 0), slice(45, 40, 2)]), Some(1));
        assert_eq!(chosen(&[slice(60, 40, 0), host(9, 2)]), Some(1));
        // A growth that does not matter is none.
        let slow = Facts {
            growth: 1 << 20,
            ..slice(45, 40, 0)
        };
        assert_eq!(chosen(&[slice(60, 40, 0), slow]), Some(0));
    }

    #[test]
    fn of_two_that_grow_the_slice_furthest_beyond_its_promise_is_chosen() {
        let both = [slice(45, 40, 2), slice(50, 40, 1), host(80, 2)];
        assert_eq!(chosen(&both), Some(1));
    }

    #[test]
    fn one_that_has_ended_is_not_chosen_again() {
        let gone = Facts {
            is_gone: true,
            ..slice(60, 40, 2)
        };
        assert_eq!(chosen(&[gone, slice(45, 40, 0)]), Some(1));
        assert_eq!(chosen(&[gone]), None);
    }
}
