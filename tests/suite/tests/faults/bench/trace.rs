//! Traces a program and the processes that it starts, one system call after the other (ptrace): it
//! kills or stops a process at a call, fails a call, or changes what a call has written.
//! Touches: the traced processes.
//! Law: the kernel takes requests only from the thread that traces, so each trace has a thread.

pub(crate) use super::memory::Memory;
pub(crate) use super::requests::CAN_FAIL_CALLS;
use super::requests::{EVENT_STOP, info, request, returns, skip_call};
use gpuslice_suite::run::Run;
use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// A system call that a traced process is about to make, or has made.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) number: i64,
    pub(crate) arguments: [u64; 6],
    /// How many calls were made before, by all processes together.
    pub(crate) index: usize,
    pub(crate) pid: i32,
}

/// What to do at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Nothing.
    Go,
    /// SIGKILL, before the call is made.
    Kill,
    /// SIGSTOP; [`Director::stopped`] runs when all threads have stopped, and SIGCONT follows.
    Stop,
    /// The call is not made, and fails with this number. `close` is made: the kernel closes the
    /// descriptor also when it reports an error.
    Fail(i32),
}

/// Decides what happens at each call.
pub(crate) trait Director: Send {
    /// Called before each call.
    fn call(&mut self, call: &Call) -> Act;
    /// Called when a process has stopped by [`Act::Stop`].
    fn stopped(&mut self) {}
    /// Called after each call, which may have written to the process's memory.
    fn made(&mut self, _call: &Call) {}
    /// Whether all calls are to be traced, or none after the first act.
    fn is_done(&self) -> bool {
        true
    }
    /// Whether programs read clocks by system calls, which can be traced.
    fn hides_vdso(&self) -> bool {
        false
    }
}

/// How a traced program has ended.
#[derive(Debug)]
pub(crate) struct Traced {
    /// The calls that were seen.
    pub(crate) calls: usize,
    /// `exit 0`, `signal 9`.
    pub(crate) end: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// It did not end in time, and was killed.
    pub(crate) is_late: bool,
}

/// Runs a program to the end of all its processes. Tracing begins at the program's own start, after
/// `execs` programs (`nsenter`) that start it.
pub(crate) fn trace(
    run: Run,
    execs: usize,
    patience: Duration,
    director: &mut dyn Director,
) -> Traced {
    let traced = thread::scope(|scope| {
        scope
            .spawn(|| traced(run, execs, patience, director))
            .join()
    });
    traced.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A process of the traced program.
struct Process {
    pid: i32,
    /// The call in which it is.
    inside: Option<Call>,
    fails: Option<i32>,
    is_stopping: bool,
}

struct Tracer<'a> {
    director: &'a mut dyn Director,
    processes: Vec<Process>,
    calls: usize,
    /// Programs that are still to be executed before calls count.
    execs: usize,
    main: i32,
    end: Option<i32>,
    has_acted: bool,
    living: Arc<Mutex<Vec<i32>>>,
}

#[expect(
    clippy::zombie_processes,
    reason = "the tracer waits for it by its number"
)]
fn traced(run: Run, execs: usize, patience: Duration, director: &mut dyn Director) -> Traced {
    let (mut stdout, mut stderr) = (file(), file());
    let mut command = stopped_at_start(run.into_command());
    let clone = |file: &std::fs::File| Stdio::from(file.try_clone().expect("a file"));
    command
        .stdin(Stdio::null())
        .stdout(clone(&stdout))
        .stderr(clone(&stderr));
    let child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let main = child.id().cast_signed();
    let living = Arc::new(Mutex::new(vec![main]));
    let late = Arc::new(AtomicBool::new(false));
    let (ended, waiting) = mpsc::channel::<()>();
    let watchdog = {
        let (living, late) = (Arc::clone(&living), Arc::clone(&late));
        thread::spawn(move || {
            if waiting.recv_timeout(patience).is_err() {
                late.store(true, SeqCst);
                for pid in living.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                    // SAFETY: takes numbers only. The process is traced, so its number is its own.
                    unsafe { libc::kill(*pid, libc::SIGKILL) };
                }
            }
        })
    };
    let mut tracer = Tracer {
        director,
        processes: Vec::new(),
        calls: 0,
        execs: execs + 1,
        main,
        end: None,
        has_acted: false,
        living,
    };
    tracer.seize();
    tracer.follow();
    let (end, calls) = (tracer.end, tracer.calls);
    let _ = ended.send(());
    drop(ended);
    watchdog.join().expect("the watchdog");
    Traced {
        calls,
        end: end.map_or("lost".into(), |status| shown(ExitStatus::from_raw(status))),
        stdout: text(&mut stdout),
        stderr: text(&mut stderr),
        is_late: late.load(SeqCst),
    }
}

fn file() -> std::fs::File {
    tempfile::tempfile().expect("a file for output")
}

fn text(file: &mut std::fs::File) -> String {
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .expect("the output");
    String::from_utf8_lossy(&bytes).into_owned()
}

fn shown(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}

/// The command, behind a shell that stops before it executes the command. Without this, the first
/// calls would be missed.
fn stopped_at_start(command: Command) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell
        .env_clear()
        .args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    if let Some(folder) = command.get_current_dir() {
        shell.current_dir(folder);
    }
    shell
}

impl Tracer<'_> {
    fn seize(&mut self) {
        let mut status = 0;
        // SAFETY: the number is this process's child, and `status` is writable.
        let stopped = unsafe { libc::waitpid(self.main, &raw mut status, libc::WUNTRACED) };
        assert!(
            stopped == self.main && libc::WIFSTOPPED(status),
            "the shell stops"
        );
        let options = libc::PTRACE_O_TRACESYSGOOD
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEEXEC
            | libc::PTRACE_O_EXITKILL;
        let options = usize::try_from(options).expect("options");
        let seized = request(libc::PTRACE_SEIZE, self.main, 0, options);
        assert_eq!(seized, 0, "ptrace: {}", std::io::Error::last_os_error());
        // SAFETY: takes numbers only.
        unsafe { libc::kill(self.main, libc::SIGCONT) };
        self.known(self.main);
    }

    /// The place of a process in the list, which it enters when it is first seen.
    fn known(&mut self, pid: i32) -> usize {
        if let Some(place) = self.processes.iter().position(|known| known.pid == pid) {
            return place;
        }
        self.processes.push(Process {
            pid,
            inside: None,
            fails: None,
            is_stopping: false,
        });
        self.publish();
        self.processes.len() - 1
    }

    fn publish(&self) {
        let pids = self.processes.iter().map(|process| process.pid).collect();
        *self.living.lock().unwrap_or_else(PoisonError::into_inner) = pids;
    }

    /// Handles stops until no process is left.
    fn follow(&mut self) {
        loop {
            let mut status = 0;
            // Children of the test's other threads are not this thread's.
            let which = libc::__WALL | libc::__WNOTHREAD;
            // SAFETY: `status` is writable.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, which) };
            if pid < 0 {
                match std::io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => continue,
                    _ => return,
                }
            }
            if libc::WIFSTOPPED(status) {
                self.stopped(pid, status);
            } else {
                if pid == self.main {
                    self.end = Some(status);
                }
                self.processes.retain(|process| process.pid != pid);
                self.publish();
            }
        }
    }

    fn stopped(&mut self, pid: i32, status: i32) {
        let place = self.known(pid);
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        if signal == libc::SIGTRAP | 0x80 {
            self.at_call(place);
            return self.resume(pid, 0);
        }
        if event == libc::PTRACE_EVENT_EXEC && pid == self.main {
            self.execs = self.execs.saturating_sub(1);
        }
        if event == libc::PTRACE_EVENT_EXEC && self.director.hides_vdso() {
            Memory::of(pid).hide_vdso();
        }
        let is_group_stop = event == EVENT_STOP && signal != libc::SIGTRAP;
        if is_group_stop {
            request(libc::PTRACE_LISTEN, pid, 0, 0);
            let process = &mut self.processes[place];
            if std::mem::take(&mut process.is_stopping) {
                self.director.stopped();
                // SAFETY: takes numbers only.
                unsafe { libc::kill(pid, libc::SIGCONT) };
            }
            return;
        }
        self.resume(pid, if event == 0 { signal } else { 0 });
    }

    /// Lets a process go on: to its next call, or untraced once nothing more will be done to it.
    fn resume(&mut self, pid: i32, signal: i32) {
        let signal = usize::try_from(signal).unwrap_or_default();
        let is_free = self.has_acted
            && self.director.is_done()
            && !self
                .processes
                .iter()
                .any(|process| process.is_stopping || process.fails.is_some());
        match is_free {
            true => request(libc::PTRACE_DETACH, pid, 0, signal),
            false => request(libc::PTRACE_SYSCALL, pid, 0, signal),
        };
    }

    fn at_call(&mut self, place: usize) {
        if self.execs > 0 {
            return;
        }
        let pid = self.processes[place].pid;
        let Some(info) = info(pid) else { return };
        if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
            // SAFETY: the kernel has filled this part at an entry.
            let entry = unsafe { info.u.entry };
            let call = Call {
                number: entry.nr.cast_signed(),
                arguments: entry.args,
                index: self.calls,
                pid,
            };
            self.calls += 1;
            let act = self.director.call(&call);
            self.has_acted |= act != Act::Go;
            self.act(place, act, &call);
            self.processes[place].inside = Some(call);
        } else if let Some(call) = self.processes[place].inside.take() {
            if let Some(errno) = self.processes[place].fails.take() {
                returns(pid, -i64::from(errno));
            }
            self.director.made(&call);
        }
    }

    fn act(&mut self, place: usize, act: Act, call: &Call) {
        let process = &mut self.processes[place];
        match act {
            Act::Go => (),
            // SAFETY: takes numbers only.
            Act::Kill => drop(unsafe { libc::kill(process.pid, libc::SIGKILL) }),
            Act::Stop => {
                process.is_stopping = true;
                // SAFETY: takes numbers only.
                unsafe { libc::kill(process.pid, libc::SIGSTOP) };
            }
            Act::Fail(errno) => {
                process.fails = Some(errno);
                if call.number != libc::SYS_close {
                    skip_call(process.pid);
                }
            }
        }
    }
}
