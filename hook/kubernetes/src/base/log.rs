//! Log lines on standard error, which the kubelet keeps as the container's log.
//! Touches: standard error.

use gpuslice_host::base::clock;
use std::time::SystemTime;

/// Writes one line, with the time.
pub fn line(text: &str) {
    use std::io::Write;
    let time = clock::rfc3339_ms(SystemTime::now());
    // A log that cannot be written to is no reason to stop.
    let _ = writeln!(std::io::stderr(), "{time} gpuslice: {text}");
}
