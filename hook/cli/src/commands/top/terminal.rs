//! The terminal: the alternate screen, and the terminal as it was when gpuslice leaves it.
//! Touches: the terminal, the panic hook, this process by signals.
//! Law: every way out restores the terminal: the end, an error, a panic, a signal, a stop.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size,
};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use std::io::{self, Stdout, stdout};
use std::panic;

/// The terminal in the alternate screen. Dropping it restores the terminal.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
    size: Rect,
}

impl Screen {
    /// Takes over the terminal. A panic restores it before its message is printed.
    ///
    /// # Errors
    /// When the terminal does not answer.
    pub(super) fn open() -> io::Result<Screen> {
        let message = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            restore();
            message(panic);
        }));
        let entered = enter().and_then(|()| blank());
        let (terminal, size) = entered.inspect_err(|_| restore())?;
        Ok(Screen { terminal, size })
    }

    /// Returns the size. The next drawing fills it.
    ///
    /// # Errors
    /// When the terminal does not answer.
    pub(super) fn resize(&mut self) -> io::Result<Rect> {
        let (width, height) = size()?;
        if self.size != Rect::new(0, 0, width, height) {
            (self.terminal, self.size) = blank()?;
        }
        Ok(self.size)
    }

    /// Stops this process with the terminal restored, and takes the terminal over again when the
    /// process goes on.
    ///
    /// # Errors
    /// When the terminal does not answer.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        restore();
        raise_by_default(Signal::SIGTSTP);
        enter()?;
        (self.terminal, self.size) = blank()?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Clears the screen, and returns it with its size.
///
/// ratatui clears and resizes a terminal only after it has asked for the place of the cursor. The
/// thread that reads keys would take the answer.
fn blank() -> io::Result<(Terminal<CrosstermBackend<Stdout>>, Rect)> {
    execute!(stdout(), Clear(ClearType::All))?;
    let (width, height) = size()?;
    let size = Rect::new(0, 0, width, height);
    let options = TerminalOptions {
        viewport: Viewport::Fixed(size),
    };
    let terminal = Terminal::with_options(CrosstermBackend::new(stdout()), options)?;
    Ok((terminal, size))
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Hide)
}

/// Restores the terminal. It does nothing if the terminal is restored already.
pub(super) fn restore() {
    // A terminal that is gone cannot be restored.
    let _ = disable_raw_mode();
    let _ = execute!(stdout(), Show, LeaveAlternateScreen);
}

/// Raises a signal in this thread, which has blocked it, with its default action.
pub(super) fn raise_by_default(signal: Signal) {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action installs no handler.
    let _ = unsafe { sigaction(signal, &default) };
    let set = SigSet::from(signal);
    let _ = raise(signal);
    // The signal is delivered here.
    let _ = set.thread_unblock();
    let _ = set.thread_block();
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::pty::{Winsize, openpty};
    use nix::sys::termios::{LocalFlags, tcgetattr};
    use std::fs::File;
    use std::io::Read;
    use std::process::{Command, Stdio};

    /// The child of the test below.
    #[test]
    #[ignore = "needs a terminal: the test below starts it"]
    fn panics_on_the_alternate_screen() {
        // Without the panic hook, nothing would restore the terminal.
        std::mem::forget(Screen::open().unwrap());
        panic!("a defect");
    }

    #[test]
    fn a_panic_restores_the_terminal_before_its_message() {
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let ends = openpty(Some(&size), None).unwrap();
        let before = tcgetattr(&ends.slave).unwrap();
        let end = || Stdio::from(ends.slave.try_clone().unwrap());
        let (_, module) = module_path!().split_once("::").unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(format!("{module}::panics_on_the_alternate_screen"))
            .args(["--exact", "--ignored", "--nocapture"])
            // The stack would scroll the message off the screen.
            .env("RUST_BACKTRACE", "0")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        // The output is a few hundred bytes, which the terminal holds.
        assert!(!child.wait().unwrap().success());
        let after = tcgetattr(&ends.slave).unwrap();
        assert_eq!(before, after);
        assert!(
            after
                .local_flags
                .contains(LocalFlags::ICANON | LocalFlags::ECHO)
        );
        drop(ends.slave);
        let mut written = Vec::new();
        // Reading ends with an error when the last process has closed the terminal.
        let _ = File::from(ends.master).read_to_end(&mut written);
        let mut screen = vt100::Parser::default();
        let text = String::from_utf8_lossy(&written).into_owned();
        assert!(text.contains("\x1b[?1049h"), "{text}");
        screen.process(&written);
        assert!(!screen.screen().alternate_screen() && !screen.screen().hide_cursor());
        assert!(screen.screen().contents().contains("a defect"), "{text}");
    }
}
