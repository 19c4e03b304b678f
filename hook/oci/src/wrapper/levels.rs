//! Counts how often gpuslice-runtime has executed itself on the way to a runtime. Two wrappers that
//! name each other would otherwise loop for ever.
//! Touches: its arguments.

use std::ffi::{OsStr, OsString};

/// The environment variable that a gpuslice-runtime passes to the next one: `PROCESS.COUNT`.
pub(super) const VARIABLE: &str = "GPUSLICE_RUNTIME_LEVEL";

/// A limit above every intentional setup.
pub(super) const MOST: u32 = 8;

/// The position of this gpuslice-runtime in the chain of wrappers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    process: u32,
    /// The number of gpuslice-runtime executions before this one.
    pub(super) count: u32,
    /// Whether the previous gpuslice-runtime became this process: its runtime executed
    /// gpuslice-runtime.
    pub(super) is_below_itself: bool,
}

/// Reads the variable that the previous gpuslice-runtime set.
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
    /// The variable for the next gpuslice-runtime, as an environment entry.
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
