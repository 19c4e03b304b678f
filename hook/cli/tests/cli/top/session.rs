//! A program on a terminal of its own: its screen, its keys, its end.
//! Touches: a pseudo-terminal.

use crate::support::{Home, Installation, spawn, start};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

pub(super) static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("top"));

/// Starts a slice on a simulated RTX 3090. Returns its command and its slice file.
pub(super) fn slice(home: &Home, name: &str, memory: &str) -> (Child, String) {
    let options = [
        "--sim=rtx3090".to_owned(),
        format!("--name={name}"),
        format!("--memory={memory}"),
    ];
    let options = options.each_ref().map(String::as_str);
    let mut command = HERE.run(&options, "echo $GPUSLICE_CONFIG; read line");
    start(home.of(&mut command).stdin(Stdio::piped()))
}

/// The keys that a terminal sends as sequences.
pub(super) const DOWN: &str = "\x1b[B";
pub(super) const ESC: &str = "\x1b";
pub(super) const ENTER: &str = "\r";

/// A program on a terminal.
pub(super) struct Session {
    master: File,
    slave: OwnedFd,
    before: Termios,
    parser: vt100::Parser,
    child: Option<Child>,
    /// Everything that was written to the terminal.
    pub(super) written: Vec<u8>,
}

/// `gpuslice top` that shows the slices of a home.
pub(super) fn top(home: &Home, options: &[&str]) -> Command {
    let mut command = HERE.gpuslice();
    home.of(&mut command).arg("top").args(options);
    command
        .env("TERM", "xterm-256color")
        .env("LC_ALL", "C.UTF-8")
        .env_remove("NO_COLOR");
    command
}

impl Session {
    /// Starts a program on a terminal with this many columns and lines.
    pub(super) fn start(command: &mut Command, size: (u16, u16)) -> Session {
        let (master, slave) = terminal();
        let end = || Stdio::from(slave.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end());
        let lead = || {
            nix::unistd::setsid()?;
            // SAFETY: makes the terminal at descriptor 0 that of this session; takes no pointer.
            nix::errno::Errno::result(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) })?;
            Ok(())
        };
        // SAFETY: setsid(2) and ioctl(2) may be called between fork and exec.
        unsafe { command.pre_exec(lead) };
        let mut session = Session {
            before: tcgetattr(&slave).unwrap(),
            master,
            slave,
            parser: parser(size),
            written: Vec::new(),
            child: None,
        };
        session.resize(size);
        session.child = Some(spawn(command));
        session
    }

    /// Sends keys.
    pub(super) fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Changes the size of the terminal.
    pub(super) fn resize(&mut self, size: (u16, u16)) {
        self.parser
            .screen_mut()
            .set_size(size.1.try_into().unwrap(), size.0.try_into().unwrap());
        let size = winsize(size);
        // SAFETY: TIOCSWINSZ reads one winsize.
        let done =
            unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(done, 0);
    }

    /// Waits until the screen is as wanted, and returns it.
    pub(super) fn until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            let late = start.elapsed() > Duration::from_secs(60);
            assert!(!late, "never {what}:\n{screen}");
            self.read();
        }
    }

    /// Waits until the screen contains a text.
    pub(super) fn shows(&mut self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    /// The text on the screen.
    pub(super) fn screen(&self) -> String {
        self.parser.screen().contents()
    }

    /// The emulated terminal.
    pub(super) fn emulator(&self) -> &vt100::Screen {
        self.parser.screen()
    }

    /// Whether the terminal is as it was before the program.
    pub(super) fn is_restored(&self) -> bool {
        let screen = self.parser.screen();
        let after = tcgetattr(&self.slave).unwrap();
        !screen.alternate_screen() && !screen.hide_cursor() && after == self.before
    }

    /// The program's process.
    pub(super) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Sends a signal to the program.
    pub(super) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    /// Waits for the end of the program. Returns its exit status as a shell reports it.
    pub(super) fn end(&mut self) -> i32 {
        let start = Instant::now();
        loop {
            let status = self.child.as_mut().unwrap().try_wait().unwrap();
            self.read();
            if let Some(status) = status {
                while self.read() {}
                return status
                    .code()
                    .unwrap_or_else(|| status.signal().unwrap() | 128);
            }
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{}",
                self.screen()
            );
        }
    }

    /// Hangs the terminal up.
    pub(super) fn hang_up(self) -> Child {
        self.child.unwrap()
    }

    /// Reads what the program has written, after a short wait. Returns whether it was anything.
    fn read(&mut self) -> bool {
        let mut wanted = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
        if poll(&mut wanted, PollTimeout::from(20u8)).unwrap() == 0 {
            return false;
        }
        let mut bytes = [0; 1 << 16];
        let count = self.master.read(&mut bytes).unwrap_or(0);
        self.written.extend_from_slice(&bytes[..count]);
        self.parser.process(&bytes[..count]);
        count > 0
    }
}

/// Opens a terminal that programs of other tests do not inherit: they would keep it open.
fn terminal() -> (File, OwnedFd) {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname_r(&master).unwrap();
    let slave = nix::fcntl::open(name.as_str(), flags, nix::sys::stat::Mode::empty()).unwrap();
    (File::from(OwnedFd::from(master)), slave)
}

fn parser((columns, lines): (u16, u16)) -> vt100::Parser {
    vt100::Parser::new(lines.try_into().unwrap(), columns.try_into().unwrap(), 0)
}

fn winsize((columns, lines): (u16, u16)) -> Winsize {
    Winsize {
        ws_row: lines,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}
