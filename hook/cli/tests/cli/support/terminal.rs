//! A terminal of some size, in which a command runs, and what it shows.
//! Touches: a pseudo-terminal.

use nix::pty::{Winsize, openpty};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A terminal of that many lines and columns.
pub(crate) struct Terminal {
    master: File,
    slave: OwnedFd,
    parser: vt100::Parser,
    /// All that the command has written.
    pub(crate) written: Vec<u8>,
}

impl Terminal {
    pub(crate) fn new(lines: u16, columns: u16) -> Terminal {
        let both = openpty(Some(&size(lines, columns)), None).unwrap();
        Terminal {
            master: File::from(both.master),
            slave: both.slave,
            parser: vt100::Parser::new(lines.try_into().unwrap(), columns.try_into().unwrap(), 0),
            written: Vec::new(),
        }
    }

    /// Starts a command whose output is the terminal.
    pub(crate) fn start(&self, command: &mut Command) -> Child {
        let end = || Stdio::from(self.slave.try_clone().unwrap());
        command.stdin(end()).stdout(end()).env("TERM", "xterm");
        super::spawn(command)
    }

    /// The terminal, as a command's standard error.
    pub(crate) fn errors(&self) -> Stdio {
        Stdio::from(self.slave.try_clone().unwrap())
    }

    /// Runs a command to its end, and returns what the terminal shows then.
    pub(crate) fn run(&mut self, command: &mut Command) -> String {
        let mut child = self.start(command);
        // Output must be read while the command runs: a terminal holds only a few KiB.
        while child.try_wait().unwrap().is_none() {
            self.read(Duration::from_millis(20));
        }
        child.wait().unwrap();
        while self.read(Duration::from_millis(20)) {}
        self.shown()
    }

    /// Reads until the terminal shows something, and fails when it does not after a minute.
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let shown = self.shown();
            if is_so(&shown) {
                return shown;
            }
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "never {what}: {shown}"
            );
            self.read(Duration::from_millis(50));
        }
    }

    /// Changes the size, as a user does who drags the window's corner.
    pub(crate) fn resize(&mut self, lines: u16, columns: u16) {
        let size = size(lines, columns);
        // SAFETY: TIOCSWINSZ reads a winsize, and `size` outlives the call.
        let done =
            unsafe { libc::ioctl(self.slave.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(done, 0);
        let (lines, columns) = (lines.try_into().unwrap(), columns.try_into().unwrap());
        self.parser.screen_mut().set_size(lines, columns);
    }

    /// What the terminal shows. No line was longer than the terminal is wide.
    pub(crate) fn shown(&self) -> String {
        let screen = self.parser.screen();
        let (lines, _) = screen.size();
        for line in 0..lines.into() {
            assert!(!screen.row_wrapped(line), "{}", screen.contents());
        }
        screen.contents()
    }

    /// Reads what there is within a time; false if there is nothing.
    fn read(&mut self, within: Duration) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        use std::os::fd::AsFd;
        let mut wanted = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(within).unwrap();
        if poll(&mut wanted, timeout).unwrap() == 0 {
            return false;
        }
        let mut bytes = [0; 65536];
        let count = self.master.read(&mut bytes).unwrap_or(0);
        self.written.extend_from_slice(&bytes[..count]);
        self.parser.process(&bytes[..count]);
        count > 0
    }
}

fn size(lines: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: lines,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}
