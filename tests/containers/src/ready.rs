//! Whether this machine can start containers.
//! Touches: a namespace that exists only for the check; standard error, once.

use crate::{patience, place};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Returns whether the tests of containers run. If they cannot, prints the reason in one line.
///
/// # Panics
/// When they could run, but a build step is missing.
#[must_use]
pub fn ready() -> bool {
    static READY: OnceLock<bool> = OnceLock::new();
    *READY.get_or_init(|| match obstacle() {
        None => {
            if let Some(missing) = missing_step() {
                panic!("{missing}");
            }
            true
        }
        Some(why) => {
            // Writes to standard error directly, because the test harness captures `eprintln!`.
            let line = format!("NOT RUN: the tests with real containers: {why}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
            false
        }
    })
}

/// The build step without which no container can be started here.
#[must_use]
pub fn missing_step() -> Option<String> {
    let steps = [
        (place::target().join("release/gpuslice-hook"), "make"),
        (place::roots().join("made"), "tests/containers/setup.sh"),
    ];
    let (path, by) = steps.iter().find(|(path, _)| !path.exists())?;
    Some(format!("{} is not there: run {by} first", path.display()))
}

/// The reason for which this machine cannot start containers.
#[must_use]
pub fn obstacle() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find(|line| line.starts_with("Uid:"));
    if uid.and_then(|line| line.split_whitespace().nth(2)) != Some("0") {
        return Some("this is not root".to_owned());
    }
    let tries = [
        (
            "no mount and process namespaces",
            "mount -t tmpfs none /run && mkdir /run/a /run/b && mount -t overlay -o lowerdir=/etc,upperdir=/run/a,workdir=/run/b none /etc",
        ),
        (
            "no cgroup can be made",
            "n=gpuslice-try-$$; for g in /sys/fs/cgroup/memory /sys/fs/cgroup; do mkdir $g/$n 2>/dev/null && rmdir $g/$n && exit 0; done; exit 1",
        ),
    ];
    for (what, script) in tries {
        let tried = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--mount-proc"])
            .args(["--propagation", "private", "sh", "-c", script])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let done = match tried {
            Ok(child) => patience::ended(child, "unshare"),
            Err(error) => return Some(format!("cannot run unshare: {error}")),
        };
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            return Some(format!("{what} ({})", said.trim().replace('\n', "; ")));
        }
    }
    None
}
