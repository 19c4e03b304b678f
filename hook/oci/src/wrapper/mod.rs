//! `gpuslice-runtime`: an OCI runtime that adds our hooks to a container's configuration and then
//! executes the real runtime.
//! Touches: the host's policy, the toolkit's list of runtimes, the bundle's configuration, the
//! runtime's log; becomes the runtime.
//! Law: a container whose configuration could not be changed is not started without its slice. The
//! caller's environment reaches the runtime unchanged, with one variable added.

pub mod arguments;
mod holder;
mod levels;
mod report;

use arguments::RuntimeCall;
use gpuslice_host::engine::hook_entry::{self, HooksError, Ours};
use gpuslice_host::engine::runtimes::{self, RuntimeError};
use gpuslice_host::machine::policy;
use std::convert::Infallible;
use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

/// The largest configuration that is read, in bytes; the largest seen has 100 KiB.
const LARGEST: u64 = 16 << 20;

/// The exit status of a runtime that failed.
const FAILED: u8 = 1;

/// Why no runtime is started.
#[derive(Debug)]
pub enum WrapperError {
    /// The configuration cannot be read or written.
    Config(PathBuf, io::Error),
    /// The configuration violates the specification, or requests two sizes.
    Content(PathBuf, HooksError),
    /// The configuration exceeds the size limit.
    TooLarge(PathBuf),
    /// The option is not one of ours.
    Option(String),
    /// The real runtime is unknown.
    Runtime(RuntimeError),
    /// The runtime cannot be executed.
    Execute(PathBuf, io::Error),
    /// The runtime executes gpuslice-runtime again and again.
    Loop,
}

impl std::fmt::Display for WrapperError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WrapperError::Config(path, error) => {
                write!(out, "cannot change {}: {error}", path.display())
            }
            WrapperError::Content(path, error) => {
                write!(out, "cannot put hooks into {}: {error}", path.display())
            }
            WrapperError::TooLarge(path) => write!(
                out,
                "cannot put hooks into {}: it has more than {} MiB",
                path.display(),
                LARGEST >> 20
            ),
            WrapperError::Option(option) => {
                let known = arguments::OPTIONS.map(|(option, _)| option).join(", ");
                write!(out, "unknown option {option} (known: {known})")
            }
            WrapperError::Runtime(error) => error.fmt(out),
            WrapperError::Execute(path, error) => {
                write!(out, "cannot execute {}: {error}", path.display())
            }
            WrapperError::Loop => write!(
                out,
                "the runtime below gpuslice-runtime executes gpuslice-runtime again: name runc or crun as \
                 `runtime = [\"runc\"]` in /etc/gpuslice/config.toml, or take gpuslice-runtime out of the \
                 other's list (gpuslice runtime configure --runtime nvidia --remove)"
            ),
        }
    }
}

impl From<RuntimeError> for WrapperError {
    fn from(error: RuntimeError) -> WrapperError {
        WrapperError::Runtime(error)
    }
}

/// Runs as the runtime. Returns only when no runtime could be started, with the exit status.
pub fn main(given: impl IntoIterator<Item = OsString>) -> u8 {
    let request = arguments::read(given);
    if request.help {
        return report::help();
    }
    let failure = match work(&request) {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    report::report(&request, &failure.to_string());
    FAILED
}

fn work(request: &RuntimeCall) -> Result<Infallible, WrapperError> {
    if let Some(option) = &request.unknown {
        return Err(WrapperError::Option(option.clone()));
    }
    let own = Path::new("/proc/self/exe");
    let executable = fs::read_link(own).map_err(|error| WrapperError::Config(own.into(), error))?;
    let level = levels::of(env::var_os(levels::VARIABLE).as_deref(), std::process::id());
    if level.count > levels::MOST {
        return Err(WrapperError::Loop);
    }
    prepare(&executable, request, level.count > 0)?;
    let runtime = match &request.runtime {
        Some(runtime) => runtime.clone(),
        None => {
            let names = named(request, level.is_below_itself)?;
            let found = runtimes::find(&executable, &names)?;
            holder::of(request, &executable, &found, &names).unwrap_or(found)
        }
    };
    let error = execute(&runtime, &request.passed_on, &level.variable());
    Err(WrapperError::Execute(runtime, error))
}

/// The runtimes to try in turn: those of the host's policy, else those that
/// nvidia-container-runtime lists beside gpuslice-runtime, else the usual ones. An unusable policy
/// prevents new containers. Running containers can still be queried, stopped and deleted by the
/// other runtimes.
///
/// `is_below_itself`: the policy's runtime has executed this process, so the policy's runtimes are
/// left out.
fn named(request: &RuntimeCall, is_below_itself: bool) -> Result<Vec<String>, WrapperError> {
    if is_below_itself {
        return Ok(runtimes::below_policy(&request.paths));
    }
    if request.bundle.is_some() {
        return Ok(runtimes::creating(&request.paths)?);
    }
    let (mut runtimes, wrong) = policy::runtimes_in_any_case(&request.paths);
    if runtimes.is_empty() {
        runtimes = runtimes::below_policy(&request.paths);
    }
    if let Some(wrong) = wrong {
        let wrong = RuntimeError::Policy(wrong);
        let names = runtimes.join(" or ");
        report::warn(request, &format!("{wrong}; the runtime is {names}"));
    }
    Ok(runtimes)
}

/// Adds the hooks to the configuration of the container to create. `is_again`: an earlier
/// gpuslice-runtime in the chain has already done so.
fn prepare(executable: &Path, request: &RuntimeCall, is_again: bool) -> Result<(), WrapperError> {
    let Some(config) = request.config() else {
        return Ok(());
    };
    let failed = |error| WrapperError::Config(config.clone(), error);
    let mut file = match File::open(&config) {
        Ok(file) => file,
        // The runtime reports this error better, and starts nothing either.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let facts = file.metadata().map_err(failed)?;
    if !facts.is_file() {
        return Err(failed(io::Error::other("not a regular file")));
    }
    let mut text = String::new();
    let read = (&mut file)
        .take(LARGEST.saturating_add(1))
        .read_to_string(&mut text);
    match read {
        Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(failed(error)),
        Ok(length) if u64::try_from(length).unwrap_or(u64::MAX) > LARGEST => {
            return Err(WrapperError::TooLarge(config));
        }
        // Bytes that are not UTF-8 are not JSON; `hook_entry::add` refuses them.
        Ok(_) | Err(_) => {}
    }
    let path = executable
        .to_str()
        .ok_or_else(|| failed(io::Error::other("the hook's own path is not UTF-8")))?;
    let options: Vec<String> = request
        .own
        .iter()
        .map(|option| option.to_string_lossy().into_owned())
        .collect();
    // Relative to the caller's working directory, as the runtime resolves it.
    let bundle = request.bundle.as_deref().map(std::path::absolute);
    let bundle = bundle.transpose().map_err(failed)?;
    let bundle = bundle
        .as_deref()
        .map(|bundle| bundle.to_str())
        .ok_or_else(|| failed(io::Error::other("no bundle is named")))?
        .ok_or_else(|| failed(io::Error::other("the bundle's path is not UTF-8")))?;
    let ours = Ours {
        path,
        options: &options,
        bundle: Some(bundle),
        is_again,
    };
    let changed = hook_entry::add(&text, &ours)
        .map_err(|error| WrapperError::Content(config.clone(), error))?;
    match changed == text {
        true => Ok(()),
        false => replace(&config, &facts, &changed).map_err(failed),
    }
}

/// Replaces the configuration atomically, because another process may read it.
fn replace(config: &Path, old: &fs::Metadata, text: &str) -> io::Result<()> {
    let new = config.with_extension(format!("gpuslice-{}", std::process::id()));
    // Left by a killed process with our pid.
    let _ = fs::remove_file(&new);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(old.mode() & 0o777)
        .open(&new)
        .and_then(|mut file| {
            fchown(&file, Some(old.uid()), Some(old.gid()))?;
            file.write_all(text.as_bytes())
        })
        .and_then(|()| fs::rename(&new, config));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// Calls `execve` directly, because `std`'s version would change more of the runtime's signal
/// settings. Rust's start-up code ignores SIGPIPE in this process, but a container must not inherit
/// that.
fn execute(runtime: &Path, arguments: &[OsString], variable: &OsStr) -> io::Error {
    let words =
        std::iter::once(runtime.as_os_str()).chain(arguments.iter().map(OsString::as_os_str));
    let own = format!("{}=", levels::VARIABLE);
    let others = env::vars_os().map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        name
    });
    let environment = others
        .filter(|variable| !variable.as_bytes().starts_with(own.as_bytes()))
        .chain([variable.to_owned()]);
    let environment: Vec<OsString> = environment.collect();
    let text = |word: &OsStr| CString::new(word.as_bytes());
    let words: Result<Vec<CString>, _> = words.map(text).collect();
    let environment: Result<Vec<CString>, _> = environment.iter().map(|it| text(it)).collect();
    let (Ok(words), Ok(environment)) = (words, environment) else {
        return io::ErrorKind::InvalidInput.into();
    };
    let pointers = |all: &[CString]| -> Vec<*const libc::c_char> {
        let all = all.iter().map(|it| it.as_ptr());
        all.chain([std::ptr::null()]).collect()
    };
    let (arguments, variables) = (pointers(&words), pointers(&environment));
    let Some(path) = words.first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    // SAFETY: no handler is installed, and there is one thread.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    // SAFETY: the path is a C string, and both arrays hold C strings and end with null. All of them
    // outlive the call.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), variables.as_ptr()) };
    io::Error::last_os_error()
}

#[cfg(test)]
#[path = "wrapper_tests.rs"]
mod tests;
