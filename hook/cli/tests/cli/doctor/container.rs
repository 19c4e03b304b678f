//! Containers: why one has no slice, and what was changed inside of one.
//! The containers are root folders of their own, with the files that the hook mounts; records and
//! bundles are below another root.

use super::bench::{
    Bench, GPU, HERE, Running, Said, asked, doctor, folder, is_root, start, uses_gpu,
};
use crate::support::Home;
use gpuslice_config::ledger::{Ledger, Open};
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::process::InitProcess;
use gpuslice_host::slices::records::{DeviceBudget, Member, Registry, SliceRecord};
use serde_json::json;
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const UUID: &str = "GPU-3090aaaa-1111-4222-8333-444455550000";

/// A host below another root, and a process that stands for a container's first one.
struct Host {
    root: TempDir,
    home: Home,
    process: Running,
}

impl Host {
    fn new() -> Host {
        let mut sleep = Command::new("sh");
        Host {
            root: tempfile::tempdir_in("/dev/shm").unwrap(),
            home: Home::new(),
            process: start(sleep.args(["-c", "echo $$; exec sleep 1000"])),
        }
    }

    fn record(&self, no_slice: Option<&str>, memory: Option<Bytes>) {
        let places = HostPaths::below(self.root.path());
        let budget = |memory| DeviceBudget {
            uuid: UUID.parse().unwrap(),
            memory,
            integrated: false,
        };
        let member = Member {
            id: "c1".to_owned(),
            name: "server".to_owned(),
            owner: InitProcess::of(i32::try_from(self.process.pid).unwrap()).unwrap(),
            bundle: "/bundle".into(),
            drops: Vec::new(),
            pod: None,
            no_slice: no_slice.map(str::to_owned),
            not_limited: None,
            claims: None,
        };
        let record = SliceRecord {
            version: SliceRecord::VERSION,
            slice: "c1".to_owned(),
            name: "team/server".to_owned(),
            namespace: None,
            shared: false,
            sandbox: None,
            named: None,
            devices: memory.map(budget).into_iter().collect(),
            promised: None,
            before_resize: None,
            containers: vec![member],
        };
        Registry::lock(&places).unwrap().write(&record).unwrap();
    }

    /// A bundle as containerd makes it, with this configuration.
    fn bundle(&self, config: &serde_json::Value) -> String {
        let id = "ab12".repeat(16);
        let folder = "run/containerd/io.containerd.runtime.v2.task/k8s.io";
        let bundle = self.root.path().join(folder).join(&id);
        fs::create_dir_all(&bundle).unwrap();
        fs::write(bundle.join("config.json"), config.to_string()).unwrap();
        id
    }

    fn doctor(&self, words: &[&str]) -> Said {
        asked(|| {
            let mut command = doctor(&self.home, words);
            command.arg("--root").arg(self.root.path());
            command
        })
    }
}

#[test]
fn an_image_that_cannot_load_the_library_is_the_cause() {
    let host = Host::new();
    host.record(Some("its libc is musl"), Some(Bytes::gib(8)));
    let pid = host.process.pid.to_string();
    for subject in ["team/server", "c1", &pid] {
        let said = host.doctor(&[subject]);
        said.is_broken_by("image-not-injectable");
        let sentence = "container team/server started without its slice: its libc is musl";
        assert!(said.text.contains(sentence), "{}", said.text);
        assert_eq!(said.json["subject"]["container"], "c1");
    }
    let said = host.doctor(&["team/server"]);
    let verdict =
        "the slice of container team/server is NOT in force: its image cannot load the library";
    assert_eq!(said.verdict, verdict);
}

#[test]
fn a_container_that_started_because_the_host_failed_is_the_cause() {
    let host = Host::new();
    host.record(
        Some("no list of GPUs exists (run gpuslice devices --write)"),
        None,
    );
    let said = host.doctor(&["team/server"]);
    said.is_broken_by("started-without-slice");
    assert!(
        said.text.contains("no list of GPUs exists"),
        "{}",
        said.text
    );
    // Among all slices of this node, too.
    host.doctor(&[]).is_broken_by("started-without-slice");
}

#[test]
fn an_annotation_that_did_not_reach_the_runtime_is_the_cause() {
    let host = Host::new();
    let id = host.bundle(&json!({"annotations": {"io.kubernetes.cri.container-name": "server"}}));
    for subject in [&id[..], &id[..12]] {
        let said = host.doctor(&[subject]);
        said.is_broken_by("annotation-missing");
        assert_eq!(
            said.verdict,
            "the slice of container server is NOT in force: its container has no annotation"
        );
        assert!(
            said.text.contains("runtimeClassName: gpuslice"),
            "{}",
            said.text
        );
    }
}

#[test]
fn a_hook_that_the_runtime_did_not_run_is_the_cause() {
    for (hooks, what) in [
        (json!({}), "but no hook of gpuslice"),
        (
            json!({"createRuntime": [{"path": "/usr/bin/gpuslice-hook"}]}),
            "no record of its slice exists",
        ),
    ] {
        let host = Host::new();
        let annotations = json!({"gpuslice.io/memory": "8GiB"});
        let id = host.bundle(&json!({"annotations": annotations, "hooks": hooks}));
        let said = host.doctor(&[&id[..12]]);
        said.is_broken_by("hook-not-run");
        assert!(said.text.contains(what), "{}", said.text);
    }
}

/// A container's root folder: this machine's folders, and those that the hook mounts.
struct Container {
    bench: Bench,
    root: TempDir,
}

impl Container {
    /// `list` is its /etc/ld.so.preload.
    fn new(list: Option<&str>) -> Container {
        let root = folder();
        let path = |name: &str| root.path().join(name);
        for folder in ["etc", ".gpuslice/ledger", "proc", "dev", "sys", "tmp"] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        if let Some(list) = list {
            fs::write(path("etc/ld.so.preload"), list).unwrap();
        }
        fs::copy(
            HERE.folder.join("libgpuslice.so"),
            path(".gpuslice/libgpuslice.so"),
        )
        .unwrap();
        let slice = format!(
            r#"{{"version": 1, "name": "team/server", "devices": [{{"uuid": "{UUID}", "memory": 8589934592}}]}}"#
        );
        fs::write(path(".gpuslice/slice.json"), slice).unwrap();
        Container {
            bench: Bench::new(),
            root,
        }
    }

    /// Starts a Python program in it, by a mount namespace and a root folder of its own.
    fn start(&self, program: &str) -> Running {
        let script = "set -e; cd \"$1\"
            mount -t tmpfs none .gpuslice/ledger
            for folder in usr bin lib lib64 sbin; do
                if [ -L /$folder ]; then cp -P /$folder .; else mkdir -p $folder; mount --rbind /$folder $folder; fi
            done
            for folder in proc dev sys tmp; do mount --rbind /$folder $folder; done
            cp -L /etc/ld.so.cache etc/
            mkdir -p sim; mount --bind \"$2\" sim
            \"$4\" --exact --ignored --nocapture doctor::container::the_ledger_of_a_container >/dev/null
            exec chroot . /usr/bin/env LD_LIBRARY_PATH=/sim /usr/bin/python3 -c \"$3\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]);
        command.arg(self.root.path());
        command.arg(fs::canonicalize(HERE.folder.with_file_name("sim")).unwrap());
        command.arg(program);
        command.arg(std::env::current_exe().unwrap());
        command
            .env("LEDGER", self.root.path().join(".gpuslice/ledger/ledger"))
            .env("GPUSLICE_SIM", "rtx3090")
            .env("GPUSLICE_SIM_STATE", self.bench.machine.state.path());
        for name in ["LD_PRELOAD", "GPUSLICE_CONFIG", "GPUSLICE_SLICE"] {
            command.env_remove(name);
        }
        start(&mut command)
    }
}

/// Not a test: makes the ledger in a container's file system.
#[test]
#[ignore = "a process of another test"]
fn the_ledger_of_a_container() {
    let Ok(path) = std::env::var("LEDGER") else {
        return;
    };
    let create = Open::Create {
        mode: 0o666,
        devices: 1,
    };
    Ledger::open(&CString::new(path).unwrap(), create).unwrap();
}

const LISTED: &str = "/.gpuslice/libgpuslice.so\n";

#[test]
fn a_process_of_a_container_with_its_slice_is_in_order() {
    if !is_root() {
        return;
    }
    let container = Container::new(Some(LISTED));
    for program in [uses_gpu(), format!("{GPU}wait()\n")] {
        let running = container.start(&program);
        let said = container.bench.about(&running);
        said.is_healthy();
        let verdict = format!(
            "slice team/server is in force for process {} (python3)",
            running.pid
        );
        assert_eq!(said.verdict, verdict);
        assert_eq!(said.json["facts"]["slice_file"], "/.gpuslice/slice.json");
    }
}

#[test]
fn a_list_of_preloads_that_was_edited_is_the_cause() {
    if !is_root() {
        return;
    }
    for (list, what) in [
        (None, "does not exist"),
        (
            Some("/usr/lib/other.so\n"),
            "does not name /.gpuslice/libgpuslice.so",
        ),
        (Some("# /.gpuslice/libgpuslice.so\n"), "does not name"),
    ] {
        let container = Container::new(list);
        let running = container.start(&format!("{GPU}wait()\n"));
        let said = container.bench.about(&running);
        said.is_broken_by("ld-so-preload-edited");
        assert!(said.text.contains(what), "{}", said.text);
    }
    // Programs that have the library keep their limit.
    let container = Container::new(Some(LISTED));
    let running = container.start(&uses_gpu());
    fs::write(container.root.path().join("etc/ld.so.preload"), "").unwrap();
    container
        .bench
        .about(&running)
        .is_warned_of("ld-so-preload-edited");
}

#[test]
fn a_reason_that_the_hook_has_mounted_is_the_cause() {
    if !is_root() {
        return;
    }
    let container = Container::new(None);
    let path = |name: &str| container.root.path().join(".gpuslice").join(name);
    fs::remove_file(path("slice.json")).unwrap();
    fs::write(path("no-slice"), "its glibc lacks the symbol fcntl64\n").unwrap();
    let running = container.start(&format!("{GPU}wait()\n"));
    let said = container.bench.about(&running);
    said.is_broken_by("image-not-injectable");
    assert!(
        said.text.contains("its glibc lacks the symbol fcntl64"),
        "{}",
        said.text
    );
}

#[test]
fn a_ledger_or_slice_file_that_was_damaged_in_a_container_is_the_cause() {
    if !is_root() {
        return;
    }
    let inside = |running: &Running, name: &str| -> PathBuf {
        Path::new(&format!("/proc/{}/root/.gpuslice", running.pid)).join(name)
    };
    let container = Container::new(Some(LISTED));
    let running = container.start(&format!("{GPU}wait()\n"));
    fs::write(inside(&running, "ledger/ledger"), "x").unwrap();
    container
        .bench
        .about(&running)
        .is_broken_by("ledger-truncated");
    fs::remove_file(inside(&running, "ledger/ledger")).unwrap();
    container
        .bench
        .about(&running)
        .is_broken_by("ledger-missing");
    fs::write(inside(&running, "slice.json"), "{").unwrap();
    container
        .bench
        .about(&running)
        .is_broken_by("slice-file-invalid");
}

#[test]
fn a_limit_of_the_driver_that_is_lower_is_named() {
    let bench = Bench::new();
    let running = bench.python(&["--memory=8GiB", "--name=llama"], &uses_gpu());
    let cgroups = fs::read_to_string(format!("/proc/{}/cgroup", running.pid)).unwrap();
    let cgroup = cgroups.lines().find_map(|line| line.strip_prefix("0::/"));
    let root = folder();
    let cgroup = root
        .path()
        .join("sys/fs/cgroup")
        .join(cgroup.expect("cgroup version 2"));
    fs::create_dir_all(&cgroup).unwrap();
    let limit = |text: &str| fs::write(cgroup.join("dmem.max"), text).unwrap();
    let said = || {
        asked(|| {
            let mut command = doctor(&bench.machine.home, &[&running.pid.to_string()]);
            command.arg("--root").arg(root.path());
            command
        })
    };
    limit("nvidia/0000:01:00.0/vidmem 4294967296\n");
    let lower = said();
    lower.is_warned_of("driver-limit-lower");
    assert!(
        lower
            .text
            .contains("to 4.00 GiB, less than the slice's 8.00 GiB"),
        "{}",
        lower.text
    );
    assert_eq!(lower.json["facts"]["fence"], "driver and library");
    for other in [
        "nvidia/0000:01:00.0/vidmem max\n",
        "nvidia/0000:01:00.0/vidmem 8589934592\n",
    ] {
        limit(other);
        said().is_healthy();
    }
    // A run that was resized is compared by the limit in force.
    limit("nvidia/0000:01:00.0/vidmem 4294967296\n");
    let mut resize = HERE.gpuslice();
    let resize = bench.machine.home.of(&mut resize);
    let (_, err, status) = crate::support::told(resize.args(["resize", "llama", "4GiB"]));
    assert_eq!((err.as_str(), status), ("", 0));
    said().is_healthy();
}
