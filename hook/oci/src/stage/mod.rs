//! Runs one stage of the hook, and reports the result to the runtime.
//! Touches: standard input, output and error; the host's log and event file.

pub(crate) mod create;
pub(crate) mod delete;

use crate::apply::container;
use crate::base::outcome::{Messages, Report, Stage, StageFailure};
use crate::request::arguments::{self, Arguments, Invocation};
use crate::request::state::{self, State};
use crate::stage::create::{create, recorded, unsliced};
use crate::stage::delete::delete;
use gpuslice_host::events::syslog::Log;
use gpuslice_host::events::{Event, EventKind, journal};
use gpuslice_host::machine::policy::OnError;
use gpuslice_host::machine::process::InitProcess;
use gpuslice_host::slices::ended::{self, PROGRAM};
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};

/// The stage has succeeded.
pub const SUCCESS: u8 = 0;
/// The container must not start.
pub const FAILURE: u8 = 1;
/// The hook is misconfigured.
pub const USAGE: u8 = 2;

/// The message for rootless engines: why gpuslice does not work, and what works instead.
const ROOTLESS: &str = "gpuslice-hook does not run as the host's root, so containers of rootless podman and rootless \
                        Docker get no slice (use gpuslice run in the container, or a rootful engine)";

fn tell(line: &str) {
    // An error means that the runtime has closed our standard error. It is ignored.
    let _ = io::stderr().write_all(format!("gpuslice: {line}\n").as_bytes());
}

fn print(text: &str) -> u8 {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => SUCCESS,
        Err(_) => FAILURE,
    }
}

/// Runs the hook, and returns its exit status.
pub fn main(given: impl IntoIterator<Item = OsString>) -> u8 {
    match arguments::parse(given) {
        Err(fault) => {
            tell(&fault);
            USAGE
        }
        Ok(Invocation::Print(text)) => print(&text),
        Ok(Invocation::Stage(arguments)) => stage(&arguments),
    }
}

/// Does the host's part of createRuntime: decides, admits, records, makes the ledger and the promise.
/// The container is not entered, so it may be a simulated one: a cluster of many nodes is simulated
/// with this. `owner` stands for its first process.
///
/// # Errors
/// Why the container does not start, or would start without its slice.
pub fn admit(state: &State, arguments: &Arguments, owner: InitProcess) -> Result<(), String> {
    let admitted = recorded::admit(state, arguments, owner);
    admitted.map_err(|failure| match failure {
        StageFailure::Refused(error) | StageFailure::Failed(error, _) => format!("{error:#}"),
    })
}

/// Does what poststop does, and returns the messages.
///
/// # Errors
/// When something cannot be removed.
pub fn release(state: &State, arguments: &Arguments) -> Result<Vec<String>, String> {
    delete(state, arguments).map_err(|error| format!("{error:#}"))
}

fn stage(arguments: &Arguments) -> u8 {
    let stage = match arguments.verb.as_str() {
        "createRuntime" | "prestart" => Stage::Runtime,
        "createContainer" => Stage::Container,
        "poststart" => {
            drain_stdin();
            return SUCCESS;
        }
        "poststop" => return stopped(arguments),
        verb => {
            drain_stdin();
            tell(&format!("unknown stage {verb}: nothing is done"));
            return SUCCESS;
        }
    };
    let log = match stage {
        Stage::Runtime if !arguments.dry_run => Log::open(&arguments.paths.log(), PROGRAM),
        // At this stage /dev is the container's.
        Stage::Runtime | Stage::Container => Log::default(),
    };
    let state = match state() {
        Ok(mut state) => {
            state.bundle = arguments.bundle.clone().unwrap_or(state.bundle);
            state
        }
        // Without the state, neither the container nor its request is known, so refuse.
        Err(error) => {
            log.tell(&format!("{error:#}"));
            return refuse(&error);
        }
    };
    if arguments.dry_run {
        return dry_run(&state, stage, arguments);
    }
    let mut report = Report::default();
    let created = create(&state, stage, arguments, &mut report);
    tell_all(&report.lines);
    for line in &report.logged {
        log.tell(line);
        tell(line);
    }
    for event in &report.events {
        tell_escape(event);
        record(stage, arguments, event);
    }
    let created = created.map_err(|failure| match failure {
        StageFailure::Failed(error, on) if stage == Stage::Runtime && container::is_rootless() => {
            StageFailure::Failed(error.context(ROOTLESS), on)
        }
        failure => failure,
    });
    match created {
        Ok(()) => SUCCESS,
        Err(StageFailure::Refused(error) | StageFailure::Failed(error, OnError::Refuse)) => {
            let message = format!("is refused: {error:#}");
            record(
                stage,
                arguments,
                &event(EventKind::AdmissionRefusal, &state, arguments, message),
            );
            refuse(&error)
        }
        Err(StageFailure::Failed(error, OnError::Start)) => {
            let message = format!("starts without a slice: {error:#}");
            let escaped = event(EventKind::Escape, &state, arguments, message);
            tell_escape(&escaped);
            record(stage, arguments, &escaped);
            let recorded = unsliced::record(&state, stage, arguments, &format!("{error:#}"));
            if let Err(error) = recorded {
                tell(&format!(
                    "gpuslice status does not show {}: {error:#}",
                    state.id
                ));
            }
            SUCCESS
        }
    }
}

/// An event of a container that has no plan.
fn event(kind: EventKind, state: &State, given: &Arguments, message: String) -> Event {
    Event {
        pid: (state.pid > 0).then_some(state.pid),
        container: Some(state.id.clone()),
        pod: unsliced::identity(state, given).place(),
        ..Event::now(kind, &state.id, message)
    }
}

/// Writes an event to the event file and to the host's log. At createContainer both may be the
/// container's.
fn record(stage: Stage, arguments: &Arguments, event: &Event) {
    if stage == Stage::Runtime {
        ended::write(&arguments.paths, event);
    }
}

/// Tells the runtime that a container has no slice.
fn tell_escape(event: &Event) {
    if event.event == EventKind::Escape {
        tell(&journal::line(event));
    }
}

/// Reads all of the state that the runtime writes, even if it is not used. crun fails a container
/// whose hook ends before crun has written everything ("writing to pipe: Broken pipe").
fn drain_stdin() {
    if !io::stdin().is_terminal() {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    }
}

fn tell_all(lines: &Messages) -> u8 {
    lines.iter().for_each(|line| tell(line));
    SUCCESS
}

fn refuse(error: &anyhow::Error) -> u8 {
    tell(&format!("{error:#}"));
    FAILURE
}

fn state() -> anyhow::Result<State> {
    Ok(state::read(io::stdin().lock())?)
}

/// Handles `poststop`. The next hook, or `gpuslice gc`, repeats whatever fails here.
fn stopped(arguments: &Arguments) -> u8 {
    match state().and_then(|state| delete(&state, arguments)) {
        Ok(lines) => tell_all(&lines),
        Err(error) => {
            let line = format!("{error:#}");
            Log::open(&arguments.paths.log(), PROGRAM).tell(&line);
            tell(&line);
            SUCCESS
        }
    }
}

/// Prints the plan as JSON, `null` where there is nothing to do, and the messages.
fn dry_run(state: &State, stage: Stage, arguments: &Arguments) -> u8 {
    let (plan, lines) = match create::dry_run(state, stage, arguments) {
        Ok(planned) => planned,
        Err(StageFailure::Refused(error) | StageFailure::Failed(error, OnError::Refuse)) => {
            return refuse(&error);
        }
        Err(StageFailure::Failed(error, OnError::Start)) => {
            let line = format!("{} starts without a slice: {error:#}", state.id);
            (None, vec![line])
        }
    };
    tell_all(&lines);
    match serde_json::to_string_pretty(&plan) {
        Ok(text) => print(&format!("{text}\n")),
        Err(error) => refuse(&error.into()),
    }
}
