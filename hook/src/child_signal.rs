//! SIGCHLD, which a caller may have told this process to ignore: then no child can be waited
//! for, and gpuslice has children to wait for.
//! Touches: the disposition of SIGCHLD.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// What the caller had chosen.
pub struct ChildSignal(Option<SigAction>);

impl ChildSignal {
    /// Lets children be waited for, and keeps what the caller had chosen.
    #[must_use]
    pub fn take() -> ChildSignal {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: no code of ours runs as a handler.
        ChildSignal(unsafe { sigaction(Signal::SIGCHLD, &default) }.ok())
    }

    /// Gives the command what the caller had chosen.
    pub fn restore(&self) {
        if let Some(chosen) = &self.0 {
            // SAFETY: it was in force when this process began, so it names no code of ours.
            let _ = unsafe { sigaction(Signal::SIGCHLD, chosen) };
        }
    }
}
