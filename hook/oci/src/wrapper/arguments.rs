//! Parses the command line of an OCI runtime (runc, crun, youki).
//! Touches: its arguments.
//! Law: the creation of a container is recognised even among options that are newer than gpuslice.
//! Arguments after the verb are never removed, because `exec` has a container's command there.

use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::base::text::shown;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A parsed command line.
#[derive(Clone, Debug, Default)]
pub struct RuntimeCall {
    /// The bundle of the container to create; `None` for other verbs.
    pub bundle: Option<PathBuf>,
    /// The file name of its configuration, in the bundle.
    pub config: PathBuf,
    /// The log file in which the runtime reports errors to its caller.
    pub log: Option<PathBuf>,
    /// The folder in which the runtime keeps its containers, where an option names it.
    pub root: Option<PathBuf>,
    /// Whether the log is JSON.
    pub log_is_json: bool,
    /// Our own options, in the hook's form: `--gpuslice-memory=8GiB` becomes `--memory 8GiB`.
    pub own: Vec<OsString>,
    /// The paths on the host; `--gpuslice-root` applies to the hook and to this process.
    pub paths: HostPaths,
    /// The runtime to execute, where an option names it.
    pub runtime: Option<PathBuf>,
    /// Whether the wrapper's own help is requested.
    pub help: bool,
    /// An option with our prefix that is unknown.
    pub unknown: Option<String>,
    /// The arguments for the runtime.
    pub passed_on: Vec<OsString>,
}

/// The prefix of our own options.
const OWN: &[u8] = b"gpuslice-";

/// The names of our own options, without the prefix. Each option takes a value.
const OURS: [&[u8]; 4] = [b"memory", b"root", b"runtime", b"die-at"];

/// Our options with their descriptions, for the help text.
pub const OPTIONS: [(&str, &str); 3] = [
    (
        "--gpuslice-memory=SIZE",
        "the slice (for engines without annotations); a CDI device or annotation of another size is refused",
    ),
    (
        "--gpuslice-runtime=PATH",
        "the runtime that does the work, whatever the policy says",
    ),
    (
        "--gpuslice-root=DIR",
        "DIR/run/gpuslice, DIR/etc/gpuslice and so on, for tests",
    ),
];

/// The verbs that create a container from a bundle.
const MAKING: [&str; 3] = ["create", "run", "restore"];

/// All verbs. Any other word is an option's value.
const VERBS: [&str; 22] = [
    "checkpoint",
    "create",
    "delete",
    "events",
    "exec",
    "features",
    "h",
    "help",
    "init",
    "kill",
    "list",
    "ls",
    "mounts",
    "pause",
    "ps",
    "restore",
    "resume",
    "run",
    "spec",
    "start",
    "state",
    "update",
];

/// The options before the verb that take the next word as their value, unless it follows a `=`.
const GLOBAL: [&str; 8] = [
    "cgroup-manager",
    "criu",
    "log",
    "log-format",
    "log-level",
    "root",
    "rootless",
    "runtime-root",
];

/// The options before the verb without a value. An unknown option may take a verb as its value.
const FLAGS: [&str; 10] = [
    "V",
    "debug",
    "h",
    "help",
    "s",
    "systemd-cgroup",
    "v",
    "version",
    "d",
    "detach",
];

/// The options after the verb that take a value.
const LOCAL: [&str; 18] = [
    "b",
    "bundle",
    "config",
    "console-socket",
    "criu",
    "empty-ns",
    "f",
    "image-path",
    "lsm-mount-context",
    "lsm-profile",
    "manage-cgroups-mode",
    "page-server",
    "parent-path",
    "pid-file",
    "pidfd-socket",
    "preserve-fds",
    "status-fd",
    "work-path",
];

/// Parses the arguments, without the program's name.
#[must_use]
pub fn read(arguments: impl IntoIterator<Item = OsString>) -> RuntimeCall {
    let mut request = RuntimeCall {
        config: "config.json".into(),
        ..RuntimeCall::default()
    };
    let mut bundle = PathBuf::from(".");
    let mut verb: Option<&str> = None;
    // Whether the verb may be the value of an unknown option.
    let mut is_doubtful = false;
    let mut after_unknown = false;
    let mut words = arguments.into_iter();
    while let Some(word) = words.next() {
        let behind = verb.is_some() && !is_doubtful;
        if word == "--" && behind {
            request.passed_on.push(word);
            request.passed_on.extend(words.by_ref());
            break;
        }
        let Some((name, value)) = option(&word) else {
            let known = VERBS.iter().find(|known| word == **known).copied();
            if !behind {
                // A second verb replaces the first only if it creates a container.
                let makes = known.is_some_and(|known| MAKING.contains(&known));
                if verb.is_none() || makes {
                    verb = known.or(verb);
                }
                is_doubtful = verb.is_some() && after_unknown && !makes;
            }
            after_unknown = false;
            request.passed_on.push(word);
            continue;
        };
        if let (false, Some(own)) = (behind, name.strip_prefix(OWN)) {
            request.take_own(own, value, &mut words);
            continue;
        }
        request.help |= verb.is_none() && matches!(name, b"help" | b"h");
        let is_one_of = |all: &[&str]| all.iter().any(|it| it.as_bytes() == name);
        let takes_one = (behind && is_one_of(&LOCAL)) || (!behind && is_one_of(&GLOBAL));
        after_unknown = value.is_none() && !is_one_of(&FLAGS) && !takes_one;
        let (name, mut value) = (name.to_owned(), value.map(OsStr::to_owned));
        request.passed_on.push(word);
        if value.is_none() && takes_one {
            value = words.next();
            request.passed_on.extend(value.clone());
        }
        let Some(value) = value else {
            continue;
        };
        match name.as_slice() {
            b"b" | b"bundle" if behind => bundle = value.into(),
            b"f" | b"config" if behind => request.config = value.into(),
            b"log" if !behind => request.log = Some(value.into()),
            b"root" if !behind => request.root = Some(value.into()),
            b"log-format" if !behind => request.log_is_json = value == "json",
            _ => {}
        }
    }
    request.bundle = verb.filter(|verb| MAKING.contains(verb)).map(|_| bundle);
    request
}

impl RuntimeCall {
    /// The path of the configuration of the container to create.
    #[must_use]
    pub fn config(&self) -> Option<PathBuf> {
        let bundle: &Path = self.bundle.as_deref()?;
        Some(bundle.join(&self.config))
    }

    fn take_own(
        &mut self,
        name: &[u8],
        value: Option<&OsStr>,
        words: &mut impl Iterator<Item = OsString>,
    ) {
        if !OURS.contains(&name) {
            let name = String::from_utf8_lossy(name);
            self.unknown = Some(shown(&format!("--gpuslice-{name}")));
            return;
        }
        let value = value.map(OsStr::to_owned).or_else(|| words.next());
        let value = value.unwrap_or_default();
        match name {
            b"runtime" => return self.runtime = Some(value.into()),
            b"root" => self.paths = HostPaths::below(&value),
            _ => {}
        }
        let mut option = OsString::from("--");
        option.push(OsStr::from_bytes(name));
        self.own.extend([option, value]);
    }
}

/// The name of an option without its dashes, and the value after its `=`. Go's flags have one dash
/// or two; `-bDIR` is crun's.
fn option(word: &OsStr) -> Option<(&[u8], Option<&OsStr>)> {
    let bytes = word.as_bytes().strip_prefix(b"-")?;
    let (name, long) = match bytes.strip_prefix(b"-") {
        Some(name) => (name, true),
        None => (bytes, false),
    };
    if name.is_empty() {
        return None;
    }
    if let Some(at) = name.iter().position(|byte| *byte == b'=') {
        let (name, value) = name.split_at_checked(at)?;
        return Some((name, value.get(1..).map(OsStr::from_bytes)));
    }
    match name.split_first() {
        Some((b'b', rest)) if !long && !rest.is_empty() && name != b"bundle" => {
            Some((b"b", Some(OsStr::from_bytes(rest))))
        }
        _ => Some((name, None)),
    }
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
