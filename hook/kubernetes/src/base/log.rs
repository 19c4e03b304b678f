//! Log lines on standard error, which the kubelet keeps as the container's log.
//! Touches: standard error.

use gpuslice_host::base::clock;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The function that takes the lines instead of standard error.
static INSTEAD: OnceLock<fn(&str)> = OnceLock::new();

/// Passes all lines to a function, in a process that simulates many nodes. The first call decides.
pub fn redirect(to: fn(&str)) {
    let _ = INSTEAD.set(to);
}

/// Writes one line, with the time.
pub fn line(text: &str) {
    use std::io::Write;
    if let Some(to) = INSTEAD.get() {
        return to(text);
    }
    let time = clock::rfc3339_ms(SystemTime::now());
    // A log that cannot be written to is no reason to stop.
    let _ = writeln!(std::io::stderr(), "{time} gpuslice: {text}");
}
