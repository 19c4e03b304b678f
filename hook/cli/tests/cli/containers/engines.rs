//! Debian's containerd and podman understand the files that `gpuslice runtime configure` writes.
//! The tests start from Debian's own configuration files.
//! Touches: the executables of the engines, if installed; files of its own.

use crate::support::{Installation, told};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

struct Engine {
    here: Installation,
    place: TempDir,
}

impl Engine {
    /// Returns `None` and prints a line if the engine is not installed.
    fn new(program: &str) -> Option<Engine> {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("not run: {program} is not installed (tests/setup.sh containers)");
            return None;
        }
        // The tests run in parallel, so each has an installation of its own.
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let here = Installation::new(&format!("engines-{program}-{count}"));
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

/// The configuration file of Debian's package; a copy of its text if the package is not installed.
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
    // The file is containerd's own complete specification with our hooks added.
    let text = fs::read_to_string(&spec).unwrap();
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    let hooks = &read["hooks"]["createRuntime"];
    assert_eq!(hooks.as_array().map(Vec::len), Some(1));
    assert!(read["linux"]["maskedPaths"].is_array() && read["mounts"].is_array());
    let again = engine.configure("containerd", &file, &[]);
    assert_eq!(
        again,
        "nothing to change\nresult: a pod with runtimeClassName of handler gpuslice and annotation \
         gpuslice.io/memory gets a slice; a pod without the class does not\n"
    );

    engine.configure(
        "containerd",
        &file,
        &["--by", "runtime", "--set-as-default"],
    );
    // Again, now that gpuslice's own handler is the default.
    let again = engine.configure(
        "containerd",
        &file,
        &["--by", "runtime", "--set-as-default"],
    );
    assert!(again.starts_with("nothing to change\n"), "{again}");
    let dumped = dump();
    let runtime = engine.here.folder.join("gpuslice-runtime");
    let ours = handler(&dumped);
    assert_eq!(ours["options"]["BinaryName"].as_str(), runtime.to_str());
    assert!(!spec.exists(), "a file that is no longer named was kept");

    engine.configure("containerd", &file, &["--remove"]);
    assert_eq!(dump().to_string(), before.to_string());
    assert_eq!(fs::read_to_string(&file).unwrap(), debian());
}

/// The file that nvidia-ctk 1.20 writes into the folder that the main file imports. It has a table
/// of the CRI plugin with the handler `nvidia`, and copies of the main file's handlers.
fn nvidia_ctk(copied: &str) -> String {
    format!(
        r#"version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".containerd]
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes]
{copied}
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
          runtime_type = "io.containerd.runc.v2"
          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
            BinaryName = "/usr/bin/nvidia-container-runtime"
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
          runtime_type = "io.containerd.runc.v2"
"#
    )
}

/// A containerd configuration that imports the file that nvidia-ctk has written.
fn beside_nvidia(engine: &Engine) -> (PathBuf, PathBuf) {
    let (file, imported) = (
        engine.path("config.toml"),
        engine.path("conf.d/99-nvidia.toml"),
    );
    fs::create_dir_all(imported.parent().unwrap()).unwrap();
    let imports = format!(
        "imports = [\"{}\"]\n",
        engine.path("conf.d/*.toml").display()
    );
    fs::write(&file, imports + &debian()).unwrap();
    (file, imported)
}

#[test]
fn containerd_is_not_said_to_give_slices_when_an_imported_file_wins() {
    let Some(engine) = Engine::new("containerd") else {
        return;
    };
    let (file, imported) = beside_nvidia(&engine);
    fs::write(&imported, nvidia_ctk("")).unwrap();
    let said = engine.configure("containerd", &file, &[]);
    let wanted = format!(
        "result: no pod gets a slice yet: handler gpuslice has no effect, because {} replaces the CRI \
         plugin's whole table; run nvidia-ctk runtime configure --runtime containerd, which copies the \
         handler there\n",
        imported.display()
    );
    assert!(said.ends_with(&wanted), "{said}");
    // nvidia-ctk has run again, and has copied our handler.
    let text = fs::read_to_string(&file).unwrap();
    let start = text.find("[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.gpuslice]");
    let handler = text[start.unwrap()..].split("\n\n").next().unwrap();
    fs::write(&imported, nvidia_ctk(handler)).unwrap();
    let said = engine.configure("containerd", &file, &[]);
    assert!(
        said.contains("nothing to change\nresult: a pod with runtimeClassName of handler gpuslice"),
        "{said}"
    );
    assert!(said.contains("does not run NVIDIA's runtime"), "{said}");

    // A file that the copy names is kept, because containerd would not start without it.
    let said = engine.configure("containerd", &file, &["--remove"]);
    let spec = engine.path("gpuslice-base-spec.json");
    assert!(spec.exists());
    assert!(said.contains(&format!("kept {}", spec.display())), "{said}");
    assert!(
        said.contains("pods of handler gpuslice still get slices"),
        "{said}"
    );
    let mut containerd = Command::new("containerd");
    let dumped = told(
        containerd
            .arg("--config")
            .arg(&file)
            .args(["config", "dump"]),
    );
    assert_eq!(dumped.2, 0, "{}", dumped.1);
    // nvidia-ctk has run again, on a main file without our handler.
    fs::write(&imported, nvidia_ctk("")).unwrap();
    let said = engine.configure("containerd", &file, &["--remove"]);
    assert!(!spec.exists(), "{said}");
    assert!(!said.contains("result"), "{said}");
}

#[test]
fn by_runtime_refuses_to_replace_a_runtime_that_the_wrapper_cannot_run() {
    let Some(engine) = Engine::new("containerd") else {
        return;
    };
    let file = engine.path("config.toml");
    let text = nvidia_ctk("").replace(
        "containerd]\n",
        "containerd]\n      default_runtime_name = \"nvidia\"\n",
    );
    fs::write(&file, &text).unwrap();
    let mut command = engine.here.gpuslice();
    command
        .args([
            "runtime",
            "configure",
            "--runtime",
            "containerd",
            "--by",
            "runtime",
        ])
        .arg("--config")
        .arg(&file);
    let (_, err, status) = told(&mut command);
    assert_eq!(status, 125, "{err}");
    assert!(
        err.contains("write runtime = [\"/usr/bin/nvidia-container-runtime\"] into"),
        "{err}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    // With hooks, the handler runs NVIDIA's runtime, which adds the GPU.
    let said = engine.configure("containerd", &file, &[]);
    assert!(!said.contains("does not run NVIDIA's runtime"), "{said}");
}

#[test]
fn remove_gives_every_file_back_byte_for_byte() {
    let Some(engine) = Engine::new("containerd") else {
        return;
    };
    let crlf = |text: &str| text.replace('\n', "\r\n");
    let toolkit = "[nvidia-container-runtime]\n#runtimes = [\"runc\"]\nmode = \"auto\"\n";
    let long = "[nvidia-container-runtime]\nruntimes = [\n  \"runc\", # first\n  \"crun\",\n]\n";
    let cases: Vec<(&str, &str, Option<String>, &[&str])> = vec![
        (
            "docker",
            "daemon.json",
            None,
            &["--size", "8GiB", "--set-as-default"],
        ),
        ("docker", "daemon.json", Some("{}".to_owned()), &[]),
        (
            "docker",
            "daemon.json",
            Some("{\"debug\": true, \"runtimes\": {}}\n".to_owned()),
            &[],
        ),
        (
            "docker",
            "daemon.json",
            Some(crlf("{\n  \"debug\": true\n}\n")),
            &[],
        ),
        ("containerd", "config.toml", None, &[]),
        (
            "containerd",
            "config.toml",
            Some(debian()),
            &["--set-as-default"],
        ),
        (
            "containerd",
            "config.toml",
            Some(crlf(&debian())),
            &["--by", "runtime"],
        ),
        (
            "containerd",
            "config.toml",
            Some("version = 4\n# end".to_owned()),
            &[],
        ),
        ("nvidia", "nvidia.toml", None, &[]),
        ("nvidia", "nvidia.toml", Some(toolkit.to_owned()), &[]),
        ("nvidia", "nvidia.toml", Some(crlf(toolkit)), &[]),
        ("nvidia", "nvidia.toml", Some(long.to_owned()), &[]),
        ("nvidia", "nvidia.toml", Some(String::new()), &[]),
    ];
    for (number, (runtime, name, text, more)) in cases.into_iter().enumerate() {
        let folder = engine.path(&number.to_string());
        fs::create_dir(&folder).unwrap();
        let file = folder.join(name);
        if let Some(text) = &text {
            fs::write(&file, text).unwrap();
        }
        let said = engine.configure(runtime, &file, more);
        assert!(
            file.exists() && said.contains("result: "),
            "{runtime} {text:?}: {said}"
        );
        if runtime == "nvidia" {
            let wanted = "a container of nvidia-container-runtime with annotation gpuslice.io/memory \
                          gets a slice; ";
            assert!(said.contains(wanted), "{said}");
        }
        engine.configure(runtime, &file, &["--remove"]);
        assert_eq!(fs::read_to_string(&file).ok(), text, "{runtime} {text:?}");
    }
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
