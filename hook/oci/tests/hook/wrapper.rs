//! `gpuslice-runtime` with the real runc: containers run through our hooks, and every other verb
//! behaves as in runc.
//! Touches: runc (tests/setup.sh installs it), as root; folders of its own.
use crate::support::patience;
use gpuslice_test_programs::{copy_program, write_program};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A host with a bundle whose program is the static hook. This image has no libc, so no library can
/// be loaded into it.
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
    /// Returns `None` and prints a line if no container can be run.
    fn new() -> Option<Host> {
        let probe = Host::bare();
        let run = probe.tries(Command::new("runc").args(probe.run("probe")));
        match run {
            Ok(output) if output.status.success() => Some(Host::bare()),
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
        copy_program(&built(), &host.path("bundle/rootfs/program"));
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

    /// Two wrappers that start each other would never end, so a time limit kills them.
    fn tries(&self, command: &mut Command) -> std::io::Result<Output> {
        let command = command.current_dir(self.folder.path());
        patience::output_within(command.stdin(Stdio::null()), Duration::from_secs(60))
    }

    fn output(&self, command: &mut Command) -> Output {
        self.tries(command).unwrap()
    }

    /// Runs the wrapper with our options before the runtime's. Returns standard output, standard
    /// error and the exit status.
    fn wrapped(&self, own: &[&str], arguments: &[String]) -> (String, String, Option<i32>) {
        let mut command = Command::new(self.path("gpuslice-runtime"));
        command.args(["--gpuslice-root".as_ref(), self.folder.path()]);
        said(&self.output(command.args(own).args(arguments)))
    }

    fn slices(&self) -> usize {
        fs::read_dir(self.path("run/gpuslice/slices")).map_or(0, Iterator::count)
    }

    fn hooks(&self) -> Value {
        let text = fs::read_to_string(self.path("bundle/config.json")).unwrap();
        let config: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(config["unknown"], 1, "an unknown member was lost");
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
        let bundle = host.path("bundle").display().to_string();
        assert_eq!(
            ours["args"],
            json!(["gpuslice-hook", "--bundle", bundle, "--root", root, stage])
        );
        assert!(ours["env"].as_array().is_some_and(|env| !env.is_empty()));
    }
    assert!(
        host.path("run/gpuslice/slices").exists(),
        "the hook did not run"
    );
    assert_eq!(host.slices(), 0, "the slice was not removed");
}

#[test]
fn a_container_that_the_hook_refuses_does_not_start() {
    let Some(host) = Host::new() else { return };
    host.policy("when-not-injectable = \"refuse\"\n");
    // A container with neither the annotation nor the option is none of our concern.
    assert_eq!(host.wrapped(&[], &host.run("free")).0, SAYS);
    // An engine that does not pass on annotations gives the size by an option.
    let (out, err, status) = host.wrapped(&["--gpuslice-memory=8GiB"], &host.run("refused"));
    assert_eq!((out.as_str(), status), ("", Some(1)));
    assert!(
        err.contains("refuses containers that cannot load libgpuslice.so"),
        "{err}"
    );
    // The size exceeds the card.
    host.policy("");
    let (_, err, status) = host.wrapped(&["--gpuslice-memory", "80GiB"], &host.run("large"));
    assert!(status == Some(1) && err.contains("no room for"), "{err}");
    assert_eq!(host.slices(), 0);
}

/// The edits that a CDI device of this size makes to a configuration.
fn device(host: &Host, size: &str) -> Value {
    let root = host.folder.path().display().to_string();
    let hook = |stage: &str| {
        json!([{
            "path": built(), "env": ["PATH=/usr/bin"],
            "args": ["gpuslice-hook", "--root", root, "--memory", size, stage],
        }])
    };
    json!({"createRuntime": hook("createRuntime"), "poststop": hook("poststop")})
}

#[test]
fn a_cdi_device_below_the_wrapper_is_admitted_by_its_size() {
    let Some(host) = Host::new() else { return };
    host.policy("when-not-injectable = \"refuse\"\n");
    let configure = |annotations: &Value, hooks: &Value| {
        host.config(annotations);
        let file = host.path("bundle/config.json");
        let text = fs::read_to_string(&file).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config["hooks"] = hooks.clone();
        fs::write(&file, config.to_string()).unwrap();
    };
    // The size exceeds the card's 24 GiB. If the size were lost, there would be no reason to
    // refuse.
    configure(&json!({}), &device(&host, "80GiB"));
    let (_, err, status) = host.wrapped(&[], &host.run("large"));
    assert!(status == Some(1) && err.contains("80.00 GiB"), "{err}");
    configure(
        &json!({"gpuslice.io/total": "device"}),
        &device(&host, "80GiB"),
    );
    let (_, err, status) = host.wrapped(&[], &host.run("option"));
    assert!(status == Some(1) && err.contains("80.00 GiB"), "{err}");
    // One GPU has two sizes.
    configure(&json!({}), &device(&host, "8GiB"));
    let (_, err, status) = host.wrapped(&["--gpuslice-memory=2GiB"], &host.run("two"));
    assert!(
        status == Some(1) && err.contains("2.00 GiB and 8.00 GiB"),
        "{err}"
    );
    configure(
        &json!({"gpuslice.io/memory": "4GiB"}),
        &device(&host, "8GiB"),
    );
    let (_, err, status) = host.wrapped(&[], &host.run("annotated"));
    let said = "gives a slice of 8.00 GiB, and annotation gpuslice.io/memory says 4.00 GiB";
    assert!(status == Some(1) && err.contains(said), "{err}");
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
        let bare = host.output(Command::new("runc").args(&words));
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
fn a_configuration_that_cannot_be_changed_starts_nothing_and_is_reported() {
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

#[test]
fn the_driver_is_told_of_the_containers_own_cgroup() {
    let Some(host) = Host::new() else { return };
    let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
    let has_cgroups = |mount: &Path| mount.join("cgroup.controllers").exists();
    if !mounts.iter().any(|mount| has_cgroups(mount)) {
        eprintln!("not run: no cgroups of version 2 here");
        return;
    }
    // A script replaces gpuslice. It records its arguments and the processes of the cgroup.
    let (command, told) = (host.path("gpuslice"), host.path("told"));
    let script = format!(
        "#!/bin/sh\nfor word; do echo \"$word\"; done > {0}\ncat \"$3/cgroup.procs\" >> {0}\nenv >> {0}\n",
        told.display()
    );
    write_program(&command, script);
    let devices = host.path("run/gpuslice/devices.json");
    let list = fs::read_to_string(&devices).unwrap();
    fs::write(
        &devices,
        list.replace("\"driver_limits\":false", "\"driver_limits\":true"),
    )
    .unwrap();
    host.policy(&format!("command = \"{}\"\n", command.display()));

    let mut run = host.run("limited");
    let id = run.last().unwrap().clone();
    let cgroups = format!("/{id}");
    let config = fs::read_to_string(host.path("bundle/config.json")).unwrap();
    let linux = format!("\"linux\":{{\"cgroupsPath\":\"{cgroups}\",");
    fs::write(
        host.path("bundle/config.json"),
        config.replace("\"linux\":{", &linux),
    )
    .unwrap();
    // The container is created but not started. Its first process waits, so the test can inspect
    // it.
    run.retain(|word| word != "run");
    run.insert(run.len() - 3, "create".to_owned());
    let mut create = Command::new(host.path("gpuslice-runtime"));
    create
        .args(["--gpuslice-root".as_ref(), host.folder.path()])
        .arg("--gpuslice-memory=8GiB")
        .args(&run);
    // The waiting process would keep a pipe open.
    let create = create.stdin(Stdio::null()).stdout(Stdio::null());
    let done = create.stderr(Stdio::null()).spawn().unwrap();
    let done = patience::ended(done, "gpuslice-runtime create").status;
    let log = fs::read_to_string(host.path("log")).unwrap_or_default();
    assert!(done.success(), "{log}");
    let said = fs::read_to_string(&told).unwrap();
    let state = host.path("state").display().to_string();
    let runc = |words: &[&str]| {
        let mut runc = Command::new("runc");
        patience::output(runc.args(["--root", &state]).args(words))
    };
    let asked = runc(&["state", &id]);
    let asked: Value = serde_json::from_slice(&asked.stdout).unwrap();
    runc(&["delete", "--force", &id]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0..2], ["driver-limit", "--cgroup"]);
    assert!(lines[2].ends_with(&cgroups), "{said}");
    let uuid = "GPU-3090aaaa-1111-4222-8333-444455550000";
    assert_eq!(lines[3..7], ["--device", uuid, "--memory", "8589934592"]);
    assert_eq!(
        lines[7],
        asked["pid"].to_string(),
        "the container's process is in it"
    );
    // The command gets no variable of the engine or of the image.
    let env = lines[8..]
        .iter()
        .filter(|line| !line.starts_with("PWD=") && !line.starts_with("_="));
    assert_eq!(
        env.collect::<Vec<_>>(),
        [&"PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
    );
}

#[test]
fn below_another_wrapper_its_prestart_hook_runs_before_ours() {
    let Some(host) = Host::new() else { return };
    // The stand-in works like NVIDIA's legacy runtime: it adds a prestart hook and executes the
    // first runtime of its list.
    let (theirs, ran) = (host.path("their-hook"), host.path("ran"));
    let (wrapper, ours) = (host.path("their-runtime"), host.path("gpuslice-runtime"));
    let slices = host.path("run/gpuslice/slices");
    let scripts = [
        (
            &theirs,
            format!(
                "cat > /dev/null; ls {} > {} 2>&1 || true",
                slices.display(),
                ran.display()
            ),
        ),
        (
            &wrapper,
            format!(
                "exec {} --gpuslice-root {} --gpuslice-memory 8GiB \"$@\"",
                ours.display(),
                host.folder.path().display()
            ),
        ),
    ];
    for (path, text) in scripts {
        write_program(path, format!("#!/bin/sh\n{text}\n"));
    }
    let file = host.path("bundle/config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    config["hooks"] = json!({"prestart": [{"path": theirs, "args": ["their-hook", "prestart"]}]});
    fs::write(&file, config.to_string()).unwrap();

    let output = host.output(Command::new(&wrapper).args(host.run("below")));
    let (out, err, status) = said(&output);
    assert_eq!((out.as_str(), status), (SAYS, Some(0)), "{err}");
    let hooks = host.hooks();
    assert_eq!(hooks["prestart"], config["hooks"]["prestart"]);
    assert_eq!(hooks["createRuntime"].as_array().map(Vec::len), Some(1));
    let seen = fs::read_to_string(ran).unwrap();
    assert!(
        seen.contains("No such file"),
        "no slice was there yet: {seen}"
    );
    assert!(
        slices.exists() && host.slices() == 0,
        "and one was afterwards"
    );
}

/// Writes a script that stands in for a runtime, in the host's folder.
fn script(host: &Host, name: &str, text: &str) -> PathBuf {
    let path = host.path(name);
    write_program(&path, format!("#!/bin/sh\n{text}\n"));
    path
}

#[test]
fn two_wrappers_that_name_each_other_end_with_a_clear_message() {
    let host = Host::bare();
    let (ours, root) = (host.path("gpuslice-runtime"), host.folder.path().display());
    for call in ["exec ", ""] {
        let text = format!("{call}{} --gpuslice-root {root} \"$@\"", ours.display());
        let other = script(&host, "other-runtime", &text);
        let policy = format!("runtime = [\"{}\"]\n", other.display());
        fs::write(host.path("etc/gpuslice/config.toml"), policy).unwrap();
        let (out, err, status) = host.wrapped(&[], &["--version".to_owned()]);
        if call.is_empty() {
            assert!(err.contains("executes gpuslice-runtime again"), "{err}");
            assert_eq!((out.as_str(), status), ("", Some(1)));
        } else {
            // The other wrapper executes ours, and the runtime below both does the work.
            assert!(out.starts_with("runc version") || out.starts_with("crun version"));
            assert_eq!((err.as_str(), status), ("", Some(0)));
        }
    }
    // Each wrapper has only the other one below it.
    let text = format!(
        "exec {} --gpuslice-root {root} --gpuslice-runtime $0 \"$@\"",
        ours.display()
    );
    let other = script(&host, "other-runtime", &text);
    let policy = format!("runtime = [\"{}\"]\n", other.display());
    fs::write(host.path("etc/gpuslice/config.toml"), policy).unwrap();
    let (_, err, status) = host.wrapped(&[], &["--version".to_owned()]);
    assert!(err.contains("executes gpuslice-runtime again"), "{err}");
    assert_eq!(status, Some(1));
}

#[test]
fn help_is_the_wrappers_own_and_names_the_runtimes() {
    let host = Host::bare();
    let (out, err, status) = host.wrapped(&[], &["--help".to_owned()]);
    assert_eq!((err.as_str(), status), ("", Some(0)));
    assert!(out.starts_with("gpuslice-runtime [OPTIONS]"), "{out}");
    assert!(out.contains("--gpuslice-memory=SIZE") && out.contains("gpuslice-runtime help"));
}
