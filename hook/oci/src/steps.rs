//! The moments between which a hook can be killed. A test kills it at each.
//! Touches: this process, when the operator's own arguments say so.

use nix::sys::signal::{Signal, kill};
use nix::unistd::getpid;

/// Every moment, in order.
pub const STEPS: [&str; 13] = [
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

/// Where to die, if anywhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    die_at: Option<&'static str>,
}

impl Steps {
    /// Dies at the step of that name. None: there is no such step.
    #[must_use]
    pub fn die_at(name: &str) -> Option<Steps> {
        let known = STEPS.iter().find(|step| **step == name)?;
        Some(Steps {
            die_at: Some(known),
        })
    }

    /// This step has been reached.
    pub fn reached(&self, step: &'static str) {
        debug_assert!(STEPS.contains(&step), "{step} is not listed");
        if self.die_at == Some(step) {
            // As the kernel's OOM killer would: nothing runs after it.
            let _ = kill(getpid(), Signal::SIGKILL);
        }
    }
}
