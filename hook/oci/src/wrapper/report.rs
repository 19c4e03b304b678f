//! Reports errors to the caller of a runtime: on standard error, and in the log file that it names.
//! Touches: standard error, that log file, the clock.

use super::arguments::{OPTIONS, RuntimeCall};
use gpuslice_host::base::clock;
use gpuslice_host::engine::json_edit::quoted;
use gpuslice_host::engine::runtimes::WRAPPER;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Prints the wrapper's own help, and returns the exit status.
pub(super) fn help() -> u8 {
    let options = OPTIONS.map(|(option, meaning)| format!("  {option:<26}{meaning}\n"));
    let text = format!(
        "{name} [OPTIONS] RUNTIME-ARGUMENTS\n\nAn OCI runtime whose containers have slices of GPU memory: \
         puts gpuslice-hook into\nthe configuration of each container that is made, and becomes runc or crun \
         with the same\narguments.\n\n{options}\nThe options stand in front of the verb (create, run, ...). \
         {name} help prints the\nhelp of the runtime that does the work. See gpuslice-runtime(8).\n",
        name = WRAPPER,
        options = options.concat()
    );
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => 0,
        Err(_) => super::FAILED,
    }
}

/// Reports an error. containerd and Docker show the user the last line of the log.
pub(super) fn report(request: &RuntimeCall, message: &str) {
    let message = format!("{}: {message}", WRAPPER);
    // A failure to write here cannot be reported anywhere.
    let _ = writeln!(std::io::stderr(), "{message}");
    if let Some(path) = &request.log {
        log(path, request.log_is_json, "error", &message);
    }
}

/// Reports a warning. If there is a log, standard error is not used: containerd parses the standard
/// error of `state` and `ps` as part of their JSON.
pub(super) fn warn(request: &RuntimeCall, message: &str) {
    let message = format!("{}: {message}", WRAPPER);
    match &request.log {
        Some(path) => log(path, request.log_is_json, "warning", &message),
        None => drop(writeln!(std::io::stderr(), "{message}")),
    }
}

fn log(path: &Path, is_json: bool, level: &str, message: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let time = clock::rfc3339(now.map_or(0, |since| since.as_secs()));
    let message = quoted(message);
    let line = match is_json {
        true => format!("{{\"level\":\"{level}\",\"msg\":{message},\"time\":\"{time}\"}}\n"),
        false => format!("time=\"{time}\" level={level} msg={message}\n"),
    };
    let log = OpenOptions::new().append(true).create(true).open(path);
    let _ = log.and_then(|mut log| log.write_all(line.as_bytes()));
}
