//! `gpuslice top`: shows the slices live, in the alternate screen.
//! Touches: the terminal, signals, threads of its own; everything that `status` touches.

mod app;
mod draw;
mod events;
mod gatherer;
mod history;
mod interval;
mod keys;
mod look;
mod rows;
mod sort;
mod terminal;

use crate::base::exit;
use anyhow::Context;
use app::{App, Effect};
use events::Event;
use gpuslice_host::base::paths::HostPaths;
use interval::Interval;
use look::Look;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use terminal::{Screen, raise_by_default};

/// `gpuslice top`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// The seconds between two refreshes, from 0.25 to 60
    #[arg(long, value_name = "SECONDS", default_value_t)]
    pub interval: Interval,

    /// The hook's folders are below this one (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    pub root: Option<PathBuf>,
}

const NOTES: &str = "\
top shows what status shows: the GPUs with their memory in slices, outside slices and left to give,
and the slices. HISTORY has one character for each refresh. REFUSED 5 +2 means that five requests
were refused, two of them lately. Enter shows the processes of a slice and their kinds of memory.

Keys:
  q, Esc, ^C    end
  Up, Down      select a slice (also j, k, PgUp, PgDn, Home, End)
  Enter         the processes of the slice; Esc goes back
  u p n r a     sort by used, percent, name, refusals or age; again: reversed
  /             show only the slices whose name, user, command or pid contains a text
  w             all warnings
  Space         pause and continue
  + -           refresh less or more often
  ?             help

The ledgers are read at each refresh. NVML and the list of processes are read when a slice starts or
ends, and otherwise every 5 seconds, or less often where that takes more than 0.25 percent of a
core.

NO_COLOR turns colours off. Without a UTF-8 locale (LC_ALL, LC_CTYPE, LANG), only ASCII characters
are used. Without a terminal, use gpuslice status.

Exit status: 0 success; 125 usage error, no terminal, or gpuslice itself failed.

Examples:
  gpuslice top
  sudo gpuslice top --interval 2       the slices of all users, and containers";

/// Runs until the user ends it.
///
/// # Errors
/// When there is no terminal, or it is gone.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        anyhow::bail!("top needs a terminal for input and output (use gpuslice status)");
    }
    if let Some(unusable) = unusable(std::env::var_os("TERM").as_deref()) {
        anyhow::bail!("top cannot draw: {unusable} (set TERM, or use gpuslice status)");
    }
    let places = args.root.as_ref().map(HostPaths::below).unwrap_or_default();
    let app = App::new(Look::of_stdout(), host(), args.interval);
    events::block_signals().context("cannot block signals")?;
    let screen = Screen::open().context("cannot take over the terminal")?;
    let (to, happened) = channel();
    events::listen(&to).context("cannot start a thread")?;
    let control = gatherer::start(places, args.interval.duration(), to);
    let control = control.context("cannot start a thread")?;
    let ended = Session {
        app,
        screen,
        control,
    }
    .run(&happened)?;
    if let Some(signal) = ended {
        // The terminal is restored. The caller is told that the signal has ended the process.
        raise_by_default(signal);
    }
    Ok(exit::SUCCESS)
}

/// Returns what is wrong with a value of TERM that names no terminal with a screen.
fn unusable(term: Option<&OsStr>) -> Option<&'static str> {
    match term.map(OsStr::to_str) {
        None => Some("TERM is not set"),
        Some(Some("")) => Some("TERM is empty"),
        Some(Some("dumb")) => Some("TERM=dumb names a terminal without a screen"),
        _ => None,
    }
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    crate::base::text::printable(name.trim())
}

/// The state, and the parts of the outside world that it needs.
struct Session {
    app: App,
    screen: Screen,
    control: Sender<Option<Duration>>,
}

impl Session {
    /// Runs until a key or a signal ends it. Returns the signal.
    fn run(mut self, happened: &Receiver<Event>) -> anyhow::Result<Option<Signal>> {
        loop {
            self.draw().context("cannot write to the terminal")?;
            let mut event = match happened.recv_timeout(until_next_second()) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            };
            // Everything that has happened is handled before the screen is drawn again.
            while let Some(one) = event {
                match one {
                    Event::Key(key) => match self.app.press(key) {
                        Effect::None => {}
                        Effect::Quit => return Ok(None),
                        // The whole job stops, as if the terminal had seen the key.
                        Effect::Suspend => kill(Pid::from_raw(0), Signal::SIGTSTP)?,
                        Effect::Refresh(interval) => self.control.send(interval)?,
                    },
                    Event::Resized => {}
                    Event::Refreshed(rows) => self.app.refresh(*rows, Instant::now()),
                    Event::Stopped => {
                        self.screen
                            .stop()
                            .context("cannot take over the terminal")?;
                    }
                    Event::Ended(signal) => return Ok(Some(signal)),
                    Event::Closed(error) => return Err(error).context("cannot read the terminal"),
                }
                event = happened.try_recv().ok();
            }
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        let area = self.screen.resize()?;
        self.app.resize(draw::table_height(&self.app, area));
        self.app.clock = clock();
        let (app, now) = (&self.app, Instant::now());
        self.screen
            .terminal
            .draw(|frame| draw::draw(frame, app, now))?;
        Ok(())
    }
}

/// Returns the time until the clock shows another second.
fn until_next_second() -> Duration {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let past = now.map_or(0, |now| now.subsec_millis());
    Duration::from_millis(u64::from(1000u32.saturating_sub(past)).saturating_add(1))
}

/// Returns the local time of day.
fn clock() -> String {
    // SAFETY: time only returns a number if it is given no pointer.
    let now = unsafe { libc::time(std::ptr::null_mut()) };
    let mut parts = std::mem::MaybeUninit::<libc::tm>::uninit();
    // SAFETY: localtime_r fills the structure or returns null.
    if unsafe { libc::localtime_r(&raw const now, parts.as_mut_ptr()) }.is_null() {
        return String::new();
    }
    // SAFETY: localtime_r has filled it.
    let parts = unsafe { parts.assume_init() };
    format!(
        "{:02}:{:02}:{:02}",
        parts.tm_hour, parts.tm_min, parts.tm_sec
    )
}
