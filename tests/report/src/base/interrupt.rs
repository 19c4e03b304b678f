//! A signal ends the report as an error would, so that its children and files go.
//! Touches: the handlers of SIGINT, SIGTERM and SIGHUP.

use anyhow::{Result, bail};
use std::sync::atomic::{AtomicBool, Ordering};

static CAUGHT: AtomicBool = AtomicBool::new(false);

extern "C" fn caught(_: libc::c_int) {
    CAUGHT.store(true, Ordering::Relaxed);
}

/// Catches the signals that end a program.
pub(crate) fn watch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let handler: extern "C" fn(libc::c_int) = caught;
        // SAFETY: the handler stores to an atomic, which is safe in a handler.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// An error once a signal has come.
pub(crate) fn check() -> Result<()> {
    if CAUGHT.load(Ordering::Relaxed) {
        bail!("ended by a signal");
    }
    Ok(())
}
