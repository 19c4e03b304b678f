//! Starts one child process per route and reads its events, even if the child crashes or hangs.
//! Touches: processes, two memfd files.
//! Law: no child runs longer than its time limit.

use super::query::routes::{Preloaded, Route};
use super::query::row::Event;
use crate::driver::ask::LOOK;
use anyhow::Context;
use nix::sys::signal::Signal;
use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

const LINKED_CUDA: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/linked-cuda.so"));
const LINKED_NVML: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/linked-nvml.so"));

/// The libraries of linked.c, as memfd files that children inherit. A container may have no
/// writable folder for them.
pub(super) struct Linked {
    cuda: File,
    nvml: File,
}

impl Linked {
    /// Creates the files.
    pub(super) fn create() -> anyhow::Result<Linked> {
        let make = |name: &CStr, bytes: &[u8]| -> anyhow::Result<File> {
            // The descriptor is not close-on-exec, because the children load the file through it.
            let mut file = memory_file(name)?;
            file.write_all(bytes)?;
            Ok(file)
        };
        make(c"gpuslice-linked-cuda", LINKED_CUDA)
            .and_then(|cuda| {
                let nvml = make(c"gpuslice-linked-nvml", LINKED_NVML)?;
                Ok(Linked { cuda, nvml })
            })
            .context("cannot make a file in memory")
    }

    fn paths(&self) -> [String; 2] {
        let path = |file: &File| format!("/proc/self/fd/{}", file.as_raw_fd());
        [path(&self.cuda), path(&self.nvml)]
    }
}

/// Calls `memfd_create` by its system call number, because glibc before 2.27 lacks the function.
fn memory_file(name: &CStr) -> io::Result<File> {
    // SAFETY: the name is a C string that outlives the call.
    let opened = unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), 0) };
    match i32::try_from(opened) {
        // SAFETY: the kernel has just opened this descriptor, and nothing else owns it.
        Ok(opened) if opened >= 0 => Ok(unsafe { File::from_raw_fd(opened) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The way in which a child ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The child reported everything.
    Done,
    /// The child ended early. The texts say how it ended, and at which step.
    Early(String, String),
}

/// The settings with which children are started.
pub(super) struct Starter<'a> {
    /// The libraries that the children load.
    pub(super) linked: &'a Linked,
    /// Variables to set or remove in the children's environment.
    pub(super) vars: &'a [(OsString, Option<OsString>)],
    /// The time limit of one child. After the time `quiet`, a message tells the user of the delay.
    pub(super) timeout: Duration,
    pub(super) quiet: Duration,
    /// Reports a line to the user.
    pub(super) tell: &'a dyn Fn(&str),
    /// Whether each driver library can be loaded. A program linked to a missing library does not
    /// start at all.
    pub(super) has_cuda: bool,
    pub(super) has_nvml: bool,
    /// Whether the child's standard error is passed on to this process's.
    pub(super) is_heard: bool,
}

impl Starter<'_> {
    /// Runs a child along the route and collects its events.
    pub(super) fn ask(&self, route: Route) -> anyhow::Result<(Vec<Event>, End)> {
        let [cuda, nvml] = self.linked.paths();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["check-probe", "--route", route.name()]);
        command.args(["--cuda", &cuda, "--nvml", &nvml]);
        for (name, value) in self.vars {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(place) = route.preloads() {
            command.env("LD_PRELOAD", self.preload(place));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        if !self.is_heard {
            command.stderr(Stdio::null());
        }
        let child = command
            .spawn()
            .context("cannot start gpuslice check-probe")?;
        self.listen(route, child)
    }

    /// Returns the child's LD_PRELOAD with the linked libraries added. The linker then loads these
    /// libraries and their dependencies at the start and searches them, as in a program linked to
    /// them.
    fn preload(&self, place: Preloaded) -> OsString {
        let set = self
            .vars
            .iter()
            .rev()
            .find(|(name, _)| name == "LD_PRELOAD");
        let own = match set {
            Some((_, value)) => value.clone(),
            None => std::env::var_os("LD_PRELOAD"),
        };
        let linked = self.linked.paths().map(OsString::from).into_iter();
        let linked = linked.zip([self.has_cuda, self.has_nvml]);
        let linked = linked.filter_map(|(path, there)| there.then_some(path));
        let list: Vec<OsString> = match place {
            Preloaded::First => linked.chain(own).collect(),
            Preloaded::Last => own.into_iter().chain(linked).collect(),
        };
        list.join(OsStr::new(":"))
    }

    fn listen(&self, route: Route, mut child: Child) -> anyhow::Result<(Vec<Event>, End)> {
        let output = child.stdout.take().context("the child has no output")?;
        let (sender, receiver) = mpsc::channel();
        // The thread is not joined. A stuck child may have started a process that holds the pipe
        // open without end.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let event = serde_json::from_str::<Event>(&line);
                if event.is_ok_and(|event| sender.send(event).is_err()) {
                    return;
                }
            }
        });
        let started = Instant::now();
        let (mut events, mut doing) = (Vec::new(), "starting".to_owned());
        let mut told = false;
        let ended = loop {
            let left = self.timeout.saturating_sub(started.elapsed());
            let quiet = self.quiet.saturating_sub(started.elapsed());
            if quiet.is_zero() && !told && !left.is_zero() {
                told = true;
                self.tell_waiting(route, &doing);
            }
            let next = if told { left } else { left.min(quiet) };
            match receiver.recv_timeout(next) {
                Ok(Event::Step(what)) => doing = what,
                Ok(Event::Done) => {
                    // The answers are complete, so a driver that hangs or crashes during its
                    // unloading does not affect them.
                    wait(&mut child, FAREWELL)?;
                    return Ok((events, End::Done));
                }
                Ok(event) => events.push(event),
                Err(RecvTimeoutError::Disconnected) => break wait(&mut child, left)?,
                Err(RecvTimeoutError::Timeout) if next < left => {}
                Err(RecvTimeoutError::Timeout) => break wait(&mut child, Duration::ZERO)?,
            }
        };
        // On a busy machine the child may have said everything and ended before this process ran again.
        let rest = ended.map(|_| std::iter::from_fn(|| receiver.recv_timeout(FAREWELL).ok()));
        for event in rest.into_iter().flatten() {
            match event {
                Event::Step(what) => doing = what,
                Event::Done => return Ok((events, End::Done)),
                event => events.push(event),
            }
        }
        let how = match ended {
            Some(status) => how(status),
            None => {
                if told {
                    (self.tell)(&format!("the NVIDIA driver does not answer; {LOOK}"));
                }
                format!("no answer in {} s", self.timeout.as_secs())
            }
        };
        Ok((events, End::Early(how, doing)))
    }

    fn tell_waiting(&self, route: Route, doing: &str) {
        (self.tell)(&format!(
            "waiting for the NVIDIA driver for {} s ({doing}, by {}); giving up after {} s",
            self.quiet.as_secs(),
            route.name(),
            self.timeout.as_secs()
        ));
    }
}

/// The time a child may take to exit after it has reported everything.
const FAREWELL: Duration = Duration::from_secs(2);

/// Waits for the child to exit, and kills it if it does not. Returns None if it had to be killed.
fn wait(child: &mut Child, timeout: Duration) -> io::Result<Option<ExitStatus>> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if started.elapsed() >= timeout {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill()?;
    // The child is reaped, because its memory is freed only then. A child stuck in the kernel is
    // not waited for any longer.
    let killed = Instant::now();
    while child.try_wait()?.is_none() && killed.elapsed() < FAREWELL {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(None)
}

fn how(status: ExitStatus) -> String {
    match status.signal().map(Signal::try_from) {
        Some(Ok(signal)) => format!("crashed ({signal})"),
        Some(Err(_)) => "crashed".to_owned(),
        None => format!("ended early ({status})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn a_route_that_hangs_is_named_once_and_given_up() {
        let told = RefCell::new(Vec::new());
        let starter = Starter {
            linked: &Linked::create().unwrap(),
            vars: &[],
            timeout: Duration::from_millis(300),
            quiet: Duration::from_millis(100),
            tell: &|line| told.borrow_mut().push(line.to_owned()),
            has_cuda: true,
            has_nvml: true,
            is_heard: true,
        };
        let mut hangs = Command::new("sleep");
        let child = hangs.arg("1000").stdout(Stdio::piped()).spawn().unwrap();
        let (events, end) = starter.listen(Route::DlsymLocal, child).unwrap();
        let early = End::Early("no answer in 0 s".to_owned(), "starting".to_owned());
        assert_eq!((events, end), (Vec::new(), early));
        let line =
            "waiting for the NVIDIA driver for 0 s (starting, by dlsym-local); giving up after 0 s";
        let look = format!("the NVIDIA driver does not answer; {LOOK}");
        assert_eq!(told.into_inner(), [line, &look]);
    }

    #[test]
    fn a_child_that_ended_while_this_process_did_not_run_has_said_everything() {
        let starter = Starter {
            linked: &Linked::create().unwrap(),
            vars: &[],
            timeout: Duration::ZERO,
            quiet: Duration::ZERO,
            tell: &|_| {},
            has_cuda: true,
            has_nvml: true,
            is_heard: true,
        };
        let said = serde_json::to_string(&Event::Done).unwrap();
        let mut says = Command::new("echo");
        let child = says.arg(said).stdout(Stdio::piped()).spawn().unwrap();
        // Longer than `echo` takes, so that it has ended when the time limit has passed.
        std::thread::sleep(Duration::from_secs(1));
        let (events, end) = starter.listen(Route::DlsymLocal, child).unwrap();
        assert_eq!((events, end), (Vec::new(), End::Done));
    }
}
