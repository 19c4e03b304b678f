//! A simulated host with containers but no runtime. A process in a mount namespace of its own
//! stands for a container's first process. The hook is run as a runtime runs it.
//! Touches: a temporary folder, child processes. Needs root.

#[allow(dead_code, reason = "other test packages use the rest")]
#[path = "../../../../tests/containers/src/patience.rs"]
pub mod patience;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

pub const CARD: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
pub const SPARK: &str = "GPU-b10aaaaa-4444-4555-8666-777788880000";
pub const SPARKS_MEMINFO: &str =
    "MemTotal: 127600748 kB\nMemFree: 1000 kB\nMemAvailable: 104857600 kB\n";

/// Reads a file as text.
pub fn text(path: PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns whether this machine can run these tests, and prints a line if not. On CI they do run.
pub fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        println!("not run: entering mount namespaces needs root");
    }
    is_root
}

/// libgpuslice.so, as `make` has built it.
pub fn built_library() -> PathBuf {
    let given = std::env::var_os("GPUSLICE_TARGET").map(PathBuf::from);
    let here = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let library = given.unwrap_or_else(here).join("release/libgpuslice.so");
    assert!(
        library.exists(),
        "run `make` first: no {}",
        library.display()
    );
    library
}

pub struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    /// A host with one card of 24 GiB.
    pub fn new() -> Host {
        let host = Host {
            folder: tempfile::tempdir().unwrap(),
        };
        for folder in [
            "run/gpuslice",
            "etc/gpuslice",
            "usr/lib/gpuslice",
            "bundles",
        ] {
            fs::create_dir_all(host.path(folder)).unwrap();
        }
        fs::set_permissions(host.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        host.devices(&format!(
            r#"{{"uuid":"{CARD}","index":0,"name":"Card","memory":{},"integrated":false}}"#,
            24u64 << 30
        ));
        host.policy("");
        let library = host.path("usr/lib/gpuslice/libgpuslice.so");
        fs::copy(built_library(), &library).unwrap();
        fs::set_permissions(&library, fs::Permissions::from_mode(0o644)).unwrap();
        host
    }

    /// A host with one GPU that shares the host's memory, of which 100 GiB are available.
    pub fn spark() -> Host {
        let host = Host::new();
        host.devices(&format!(
            r#"{{"uuid":"{SPARK}","index":0,"name":"NVIDIA GB10","memory":130663165952,"integrated":true}}"#
        ));
        fs::create_dir(host.path("proc")).unwrap();
        fs::write(host.path("proc/meminfo"), SPARKS_MEMINFO).unwrap();
        host
    }

    /// Replaces bytes in the host's library by as many others.
    pub fn change_library(&self, from: &[u8], to: &[u8]) {
        let library = self.path("usr/lib/gpuslice/libgpuslice.so");
        let mut bytes = fs::read(&library).unwrap();
        let mut places = bytes.windows(from.len());
        let place = places.position(|found| found == from).unwrap();
        assert_eq!(from.len(), to.len());
        bytes[place..][..to.len()].copy_from_slice(to);
        fs::write(&library, bytes).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn run(&self, name: &str) -> PathBuf {
        self.path("run/gpuslice").join(name)
    }

    pub fn devices(&self, list: &str) {
        let text = format!(r#"{{"version":1,"devices":[{list}]}}"#);
        fs::write(self.run("devices.json"), text).unwrap();
    }

    /// Writes the policy. Driver limits are off, because these containers have no cgroups.
    pub fn policy(&self, text: &str) {
        let text = format!("driver-limits = \"off\"\n{text}");
        fs::write(self.path("etc/gpuslice/config.toml"), text).unwrap();
    }

    /// Creates a container that requests 8 GiB, but does not start it.
    pub fn container(&self, id: &str) -> Container<'_> {
        self.asking(id, &[("gpuslice.io/memory", "8GiB")])
    }

    pub fn asking(&self, id: &str, annotations: &[(&str, &str)]) -> Container<'_> {
        let bundle = self.path("bundles").join(id);
        let rootfs = bundle.join("rootfs");
        if !rootfs.exists() {
            image(&rootfs, &self.libc());
        }
        let annotations: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).into()))
            .collect();
        let spec = serde_json::json!({
            "root": {"path": "rootfs"}, "annotations": annotations, "linux": {"namespaces": [{"type": "pid"}]},
        });
        fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
        Container {
            host: self,
            id: id.to_owned(),
            bundle,
            process: first_process(),
        }
    }

    /// One libc for all images, as layers share it. Two hundred copies would fill a small disk.
    fn libc(&self) -> PathBuf {
        let libc = self.path("libc.so.6");
        if !libc.exists() {
            fs::copy(system("libc.so.6"), &libc).unwrap();
        }
        libc
    }

    /// Lists the files of containers and slices that are left on the host.
    pub fn left(&self) -> Vec<String> {
        let folders = ["slices", "containers", "ledgers", "promises"];
        let names = folders.iter().flat_map(|folder| {
            let listed = fs::read_dir(self.run(folder)).into_iter().flatten();
            listed.map(move |entry| format!("{folder}/{}", entry.unwrap().file_name().display()))
        });
        let mut left: Vec<String> = names.collect();
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let ledgers = self.run("ledgers").display().to_string();
        left.extend(
            table
                .lines()
                .filter(|line| line.contains(&ledgers))
                .map(str::to_owned),
        );
        left.sort();
        left
    }

    pub fn collect(&self) {
        let paths = gpuslice_host::base::paths::HostPaths::below(self.folder.path());
        gpuslice_host::slices::gc::collect(&paths).unwrap();
    }
}

impl Drop for Host {
    /// Removes what ended containers have left, and all mounts: the hook at createContainer makes those
    /// of a container here.
    fn drop(&mut self) {
        self.collect();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        let own: Vec<&str> = points
            .filter(|point| Path::new(point).starts_with(self.folder.path()))
            .collect();
        for point in own.iter().rev() {
            let _ = nix::mount::umount2(*point, nix::mount::MntFlags::MNT_DETACH);
        }
    }
}

/// Makes the smallest root that counts as a glibc image.
pub fn image(rootfs: &Path, libc: &Path) {
    for folder in [
        "etc",
        "lib64",
        "lib/x86_64-linux-gnu",
        "lib/aarch64-linux-gnu",
        "dev",
    ] {
        fs::create_dir_all(rootfs.join(folder)).unwrap();
    }
    let machine = std::env::consts::ARCH;
    let own = format!("lib/{machine}-linux-gnu/libc.so.6");
    fs::hard_link(libc, rootfs.join(own)).unwrap();
    for loader in ["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"] {
        if Path::new("/").join(loader).exists() {
            fs::write(rootfs.join(loader), "").unwrap();
        }
    }
}

fn system(name: &str) -> PathBuf {
    let machine = std::env::consts::ARCH;
    let folders = [
        format!("/lib/{machine}-linux-gnu"),
        "/lib64".into(),
        "/usr/lib64".into(),
    ];
    let mut found = folders.iter().map(|folder| Path::new(folder).join(name));
    found.find(|path| path.exists()).unwrap()
}

/// Starts a process in a mount namespace of its own. The namespace exists when this returns.
fn first_process() -> Child {
    let mut child = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            "echo; exec sleep 600",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = patience::lines(&mut child, "a container's first process").next();
    child
}

pub struct Container<'a> {
    pub host: &'a Host,
    pub id: String,
    pub bundle: PathBuf,
    pub process: Child,
}

impl Container<'_> {
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn rootfs(&self) -> PathBuf {
        self.bundle.join("rootfs")
    }

    /// A path below the container's root, as the container sees it.
    pub fn inside(&self, name: &str) -> PathBuf {
        let seen = format!("/proc/{}/root{}", self.pid(), self.rootfs().display());
        Path::new(&seen).join(name)
    }

    /// The state that a runtime writes to a hook.
    pub fn state(&self) -> String {
        serde_json::json!({
            "ociVersion": "1.0.2", "id": self.id, "status": "creating", "pid": self.pid(),
            "bundle": self.bundle,
        })
        .to_string()
    }

    pub fn hook(&self, arguments: &[&str]) -> Output {
        hook(self.host, arguments, &self.state())
    }

    /// Runs the hook, which must succeed without a message.
    pub fn is_given_its_slice(&self) {
        let said = self.hook(&["createRuntime"]);
        assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    }

    /// Runs the hook, which must refuse. Returns its message.
    pub fn is_refused(&self) -> String {
        let said = self.hook(&["createRuntime"]);
        assert_eq!(said.status.code(), Some(1), "{said:?}");
        String::from_utf8(said.stderr).unwrap()
    }

    /// Runs a command in the container's mount namespace.
    pub fn run_inside(&self, command: &[&str]) -> Output {
        let pid = self.pid().to_string();
        let mut nsenter = Command::new("nsenter");
        let inside = nsenter.args(["--target", &pid, "--mount", "--"]);
        patience::output(inside.args(command))
    }

    pub fn list(&self) -> String {
        fs::read_to_string(self.inside("etc/ld.so.preload")).unwrap()
    }

    pub fn dies(&mut self) {
        patience::kill(&mut self.process);
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        patience::kill(&mut self.process);
    }
}

pub fn hook(host: &Host, arguments: &[&str], state: &str) -> Output {
    let mut hook = Command::new(env!("CARGO_BIN_EXE_gpuslice-hook"))
        .arg("--root")
        .arg(host.folder.path())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A hook that does not read its input has closed it, so the write may fail.
    let _ = hook.stdin.take().unwrap().write_all(state.as_bytes());
    patience::ended(hook, &format!("gpuslice-hook {}", arguments.join(" ")))
}
