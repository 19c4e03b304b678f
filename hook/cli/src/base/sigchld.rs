//! Sets SIGCHLD to its default, and restores the caller's disposition for the command. The caller
//! may have set it to "ignore"; gpuslice could then not wait for its children.
//! Touches: the disposition of SIGCHLD.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// The disposition that the caller had set.
pub(crate) struct ChildSignal(Option<SigAction>);

impl ChildSignal {
    /// Sets the default disposition, so that children can be waited for, and keeps the caller's.
    #[must_use]
    pub(crate) fn take() -> ChildSignal {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: the default disposition installs no handler.
        ChildSignal(unsafe { sigaction(Signal::SIGCHLD, &default) }.ok())
    }

    /// Restores the caller's disposition, for the command.
    pub(crate) fn restore(&self) {
        if let Some(chosen) = &self.0 {
            // SAFETY: the disposition was in force when this process began, so it names no code of
            // gpuslice.
            let _ = unsafe { sigaction(Signal::SIGCHLD, chosen) };
        }
    }
}
