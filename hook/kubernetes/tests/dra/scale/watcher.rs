//! What must hold after each step.
//! Touches: the node's files, by reading them.
//! Law: the numbers are added up anew, from the claims of the API server, from the CDI files and
//! from the hook's records, and never taken from the scheduler's own accounts.

use crate::scale::scheduler::amount;
use crate::scale::world::World;
use gpuslice_host::slices::records;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

type Sums = BTreeMap<String, u64>;

fn within(what: &str, sums: &Sums, sizes: &Sums) {
    for (device, sum) in sums {
        let size = sizes.get(device);
        let size = size.unwrap_or_else(|| panic!("{what}: there is no {device}"));
        assert!(sum <= size, "{what}: {sum} of {size} bytes of {device}");
    }
}

/// The devices of a CDI file, with the bytes that its hooks give.
fn promises(path: &Path) -> Vec<(String, u64)> {
    let file: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let promise = |device: &Value| {
        let arguments = device["containerEdits"]["hooks"][0]["args"].as_array();
        let mut arguments = arguments.unwrap().iter().filter_map(Value::as_str);
        assert!(arguments.any(|one| one == "--memory"));
        let (uuid, bytes) = arguments.next().unwrap().split_once('=').unwrap();
        (uuid.to_lowercase(), bytes.parse().unwrap())
    };
    file["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(promise)
        .collect()
}

impl World {
    pub fn check(&self, number: usize) {
        self.devices_are_offered_as_they_are(number);
        let allocated = self.allocations_fit(number);
        let promised = self.files_are_those_of_the_claims(number);
        for (device, promised) in &promised {
            let allocated = allocated.get(device).copied().unwrap_or_default();
            assert!(
                *promised <= allocated,
                "{device}: {promised} of {allocated} allocated bytes"
            );
        }
        self.records_are_those_of_the_containers(number);
    }

    fn devices_are_offered_as_they_are(&self, number: usize) {
        let node = &self.nodes[number];
        let capacities = self.offered[number].iter();
        let capacities = capacities.map(|one| (one.name.clone(), one.capacity));
        let capacities: Sums = capacities.collect();
        within("offered", &capacities, &node.sizes);
        assert_eq!(capacities.len(), node.sizes.len());
    }

    /// Adds up what the claims were given, by the API server's objects.
    fn allocations_fit(&self, number: usize) -> Sums {
        let node = &self.nodes[number];
        let kept = self.api.kept();
        let mut sums = Sums::new();
        let own = self.claims.values().filter(|claim| {
            let allocation = claim.allocation.as_ref();
            allocation.is_some_and(|(node, _)| *node == number)
        });
        for claim in own {
            let key = (claim.namespace.clone(), claim.name.clone());
            let results = &kept.claims[&key]["status"]["allocation"]["devices"]["results"];
            for result in results.as_array().unwrap() {
                assert_eq!(result["pool"], node.name);
                let consumed = result["consumedCapacity"]["memory"].as_str().unwrap();
                let device = result["device"].as_str().unwrap().to_owned();
                *sums.entry(device).or_default() += amount(&Quantity(consumed.to_owned()));
            }
        }
        within("allocated", &sums, &node.sizes);
        sums
    }

    /// There is a file for each claim that the kubelet has prepared, and no other file. Returns what
    /// they promise.
    fn files_are_those_of_the_claims(&self, number: usize) -> Sums {
        let node = &self.nodes[number];
        let uids = node.prepared.keys();
        let expected = uids.map(|uid| format!("k8s.gpuslice.io-claim-{uid}.json"));
        assert_eq!(
            node.cdi_files(),
            expected.collect(),
            "{}: CDI files",
            node.name
        );
        let mut sums = Sums::new();
        let mut read = node.promises.borrow_mut();
        let mut kept = BTreeMap::new();
        for file in node.cdi_files() {
            let path = node.settings.cdi.join(&file);
            let facts = fs::metadata(&path).unwrap();
            let key = (file, facts.ino(), facts.ctime_nsec());
            let promised = read.remove(&key).unwrap_or_else(|| promises(&path));
            for (device, bytes) in &promised {
                *sums.entry(device.clone()).or_default() += bytes;
            }
            kept.insert(key, promised);
        }
        *read = kept;
        within("promised by files", &sums, &node.sizes);
        sums
    }

    /// Each running container is in one record, and each record has a container.
    fn records_are_those_of_the_containers(&self, number: usize) {
        let node = &self.nodes[number];
        let records = records::records(&node.paths).unwrap();
        let mut sums = Sums::new();
        let mut members = BTreeSet::new();
        let mut slices = BTreeSet::new();
        for record in &records {
            let mut lives = false;
            for member in &record.containers {
                let running = node.running.get(&member.id);
                let is_late = self.late.iter().any(|(_, id, _)| *id == member.id);
                assert!(
                    running.is_some() || is_late,
                    "{record:?} has a container that is gone"
                );
                let Some(running) = running else { continue };
                lives = true;
                assert_eq!(record.named.as_deref(), Some(&*running.slices.join(",")));
                assert!(
                    members.insert(&member.id),
                    "{} is in two records",
                    member.id
                );
            }
            slices.insert(record.slice.clone());
            for budget in record.devices.iter().filter(|_| lives) {
                let device = budget.uuid.to_string().to_lowercase();
                *sums.entry(device).or_default() += budget.memory.get();
            }
        }
        within("recorded", &sums, &node.sizes);
        let running: BTreeSet<&String> = node.running.keys().collect();
        assert_eq!(members, running, "{}: containers with a record", node.name);
        let ledgers = fs::read_dir(node.paths.ledgers()).into_iter().flatten();
        let ledgers = ledgers.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert_eq!(
            ledgers.collect::<BTreeSet<_>>(),
            slices,
            "{}: ledgers",
            node.name
        );
    }
}
