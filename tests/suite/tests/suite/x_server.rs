//! An X server for programs that need a screen.
//! Touches: a process of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// An X server without a screen. It ends when this value is dropped.
pub(crate) struct XServer {
    process: Child,
    pub(crate) display: String,
}

impl XServer {
    pub(crate) fn start() -> XServer {
        // Without `-noreset`, the server starts anew when its last program ends, and refuses a program
        // that connects in that moment.
        let mut process = Command::new("Xvfb")
            .args(["-displayfd", "1", "-nolisten", "tcp", "-noreset"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Xvfb (tests/clients/setup.sh)");
        let mut number = String::new();
        let out = process.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut number).unwrap();
        XServer {
            process,
            display: format!(":{}", number.trim()),
        }
    }
}

impl Drop for XServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
