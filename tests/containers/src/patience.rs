//! Waits with a time limit: for a process, for a line of its output, for a condition.
//! Touches: child processes of this one, and threads that only wait.
//! Law: a wait that exceeds its time limit fails the test, in a message that names the awaited
//! event.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The time limit of a test that sets none: far longer than any step takes, also on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Runs a command to its end and returns its output.
///
/// # Panics
/// When it cannot be started, or does not end in time.
#[track_caller]
pub fn output(command: &mut Command) -> Output {
    let said = output_within(command, LIMIT);
    said.unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"))
}

/// Like [`output`], with the given time limit.
///
/// # Errors
/// When it cannot be started.
///
/// # Panics
/// When it does not end in time. It is then killed with all processes that it has started.
#[track_caller]
pub fn output_within(command: &mut Command, limit: Duration) -> io::Result<Output> {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = piped.process_group(0).spawn()?;
    Ok(ended_within(child, &format!("{command:?}"), limit))
}

/// Closes a process's standard input, waits for its end, and returns its output.
///
/// # Panics
/// When it does not end in time. It is then killed.
#[track_caller]
pub fn ended(child: Child, what: &str) -> Output {
    ended_within(child, what, LIMIT)
}

/// Like [`ended`], with the given time limit.
///
/// # Panics
/// When it does not end in time. It is then killed.
#[track_caller]
pub fn ended_within(mut child: Child, what: &str, limit: Duration) -> Output {
    drop(child.stdin.take());
    let out = all_of(child.stdout.take());
    let err = all_of(child.stderr.take());
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            // There is no portable way to wait for a child with a time limit, so this polls.
            Ok(None) if start.elapsed() < limit => thread::sleep(Duration::from_millis(1)),
            Ok(None) => {
                kill_group(&child);
                let _ = child.kill();
                panic!("{what} has not ended after {} s", limit.as_secs());
            }
            Err(error) => panic!("cannot wait for {what}: {error}"),
        }
    };
    // Processes that the child has started may keep its pipes open.
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

/// Kills the processes of the child's group, if the child leads one. Other groups are left alone.
fn kill_group(child: &Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
}

fn all_of(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut all = Vec::new();
        // On a read error the bytes read so far are used.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut all));
        let _ = send.send(all);
    });
    receive
}

/// Waits for the end of a process that was told to end, and kills it at the time limit. Returns
/// whether it ended by itself.
pub fn ends(child: &mut Child) -> bool {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        match child.try_wait() {
            // This polls, as `ended_within` does.
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
/// When it does not end in time, unless the thread is already panicking.
#[track_caller]
pub fn kill(child: &mut Child) {
    let _ = child.kill();
    let gone = ends(child) || thread::panicking();
    assert!(gone, "process {} survives SIGKILL", child.id());
}

/// The lines of a process's output. The wait for each has a time limit.
#[derive(Debug)]
pub struct Lines {
    what: String,
    lines: mpsc::Receiver<String>,
}

impl Lines {
    /// Starts to read a pipe.
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

    /// Waits for the next line.
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

    /// Waits for this line and skips all lines before it.
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
/// When the child's standard output is not a pipe.
#[track_caller]
#[must_use]
pub fn lines(child: &mut Child, what: &str) -> Lines {
    let out: Option<ChildStdout> = child.stdout.take();
    match out {
        Some(out) => Lines::of(out, what),
        None => panic!("the output of {what} is no pipe"),
    }
}

/// Waits until a condition holds.
///
/// # Panics
/// When it does not hold in time.
#[track_caller]
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        let waited = LIMIT.as_secs();
        assert!(start.elapsed() < LIMIT, "waited {waited} s in vain: {what}");
        // Other processes bring the condition about, and no event reports it.
        thread::sleep(Duration::from_millis(1));
    }
}

/// Tells the loops of other threads to end when it is dropped, also by a panic. Otherwise a scope
/// would wait for those threads forever.
#[derive(Debug)]
pub struct Stops<'a>(pub &'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
