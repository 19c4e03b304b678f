//! The host: what slices need before any program starts. The host's files are below another root.

use super::bench::{HERE, Said, asked, doctor, is_root, mode};
use crate::support::Home;
use gpuslice_test_programs::{copy_program, write_program};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A host below another root.
struct Node {
    root: TempDir,
    home: Home,
}

impl Node {
    fn new() -> Node {
        Node {
            root: tempfile::tempdir_in("/dev/shm").unwrap(),
            home: Home::new(),
        }
    }

    /// A host with these files; `ROOT` in their texts is its root.
    fn with(files: &[(&str, &str)]) -> Node {
        let node = Node::new();
        for (path, text) in files {
            node.write(path, text);
        }
        node
    }

    fn write(&self, path: &str, text: &str) {
        let file = self.root.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let text = text.replace("ROOT", &self.root.path().display().to_string());
        if path.contains("bin/") {
            return write_program(&file, text);
        }
        fs::write(&file, text).unwrap();
        mode(&file, 0o644);
    }

    fn doctor(&self) -> Said {
        asked(|| {
            let mut command = doctor(&self.home, &["--node", "--root"]);
            command.arg(self.root.path());
            // The driver of this host is a simulated one.
            command
                .env("LD_LIBRARY_PATH", HERE.folder.with_file_name("sim"))
                .env("GPUSLICE_SIM", "rtx3090")
                .env("GPUSLICE_SIM_STATE", self.home.state.path());
            command
        })
    }
}

/// The list of GPUs of the simulated machine.
fn list(sim: &str) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = HERE.gpuslice();
    let write = format!("--write={}", file.path().display());
    command.args(["devices", "--sim", sim, &write]);
    assert!(command.status().unwrap().success());
    fs::read_to_string(file.path()).unwrap()
}

/// A code, a part of its sentence, and files with their texts.
type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

const HOOK: (&str, &str) = ("usr/bin/gpuslice-hook", "");

#[test]
fn a_host_in_order_is_ready() {
    let node = Node::new();
    let said = node.doctor();
    said.is_healthy();
    assert_eq!(said.text, "this node is ready for slices\n");
    // With the hook, the list of GPUs, an engine and a policy.
    let hook = r#"{"version": "1.0.0", "hook": {"path": "/usr/bin/gpuslice-hook"}}"#;
    let files = [
        HOOK,
        ("usr/bin/podman", ""),
        (
            "usr/share/containers/oci/hooks.d/50-gpuslice-createRuntime.json",
            hook,
        ),
        ("etc/gpuslice/config.toml", "deny-unannotated = true\n"),
        ("run/gpuslice/devices.json", &list("rtx3090")),
    ];
    Node::with(&files).doctor().is_healthy();
}

#[test]
fn a_fault_of_the_hosts_files_is_the_cause() {
    if !is_root() {
        return;
    }
    let stale = list("h200");
    let handler = |more: &str| {
        format!(
            "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.gpuslice]\n\
             runtime_type = \"io.containerd.runc.v2\"\n{more}"
        )
    };
    let deaf = handler("");
    let lists =
        "pod_annotations = [\"gpuslice.io/*\"]\ncontainer_annotations = [\"gpuslice.io/*\"]\n";
    let spec = handler(&format!(
        "{lists}base_runtime_spec = \"/etc/containerd/nosuch.json\"\n"
    ));
    let cases: &[Case<'_>] = &[
        (
            "policy-invalid",
            "unknown field `memry`",
            &[("etc/gpuslice/config.toml", "[default]\nmemry = \"8GiB\"\n")],
        ),
        (
            "records-damaged",
            "is not a valid slice record",
            &[("run/gpuslice/slices/c1.json", "{")],
        ),
        (
            "devices-invalid",
            "is not a list of GPUs",
            &[("run/gpuslice/devices.json", "[")],
        ),
        (
            "hook-missing",
            "names /opt/gpuslice-hook, which is no executable file",
            &[
                ("usr/bin/podman", ""),
                (
                    "usr/share/containers/oci/hooks.d/gpuslice.json",
                    r#"{"version": "1.0.0", "hook": {"path": "/opt/gpuslice-hook"}}"#,
                ),
            ],
        ),
        (
            "hook-missing",
            "names /opt/gpuslice-runtime, which is no executable file",
            &[(
                "etc/docker/daemon.json",
                r#"{"runtimes": {"gpuslice": {"path": "/opt/gpuslice-runtime"}}}"#,
            )],
        ),
        (
            "handler-drops-annotations",
            "handler gpuslice of containerd does not pass on gpuslice.io/*",
            &[("etc/containerd/config.toml", &deaf)],
        ),
        (
            "base-spec-missing",
            "etc/containerd/nosuch.json, which does not exist",
            &[("etc/containerd/config.toml", &spec)],
        ),
        (
            "handler-drops-annotations",
            "handler nvidia of containerd does not pass on gpuslice.io/*",
            &[
                (
                    "etc/containerd/config.toml",
                    "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia]\n\
                     runtime_type = \"io.containerd.runc.v2\"\n\
                     [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia.options]\n\
                     BinaryName = \"/usr/bin/nvidia-container-runtime\"\n",
                ),
                (
                    "etc/nvidia-container-runtime/config.toml",
                    "[nvidia-container-runtime]\nruntimes = [\"/usr/bin/gpuslice-runtime\", \"runc\"]\n",
                ),
                ("usr/bin/gpuslice-runtime", ""),
            ],
        ),
    ];
    for (code, what, files) in cases {
        let said = Node::with(files).doctor();
        said.is_broken_by(code);
        assert!(said.text.contains(what), "{}", said.text);
        assert!(
            said.verdict
                .starts_with("this node is NOT ready for slices: "),
            "{}",
            said.text
        );
    }
    let warnings: &[Case<'_>] = &[
        (
            "on-error-start",
            "starts without a limit",
            &[(
                "etc/gpuslice/config.toml",
                "[on-error]\nannotated = \"start\"\n",
            )],
        ),
        (
            "devices-stale",
            "is listed but not on this host",
            &[("run/gpuslice/devices.json", &stale)],
        ),
        ("devices-missing", "devices.json does not exist", &[HOOK]),
        (
            "gpusliced-not-running",
            "configures gpusliced, which does not run",
            &[("etc/gpuslice/gpusliced.toml", "paths = [\"/models\"]\n")],
        ),
        (
            "gpusliced-invalid",
            "unknown field `path`",
            &[("etc/gpuslice/gpusliced.toml", "path = [\"/models\"]\n")],
        ),
        (
            "toolkit-legacy-mode",
            "counts on every GPU",
            &[(
                "etc/nvidia-container-runtime/config.toml",
                "[nvidia-container-runtime]\nmode = \"legacy\"\n",
            )],
        ),
        (
            "toolkit-legacy-mode",
            "usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml",
            &[(
                "usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml",
                "[nvidia-container-runtime]\nmode = \"legacy\"\n",
            )],
        ),
        (
            "toolkit-without-cdi",
            "containers get no GPU",
            &[(
                "etc/nvidia-container-runtime/config.toml",
                "[nvidia-container-runtime]\nmode = \"cdi\"\n",
            )],
        ),
        (
            "cdi-disabled",
            "enable_cdi is not true",
            &[
                ("etc/containerd/config.toml", "version = 2\n"),
                ("etc/cdi/gpuslice.yaml", "kind: gpuslice.io/slice\n"),
            ],
        ),
    ];
    for (code, what, files) in warnings {
        let said = Node::with(files).doctor();
        said.is_warned_of(code);
        assert!(said.text.contains(what), "{}", said.text);
    }
}

#[test]
fn a_guard_that_hangs_is_named() {
    let node = Node::with(&[("run/gpuslice/guard.json", STOPPED)]);
    node.doctor().is_healthy();
    // A shell with the command line of a guard.
    let mut guard = Command::new("sh")
        .arg0("gpusliced")
        .args(["-c", "read line", "--guard"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let said = node.doctor();
    guard.kill().unwrap();
    guard.wait().unwrap();
    said.is_warned_of("guard-hangs");
    assert!(
        said.text.contains("has not updated guard.json for"),
        "{}",
        said.text
    );
}

/// The state of a guard that last worked in 2001.
const STOPPED: &str =
    r#"{"schema":1,"seen":1000000000,"level":0,"terminated":0,"killed":0,"named":0}"#;

#[test]
fn an_engine_that_does_not_run_the_hook_is_named_with_the_command() {
    let gpus = list("rtx3090");
    for (engine, file, text) in [
        ("docker", "etc/docker/daemon.json", "{}"),
        ("podman", "usr/bin/podman", ""),
        ("crio", "usr/bin/crio", ""),
        ("containerd", "etc/containerd/config.toml", "version = 2\n"),
    ] {
        let files = [HOOK, ("run/gpuslice/devices.json", &gpus), (file, text)];
        let said = Node::with(&files).doctor();
        said.is_warned_of("hook-not-configured");
        let fix = format!("run gpuslice runtime configure --runtime {engine}");
        assert_eq!(said.json["findings"][0]["fix"], fix, "{}", said.text);
        // Without the hook, this host gives no slices to containers.
        Node::with(&[(file, text)]).doctor().is_healthy();
    }
}

#[test]
fn a_handler_that_an_imported_file_replaces_has_no_effect() {
    let node = Node::new();
    let lists =
        "pod_annotations = [\"gpuslice.io/*\"]\ncontainer_annotations = [\"gpuslice.io/*\"]\n";
    let handler = format!(
        "version = 2\nimports = [\"ROOT/etc/containerd/conf.d/*.toml\"]\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.gpuslice]\n\
         runtime_type = \"io.containerd.runc.v2\"\n{lists}"
    );
    node.write("etc/containerd/config.toml", &handler);
    node.doctor().is_healthy();
    node.write(
        "etc/containerd/conf.d/99-nvidia.toml",
        "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia]\n\
         runtime_type = \"io.containerd.runc.v2\"\n",
    );
    let replaces = Command::new("containerd").arg("--version").output();
    let version = String::from_utf8(replaces.expect("containerd").stdout).unwrap();
    match version.contains(" 1.") {
        true => node.doctor().is_broken_by("handler-without-effect"),
        false => eprintln!("not run: this containerd merges tables: {version}"),
    }
}

#[test]
fn a_host_without_room_for_a_ledger_is_the_cause() {
    if !is_root() {
        return;
    }
    // A /dev/shm of its own, of so many bytes, or a folder on a disk in its place.
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let said = |script: &str| {
        asked(|| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", script]);
            command.arg(HERE.executable()).arg(disk.path());
            command
                .env("TMPDIR", disk.path())
                .env("XDG_RUNTIME_DIR", disk.path());
            command
        })
    };
    let full = "mount -t tmpfs -o size=64k none /dev/shm; head -c 60000 /dev/zero >/dev/shm/file
                exec \"$0\" doctor --node --root \"$1/nosuch\" ${2:+\"$2\"}";
    said(full).is_broken_by("tmpfs-full");
    let none =
        "mount --bind \"$1\" /dev/shm; exec \"$0\" doctor --node --root \"$1/nosuch\" ${2:+\"$2\"}";
    said(none).is_broken_by("no-tmpfs");
    // The hook's folder is on a file system of its own.
    let run = "mkdir -p \"$1/full/run/gpuslice\"; mount -t tmpfs -o size=8k none \"$1/full/run\"
               mkdir \"$1/full/run/gpuslice\"; head -c 8000 /dev/zero >\"$1/full/run/file\"
               exec \"$0\" doctor --node --root \"$1/full\" ${2:+\"$2\"}";
    let full = said(run);
    full.is_broken_by("tmpfs-full");
    assert!(
        full.text.contains("cannot record a container"),
        "{}",
        full.text
    );
}

#[test]
fn a_host_without_the_library_is_the_cause() {
    let place = super::bench::folder();
    let gpuslice = place.path().join("gpuslice");
    copy_program(&HERE.executable(), &gpuslice);
    fs::write(place.path().join("libgpuslice.so"), "text").unwrap();
    let home = Home::new();
    let said = asked(|| {
        let mut command = Command::new(&gpuslice);
        command
            .args(["doctor", "--node", "--root"])
            .arg(place.path());
        home.of(&mut command);
        command
    });
    said.is_broken_by("no-library");
    assert!(said.text.contains("it is not a library"), "{}", said.text);
}

#[test]
fn a_node_without_a_driver_is_not_ready() {
    let place = super::bench::folder();
    fs::write(place.path().join("libcuda.so.1"), "no library").unwrap();
    let home = Home::new();
    let said = asked(|| {
        let mut command = doctor(&home, &["--node"]);
        command.env("LD_LIBRARY_PATH", place.path());
        command
    });
    said.is_broken_by("no-driver");
    assert!(
        said.verdict
            .starts_with("this node is NOT ready for slices"),
        "{}",
        said.text
    );
}
