//! An API server that keeps ResourceSlices, and answers claims and a node.
//! Touches: a socket on 127.0.0.1, threads.

use crate::http_server::{self, Answer, Asked, Traffic};
use crate::request::Target;
use crate::{api_reports, rules};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// What the server keeps, and how it misbehaves.
#[derive(Default)]
pub struct Kept {
    pub slices: BTreeMap<String, Value>,
    /// By namespace and name.
    pub claims: BTreeMap<(String, String), Value>,
    /// The engine of the node.
    pub engine: String,
    /// By namespace and name.
    pub events: BTreeMap<(String, String), Value>,
    /// All requests, as `GET /path`.
    pub asked: Vec<String>,
    /// The permissions that they need.
    pub permissions: BTreeSet<String>,
    /// Kubernetes before 1.34.
    pub has_no_v1: bool,
    /// The gate DRAConsumableCapacity is off.
    pub drops_sharing: bool,
    /// The gate of node-allocatable mappings is off.
    pub drops_mappings: bool,
    /// A release whose mappings have another form.
    pub refuses_mappings: bool,
    /// The gate of taints is off.
    pub drops_taints: bool,
    /// The driver has no permission.
    pub forbids: bool,
    /// It has none for reports: the status of claims, and events.
    pub forbids_reports: bool,
    /// An admission policy denies all reports in this namespace.
    pub denies: Option<String>,
    /// The next writes find that others have changed the object.
    pub conflicts: u32,
    /// Before the next replacement the slice is deleted.
    pub deletes_before_replacement: bool,
    /// How often the server has ended the watches of a node.
    watch_ends: BTreeMap<String, u64>,
    version: u64,
    /// All changes of slices, by version.
    pub changes: Vec<(u64, Value)>,
}

/// The server.
#[derive(Clone)]
pub struct ApiServer {
    kept: Arc<(Mutex<Kept>, Condvar)>,
    traffic: Arc<Mutex<Traffic>>,
    pub address: SocketAddr,
}

impl ApiServer {
    pub fn start() -> ApiServer {
        let kept = Kept {
            engine: "containerd://2.1.9".to_owned(),
            drops_mappings: true,
            ..Kept::default()
        };
        let kept = Arc::new((Mutex::new(kept), Condvar::new()));
        let own = Arc::clone(&kept);
        let traffic = Arc::default();
        let address = http_server::start(Arc::clone(&traffic), move |asked| answer(&own, asked));
        ApiServer {
            kept,
            traffic,
            address,
        }
    }

    /// The requests and the bytes until now.
    pub fn traffic(&self) -> Traffic {
        self.traffic.lock().unwrap().clone()
    }

    /// Ends the watches of a node, as the server does after the time that they ask for.
    pub fn end_watches(&self, node: &str) {
        *self.kept().watch_ends.entry(node.to_owned()).or_default() += 1;
        self.kept.1.notify_all();
    }

    pub fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.0.lock().unwrap()
    }

    /// Deletes all slices, as the kubelet does when it starts.
    pub fn wipe(&self) {
        let mut kept = self.kept();
        for (name, slice) in std::mem::take(&mut kept.slices) {
            kept.change("DELETED", &name, &slice);
        }
        self.kept.1.notify_all();
    }

    /// Deletes the slices of one node.
    pub fn wipe_node(&self, node: &str) {
        let mut kept = self.kept();
        let own = |slice: &Value| slice["spec"]["nodeName"] == node;
        let own: Vec<String> = kept
            .slices
            .iter()
            .filter(|(_, slice)| own(slice))
            .map(|(name, _)| name.clone())
            .collect();
        for name in own {
            let slice = kept.slices.remove(&name).unwrap();
            kept.change("DELETED", &name, &slice);
        }
        self.kept.1.notify_all();
    }

    /// Changes a slice as another client does.
    pub fn meddle(&self, change: impl Fn(&mut Value)) {
        let mut kept = self.kept();
        let (name, mut slice) = kept.slices.clone().pop_first().unwrap();
        change(&mut slice);
        kept.put(&name, slice);
        self.kept.1.notify_all();
    }

    pub fn add_claim(&self, claim: Value) {
        let text = |key: &str| claim["metadata"][key].as_str().unwrap().to_owned();
        let name = (text("namespace"), text("name"));
        self.kept().claims.insert(name, claim);
    }

    /// Waits until the slices are such.
    pub fn until(&self, what: &str, is: impl Fn(&Kept) -> bool) -> MutexGuard<'_, Kept> {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let kept = self.kept();
            if is(&kept) {
                return kept;
            }
            assert!(Instant::now() < end, "{what}: {:#?}", kept.slices);
            drop(kept);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Kept {
    /// The generation of the only slice.
    pub fn generation(&self) -> i64 {
        let mut all = self.slices.values();
        let generation = |slice: &Value| slice["spec"]["pool"]["generation"].as_i64();
        all.next().and_then(generation).unwrap_or_default()
    }

    fn put(&mut self, name: &str, mut slice: Value) -> Value {
        let kind = match self.slices.get(name) {
            Some(old) => {
                slice["metadata"]["uid"] = old["metadata"]["uid"].clone();
                "MODIFIED"
            }
            None => {
                let uid = format!("00000000-0000-4000-8000-{:012}", self.version);
                slice["metadata"]["uid"] = json!(uid);
                "ADDED"
            }
        };
        for device in slice["spec"]["devices"].as_array_mut().unwrap() {
            let device = device.as_object_mut().unwrap();
            if self.drops_mappings {
                device.remove("nodeAllocatableResourceMappings");
            }
            if self.drops_taints {
                device.remove("taints");
            }
            let taints = device.get_mut("taints").and_then(Value::as_array_mut);
            for taint in taints.into_iter().flatten() {
                if taint.get("timeAdded").is_none() {
                    taint["timeAdded"] = json!(format!("2026-11-25T10:00:{:02}Z", self.version));
                }
            }
            if self.drops_sharing {
                device.remove("allowMultipleAllocations");
                let memory = &mut device["capacity"]["memory"];
                memory.as_object_mut().unwrap().remove("requestPolicy");
            }
        }
        self.version += 1;
        slice["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.slices.insert(name.to_owned(), slice.clone());
        self.changes
            .push((self.version, json!({"type": kind, "object": slice})));
        slice
    }

    fn change(&mut self, kind: &str, name: &str, slice: &Value) {
        assert!(!self.slices.contains_key(name));
        self.version += 1;
        let change = json!({"type": kind, "object": slice});
        self.changes.push((self.version, change));
    }
}

pub fn refusal(code: u16, reason: &str, message: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    Answer::Whole(code, status)
}

fn selected(slice: &Value, selector: &str) -> bool {
    selector.split(',').all(|term| match term.split_once('=') {
        Some(("spec.driver", driver)) => slice["spec"]["driver"] == driver,
        Some(("spec.nodeName", node)) => slice["spec"]["nodeName"] == node,
        _ => panic!("no such selector: {term}"),
    })
}

fn answer(all: &Arc<(Mutex<Kept>, Condvar)>, asked: &Asked) -> Answer {
    let mut kept = all.0.lock().unwrap();
    kept.asked.push(format!("{} {}", asked.method, asked.path));
    let target = Target::of(&asked.path);
    kept.permissions.extend(target.permissions(asked));
    let before = kept.version;
    let answer = match asked.path.strip_prefix(SLICES) {
        Some(_) if kept.has_no_v1 => refusal(404, "NotFound", "404 page not found"),
        Some(_) if kept.forbids => refusal(403, "Forbidden", "resourceslices is forbidden"),
        Some("") if asked.query("watch").is_some() => return watch(all, asked),
        Some(name) => slices(&mut kept, asked, name.trim_start_matches('/')),
        None if asked.method != "GET" => api_reports::answer(&mut kept, asked, &target),
        None => other(&kept, asked),
    };
    let is_changed = kept.version != before;
    drop(kept);
    // A thousand watchers are woken for a change only.
    if is_changed {
        all.1.notify_all();
    }
    answer
}

fn other(kept: &Kept, asked: &Asked) -> Answer {
    let parts: Vec<&str> = asked.path.split('/').skip(1).collect();
    match parts.as_slice() {
        ["api", "v1", "nodes", node] => Answer::Whole(
            200,
            json!({
                "kind": "Node", "apiVersion": "v1",
                "metadata": {"name": node, "uid": "6f5a0c1e-90c9-4be7-a4c9-3a1b7d0f9a11"},
                "status": {"nodeInfo": {
                    "architecture": "amd64", "bootID": "", "containerRuntimeVersion": kept.engine,
                    "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "v1.36.2",
                    "machineID": "", "operatingSystem": "linux", "osImage": "", "systemUUID": "",
                }},
            }),
        ),
        [
            "apis",
            "resource.k8s.io",
            "v1",
            "namespaces",
            namespace,
            "resourceclaims",
            name,
        ] => {
            let key = ((*namespace).to_owned(), (*name).to_owned());
            match kept.claims.get(&key) {
                Some(claim) => Answer::Whole(200, claim.clone()),
                None => refusal(
                    404,
                    "NotFound",
                    &format!("resourceclaims.resource.k8s.io \"{name}\" not found"),
                ),
            }
        }
        _ => refusal(
            404,
            "NotFound",
            "the server could not find the requested resource",
        ),
    }
}

fn slices(kept: &mut Kept, asked: &Asked, name: &str) -> Answer {
    if asked.method == "GET" && name.is_empty() {
        let selector = asked.query("fieldSelector").unwrap();
        let items = kept
            .slices
            .values()
            .filter(|slice| selected(slice, selector));
        let items: Vec<&Value> = items.collect();
        let version = kept.version.to_string();
        return Answer::Whole(
            200,
            json!({
                "kind": "ResourceSliceList", "apiVersion": "resource.k8s.io/v1",
                "metadata": {"resourceVersion": version}, "items": items,
            }),
        );
    }
    if asked.method != "DELETE" && kept.conflicts > 0 {
        kept.conflicts -= 1;
        return refusal(409, "Conflict", "the object has been modified");
    }
    if asked.method == "PUT" && std::mem::take(&mut kept.deletes_before_replacement) {
        kept.slices.remove(name);
    }
    if asked.method == "DELETE" {
        return match kept.slices.remove(name) {
            Some(slice) => {
                kept.change("DELETED", name, &slice);
                Answer::Whole(200, slice)
            }
            None => refusal(404, "NotFound", "not found"),
        };
    }
    let slice = match rules::check(&asked.body) {
        Ok(slice) => slice,
        Err(broken) => return refusal(422, "Invalid", &broken),
    };
    let text = slice.to_string();
    if kept.refuses_mappings && text.contains("nodeAllocatableResourceMappings") {
        let broken = "spec.devices[0].nodeAllocatableResourceMappings: Invalid value";
        return refusal(422, "Invalid", broken);
    }
    let own = slice["metadata"]["name"].as_str().unwrap().to_owned();
    let is_dry_run = asked.query("dryRun") == Some("All");
    let before = (kept.slices.clone(), kept.version, kept.changes.len());
    let answer = match (asked.method.as_str(), kept.slices.get(&own)) {
        ("POST", None) => Answer::Whole(201, kept.put(&own, slice)),
        ("POST", Some(_)) => refusal(409, "AlreadyExists", "already exists"),
        ("PUT", None) => refusal(404, "NotFound", "not found"),
        ("PUT", Some(old)) => {
            let is_same = ["resourceVersion", "uid"]
                .iter()
                .all(|key| slice["metadata"][*key] == old["metadata"][*key]);
            match is_same && own == name {
                true => Answer::Whole(200, kept.put(&own, slice)),
                false => refusal(409, "Conflict", "the object has been modified"),
            }
        }
        _ => refusal(405, "MethodNotAllowed", "method not allowed"),
    };
    if is_dry_run {
        (kept.slices, kept.version) = (before.0, before.1);
        kept.changes.truncate(before.2);
    }
    answer
}

/// The slices of this moment as added, then all changes.
fn watch(all: &Arc<(Mutex<Kept>, Condvar)>, asked: &Asked) -> Answer {
    assert_eq!(asked.query("resourceVersion"), Some("0"));
    let selector = asked.query("fieldSelector").unwrap().to_owned();
    let node = selector.rsplit_once('=').unwrap().1.to_owned();
    let all = Arc::clone(all);
    let mut seen = None;
    Answer::Lines(Box::new(move || {
        let mut kept = all.0.lock().unwrap();
        let now = kept.watch_ends.get(&node).copied();
        let Some((last, ends)) = seen else {
            seen = Some((kept.version, now));
            let now = kept
                .slices
                .values()
                .filter(|slice| selected(slice, &selector));
            return Some(
                now.map(|it| json!({"type": "ADDED", "object": it}))
                    .collect(),
            );
        };
        if now == ends && kept.version == last {
            let wait = Duration::from_secs(20);
            kept = all.1.wait_timeout(kept, wait).unwrap().0;
        }
        if kept.watch_ends.get(&node).copied() != ends {
            return None;
        }
        seen = Some((kept.version, ends));
        let old = kept
            .changes
            .partition_point(|(version, _)| *version <= last);
        let new = kept.changes[old..].iter();
        let new = new.map(|(_, change)| change.clone());
        Some(
            new.filter(|it| selected(&it["object"], &selector))
                .collect(),
        )
    }))
}
