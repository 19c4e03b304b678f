//! The load of a thousand publishers on the API server: requests and bytes, in each phase of a
//! cluster's life. hook/kubernetes/SCALE.md has the table, and what follows for 5,000 nodes.
//! Touches: what [`Node`] touches, and a socket on 127.0.0.1.

use crate::api_server::ApiServer;
use crate::scale::containers;
use crate::scale::node::{Machine, Node};
use crate::scale::random::Random;
use crate::scale::world::{folder, keep_log, kubeconfig};
use crate::scale::{processor_time, setting};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// No request for this long ends a batch. The driver's own pause before a new watch is shorter.
const QUIET: Duration = Duration::from_secs(1);

/// The nodes of a batch. All at once would time out in one thread, and count what is tried again.
const BATCH: usize = 50;

/// Allows the files of a few thousand connections.
fn allow_files() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a rlimit that the call may write to.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the call reads `limit`.
    let written = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!((read, written), (0, 0));
}

struct Measured<'a> {
    api: &'a ApiServer,
    runtime: &'a Runtime,
}

impl Measured<'_> {
    /// Does something to each node in batches, waits until its requests have ended, prints their
    /// numbers, and returns how many they were.
    fn phase(&self, name: &str, nodes: &mut [Node], mut does: impl FnMut(&mut Node)) -> u64 {
        let before = self.api.traffic();
        let time = processor_time();
        for batch in nodes.chunks_mut(BATCH) {
            batch.iter_mut().for_each(&mut does);
            for node in batch.iter() {
                node.until_published(self.runtime, self.api);
            }
            self.settle();
        }
        let all = self.api.traffic().since(&before);
        let (requests, received, sent) = all.sums();
        println!(
            "{name}: {} nodes, {requests} requests, {received} bytes received, {sent} sent, \
             processor time {:.1} s",
            nodes.len(),
            processor_time() - time
        );
        all.lines().iter().for_each(|line| println!("  {line}"));
        requests
    }

    fn settle(&self) {
        let mut last = (Instant::now(), self.api.traffic().requests());
        while last.0.elapsed() < QUIET {
            let pause = async { tokio::time::sleep(Duration::from_millis(20)).await };
            self.runtime.block_on(pause);
            let now = self.api.traffic().requests();
            if now != last.1 {
                last = (Instant::now(), now);
            }
        }
    }
}

#[test]
#[ignore = "a thousand publishers: make claims"]
fn a_thousand_publishers_and_what_they_ask_of_the_api_server() {
    keep_log();
    allow_files();
    let count = usize::try_from(setting("GPUSLICE_PUBLISHERS", 1000)).unwrap();
    let folder = folder("publish");
    let api = ApiServer::start();
    kubeconfig(folder.path(), &api);
    containers::shared_files(folder.path());
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let mut random = Random::new(1);
    let mut nodes: Vec<Node> = (0..count)
        .map(|number| {
            let machine = match number {
                0 => Machine::Cards(1),
                1 => Machine::Unified,
                2 => Machine::Divided,
                _ => Machine::Cards(8),
            };
            Node::new(folder.path(), number, machine, &mut random)
        })
        .collect();
    let measured = Measured {
        api: &api,
        runtime: &runtime,
    };
    measured.phase("start", &mut nodes, |node| node.start(&runtime));
    assert_eq!(api.kept().slices.len(), count);
    let kinds = ["one card", "unified memory", "MIG and a GPU", "eight cards"];
    for (number, what) in kinds.into_iter().enumerate() {
        let slice = &api.kept().slices[&format!("node{number}.gpuslice.io")];
        let size = slice.to_string().len();
        println!("  a ResourceSlice of {what}: {size} bytes");
    }
    let writes = || {
        let traffic = api.traffic();
        traffic.of("POST resourceslices") + traffic.of("PUT resourceslices")
    };
    let tenth = &mut nodes[..count / 10];
    let before = writes();
    measured.phase("update, slices stay", tenth, |node| {
        node.kill();
        node.start(&runtime);
    });
    // Of the node with unified memory alone, a new driver does not know that the server drops the
    // mapping to the node's memory.
    assert_eq!(writes(), before + 1, "a restart writes nothing");
    measured.phase("update, slices are gone", tenth, |node| {
        node.kill();
        api.wipe_node(&node.name);
        node.start(&runtime);
    });
    measured.phase("the kubelet restarts", tenth, |node| {
        api.wipe_node(&node.name);
        node.registered();
    });
    let renewed = measured.phase("a watch is renewed", tenth, |node| {
        api.end_watches(&node.name)
    });
    let bound = u64::try_from(count / 10 * 4).unwrap();
    assert!(renewed <= bound, "{renewed} requests");
    // The nodes with one GPU would have no slice.
    measured.phase("a GPU is lost", &mut tenth[3..], |node| node.loses_a_gpu());
    assert_eq!(measured.phase("steady", &mut nodes, |_| {}), 0);
    nodes.clear();
}
