//! The kernel's OOM killer.
//! Touches: this process's oom_score_adj.

use std::fs;

/// Where a process sets how likely it is chosen.
const SCORE: &str = "/proc/self/oom_score_adj";

/// Keeps this process from being chosen. Its children inherit that.
///
/// # Errors
/// When it is not allowed.
pub(crate) fn never_choose_me() -> std::io::Result<()> {
    fs::write(SCORE, "-1000")
}

/// Lets a child of such a process be chosen as others are: a driver that it loads may take memory.
pub(crate) fn be_ordinary() {
    if fs::read_to_string(SCORE).is_ok_and(|score| score.trim() == "-1000") {
        let _ = fs::write(SCORE, "0");
    }
}
