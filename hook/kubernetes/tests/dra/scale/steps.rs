//! The random steps of a cluster's users, kubelets, drivers and machines.
//! Touches: what [`World`] touches.

use crate::scale::scheduler::{Request, Wanted};
use crate::scale::world::{Claim, Pod, World};
use std::collections::BTreeSet;
use std::fs;

/// Amounts as users write them: too small, between two steps, decimal, usual, and too large.
const AMOUNTS: [&str; 15] = [
    "1Mi",
    "256Mi",
    "1000Mi",
    "1500M",
    "2Gi",
    "3.3Gi",
    "4Gi",
    "8Gi",
    "8589934593",
    "12e9",
    "10Gi",
    "20Gi",
    "40Gi",
    "60Gi",
    "4Ti",
];

/// The pods of a cluster that waits for room.
const PODS: usize = 900;

impl World {
    /// Takes random steps until this many claims were made.
    pub fn run(&mut self, claims: usize) {
        while self.counts.claims < claims {
            self.step();
        }
    }

    fn step(&mut self) {
        self.counts.steps += 1;
        let is_full = self.pods.len() > PODS;
        let node = match self.random.below(100) {
            0..=33 if !is_full => self.creates(),
            0..=60 => self.deletes(),
            61..=73 => self.restarts(),
            74..=81 => self.kills_container(),
            82 | 83 => self.kubelet_restarts(),
            84 | 85 => self.driver_dies(),
            86 => self.reboots(),
            87..=91 => self.asks_for_another_claim(),
            92..=94 => self.contradicts(),
            _ => self.deletes_late(),
        };
        if let Some(node) = node {
            self.check(node);
        }
        self.schedules_waiting();
    }

    /// A running pod.
    fn some_pod(&mut self) -> Option<usize> {
        let running = self.pods.iter().filter(|(_, pod)| pod.node.is_some());
        let running: Vec<usize> = running.map(|(number, _)| *number).collect();
        (!running.is_empty()).then(|| *self.random.one(&running))
    }

    fn wanted(&mut self) -> Wanted {
        let (count, distinct) = match self.random.below(100) {
            0..=69 => (1, false),
            70..=84 => (2, false),
            _ => (2, true),
        };
        let mut request = |number: usize| Request {
            name: format!("r{number}"),
            memory: (!self.random.percent(6)).then(|| (*self.random.one(&AMOUNTS)).to_owned()),
        };
        Wanted {
            requests: (0..count).map(&mut request).collect(),
            distinct,
        }
    }

    /// Makes a claim. The names are few, so that most come again with another uid.
    fn new_claim(&mut self, namespace: &str) -> usize {
        let mut number = self.random.below(400);
        let is_taken = |name: &str| self.claims.values().any(|claim| claim.name == name);
        while is_taken(&format!("claim-{number}")) {
            number = (number + 1) % 4000;
        }
        let wanted = self.wanted();
        let claim = Claim {
            namespace: namespace.to_owned(),
            name: format!("claim-{number}"),
            uid: self.random.uid(),
            split: wanted.requests.len() > 1 && self.random.percent(40),
            wanted,
            of_template: self.random.percent(75),
            allocation: None,
            pods: BTreeSet::new(),
        };
        self.counts.claims += 1;
        let number = self.counts.claims;
        self.claims.insert(number, claim);
        self.writes_claim(number);
        number
    }

    /// A user creates pods: with a claim that others share, with two claims, or with an old claim.
    fn creates(&mut self) -> Option<usize> {
        let namespace = (*self.random.one(&["default", "team-a", "team-b"])).to_owned();
        let idle = self.claims.iter();
        let idle = idle.filter(|(_, claim)| claim.pods.is_empty() && claim.namespace == namespace);
        let idle = idle.map(|(number, _)| *number).next();
        let claims = match (idle, self.random.below(10)) {
            (Some(idle), 0..=3) => vec![idle],
            (_, 4) => vec![self.new_claim(&namespace), self.new_claim(&namespace)],
            _ => vec![self.new_claim(&namespace)],
        };
        // Containers that share one of several slices have to share all of them (LIMITS.md). So two
        // claims are one pod's, and its containers use both of them as a whole.
        let pods = match claims.len() {
            1 => *self.random.one(&[1, 1, 1, 2, 3]),
            _ => 1,
        };
        if claims.len() > 1 {
            claims
                .iter()
                .for_each(|claim| self.claims.get_mut(claim).unwrap().split = false);
        }
        for _ in 0..pods {
            let number = self.pods.last_key_value().map_or(0, |(last, _)| last + 1);
            let pod = Pod {
                namespace: namespace.clone(),
                name: format!("pod-{number}"),
                uid: self.random.uid(),
                sandbox: self.random.id(),
                claims: claims.clone(),
                containers: *self.random.one(&[1, 1, 2]),
                node: None,
            };
            for claim in &claims {
                self.claims.get_mut(claim).unwrap().pods.insert(number);
            }
            self.pods.insert(number, pod);
        }
        self.says(format!("claims {claims:?} with {pods} pods"));
        None
    }

    /// The scheduler tries some of the pods that wait, and the kubelets start those that fit.
    fn schedules_waiting(&mut self) {
        let waiting = self.pods.iter().filter(|(_, pod)| pod.node.is_none());
        let waiting: Vec<usize> = waiting.map(|(number, _)| *number).collect();
        let first = if waiting.is_empty() {
            0
        } else {
            self.random.below(waiting.len())
        };
        let some = waiting
            .iter()
            .cycle()
            .skip(first)
            .take(waiting.len().min(3));
        for pod in some.copied().collect::<Vec<_>>() {
            if !self.schedule(pod) {
                continue;
            }
            let node = self.pods[&pod].node.unwrap();
            self.says(format!("pod {pod} runs on node {node}"));
            let mut is_interrupted = self.random.percent(2);
            for claim in self.pods[&pod].claims.clone() {
                let uid = self.claims[&claim].uid.clone();
                let pods = self.nodes[node].prepared.get(&uid);
                if pods.is_none_or(BTreeSet::is_empty) {
                    self.devices.remove(&claim);
                    if self.random.percent(4) {
                        self.dies_while_writing(node, claim);
                        is_interrupted |= self.random.percent(50);
                    }
                    if !is_interrupted {
                        self.prepare(node, claim);
                    }
                }
                self.nodes[node]
                    .prepared
                    .entry(uid)
                    .or_default()
                    .insert(pod);
            }
            if is_interrupted || !self.start_all(pod) {
                // The user deletes the pod, which has not been prepared or does not start.
                self.says(format!("pod {pod} is deleted at once"));
                self.removes_pod(pod);
            }
            self.check(node);
        }
    }

    /// The driver is killed while it writes a claim's file.
    fn dies_while_writing(&mut self, node: usize, claim: usize) {
        let uid = &self.claims[&claim].uid;
        let cdi = self.nodes[node].settings.cdi.clone();
        fs::create_dir_all(&cdi).unwrap();
        let new = cdi.join(format!("k8s.gpuslice.io-claim-{uid}.new"));
        fs::write(new, "{\"cdiVersion\":").unwrap();
        self.says(format!(
            "the driver of node {node} is killed while it prepares {claim}"
        ));
        self.restarts_driver(node);
    }

    fn restarts_driver(&mut self, node: usize) {
        self.counts.drivers += 1;
        self.nodes[node].kill();
        if self.random.percent(30) {
            // It was away for longer than 30 seconds.
            self.api.wipe_node(&self.nodes[node].name);
        }
        self.nodes[node].start(&self.runtime);
        self.sees_slice(node);
    }

    fn driver_dies(&mut self) -> Option<usize> {
        let node = self.random.below(self.nodes.len());
        self.says(format!("the driver of node {node} dies"));
        self.restarts_driver(node);
        Some(node)
    }

    /// A user deletes a pod.
    fn deletes(&mut self) -> Option<usize> {
        let all: Vec<usize> = self.pods.keys().copied().collect();
        if all.is_empty() {
            return None;
        }
        let pod = *self.random.one(&all);
        self.says(format!("pod {pod} is deleted"));
        self.removes_pod(pod)
    }

    /// Stops a pod in one of the orders in which it was seen to stop, and returns its node.
    pub fn removes_pod(&mut self, number: usize) -> Option<usize> {
        let node = self.pods[&number].node;
        if let Some(node) = node {
            let own = self.nodes[node].running.values();
            let own: Vec<String> = own
                .filter(|one| one.pod == number)
                .map(|one| one.id.clone())
                .collect();
            let unprepares_first = self.random.percent(20);
            if unprepares_first {
                self.unprepares(node, number);
            }
            for id in own {
                let mut container = self.nodes[node].running.remove(&id).unwrap();
                if self.random.percent(25) {
                    // The runtime deletes it much later.
                    let orphan = container.loses_process(&self.nodes[node]);
                    self.late.push((node, id, orphan));
                } else {
                    container.stop(&self.nodes[node]);
                }
            }
            if !unprepares_first {
                self.unprepares(node, number);
            }
        }
        let pod = self.pods.remove(&number).unwrap();
        for claim in pod.claims {
            self.leaves_claim(number, claim);
        }
        node
    }

    /// The kubelet takes back the claims that no other pod of the node uses.
    fn unprepares(&mut self, node: usize, pod: usize) {
        for claim in self.pods[&pod].claims.clone() {
            let uid = self.claims[&claim].uid.clone();
            let node = &mut self.nodes[node];
            let Some(pods) = node.prepared.get_mut(&uid) else {
                continue;
            };
            pods.remove(&pod);
            if pods.is_empty() {
                node.prepared.remove(&uid);
                self.devices.remove(&claim);
                let times = if self.random.percent(10) { 2 } else { 1 };
                (0..times).for_each(|_| node.unprepare(&uid));
            }
        }
    }

    /// The last pod of a claim gives its allocation back, and deletes a template's claim.
    fn leaves_claim(&mut self, pod: usize, number: usize) {
        let claim = self.claims.get_mut(&number).unwrap();
        claim.pods.remove(&pod);
        if !claim.pods.is_empty() {
            return;
        }
        let mut last = None;
        if let Some((node, parts)) = claim.allocation.take() {
            last = Some(node);
            for part in parts {
                *self.used[node].get_mut(&part.device).unwrap() -= part.memory;
            }
        }
        if !claim.of_template {
            self.writes_claim(number);
            return;
        }
        let claim = self.claims.remove(&number).unwrap();
        let key = (claim.namespace.clone(), claim.name.clone());
        self.api.kept().claims.remove(&key);
        if let Some(node) = last {
            self.gone
                .push((claim.namespace, claim.name, claim.uid, node));
        }
    }

    /// A container ends, and the kubelet starts it again.
    fn restarts(&mut self) -> Option<usize> {
        let pod = self.some_pod()?;
        let node = self.pods[&pod].node.unwrap();
        let own = self.nodes[node].running.values().find(|one| one.pod == pod);
        let (id, number) = own.map(|one| (one.id.clone(), one.number))?;
        self.says(format!("container {number} of pod {pod} restarts"));
        let mut container = self.nodes[node].running.remove(&id).unwrap();
        container.stop(&self.nodes[node]);
        self.counts.restarts += 1;
        assert_eq!(self.start(pod, number, None), Ok(()), "a restart");
        Some(node)
    }

    /// A container is killed, and starts again before the runtime has deleted the old one.
    fn kills_container(&mut self) -> Option<usize> {
        let pod = self.some_pod()?;
        let node = self.pods[&pod].node.unwrap();
        let own = self.nodes[node].running.values().find(|one| one.pod == pod);
        let (id, number) = own.map(|one| (one.id.clone(), one.number))?;
        self.says(format!("container {number} of pod {pod} is killed"));
        let container = self.nodes[node].running.remove(&id).unwrap();
        let orphan = container.loses_process(&self.nodes[node]);
        self.late.push((node, id, orphan));
        self.counts.restarts += 1;
        assert_eq!(self.start(pod, number, None), Ok(()), "after a kill");
        Some(node)
    }

    /// The runtime deletes a container at last.
    fn deletes_late(&mut self) -> Option<usize> {
        if self.late.is_empty() {
            return None;
        }
        let place = self.random.below(self.late.len());
        let (node, id, orphan) = self.late.swap_remove(place);
        self.says(format!("container {id} of node {node} is deleted late"));
        self.counts.late += 1;
        orphan.deleted(&self.nodes[node]);
        Some(node)
    }

    /// A kubelet restarts: it deletes the node's slices, registers the driver, and prepares again.
    fn kubelet_restarts(&mut self) -> Option<usize> {
        let node = self.random.below(self.nodes.len());
        self.says(format!("the kubelet of node {node} restarts"));
        self.counts.kubelets += 1;
        self.api.wipe_node(&self.nodes[node].name);
        self.nodes[node].registered();
        self.sees_slice(node);
        self.prepares_again(node);
        Some(node)
    }

    fn prepares_again(&mut self, node: usize) {
        let own = self.claims.iter().filter(|(_, claim)| {
            let prepared = &self.nodes[node].prepared;
            prepared.contains_key(&claim.uid)
        });
        for claim in own.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.prepare(node, claim);
        }
    }

    /// A machine loses power. Its pods are the same afterwards, in new sandboxes.
    fn reboots(&mut self) -> Option<usize> {
        let node = self.random.below(self.nodes.len());
        self.says(format!("node {node} reboots"));
        self.counts.reboots += 1;
        let own = self.nodes[node].running.values();
        let own: Vec<(usize, usize)> = own.map(|one| (one.pod, one.number)).collect();
        self.late.retain(|(other, ..)| *other != node);
        self.nodes[node].reboots();
        self.api.wipe_node(&self.nodes[node].name);
        self.nodes[node].start(&self.runtime);
        self.sees_slice(node);
        self.prepares_again(node);
        for (pod, number) in own {
            self.pods.get_mut(&pod).unwrap().sandbox = self.random.id();
            assert_eq!(self.start(pod, number, None), Ok(()), "after a reboot");
        }
        Some(node)
    }

    /// The kubelet asks for claims that are not this node's: deleted, replaced, or another node's.
    fn asks_for_another_claim(&mut self) -> Option<usize> {
        let (namespace, name, uid, node) = match self.random.percent(50) {
            true if !self.gone.is_empty() => self.random.one(&self.gone).clone(),
            _ => {
                let all: Vec<usize> = self.claims.keys().copied().collect();
                if all.is_empty() {
                    return None;
                }
                let claim = &self.claims[self.random.one(&all)];
                let node = claim.allocation.as_ref().map_or(0, |(node, _)| *node);
                let (namespace, name, uid) = (&claim.namespace, &claim.name, &claim.uid);
                match self.random.percent(50) {
                    true => (namespace.clone(), name.clone(), self.random.uid(), node),
                    false => {
                        let other = (node + 1) % self.nodes.len();
                        (namespace.clone(), name.clone(), uid.clone(), other)
                    }
                }
            }
        };
        self.says(format!(
            "node {node} is asked for {namespace}/{name} of uid {uid}"
        ));
        let asked = (&*namespace, &*name, &*uid);
        let prepared = self.nodes[node].prepare(&self.runtime, asked);
        assert!(prepared.is_err(), "{asked:?}: {prepared:?}");
        self.nodes[node].unprepare(&uid);
        self.counts.refusals += 1;
        Some(node)
    }

    /// A pod's annotation asks for another size than its claim. The container must not start.
    fn contradicts(&mut self) -> Option<usize> {
        let pod = self.some_pod()?;
        let node = self.pods[&pod].node.unwrap();
        let is_there = self.nodes[node].running.values().any(|one| one.pod == pod);
        if !is_there {
            return None;
        }
        self.says(format!("pod {pod} contradicts its claim"));
        let refused = self.start(pod, 7, Some("1MiB")).unwrap_err();
        assert!(refused.contains("gpuslice.io/memory"), "{refused}");
        self.counts.refusals += 1;
        Some(node)
    }

    /// All pods are deleted, and nothing may be left on any node.
    pub fn ends(&mut self) {
        for pod in self.pods.keys().copied().collect::<Vec<_>>() {
            self.removes_pod(pod);
        }
        while !self.late.is_empty() {
            self.deletes_late();
        }
        for number in 0..self.nodes.len() {
            self.check(number);
            let node = &self.nodes[number];
            assert_eq!(node.left(), Vec::<String>::new(), "{}", node.name);
            assert!(self.used[number].values().all(|used| *used == 0));
        }
        assert_eq!(self.api.kept().slices.len(), self.nodes.len());
    }
}
