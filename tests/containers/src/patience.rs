//! Waits with an end: for a process, for its first words, for a condition.
//! Touches: child processes of this one, threads that only wait.
//! Law: whatever does not come within the time limit fails the test, in words that name it.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The time limit where a test names none: far longer than anything takes, also on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Runs a command to its end and returns what it has said.
///
/// # Panics
/// When it cannot be started, or does not end in time.
#[track_caller]
pub fn output(command: &mut Command) -> Output {
    let said = output_within(command, LIMIT);
    said.unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"))
}

/// The same, with a time limit of its own.
///
/// # Errors
/// When it cannot be started.
///
/// # Panics
/// When it does not end in time. It is killed then, with all that it has started.
#[track_caller]
pub fn output_within(command: &mut Command, limit: Duration) -> io::Result<Output> {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = piped.process_group(0).spawn()?;
    Ok(ended_within(child, &format!("{command:?}"), limit))
}

/// Waits for the end of a process, whose standard input is closed, and for all that it has said.
///
/// # Panics
/// When it does not end in time. It is killed then.
#[track_caller]
pub fn ended(child: Child, what: &str) -> Output {
    ended_within(child, what, LIMIT)
}

/// The same, with a time limit of its own.
///
/// # Panics
/// When it does not end in time. It is killed then.
#[track_caller]
pub fn ended_within(mut child: Child, what: &str, limit: Duration) -> Output {
    drop(child.stdin.take());
    let out = all_of(child.stdout.take());
    let err = all_of(child.stderr.take());
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            // There is no portable way to wait for a child with a limit: so it is polled.
            Ok(None) if start.elapsed() < limit => thread::sleep(Duration::from_millis(1)),
            Ok(None) => {
                kill_group(&child);
                let _ = child.kill();
                panic!("{what} has not ended after {} s", limit.as_secs());
            }
            Err(error) => panic!("cannot wait for {what}: {error}"),
        }
    };
    // Processes that it has left behind may keep its pipes open.
    let rest = |pipe: mpsc::Receiver<Vec<u8>>| {
        let left = limit.saturating_sub(start.elapsed());
        pipe.recv_timeout(left.max(Duration::from_secs(1)))
            .unwrap_or_else(|_| {
                panic!("{what} has ended ({status}), and others keep its output open")
            })
    };
    let (stdout, stderr) = (rest(out), rest(err));
    Output {
        status,
        stdout,
        stderr,
    }
}

/// Kills what a process has started, if it leads a group; a group of another's is left alone.
fn kill_group(child: &Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
}

fn all_of(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut all = Vec::new();
        // A pipe that breaks has said what it has said.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut all));
        let _ = send.send(all);
    });
    receive
}

/// Waits for the end of a process that was told to end. Whether it did; it is killed otherwise.
pub fn ends(child: &mut Child) -> bool {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        match child.try_wait() {
            // Polled, as in `ended_within`.
            Ok(None) => thread::sleep(Duration::from_millis(1)),
            _ => return true,
        }
    }
    let _ = child.kill();
    false
}

/// Kills a process and waits for its end.
///
/// # Panics
/// When it does not end in time, unless another panic is under way.
#[track_caller]
pub fn kill(child: &mut Child) {
    let _ = child.kill();
    let gone = ends(child) || thread::panicking();
    assert!(gone, "process {} survives SIGKILL", child.id());
}

/// The lines that a process says, each waited for with a limit.
#[derive(Debug)]
pub struct Lines {
    what: String,
    lines: mpsc::Receiver<String>,
}

impl Lines {
    /// Of a pipe, which is read from now on.
    pub fn of(pipe: impl Read + Send + 'static, what: &str) -> Lines {
        let (send, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut said = BufReader::new(pipe).lines().map_while(Result::ok);
            said.all(|line| send.send(line).is_ok())
        });
        Lines {
            what: what.to_owned(),
            lines,
        }
    }

    /// The next line.
    ///
    /// # Panics
    /// When none comes in time, or the pipe is closed.
    #[track_caller]
    #[must_use]
    pub fn next(&self) -> String {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => line,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                panic!("{} said no line within {} s", self.what, LIMIT.as_secs())
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                panic!("{} closed its output without a line", self.what)
            }
        }
    }

    /// Waits for this line, past all others.
    ///
    /// # Panics
    /// When it does not come in time.
    #[track_caller]
    pub fn until(&self, wanted: &str) {
        let start = Instant::now();
        while self.next() != wanted {
            assert!(
                start.elapsed() < LIMIT,
                "{} never said {wanted:?}",
                self.what
            );
        }
    }
}

/// The lines of a child's standard output.
///
/// # Panics
/// When that is no pipe.
#[track_caller]
#[must_use]
pub fn lines(child: &mut Child, what: &str) -> Lines {
    let out: Option<ChildStdout> = child.stdout.take();
    match out {
        Some(out) => Lines::of(out, what),
        None => panic!("the output of {what} is no pipe"),
    }
}

/// Waits until this is so.
///
/// # Panics
/// When it is not in time.
#[track_caller]
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        let waited = LIMIT.as_secs();
        assert!(start.elapsed() < LIMIT, "waited {waited} s in vain: {what}");
        // Other processes bring it about, of which no event comes here.
        thread::sleep(Duration::from_millis(1));
    }
}

/// Ends the loops of other threads when it is dropped, also by a panic: a scope waits for them.
#[derive(Debug)]
pub struct Stops<'a>(pub &'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
