//! `gpusliced` writes the meminfo pages of containers.
//! Touches: slices as the hook records them, below folders of their own in memory.

mod cost;

use crate::support::eventually;
use gpuslice_config::host::meminfo::{self, HostMemory};
use gpuslice_config::ledger::{Claim, Kind, Ledger, Open};
use gpuslice_config::promises::{SIZE, file_name, spent};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::process::InitProcess;
use gpuslice_host::slices::meminfo_page;
use gpuslice_host::slices::records::{DeviceBudget, Member, Registry, SliceRecord};
use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The daemon is the same executable by another name.
const DAEMON: &str = env!("CARGO_BIN_EXE_gpuslice");

const UUID: &str = "GPU-b10aaaaa-4444-4555-8666-777788880000";

/// A host with 120 GiB whose slices have pages.
struct Host {
    root: TempDir,
    places: HostPaths,
    ledgers: Vec<Ledger>,
}

impl Host {
    fn new() -> Host {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = HostPaths::below(root.path());
        let host = Host {
            root,
            places,
            ledgers: Vec::new(),
        };
        host.has(115);
        host.waits(0);
        host
    }

    fn pressure(&self) -> PathBuf {
        self.root.path().join("pressure")
    }

    /// Sets the percentage of time in which all processes of the host wait for memory.
    fn waits(&self, percent: u32) {
        let line = |who| format!("{who} avg10={percent}.00 avg60=0.00 avg300=0.00 total=1\n");
        fs::write(self.pressure(), line("some") + &line("full")).unwrap();
    }

    fn meminfo(&self) -> PathBuf {
        self.root.path().join("host-meminfo")
    }

    /// Sets the host's MemAvailable.
    fn has(&self, gib: u64) {
        let kib = |gib: u64| Bytes::gib(gib).get() >> 10;
        let text = format!(
            "MemTotal: {} kB\nMemFree: 1 kB\nMemAvailable: {} kB\n",
            kib(120),
            kib(gib)
        );
        // In place: a reader must not find half of it.
        fs::write(self.root.path().join("new"), text).unwrap();
        fs::rename(self.root.path().join("new"), self.meminfo()).unwrap();
    }

    /// Records a slice as the hook does; its only process is this one.
    fn slice(&mut self, name: &str, gib: u64, has_page: bool) {
        let uuid: DeviceUuid = UUID.parse().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let record = SliceRecord {
            version: SliceRecord::VERSION,
            slice: name.to_owned(),
            name: name.to_owned(),
            namespace: None,
            shared: false,
            sandbox: None,
            named: None,
            devices: vec![DeviceBudget {
                uuid,
                memory: Bytes::gib(gib),
                integrated: true,
            }],
            promised: None,
            before_resize: None,
            containers: vec![Member {
                id: name.to_owned(),
                name: name.to_owned(),
                owner: InitProcess::of(own).unwrap(),
                bundle: "/bundle".into(),
                drops: Vec::new(),
                no_slice: None,
                not_limited: None,
                claims: None,
                pod: None,
            }],
        };
        let places = &self.places;
        let registry = Registry::lock(places).unwrap();
        let (root, ledger) = (places.container_root(name), places.ledger(name));
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(&ledger).unwrap();
        let text = format!(
            r#"{{"version": 1, "name": "{name}", "reserve": 8589934592, "pressure_file": "{}", "devices": [{{"uuid": "{UUID}", "memory": {}, "integrated": true}}]}}"#,
            self.pressure().display(),
            Bytes::gib(gib).get()
        );
        fs::write(root.join("slice.json"), text).unwrap();
        let ledger = CString::new(places.ledger_file(name).display().to_string()).unwrap();
        let (mode, devices) = (0o600, 1);
        let ledger = Ledger::open(&ledger, Open::Create { mode, devices }).unwrap();
        self.ledgers.push(ledger);
        let promise = file_name(Bytes::gib(gib), name).unwrap();
        fs::write(places.promises().join(promise), [0; SIZE]).unwrap();
        registry.write(&record).unwrap();
        if has_page {
            fs::create_dir_all(places.pages()).unwrap();
            fs::write(places.page(name), "").unwrap();
        }
    }

    fn allocate(&self, slice: usize, bytes: Bytes) {
        let uuid: DeviceUuid = UUID.parse().unwrap();
        let ledger = &self.ledgers[slice];
        let device = ledger.device(&uuid).unwrap();
        let claim = ledger.claim(device, bytes, Kind::Linear, Bytes::MAX);
        assert_eq!(claim, Claim::Granted);
    }

    /// Writes what a slice has spent, as its library does.
    fn spend(&self, name: &str, gib: u64, spent_gib: u64) {
        let promise = file_name(Bytes::gib(gib), name).unwrap();
        let mut text = [0; SIZE];
        text[..8].copy_from_slice(&spent(Bytes::gib(spent_gib)));
        fs::write(self.places.promises().join(promise), text).unwrap();
    }

    fn daemon(&self, executable: &Path, arguments: &[&str]) -> Command {
        let config = self.root.path().join("gpusliced.toml");
        fs::write(&config, "[meminfo]\n").unwrap();
        let mut command = Command::new(executable);
        command
            .arg0("gpusliced")
            .arg("--config")
            .arg(config)
            .arg("--root")
            .arg(self.root.path())
            .arg("--meminfo")
            .arg(self.meminfo())
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    fn start(&self) -> Running {
        let daemon = self.daemon(Path::new(DAEMON), &[]).spawn();
        Running(daemon.unwrap())
    }

    fn page(&self, name: &str) -> Option<HostMemory> {
        meminfo::parse(&fs::read(self.places.page(name)).unwrap())
    }

    /// Waits until a page shows so much free memory.
    fn shows(&self, name: &str, gib: u64) {
        let is = || {
            self.page(name)
                .is_some_and(|page| page.free == Bytes::gib(gib))
        };
        eventually(&format!("{name} has {gib} GiB"), is);
    }
}

/// gpusliced, which is killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_page_shows_the_rule_of_unified_memory() {
    let mut host = Host::new();
    host.slice("one", 40, true);
    host.slice("other", 60, true);
    host.slice("without", 1, false);
    let _daemon = host.start();
    host.shows("one", 40);
    host.shows("other", 60);
    let total = host.page("one").unwrap().total;
    assert_eq!(total, Bytes::gib(40));
    assert!(!host.places.page("without").exists());
    host.allocate(0, Bytes::gib(10));
    host.spend("one", 40, 10);
    host.has(105);
    host.shows("one", 30);
    host.shows("other", 60);
    // 80 - 8 - 60 - 1 are left to the first slice when something else takes host memory.
    host.has(80);
    host.shows("one", 11);
    // 80 - 8 - 30 - 1.
    host.shows("other", 41);
    assert_eq!(host.page("one").unwrap().available, Bytes::gib(11));
    // While all wait for memory, the host keeps twice its reserve.
    host.waits(9);
    host.shows("one", 3);
}

#[test]
fn a_slice_that_starts_later_has_a_page_and_one_that_ends_has_none() {
    let mut host = Host::new();
    host.slice("one", 40, true);
    let _daemon = host.start();
    host.shows("one", 40);
    host.slice("two", 20, true);
    host.shows("two", 20);
    let registry = Registry::lock(&host.places).unwrap();
    fs::remove_file(host.places.page("one")).unwrap();
    registry.remove("one").unwrap();
    drop(registry);
    host.allocate(1, Bytes::gib(1));
    host.shows("two", 19);
    assert!(!host.places.page("one").exists());
}

#[test]
fn what_a_dead_daemon_leaves_is_lowered_and_never_raised() {
    let mut host = Host::new();
    host.slice("one", 40, true);
    host.slice("two", 20, true);
    let daemon = host.start();
    host.shows("one", 40);
    host.shows("two", 20);
    assert!(meminfo_page::is_served(&host.places));
    drop(daemon);
    assert!(!meminfo_page::is_served(&host.places));
    host.allocate(0, Bytes::gib(10));
    let leave = || {
        let status = host.daemon(Path::new(DAEMON), &["--leave-pages"]).status();
        assert!(status.unwrap().success());
    };
    leave();
    host.shows("one", 30);
    host.shows("two", 20);
    // More memory than before is not promised: nobody would take it back.
    host.has(60);
    leave();
    host.shows("one", 30);
    host.shows("two", 12);
    host.has(115);
    leave();
    host.shows("two", 12);
    let _daemon = host.start();
    host.shows("two", 20);
}

/// The second one ended with an error, and its service started it again and again, without metrics.
#[test]
fn a_second_daemon_serves_metrics_and_takes_the_pages_over_later() {
    let mut host = Host::new();
    host.slice("one", 40, true);
    let first = host.start();
    host.shows("one", 40);
    let mut command = host.daemon(Path::new(DAEMON), &[]);
    let place = host.root.path();
    let (config, socket, log) = (
        place.join("gpusliced.toml"),
        place.join("metrics.sock"),
        place.join("stderr"),
    );
    let metrics = format!("[meminfo]\n[metrics]\nlisten = {socket:?}\n");
    fs::write(config, metrics).unwrap();
    let second = command.stderr(fs::File::create(&log).unwrap()).spawn();
    let mut second = Running(second.unwrap());
    let pages = host.places.pages().display().to_string();
    let writes = format!(
        "gpusliced: process {} already writes the meminfo pages in {pages}: this gpusliced takes the \
         pages over when that process ends\n",
        first.0.id()
    );
    let serves = format!("gpusliced: metrics are at {}\n", socket.display());
    let said = || {
        let text = fs::read_to_string(&log).unwrap();
        let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        lines.sort();
        lines
    };
    eventually("the second daemon serves", || {
        said() == [serves.as_str(), &writes]
    });
    host.allocate(0, Bytes::gib(1));
    host.shows("one", 39);
    drop(first);
    host.allocate(0, Bytes::gib(1));
    host.shows("one", 38);
    let takes = format!("gpusliced: writes the meminfo pages of slices in {pages} every 100 ms\n");
    assert_eq!(said(), [serves.as_str(), &writes, &takes]);
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nok\n"), "{answer}");
    assert!(second.0.try_wait().unwrap().is_none());
}
