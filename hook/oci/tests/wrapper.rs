//! `gpuslice-runtime` with the real runc: containers run, through our hooks, and everything else
//! is runc's.
//! Touches: runc (tests/setup.sh installs it), as root; folders of its own.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot be set up has failed"
)]

use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A host of its own, and a bundle whose program is the static hook: an image without a libc,
/// which no library can be put into.
struct Host {
    folder: TempDir,
}

fn built() -> PathBuf {
    let given = std::env::var_os("GPUSLICE_TARGET").map(PathBuf::from);
    let target =
        given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    let hook = target.join("release/gpuslice-hook");
    assert!(hook.exists(), "run `make` first: no {}", hook.display());
    hook.canonicalize().unwrap()
}

impl Host {
    /// None where no container can be run, which is then said.
    fn new() -> Option<Host> {
        let probe = Host::bare();
        let run = probe.output(Command::new("runc").args(probe.run("probe")));
        match run {
            Some(output) if output.status.success() => Some(Host::bare()),
            other => {
                let why = other.map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
                eprintln!("not run: no container can be run here ({why:?})");
                None
            }
        }
    }

    fn bare() -> Host {
        let host = Host {
            folder: tempfile::tempdir().unwrap(),
        };
        for folder in [
            "bundle/rootfs/proc",
            "run/gpuslice",
            "etc/gpuslice",
            "usr/lib/gpuslice",
            "state",
        ] {
            fs::create_dir_all(host.path(folder)).unwrap();
        }
        fs::copy(built(), host.path("bundle/rootfs/program")).unwrap();
        symlink(built(), host.path("gpuslice-runtime")).unwrap();
        let library = built().with_file_name("libgpuslice.so");
        fs::copy(library, host.path("usr/lib/gpuslice/libgpuslice.so")).unwrap();
        let devices = json!({"version": 1, "devices": [{
            "uuid": "GPU-3090aaaa-1111-4222-8333-444455550000", "index": 0, "name": "a card",
            "memory": 24_u64 << 30, "integrated": false, "driver_limits": false, "mig": [],
        }]});
        fs::write(host.path("run/gpuslice/devices.json"), devices.to_string()).unwrap();
        host.policy("");
        host.config(&json!({}));
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn policy(&self, more: &str) {
        let text = format!("runtime = [\"no-such-runtime\", \"runc\"]\n{more}");
        fs::write(self.path("etc/gpuslice/config.toml"), text).unwrap();
    }

    fn config(&self, annotations: &Value) {
        let namespaces = ["pid", "mount", "ipc", "uts"].map(|kind| json!({"type": kind}));
        let config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0}, "args": ["/program", "--version"],
                "env": [], "cwd": "/", "noNewPrivileges": true,
            },
            "root": {"path": "rootfs"},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
            "linux": {"namespaces": namespaces},
            "annotations": annotations,
            "unknown": 1,
        });
        fs::write(self.path("bundle/config.json"), config.to_string()).unwrap();
    }

    fn run(&self, id: &str) -> Vec<String> {
        let state = self.path("state").display().to_string();
        let bundle = self.path("bundle").display().to_string();
        let log = self.path("log").display().to_string();
        let id = format!("gpuslice-{id}-{}", std::process::id());
        [
            "--root",
            &state,
            "--log",
            &log,
            "--log-format",
            "json",
            "run",
            "--bundle",
            &bundle,
            &id,
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn output(&self, command: &mut Command) -> Option<Output> {
        command.current_dir(self.folder.path()).output().ok()
    }

    /// What the wrapper does with our options in front of the runtime's: standard output and
    /// error, and the exit status.
    fn wrapped(&self, own: &[&str], arguments: &[String]) -> (String, String, Option<i32>) {
        let mut command = Command::new(self.path("gpuslice-runtime"));
        command.args(["--gpuslice-root".as_ref(), self.folder.path()]);
        said(&self.output(command.args(own).args(arguments)).unwrap())
    }

    fn slices(&self) -> usize {
        fs::read_dir(self.path("run/gpuslice/slices")).map_or(0, Iterator::count)
    }

    fn hooks(&self) -> Value {
        let text = fs::read_to_string(self.path("bundle/config.json")).unwrap();
        let config: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(config["unknown"], 1, "what nobody knows is still there");
        config["hooks"].clone()
    }
}

fn said(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        text(&output.stdout),
        text(&output.stderr),
        output.status.code(),
    )
}

const SAYS: &str = concat!("gpuslice-hook ", env!("CARGO_PKG_VERSION"), "\n");

#[test]
fn a_container_runs_through_our_hooks_and_leaves_nothing() {
    let Some(host) = Host::new() else { return };
    host.config(&json!({"gpuslice.io/memory": "8GiB"}));
    let (out, err, status) = host.wrapped(&[], &host.run("runs"));
    assert_eq!((out.as_str(), status), (SAYS, Some(0)), "{err}");
    let hook = built().display().to_string();
    let root = host.folder.path().display().to_string();
    let hooks = host.hooks();
    for stage in ["createRuntime", "poststop"] {
        let ours = &hooks[stage][0];
        assert_eq!(ours["path"], hook);
        assert_eq!(
            ours["args"],
            json!(["gpuslice-hook", "--root", root, stage])
        );
        assert!(ours["env"].as_array().is_some_and(|env| !env.is_empty()));
    }
    assert!(
        host.path("run/gpuslice/slices").exists(),
        "the hook was there"
    );
    assert_eq!(host.slices(), 0, "and has given it back");
}

#[test]
fn a_container_that_the_hook_refuses_does_not_start() {
    let Some(host) = Host::new() else { return };
    host.policy("when-not-injectable = \"refuse\"\n");
    // Without an annotation, and without the option, it is nobody's business.
    assert_eq!(host.wrapped(&[], &host.run("free")).0, SAYS);
    // An engine that passes no annotations on says the size by an option.
    let (out, err, status) = host.wrapped(&["--gpuslice-memory=8GiB"], &host.run("refused"));
    assert_eq!((out.as_str(), status), ("", Some(1)));
    assert!(err.contains("no slice can be put into"), "{err}");
    // More than the card has.
    host.policy("");
    let (_, err, status) = host.wrapped(&["--gpuslice-memory", "80GiB"], &host.run("large"));
    assert!(status == Some(1) && err.contains("no room for"), "{err}");
    assert_eq!(host.slices(), 0);
}

#[test]
fn whatever_makes_no_container_is_runcs_word_for_word() {
    let Some(host) = Host::new() else { return };
    let state = host.path("state").display().to_string();
    for words in [
        vec!["--version"],
        vec!["--root", &state, "list"],
        vec!["--root", &state, "state", "create"],
        vec!["--root", &state, "delete", "no-such-container"],
        vec!["no-such-verb"],
        vec!["run", "--bundle", "/no/such/bundle", "x"],
    ] {
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let bare = host.output(Command::new("runc").args(&words)).unwrap();
        let without_time = |(out, err, status): (String, String, Option<i32>)| {
            let (head, tail) = err.split_once("time=").unwrap_or((&err, ""));
            let tail = tail.split_once(" level").map_or("", |(_, tail)| tail);
            (out, format!("{head}{tail}"), status)
        };
        let ours = host.wrapped(&[], &words);
        assert_eq!(without_time(ours), without_time(said(&bare)), "{words:?}");
    }
    assert_eq!(host.slices(), 0);
}

#[test]
fn a_configuration_that_cannot_be_changed_starts_nothing_and_the_engine_is_told() {
    let Some(host) = Host::new() else { return };
    fs::write(host.path("bundle/config.json"), "{\"hooks\":[]}").unwrap();
    let (out, err, status) = host.wrapped(&[], &host.run("wrong"));
    assert_eq!((out.as_str(), status), ("", Some(1)));
    let log = fs::read_to_string(host.path("log")).unwrap();
    let line: Value = serde_json::from_str(log.trim()).unwrap();
    assert_eq!(line["level"], "error");
    assert_eq!(format!("{}\n", line["msg"].as_str().unwrap()), err);
    assert!(
        err.starts_with("gpuslice-runtime: cannot put hooks into "),
        "{err}"
    );
}
