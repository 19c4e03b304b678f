//! The steps at which a test can kill the hook.
//! Touches: this process, when the operator's own arguments name a step.

use nix::sys::signal::{Signal, kill};
use nix::unistd::getpid;

/// Every step, in order.
pub const CRASH_POINTS: [&str; 13] = [
    "locked",
    "admitted",
    "recorded",
    "ledger-folder",
    "ledger-mounted",
    "ledger",
    "promise",
    "prepared",
    "entered",
    "attached",
    "submounts",
    "preload-written",
    "done",
];

/// The step to die at, if any.
#[derive(Clone, Copy, Debug, Default)]
pub struct CrashPoints {
    die_at: Option<&'static str>,
}

impl CrashPoints {
    /// Dies at the step of that name. Returns `None` if there is no such step.
    #[must_use]
    pub fn die_at(name: &str) -> Option<CrashPoints> {
        let known = CRASH_POINTS.iter().find(|step| **step == name)?;
        Some(CrashPoints {
            die_at: Some(known),
        })
    }

    /// Marks a step as reached, and dies if it is the chosen one.
    pub fn reached(&self, step: &'static str) {
        debug_assert!(CRASH_POINTS.contains(&step), "{step} is not listed");
        if self.die_at == Some(step) {
            // Like the kernel's OOM killer: no code runs after it.
            let _ = kill(getpid(), Signal::SIGKILL);
        }
    }
}
