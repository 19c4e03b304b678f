//! What `gpuslice runtime configure` writes is read by the real engines as it is meant: Debian's
//! containerd and podman, with Debian's own files.
//! Touches: the engines' executables, where they are installed; files of its own.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]
mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Installation, told};
use tempfile::TempDir;

struct Engine {
    here: Installation,
    place: TempDir,
}

impl Engine {
    /// None where the engine is not installed, which is then said.
    fn new(program: &str) -> Option<Engine> {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("not run: {program} is not installed (tests/setup.sh containers)");
            return None;
        }
        let here = Installation::new(&format!("engines-{program}"));
        for name in ["gpuslice-hook", "gpuslice-runtime"] {
            symlink("/bin/true", here.folder.join(name)).unwrap();
        }
        Some(Engine {
            here,
            place: tempfile::tempdir().unwrap(),
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn configure(&self, runtime: &str, config: &Path, more: &[&str]) -> String {
        let mut command = self.here.gpuslice();
        command
            .args(["runtime", "configure", "--runtime", runtime, "--config"])
            .arg(config)
            .args(more);
        let (out, err, status) = told(&mut command);
        assert_eq!((err.as_str(), status), ("", 0));
        out
    }
}

/// Debian's file, from its package where that is installed.
fn debian() -> String {
    let installed = fs::read_to_string("/etc/containerd/config.toml");
    let usual = "version = 2\n\n[plugins]\n  [plugins.\"io.containerd.grpc.v1.cri\"]\n    \
                 [plugins.\"io.containerd.grpc.v1.cri\".cni]\n      bin_dir = \"/usr/lib/cni\"\n";
    installed.unwrap_or_else(|_| usual.to_owned())
}

#[test]
fn containerd_reads_its_file_as_it_is_meant() {
    let Some(engine) = Engine::new("containerd") else {
        return;
    };
    let file = engine.path("config.toml");
    fs::write(&file, debian()).unwrap();
    let dump = || {
        let mut containerd = Command::new("containerd");
        let dumped = told(
            containerd
                .arg("--config")
                .arg(&file)
                .args(["config", "dump"]),
        );
        assert_eq!(dumped.2, 0, "{}", dumped.1);
        toml(&dumped.0)
    };
    let before = dump();
    engine.configure("containerd", &file, &[]);
    let spec = engine.path("gpuslice-base-spec.json");
    let handler = |dumped: &toml_edit::DocumentMut| {
        let cri = &dumped["plugins"]["io.containerd.grpc.v1.cri"]["containerd"];
        cri["runtimes"]["gpuslice"].clone()
    };
    let ours = handler(&dump());
    assert_eq!(ours["runtime_type"].as_str(), Some("io.containerd.runc.v2"));
    assert_eq!(ours["base_runtime_spec"].as_str(), spec.to_str());
    assert_eq!(
        ours["pod_annotations"].to_string().trim(),
        "[\"gpuslice.io/*\"]"
    );
    // It is a whole specification, containerd's own, and has our hooks.
    let text = fs::read_to_string(&spec).unwrap();
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    let hooks = &read["hooks"]["createRuntime"];
    assert_eq!(hooks.as_array().map(Vec::len), Some(1));
    assert!(read["linux"]["maskedPaths"].is_array() && read["mounts"].is_array());
    assert_eq!(
        engine.configure("containerd", &file, &[]),
        "nothing to change\n"
    );

    engine.configure(
        "containerd",
        &file,
        &["--by", "runtime", "--set-as-default"],
    );
    let dumped = dump();
    let runtime = engine.here.folder.join("gpuslice-runtime");
    let ours = handler(&dumped);
    assert_eq!(ours["options"]["BinaryName"].as_str(), runtime.to_str());
    assert!(!spec.exists(), "what nothing names any more is gone");

    engine.configure("containerd", &file, &["--remove"]);
    assert_eq!(dump().to_string(), before.to_string());
    assert_eq!(fs::read_to_string(&file).unwrap(), debian());
}

fn toml(text: &str) -> toml_edit::DocumentMut {
    text.parse().unwrap()
}

#[test]
fn podman_reads_its_file_as_it_is_meant() {
    let Some(engine) = Engine::new("podman") else {
        return;
    };
    let file = engine.path("containers.conf.d/99-gpuslice.conf");
    let more = ["--by", "runtime", "--set-as-default"];
    engine.configure("podman", &file, &more);
    let mut podman = Command::new("podman");
    podman
        .env("CONTAINERS_CONF", &file)
        .args([
            "--root",
            "root",
            "--runroot",
            "run",
            "--storage-driver",
            "vfs",
        ])
        .args(["--cgroup-manager", "cgroupfs", "info", "--format"])
        .arg("{{.Host.OCIRuntime.Name}} {{.Host.OCIRuntime.Path}}")
        .current_dir(engine.place.path());
    let (out, err, status) = told(&mut podman);
    if status != 0 {
        eprintln!("not run: podman does not work here ({})", err.trim());
        return;
    }
    let runtime = engine.here.folder.join("gpuslice-runtime");
    assert_eq!(out, format!("gpuslice {}\n", runtime.display()));
}
