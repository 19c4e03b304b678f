//! One answer and one limit on every branch, for a card with memory of its own, for MIG, and for
//! unified memory. Unified memory starts with R580, the first driver of the DGX Spark.

use crate::said::{Said, check};
use gpuslice_suite::run::Machine;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, GRANULE, OUT_OF_MEMORY, Worker};
use serde_json::json;
use std::collections::BTreeSet;

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 8 * GIB;

/// A kind of machine.
struct Kind {
    scenario: &'static str,
    /// The first device: its uuid, its total, and the memory that one context takes on it.
    uuid: &'static str,
    total: u64,
    context: u64,
    integrated: bool,
}

const CARD: Kind = Kind {
    scenario: "rtx3090",
    uuid: "GPU-3090aaaa-1111-4222-8333-444455550000",
    total: 25_438_126_080,
    context: 254 * MIB,
    integrated: false,
};
const MIG: Kind = Kind {
    scenario: "h200-mig",
    uuid: "MIG-a1111111-3333-5444-8555-666677770000",
    total: 71_300 * MIB,
    context: 300 * MIB,
    integrated: false,
};
const SPARK: Kind = Kind {
    scenario: "gb10",
    uuid: "GPU-b10aaaaa-4444-4555-8666-777788880000",
    total: 127_600_748 << 10,
    context: 256 * MIB,
    integrated: true,
};

/// The routes that `gpuslice check` leaves out.
fn skipped(said: &Said) -> BTreeSet<&str> {
    let rows = said.json["skipped"].as_array().unwrap().iter();
    rows.map(|row| row["route"].as_str().unwrap()).collect()
}

/// Asserts that in a slice every API gives one answer, by every route that the branch has.
fn agrees(kind: &Kind, branch: &str, older: bool) {
    let scenario = &*format!("{}@{branch}", kind.scenario);
    let machine = Machine::new(scenario);
    let run = check(&machine, &["--sim", scenario, "--memory", "8GiB"]);
    let said = Said::new(run.answer());
    assert_eq!(said.disagreements(), Vec::<&str>::new(), "{scenario}");
    assert_eq!(said.json["consistent"], true, "{scenario}");
    assert_eq!(said.answer.end, "exit 0", "{scenario}");
    let rows = said.rows(kind.uuid);
    let failed = rows.iter().find(|row| !row["error"].is_null());
    assert_eq!(failed, None, "{scenario}");
    // `cuMemGetInfo_v2` has 18 routes; R535 and R550 lack the route by cuGetProcAddress_v2_ptsz.
    for (api, routes) in [
        ("cuMemGetInfo_v2", if older { 17 } else { 18 }),
        ("nvmlDeviceGetMemoryInfo_v2", 13),
    ] {
        let of_it = rows.iter().filter(|row| row["api"] == api);
        let totals: Vec<_> = of_it.map(|row| row["total"].as_u64()).collect();
        assert_eq!(totals, vec![Some(LIMIT); routes], "{scenario}: {api}");
    }
    let absent: &[&str] = match older {
        true => &["cuGetProcAddress_v2_ptsz", "cudart-13"],
        false => &[],
    };
    // Nothing is mounted over /proc/meminfo here.
    let unmounted = kind.integrated.then_some("meminfo-syscall");
    let expected = absent.iter().copied().chain(unmounted).collect();
    assert_eq!(skipped(&said), expected, "{scenario}");

    // Without a slice, a card's answers agree with each other, and those of unified memory do not.
    let machine = Machine::new(scenario);
    let bare = Said::new(check(&machine, &["--sim", scenario, "--bare"]).answer());
    assert_eq!(bare.json["consistent"], !kind.integrated, "{scenario}");
}

/// Asserts that each way to allocate grants all free memory in one piece, and refuses a granule more.
fn holds(kind: &Kind, branch: &str) {
    let scenario = format!("{}@{branch}", kind.scenario);
    let keys = match kind.integrated {
        true => json!({"devices": [{"uuid": kind.uuid, "memory": LIMIT, "integrated": true}]}),
        false => json!({"memory": LIMIT}),
    };
    let slice = Counted::with(&scenario, &keys);
    let mut worker = slice.worker();
    let free = LIMIT - kind.context;
    for allocate in ["alloc", "managed", "create", "async"] {
        assert_eq!(worker.free(), free, "{scenario}: {allocate}");
        // The worker asks NVML for the first GPU, which is not the MIG instance that it is on.
        if kind.scenario != MIG.scenario {
            assert_eq!(worker.nvml(), [free, LIMIT, kind.context], "{scenario}");
        }
        let too_much = format!("{allocate} 1 {}", free + GRANULE);
        assert_eq!(
            worker.code(&too_much),
            OUT_OF_MEMORY,
            "{scenario}: {too_much}"
        );
        worker.must(&format!("{allocate} 1 {free}"));
        assert_eq!(worker.free(), 0, "{scenario}: {allocate}");
        assert_eq!(worker.code("alloc 2 1"), OUT_OF_MEMORY, "{scenario}");
        worker.must("free 1");
        worker.must("trim 0");
    }
    assert_eq!(worker.free(), free, "{scenario}");
    // The neighbour without a slice sees the device as it is.
    let mut neighbour = slice.neighbour();
    assert_eq!(neighbour.info().total, kind.total, "{scenario}");
    let mut second: Worker = slice.worker();
    assert_eq!(
        second.free(),
        free - kind.context,
        "{scenario}: all processes share the slice"
    );
}

fn of_branch(branch: &str) {
    let older = branch < "580";
    for kind in [CARD, MIG, SPARK] {
        if kind.integrated && older {
            continue;
        }
        agrees(&kind, branch, older);
        holds(&kind, branch);
    }
}

#[test]
fn r535_has_one_truth_and_holds_the_limit() {
    of_branch("535");
}

#[test]
fn r550_has_one_truth_and_holds_the_limit() {
    of_branch("550");
}

#[test]
fn r580_has_one_truth_and_holds_the_limit() {
    of_branch("580");
}

#[test]
fn r615_has_one_truth_and_holds_the_limit() {
    of_branch("615");
}

#[test]
fn r615_without_dmem_has_one_truth_and_holds_the_limit() {
    of_branch("615-misc");
}
