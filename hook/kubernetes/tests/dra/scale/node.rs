//! A simulated node: its folders, its GPUs, the driver's own code, and the kubelet's memory of claims.
//! Touches: a folder, mounts below it, tasks of the runtime.

use crate::api_server::ApiServer;
use crate::scale::containers::Container;
use crate::scale::random::Random;
use gpuslice_dra::api::Cluster;
use gpuslice_dra::base::settings::Settings;
use gpuslice_dra::claims::prepare::{self, Named, PrepareError, Prepared};
use gpuslice_dra::publish::keep::Keeper;
use gpuslice_dra::ready::state::State;
use gpuslice_host::base::paths::HostPaths;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use clap::Parser;

const GIB: u64 = 1 << 30;

/// A CDI file: its name, inode and time of change.
type CdiFile = (String, u64, i64);

/// The GPUs of a node.
#[derive(Clone, Copy, Debug)]
pub enum Machine {
    /// Cards of 24 GiB.
    Cards(usize),
    /// GPUs of 80 GiB, on a node whose policy has a maximum for a container.
    Bounded(usize),
    /// A GPU that MIG divides into seven instances, beside one that it does not divide.
    Divided,
    /// A GPU that shares the host's 120 GiB.
    Unified,
}

/// The driver of a node: its tasks, and what they keep in memory.
struct Driver {
    cluster: Cluster,
    wake: Arc<Notify>,
    tasks: Vec<JoinHandle<()>>,
}

pub struct Node {
    pub name: String,
    pub settings: Settings,
    pub paths: HostPaths,
    /// The bytes of each device that may be promised, by the lower-case uuid.
    pub sizes: BTreeMap<String, u64>,
    /// The claims that the kubelet has prepared, with their pods.
    pub prepared: BTreeMap<String, BTreeSet<usize>>,
    /// The devices that each CDI file gives, with the bytes.
    pub promises: RefCell<BTreeMap<CdiFile, Vec<(String, u64)>>>,
    /// The running containers, by id.
    pub running: BTreeMap<String, Container>,
    root: PathBuf,
    list: String,
    driver: Option<Driver>,
}

/// Writes a file that the host's root owns and others cannot change.
fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
}

impl Node {
    pub fn new(folder: &Path, number: usize, machine: Machine, random: &mut Random) -> Node {
        let name = format!("node{number}");
        let root = folder.join(&name);
        let paths = HostPaths::below(&root);
        let mut sizes = BTreeMap::new();
        let mut entries = Vec::new();
        let (count, memory, model, policy) = match machine {
            Machine::Cards(count) => (count, 25_438_126_080, "NVIDIA GeForce RTX 3090", ""),
            Machine::Bounded(count) => {
                let policy = "[maximum]\ncontainer = \"40GiB\"\n";
                (
                    count,
                    80 * GIB + 12_345_678,
                    "NVIDIA H100 80GB HBM3",
                    policy,
                )
            }
            Machine::Divided => (2, 80 * GIB, "NVIDIA H100 80GB HBM3", ""),
            Machine::Unified => (1, 120 * GIB, "NVIDIA GB10", ""),
        };
        let mut toolkit = String::from("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n");
        for index in 0..count {
            let uuid = format!("GPU-{}", random.uid());
            let integrated = matches!(machine, Machine::Unified);
            let mut instances = Vec::new();
            if matches!(machine, Machine::Divided) && index == 0 {
                for _ in 0..7 {
                    let instance = format!("MIG-{}", random.uid());
                    toolkit += &format!("  - name: {instance}\n");
                    let memory = 10_468_982_784_u64;
                    sizes.insert(instance.to_lowercase(), memory);
                    instances.push(format!(r#"{{"uuid":"{instance}","memory":{memory}}}"#));
                }
            } else {
                // 120 GiB less 8 GiB for the host.
                let own = if integrated { 112 * GIB } else { memory };
                sizes.insert(uuid.to_lowercase(), own);
            }
            entries.push(format!(
                r#"{{"uuid":"{uuid}","index":{index},"minor":{index},"name":"{model}",
                    "memory":{memory},"integrated":{integrated},"mig":[{}]}}"#,
                instances.join(",")
            ));
        }
        let list = format!(r#"{{"version":1,"devices":[{}]}}"#, entries.join(","));
        write(
            &root.join("etc/gpuslice/config.toml"),
            &format!("driver-limits = \"off\"\n{policy}"),
        );
        write(&root.join("etc/cdi/nvidia.yaml"), &toolkit);
        let total = (120 * GIB) >> 10;
        let meminfo =
            format!("MemTotal: {total} kB\nMemFree: {total} kB\nMemAvailable: {total} kB\n");
        write(&root.join("proc/meminfo"), &meminfo);
        let hook = root.join("usr/bin/gpuslice-hook");
        write(&hook, "#!/bin/sh\n");
        fs::set_permissions(hook, Permissions::from_mode(0o755)).unwrap();
        let library = root.join("usr/lib/gpuslice/libgpuslice.so");
        fs::create_dir_all(library.parent().unwrap()).unwrap();
        fs::hard_link(folder.join("libgpuslice.so"), library).unwrap();
        let text = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let settings = Settings::parse_from([
            "gpuslice-dra".to_owned(),
            format!("--node-name={name}"),
            format!("--host-root={}", root.display()),
            format!("--plugins={}", text("plugins")),
            format!("--plugins-registry={}", text("registry")),
            format!("--cdi={}", text("cdi")),
            format!("--kubeconfig={}", folder.join("kubeconfig").display()),
        ]);
        fs::create_dir_all(settings.folder()).unwrap();
        let node = Node {
            name,
            settings,
            paths,
            sizes,
            prepared: BTreeMap::new(),
            promises: RefCell::default(),
            running: BTreeMap::new(),
            root,
            list,
            driver: None,
        };
        node.list_devices();
        node
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// What `gpuslice devices --write` does when the node starts.
    fn list_devices(&self) {
        write(&self.paths.devices(), &self.list);
    }

    /// The node's list has one GPU less.
    pub fn loses_a_gpu(&self) {
        let mut list: serde_json::Value = serde_json::from_str(&self.list).unwrap();
        list["devices"].as_array_mut().unwrap().pop();
        write(&self.paths.devices(), &list.to_string());
    }

    /// Starts the driver's own code.
    pub fn start(&mut self, runtime: &Runtime) {
        let settings = Arc::new(self.settings.clone());
        let cluster = runtime.block_on(Cluster::connect(&settings)).unwrap();
        let wake = Arc::new(Notify::new());
        let keeper = Keeper {
            state: Arc::new(State::new(settings.ready_file())),
            settings,
            cluster: cluster.clone(),
            registered: Arc::new(AtomicBool::new(true)),
            wake: Arc::clone(&wake),
            published: watch::Sender::default(),
            pressure: watch::Sender::default(),
        };
        let tasks = vec![
            runtime.spawn(keeper.clone().keep()),
            runtime.spawn(keeper.watch()),
        ];
        self.driver = Some(Driver {
            cluster,
            wake,
            tasks,
        });
    }

    /// Ends the driver without a word, as SIGKILL does.
    pub fn kill(&mut self) {
        for task in self
            .driver
            .take()
            .into_iter()
            .flat_map(|driver| driver.tasks)
        {
            task.abort();
        }
    }

    /// The kubelet has registered the driver.
    pub fn registered(&self) {
        self.driver.as_ref().unwrap().wake.notify_one();
    }

    /// Calls NodePrepareResources for a claim.
    pub fn prepare(
        &self,
        runtime: &Runtime,
        (namespace, name, uid): (&str, &str, &str),
    ) -> Result<Vec<Prepared>, PrepareError> {
        let named = Named {
            namespace,
            name,
            uid,
        };
        let cluster = &self.driver.as_ref().unwrap().cluster;
        runtime.block_on(prepare::prepare(&self.settings, cluster, named))
    }

    /// Calls NodeUnprepareResources for a claim.
    pub fn unprepare(&self, uid: &str) {
        prepare::unprepare(&self.settings, uid).unwrap();
    }

    /// The files in the folder of CDI files, by name.
    pub fn cdi_files(&self) -> BTreeSet<String> {
        let files = fs::read_dir(&self.settings.cdi).into_iter().flatten();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    /// Power fails: all processes end, and /run is empty when the node is back.
    pub fn reboots(&mut self) {
        self.kill();
        // The containers' processes end when they are dropped.
        self.running.clear();
        self.unmount();
        for name in ["run", "cdi", "registry"] {
            let path = self.path(name);
            assert!(
                !path.exists() || fs::remove_dir_all(path).is_ok(),
                "{name} is in use"
            );
        }
        self.list_devices();
    }

    fn unmount(&self) {
        // The thread has mounts of its own.
        let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let own = format!("{}/", self.root.display());
        for line in table.lines().rev() {
            let place = line.split(' ').nth(4).unwrap();
            if place.starts_with(&own) {
                let place = CString::new(place).unwrap();
                // SAFETY: the text ends with a zero byte, and the call has no other effect on memory.
                let _ = unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) };
            }
        }
    }

    /// The files that slices have left on this host.
    pub fn left(&self) -> Vec<String> {
        let folders = ["slices", "containers", "ledgers", "promises", "tenants"];
        let names = folders.iter().flat_map(|folder| {
            let listed = fs::read_dir(self.path("run/gpuslice").join(folder));
            let listed = listed.into_iter().flatten();
            listed.map(move |entry| format!("{folder}/{}", entry.unwrap().file_name().display()))
        });
        names.chain(self.cdi_files()).collect()
    }

    /// Waits until the API server has this node's slice.
    pub fn until_published(&self, runtime: &Runtime, api: &ApiServer) {
        let name = format!("{}.gpuslice.io", self.name);
        runtime.block_on(async {
            for _ in 0..6000 {
                if api.kept().slices.contains_key(&name) {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            panic!("{name} is not published");
        });
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        self.running.clear();
        self.unmount();
    }
}
