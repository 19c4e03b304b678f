//! Keys and signals as events, each from a thread of its own.
//! Touches: the terminal's input, the signal mask.

use super::rows::Rows;
use super::terminal::{raise_by_default, restore};
use nix::sys::signal::{SigSet, Signal};
use ratatui::crossterm::event::{self, KeyEvent};
use std::io;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

/// Something that happened.
#[derive(Debug)]
pub(super) enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// The terminal has another size.
    Resized,
    /// The slices were read.
    Refreshed(Box<Rows>),
    /// The shell's job control stops the process.
    Stopped,
    /// A signal ends the process.
    Ended(Signal),
    /// The terminal has no more input.
    Closed(io::Error),
}

/// The signals that end the process.
const ENDING: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// The time that the terminal gets to be restored before a signal ends the process anyway.
const PATIENCE: Duration = Duration::from_secs(1);

/// Blocks the signals in this thread and in all threads that it starts from now on.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn block_signals() -> nix::Result<()> {
    handled().thread_block()
}

fn handled() -> SigSet {
    let mut handled: SigSet = ENDING.into_iter().collect();
    handled.add(Signal::SIGTSTP);
    handled
}

/// Starts the threads that wait for keys and for signals.
///
/// # Errors
/// When a thread cannot be started.
pub(super) fn listen(to: &Sender<Event>) -> io::Result<()> {
    let (keys, signals) = (to.clone(), to.clone());
    thread::Builder::new()
        .name("keys".to_owned())
        .spawn(move || read_keys(&keys))?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || wait_for_signals(&signals))?;
    Ok(())
}

/// Ends when the receiver is gone.
fn read_keys(to: &Sender<Event>) {
    loop {
        let event = match event::read() {
            Ok(event::Event::Key(key)) => Event::Key(key),
            Ok(event::Event::Resize(_, _)) => Event::Resized,
            Ok(_) => continue,
            Err(error) => {
                let _ = to.send(Event::Closed(error));
                return;
            }
        };
        if to.send(event).is_err() {
            return;
        }
    }
}

fn wait_for_signals(to: &Sender<Event>) {
    let handled = handled();
    while let Ok(signal) = handled.wait() {
        if signal == Signal::SIGTSTP {
            let _ = to.send(Event::Stopped);
            continue;
        }
        let _ = to.send(Event::Ended(signal));
        // The terminal may not take output any more.
        thread::sleep(PATIENCE);
        restore();
        raise_by_default(signal);
    }
}
