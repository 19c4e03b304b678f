//! A cluster: its API server, scheduler and nodes, with the claims and pods of its users.
//! Touches: a temporary folder, mounts of a namespace of its own, child processes, sockets.

use crate::api_server::ApiServer;
use crate::scale::containers::{self, Container, Orphan, Place};
use crate::scale::node::{Machine, Node};
use crate::scale::random::Random;
use crate::scale::scheduler::{self, Offered, Part, Wanted};
use gpuslice_dra::api::ApiError;
use gpuslice_dra::base::log;
use gpuslice_dra::claims::prepare::PrepareError;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::CString;
use std::path::Path;
use std::sync::Mutex;
use tokio::runtime::Runtime;

/// The last lines that the drivers have logged.
static LOGGED: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Keeps the drivers' log lines for a failure.
pub fn keep_log() {
    log::redirect(|line| {
        let mut kept = LOGGED.lock().unwrap();
        kept.push_back(line.to_owned());
        if kept.len() > 20 {
            kept.pop_front();
        }
    });
}

pub struct Claim {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub wanted: Wanted,
    /// Each container uses one of the requests, not all of them.
    pub split: bool,
    /// It is deleted with its last pod, as one of a template is.
    pub of_template: bool,
    /// The node, and the parts of its devices.
    pub allocation: Option<(usize, Vec<Part>)>,
    pub pods: BTreeSet<usize>,
}

pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub sandbox: String,
    pub claims: Vec<usize>,
    pub containers: usize,
    pub node: Option<usize>,
}

#[derive(Debug, Default)]
pub struct Counts {
    pub steps: usize,
    pub claims: usize,
    pub allocated: usize,
    pub prepared: usize,
    pub containers: usize,
    pub real: usize,
    pub restarts: usize,
    pub kubelets: usize,
    pub drivers: usize,
    pub reboots: usize,
    pub late: usize,
    pub refusals: usize,
}

pub struct World {
    pub seed: u64,
    pub random: Random,
    pub runtime: Runtime,
    pub api: ApiServer,
    pub nodes: Vec<Node>,
    /// The devices of each node, as its ResourceSlice describes them.
    pub offered: Vec<Vec<Offered>>,
    /// The bytes of each device that are allocated.
    pub used: Vec<BTreeMap<String, u64>>,
    pub claims: BTreeMap<usize, Claim>,
    pub pods: BTreeMap<usize, Pod>,
    /// The CDI devices of each request of a prepared claim, which the kubelet keeps in a checkpoint.
    pub devices: BTreeMap<usize, Vec<(String, Vec<String>)>>,
    /// Containers that were killed, and are not deleted yet, with their nodes.
    pub late: Vec<(usize, String, Orphan)>,
    /// Deleted claims: namespace, name, uid and node.
    pub gone: Vec<(String, String, String, usize)>,
    pub counts: Counts,
    /// The last steps.
    pub trace: VecDeque<String>,
    /// One container of this many is real.
    real: usize,
    folder: tempfile::TempDir,
}

/// Gives this thread a mount namespace of its own.
fn own_mounts() {
    // SAFETY: the call changes this thread's namespace, and no memory.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    assert_eq!(unshared, 0, "it needs root");
    let (none, root) = (CString::new("none").unwrap(), CString::new("/").unwrap());
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    let no_data = std::ptr::null();
    // SAFETY: both texts end with a zero byte, and a change of propagation reads no data.
    let mounted = unsafe {
        libc::mount(
            none.as_ptr(),
            root.as_ptr(),
            std::ptr::null(),
            flags,
            no_data,
        )
    };
    assert_eq!(mounted, 0);
}

/// A temporary folder in memory: a hundred nodes write more often than a busy disk allows.
pub fn folder(prefix: &str) -> tempfile::TempDir {
    let folder = tempfile::Builder::new()
        .prefix(prefix)
        .tempdir_in("/dev/shm");
    folder.unwrap()
}

/// Writes credentials. They name an empty list of authorities, because the machine's own list takes
/// longer to read than all else at a driver's start.
pub fn kubeconfig(folder: &Path, api: &ApiServer) {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: \"http://{}\", \
         certificate-authority-data: Cg==}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n",
        api.address
    );
    std::fs::write(folder.join("kubeconfig"), text).unwrap();
}

impl World {
    pub fn new(seed: u64, count: usize, real: usize) -> World {
        keep_log();
        own_mounts();
        let mut random = Random::new(seed);
        let folder = folder("claims");
        let api = ApiServer::start();
        kubeconfig(folder.path(), &api);
        containers::shared_files(folder.path());
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        let mut nodes: Vec<Node> = (0..count)
            .map(|number| {
                let machine = match number % 10 {
                    0..=2 => Machine::Unified,
                    3 | 4 => Machine::Divided,
                    5 | 6 => Machine::Bounded(1 + random.below(8)),
                    _ => Machine::Cards(1 + random.below(8)),
                };
                Node::new(folder.path(), number, machine, &mut random)
            })
            .collect();
        nodes.iter_mut().for_each(|node| node.start(&runtime));
        let mut world = World {
            seed,
            random,
            runtime,
            api,
            offered: nodes.iter().map(|_| Vec::new()).collect(),
            used: vec![BTreeMap::new(); nodes.len()],
            nodes,
            claims: BTreeMap::new(),
            pods: BTreeMap::new(),
            devices: BTreeMap::new(),
            late: Vec::new(),
            gone: Vec::new(),
            counts: Counts::default(),
            trace: VecDeque::new(),
            real,
            folder,
        };
        (0..count).for_each(|node| world.sees_slice(node));
        world
    }

    /// The scheduler reads a node's slice.
    pub fn sees_slice(&mut self, node: usize) {
        self.nodes[node].until_published(&self.runtime, &self.api);
        let name = format!("{}.gpuslice.io", self.nodes[node].name);
        self.offered[node] = scheduler::offered(&self.api.kept().slices[&name]);
    }

    pub fn summary(&self) -> String {
        format!("{} nodes, {:?}", self.nodes.len(), self.counts)
    }

    pub fn says(&mut self, step: String) {
        self.trace.push_back(step);
        if self.trace.len() > 40 {
            self.trace.pop_front();
        }
    }

    /// Writes a claim to the API server.
    pub fn writes_claim(&self, number: usize) {
        let claim = &self.claims[&number];
        let allocation = claim.allocation.as_ref();
        let allocation =
            allocation.map(|(node, parts)| (self.nodes[*node].name.as_str(), &**parts));
        let name = (&*claim.namespace, &*claim.name, &*claim.uid);
        self.api
            .add_claim(scheduler::claim(name, &claim.wanted, allocation));
    }

    /// Finds a node for a pod, and allocates its claims.
    pub fn schedule(&mut self, number: usize) -> bool {
        let pod = &self.pods[&number];
        let claims = pod.claims.clone();
        let bound = claims
            .iter()
            .find_map(|claim| self.claims[claim].allocation.as_ref());
        let count = self.nodes.len();
        let places: Vec<usize> = match bound {
            Some((node, _)) => vec![*node],
            None => {
                // Full nodes come first mostly, so that claims meet each other.
                let first = if self.random.percent(60) {
                    0
                } else {
                    self.random.below(count)
                };
                (0..count).map(|place| (first + place) % count).collect()
            }
        };
        for node in places {
            let mut used = None;
            let mut found = Vec::new();
            for claim in &claims {
                let Claim {
                    wanted, allocation, ..
                } = &self.claims[claim];
                if allocation.is_some() {
                    continue;
                }
                let beside = used.as_ref().unwrap_or(&self.used[node]);
                let devices = &self.offered[node];
                let parts = scheduler::allocate(devices, beside, wanted, &mut self.random);
                let Some(parts) = parts else { break };
                let used = used.get_or_insert_with(|| self.used[node].clone());
                for part in &parts {
                    *used.entry(part.device.clone()).or_default() += part.memory;
                }
                found.push((*claim, parts));
            }
            let open = claims
                .iter()
                .filter(|claim| self.claims[claim].allocation.is_none());
            if found.len() < open.count() {
                continue;
            }
            if let Some(used) = used {
                self.used[node] = used;
            }
            for (claim, parts) in found {
                self.counts.allocated += 1;
                self.claims.get_mut(&claim).unwrap().allocation = Some((node, parts));
                self.writes_claim(claim);
            }
            self.pods.get_mut(&number).unwrap().node = Some(node);
            return true;
        }
        false
    }

    /// The kubelet prepares a claim.
    pub fn prepare(&mut self, node: usize, number: usize) {
        let claim = &self.claims[&number];
        let name = (&*claim.namespace, &*claim.name, &*claim.uid);
        // The kubelet asks again. On a busy machine the API server may take too long.
        let mut prepared = self.nodes[node].prepare(&self.runtime, name);
        for _ in 0..20 {
            let is_late = |error: &ApiError| error.code().is_none();
            match &prepared {
                Err(PrepareError::Api(error)) if is_late(error) => {
                    prepared = self.nodes[node].prepare(&self.runtime, name);
                }
                _ => break,
            }
        }
        let prepared = prepared.unwrap_or_else(|error| panic!("{name:?} is not prepared: {error}"));
        self.counts.prepared += 1;
        let all = prepared.into_iter().map(|one| (one.request, one.cdi));
        let before = self.devices.insert(number, all.collect());
        let is_known = self.nodes[node]
            .prepared
            .contains_key(&self.claims[&number].uid);
        if let Some(before) = before.filter(|_| is_known) {
            assert_eq!(
                before, self.devices[&number],
                "prepared again, with another result"
            );
        }
    }

    /// Starts a container of a pod, and returns why it does not start.
    pub fn start(
        &mut self,
        pod: usize,
        container: usize,
        annotation: Option<&str>,
    ) -> Result<(), String> {
        let Pod {
            namespace,
            name,
            uid,
            sandbox,
            claims,
            node,
            ..
        } = &self.pods[&pod];
        let (node, claims) = (node.unwrap(), claims.clone());
        let (namespace, name, uid, sandbox) = (
            namespace.clone(),
            name.clone(),
            uid.clone(),
            sandbox.clone(),
        );
        let mut devices = Vec::new();
        for claim in claims {
            let all = self.devices[&claim].clone();
            let count = all.len();
            let split = self.claims[&claim].split;
            let own = all.into_iter().enumerate();
            let own = own.filter(|(place, _)| !split || place % count == container % count);
            devices.extend(own.flat_map(|(_, (_, devices))| devices));
        }
        let id = self.random.id();
        let is_real = self.random.below(self.real) == 0;
        let place = Place {
            namespace: &namespace,
            pod: &name,
            uid: &uid,
            sandbox: &sandbox,
            container,
        };
        let node = &mut self.nodes[node];
        let started = Container::start(node, &place, pod, &id, &devices, annotation, is_real)?;
        self.counts.containers += 1;
        self.counts.real += usize::from(started.is_real());
        node.running.insert(id, started);
        Ok(())
    }

    /// Starts all containers of a pod that has a node. Returns false if the hook refuses what the
    /// scheduler cannot know: the policy's maximum is that of a container, but the scheduler compares
    /// each request with it (LIMITS.md).
    pub fn start_all(&mut self, pod: usize) -> bool {
        for container in 0..self.pods[&pod].containers {
            if let Err(refused) = self.start(pod, container, None) {
                let claims = self.pods[&pod].claims.iter();
                let requests = claims.map(|claim| self.claims[claim].wanted.requests.len());
                let is_maximum = refused.contains("policy allows a container to have of a GPU");
                assert!(is_maximum && requests.sum::<usize>() > 1, "{refused}");
                self.counts.refusals += 1;
                return false;
            }
        }
        true
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!(
                "GPUSLICE_CLAIMS_SEED={} in step {}",
                self.seed, self.counts.steps
            );
            self.trace.iter().for_each(|step| println!("  {step}"));
            LOGGED
                .lock()
                .unwrap()
                .iter()
                .for_each(|line| println!("  driver: {line}"));
        }
        self.nodes.clear();
        // The folder's own removal would fail silently.
        let _ = std::fs::remove_dir_all(self.folder.path());
    }
}
