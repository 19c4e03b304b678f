//! A host for containers without a runtime: the OCI hook is run as a runtime runs it, and a process
//! in a mount namespace stands for a container's first process.
//! Touches: a temporary folder, mount namespaces, child processes. Needs root.

use super::super::row::{Fault, Outcome, right};
use gpuslice_suite::place;
use gpuslice_suite::run::{Answer, Run};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long a hook may take. An engine gives it two minutes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const CARD: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";

/// A host with a card of 24 GiB.
pub(crate) struct ContainerHost {
    folder: tempfile::TempDir,
    run: PathBuf,
}

impl ContainerHost {
    /// A host on which no container has run.
    pub(crate) fn new() -> ContainerHost {
        let folder = tempfile::tempdir().expect("a folder");
        let run = folder.path().join("run/gpuslice");
        let host = ContainerHost { folder, run };
        for folder in [
            "run/gpuslice",
            "etc/gpuslice",
            "usr/lib/gpuslice",
            "bundles",
        ] {
            fs::create_dir_all(host.path(folder)).expect("a folder");
        }
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(host.folder.path(), mode).expect("a mode");
        host.write("etc/gpuslice/config.toml", "driver-limits = \"off\"\n");
        host.write_devices();
        let library = host.path("usr/lib/gpuslice/libgpuslice.so");
        fs::copy(place::shim(), library).expect("the library");
        host
    }

    /// Writes the list of GPUs.
    pub(crate) fn write_devices(&self) {
        let device = format!(
            r#"{{"uuid":"{CARD}","index":0,"name":"Card","memory":{},"integrated":false}}"#,
            24u64 << 30
        );
        let list = format!(r#"{{"version":1,"devices":[{device}]}}"#);
        self.write("run/gpuslice/devices.json", &list);
    }

    /// Mounts a file system of its own at /run/gpuslice, with so many pages left.
    pub(crate) fn mount_run(&self, pages: usize) -> Outcome {
        // The folder and the list of GPUs take two pages.
        self.mount(&[
            "-t",
            "tmpfs",
            "-o",
            &format!("mode=711,size={}", (pages + 2) * 4096),
            "none",
        ])?;
        self.write_devices();
        Ok(())
    }

    /// Gives /run/gpuslice room again.
    pub(crate) fn resize_run(&self) -> Outcome {
        self.mount(&["-o", "remount,size=1G"])
    }

    fn mount(&self, words: &[&str]) -> Outcome {
        let done = Command::new("mount").args(words).arg(&self.run).output();
        let is_done = done.as_ref().is_ok_and(|done| done.status.success());
        right(is_done, || format!("mount {words:?}: {done:?}"))
    }

    /// A path on this host.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// A container that requests this much memory, and has not been started.
    pub(crate) fn container(&self, id: &str, memory: &str) -> Container<'_> {
        let rootfs = self.path("bundles").join(id).join("rootfs");
        if !rootfs.exists() {
            self.image(&rootfs);
        }
        let spec = serde_json::json!({
            "root": {"path": "rootfs"}, "annotations": {"gpuslice.io/memory": memory},
            "linux": {"namespaces": [{"type": "pid"}]},
        });
        self.write(&format!("bundles/{id}/config.json"), &spec.to_string());
        Container {
            host: self,
            id: id.to_owned(),
            process: first_process(),
        }
    }

    /// Makes the smallest root that counts as a glibc image.
    fn image(&self, rootfs: &Path) {
        let machine = std::env::consts::ARCH;
        let own = format!("lib/{machine}-linux-gnu");
        for folder in ["etc", "dev", "lib64", &own] {
            fs::create_dir_all(rootfs.join(folder)).expect("a folder");
        }
        let libc = self.path("libc.so.6");
        if !libc.exists() {
            let folders = [
                format!("/lib/{machine}-linux-gnu"),
                "/lib64".into(),
                "/usr/lib64".into(),
            ];
            let mut found = folders
                .iter()
                .map(|folder| Path::new(folder).join("libc.so.6"));
            let found = found.find(|path| path.exists()).expect("a C library");
            fs::copy(found, &libc).expect("a copy");
        }
        fs::hard_link(libc, rootfs.join(own).join("libc.so.6")).expect("a link");
        for loader in ["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"] {
            if Path::new("/").join(loader).exists() {
                fs::write(rootfs.join(loader), "").expect("a loader");
            }
        }
    }

    /// The records, folders, ledgers and mounts of containers that are left on the host.
    pub(crate) fn left(&self) -> Vec<String> {
        let folders = ["slices", "containers", "ledgers", "promises"];
        let names = folders.iter().flat_map(|folder| {
            let listed = fs::read_dir(self.run.join(folder))
                .into_iter()
                .flatten()
                .flatten();
            listed.map(move |entry| format!("{folder}/{}", entry.file_name().display()))
        });
        let mut left: Vec<String> = names.collect();
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
        let ledgers = self.run.join("ledgers").display().to_string();
        let mounts = mounts.lines().filter(|line| line.contains(&ledgers));
        left.extend(mounts.map(str::to_owned));
        left
    }

    /// Asserts that a container of the whole card gets its slice, and that nothing is left after its
    /// end. The hook of this container removes what others have left.
    pub(crate) fn is_as_new(&self) -> Outcome {
        let next = self.container("next", "24GiB");
        let said = next.hook("createRuntime");
        right(said.end == "exit 0" && said.stderr.is_empty(), || {
            format!("the next container: {said:?}")
        })?;
        next.ends()?;
        let left = self.left();
        match left.is_empty() {
            true => Ok(()),
            false => Err(Fault::Leak(format!("{left:?}"))),
        }
    }
}

/// Starts a process in a mount namespace of its own. The namespace exists when this returns.
fn first_process() -> Child {
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        "echo; exec sleep 600",
    ]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("unshare");
    let mut line = String::new();
    let out = child.stdout.take().expect("a pipe");
    BufReader::new(out).read_line(&mut line).expect("a line");
    child
}

/// A container, and its first process.
pub(crate) struct Container<'a> {
    host: &'a ContainerHost,
    id: String,
    process: Child,
}

impl Container<'_> {
    /// The hook at a stage. The state of the container is its standard input.
    pub(crate) fn hook_run(&self, stage: &str) -> Run {
        let bundle = self.host.path("bundles").join(&self.id);
        let state = serde_json::json!({
            "ociVersion": "1.0.2", "id": self.id, "status": "creating", "pid": self.process.id(),
            "bundle": bundle,
        });
        let file = bundle.join("state.json");
        fs::write(&file, state.to_string()).expect("the state");
        // The shell executes the hook in its place.
        let run = Run::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" <\"$STATE\""])
            .arg(place::hook());
        let run = run.arg("--root").arg(self.host.folder.path()).arg(stage);
        run.env("STATE", file).patience(PATIENCE)
    }

    /// Runs the hook at a stage.
    pub(crate) fn hook(&self, stage: &str) -> Answer {
        self.hook_run(stage).answer()
    }

    /// Ends the container as a runtime does: its process first.
    pub(crate) fn ends(mut self) -> Outcome {
        self.dies();
        let said = self.hook("poststop");
        right(said.end == "exit 0" && said.stderr.is_empty(), || {
            format!("poststop: {said:?}")
        })
    }

    /// Kills the first process.
    pub(crate) fn dies(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        self.dies();
    }
}

impl Drop for ContainerHost {
    fn drop(&mut self) {
        let ledgers = self.run.join("ledgers");
        for entry in fs::read_dir(&ledgers).into_iter().flatten().flatten() {
            let _ = Command::new("umount").arg("-l").arg(entry.path()).output();
        }
        for mounted in [self.run.join("promises"), self.run.clone()] {
            let _ = Command::new("umount").arg("-l").arg(mounted).output();
        }
    }
}
