//! How often gpuslice-runtime has been executed on the way to a runtime: two wrappers that name each
//! other would go on for ever.
//! Touches: its arguments.

use std::ffi::{OsStr, OsString};

/// The variable that one of us leaves to the next: `PROCESS.COUNT`.
pub(super) const VARIABLE: &str = "GPUSLICE_RUNTIME_LEVEL";

/// More than anybody sets up on purpose.
pub(super) const MOST: u32 = 8;

/// Where this one stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    process: u32,
    /// How many of us were before this one.
    pub(super) count: u32,
    /// Whether the one before has become this one: the runtime that it executed has executed us.
    pub(super) is_below_itself: bool,
}

/// Reads what the one before has left.
#[must_use]
pub(super) fn of(variable: Option<&OsStr>, process: u32) -> Level {
    let read = || {
        let (before, count) = variable?.to_str()?.split_once('.')?;
        let before: u32 = before.parse().ok()?;
        Some((before, count.parse::<u32>().ok()?))
    };
    match read() {
        None => Level {
            process,
            count: 0,
            is_below_itself: false,
        },
        Some((before, count)) => Level {
            process,
            count: count.saturating_add(1),
            is_below_itself: before == process,
        },
    }
}

impl Level {
    /// What this one leaves to the next, as the environment has it.
    #[must_use]
    pub(super) fn variable(self) -> OsString {
        format!("{VARIABLE}={}.{}", self.process, self.count).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapper_knows_the_one_that_became_it_and_counts_the_others() {
        let next = |level: Level, process: u32| {
            let variable = level.variable();
            let text = variable.to_str().unwrap();
            let (_, value) = text.split_once('=').unwrap();
            of(Some(value.as_ref()), process)
        };
        let first = of(None, 7);
        assert_eq!((first.count, first.is_below_itself), (0, false));
        let second = next(first, 7);
        assert_eq!((second.count, second.is_below_itself), (1, true));
        let child = next(second, 8);
        assert_eq!((child.count, child.is_below_itself), (2, false));
        for other in ["", "x", "7", "-1.2", "7.x"] {
            assert_eq!(of(Some(other.as_ref()), 7), first, "{other}");
        }
    }
}
