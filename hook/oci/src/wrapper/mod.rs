//! `gpuslice-runtime`: an OCI runtime that puts our hooks into a container's configuration and
//! leaves all the rest to the real one.
//! Touches: the host's policy, the bundle's configuration, the runtime's log; becomes the runtime.
//! Law: a container whose configuration could not be changed is not started without its slice.
//! Never: the environment. It is the caller's, and reaches the runtime as it is.

pub mod arguments;
pub mod hooks;
mod report;

use crate::policy::{self, PolicyError};
use arguments::Request;
use hooks::Ours;
use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

/// The name that the wrapper is called by.
pub const NAME: &str = "gpuslice-runtime";

/// The runtimes that do the work, where the host's policy names none.
const USUAL: [&str; 2] = ["runc", "crun"];

/// Where a runtime that has no path is looked for. $PATH is the caller's.
const FOLDERS: [&str; 6] = [
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/bin",
    "/sbin",
];

/// The largest configuration that is read; the largest seen has 100 KiB.
const LARGEST: u64 = 16 << 20;

/// What a runtime ends with that could not do what it was asked.
const FAILED: u8 = 1;

/// Why no runtime is started.
#[derive(Debug)]
pub enum Failure {
    /// The configuration cannot be read or written.
    Config(PathBuf, io::Error),
    /// It is not what the specification says, or asks for two sizes.
    Content(PathBuf, hooks::HooksError),
    /// It has more than any.
    TooLarge(PathBuf),
    /// An option of ours that is none.
    Option(String),
    /// Nobody knows which runtime it is.
    Policy(PolicyError),
    /// There is no runtime of these names.
    NoRuntime(Vec<String>),
    /// It cannot be executed.
    Execute(PathBuf, io::Error),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Config(path, error) => {
                write!(out, "cannot change {}: {error}", path.display())
            }
            Failure::Content(path, error) => {
                write!(out, "cannot put hooks into {}: {error}", path.display())
            }
            Failure::TooLarge(path) => write!(
                out,
                "cannot put hooks into {}: it has more than {} MiB",
                path.display(),
                LARGEST >> 20
            ),
            Failure::Option(option) => {
                let known = arguments::OPTIONS.map(|(option, _)| option).join(", ");
                write!(out, "there is no option {option} (there are: {known})")
            }
            Failure::Policy(error) => match std::error::Error::source(error) {
                Some(source) => write!(out, "{error}: {source}"),
                None => write!(out, "{error}"),
            },
            Failure::NoRuntime(names) => write!(
                out,
                "there is no OCI runtime {} in {}: name one as `runtime = [\"runc\"]` in \
                 /etc/gpuslice/config.toml",
                names.join(" or "),
                FOLDERS.join(", ")
            ),
            Failure::Execute(path, error) => {
                write!(out, "cannot execute {}: {error}", path.display())
            }
        }
    }
}

/// Whether the executable was called as the wrapper.
#[must_use]
pub fn is_called(name: Option<&OsStr>) -> bool {
    name.is_some_and(|name| Path::new(name).file_name() == Some(OsStr::new(NAME)))
}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Failure {
        Failure::Policy(error)
    }
}

/// Does what a runtime is asked to do. Comes back only when no runtime could be started, with the
/// exit status.
pub fn main(given: impl IntoIterator<Item = OsString>) -> u8 {
    let request = arguments::read(given);
    let failure = match work(&request) {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    report::report(&request, &failure.to_string());
    FAILED
}

fn work(request: &Request) -> Result<Infallible, Failure> {
    if let Some(option) = &request.unknown {
        return Err(Failure::Option(option.clone()));
    }
    let own = Path::new("/proc/self/exe");
    let executable = fs::read_link(own).map_err(|error| Failure::Config(own.into(), error))?;
    prepare(&executable, request)?;
    let runtime = match &request.runtime {
        Some(runtime) => runtime.clone(),
        None => find(&executable, &named(request)?)?,
    };
    let error = execute(&runtime, &request.passed_on);
    Err(Failure::Execute(runtime, error))
}

/// The runtimes that the host's policy names. A policy that cannot be used lets no container be made,
/// but those that run are stopped, deleted and asked for by the usual ones.
fn named(request: &Request) -> Result<Vec<String>, Failure> {
    if request.bundle.is_some() {
        return Ok(policy::runtimes(&request.places)?);
    }
    let (runtimes, wrong) = policy::runtimes_in_any_case(&request.places);
    if let Some(wrong) = wrong {
        let usual = USUAL.join(" or ");
        let wrong = Failure::Policy(wrong);
        report::warn(request, &format!("{wrong}; the runtime is {usual}"));
    }
    Ok(runtimes)
}

/// Puts the hooks into the configuration of a container that is made.
fn prepare(executable: &Path, request: &Request) -> Result<(), Failure> {
    let Some(config) = request.config() else {
        return Ok(());
    };
    let failed = |error| Failure::Config(config.clone(), error);
    let mut file = match File::open(&config) {
        Ok(file) => file,
        // The runtime says it better, and starts nothing either.
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
            return Err(Failure::TooLarge(config));
        }
        // Bytes that are no UTF-8 are no JSON.
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
    // Relative to the folder that the caller is in, as the runtime takes it.
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
    };
    let changed =
        hooks::add(&text, &ours).map_err(|error| Failure::Content(config.clone(), error))?;
    match changed == text {
        true => Ok(()),
        false => replace(&config, &facts, &changed).map_err(failed),
    }
}

/// The old text or the new, never half: another process may read it.
fn replace(config: &Path, old: &fs::Metadata, text: &str) -> io::Result<()> {
    let new = config.with_extension(format!("gpuslice-{}", std::process::id()));
    // Left by a process of this number that was killed.
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

/// The first runtime that is there, and is not the wrapper under another name.
fn find(executable: &Path, runtimes: &[String]) -> Result<PathBuf, Failure> {
    let usual = || USUAL.map(str::to_owned).to_vec();
    let names = match runtimes.is_empty() {
        true => usual(),
        false => runtimes.to_vec(),
    };
    let identity = |path: &Path| fs::metadata(path).map(|facts| (facts.dev(), facts.ino()));
    let own = identity(executable).ok();
    let usable = |path: &PathBuf| {
        let facts = fs::metadata(path);
        facts.is_ok_and(|facts| facts.is_file() && facts.mode() & 0o111 != 0)
            && identity(path).ok() != own
    };
    let places = |name: &String| -> Vec<PathBuf> {
        match name.starts_with('/') {
            true => vec![name.into()],
            false => FOLDERS.iter().map(|it| Path::new(it).join(name)).collect(),
        }
    };
    let found = names.iter().flat_map(places).find(usable);
    found.ok_or(Failure::NoRuntime(names))
}

/// `execv` and not `std`'s, which would change more of the signals that the runtime finds. Ours
/// ignores SIGPIPE because Rust's start has made it so, and a container must not.
fn execute(runtime: &Path, arguments: &[OsString]) -> io::Error {
    let words =
        std::iter::once(runtime.as_os_str()).chain(arguments.iter().map(OsString::as_os_str));
    let words: Result<Vec<CString>, _> = words.map(|word| CString::new(word.as_bytes())).collect();
    let Ok(words) = words else {
        return io::ErrorKind::InvalidInput.into();
    };
    let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let Some(path) = words.first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    // SAFETY: no handler is installed, and there is one thread.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    // SAFETY: a C string and an array of C strings that ends with null, alive until it is done.
    unsafe { libc::execv(path.as_ptr(), pointers.as_ptr()) };
    io::Error::last_os_error()
}

#[cfg(test)]
#[path = "wrapper_tests.rs"]
mod tests;
