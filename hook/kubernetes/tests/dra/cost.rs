//! The cost of the driver: processor time of a preparation, memory at rest. `cargo bench -p
//! gpuslice-dra` measures the time that a preparation takes.

use crate::claims::{CARD, claim, result, uid};
use crate::driver::Node;
use crate::kubelet::named;
use std::fs;

/// The most memory of the driver, without the pages of its program. The tests' program is not
/// optimised, and 18 MiB of it are resident. That of a release has 5.4 MiB in all, after 500 claims.
const ANONYMOUS: u64 = 5 << 20;

/// The most processor time of a preparation, in milliseconds. A clock would count other programs.
const TIME: u64 = 20;

fn anonymous(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("RssAnon:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        << 10
}

/// The processor time of a process, in milliseconds: the fields 14 and 15, in hundredths.
fn time(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, after) = text.rsplit_once(')').unwrap();
    let fields = after.split_whitespace().skip(11).take(2);
    fields.map(|field| field.parse::<u64>().unwrap() * 10).sum()
}

#[test]
fn five_hundred_claims_cost_little_time_and_memory() {
    const COUNT: usize = 500;
    let (node, kubelet) = Node::registered();
    let before = time(node.pid());
    for number in 0..COUNT {
        let results = [result("r", CARD, "256Mi", &uid(number))];
        node.api.add_claim(claim("c1", &uid(number), &results, &[]));
        let answer = kubelet.prepare_one(&named("c1", &uid(number)));
        assert_eq!(answer.error, "");
    }
    assert_eq!(node.cdi_files().len(), COUNT);
    for number in 0..COUNT {
        let answer = kubelet.unprepare(&[named("c1", &uid(number))]);
        assert_eq!(answer.claims[&uid(number)].error, "");
    }
    assert!(node.cdi_files().is_empty());
    let spent = time(node.pid()) - before;
    let count = u64::try_from(COUNT).unwrap();
    assert!(spent <= TIME * count, "{spent} ms for {COUNT} claims");
    let held = anonymous(node.pid());
    assert!(held <= ANONYMOUS, "{} KiB", held >> 10);
}
