//! Admission of slices beside others.
//! Touches: its arguments.

use super::*;
use crate::machine::devices;
use crate::machine::process::ProcessId;
use proptest::prelude::*;

const CARD: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
const SPARK: &str = "GPU-b10aaaaa-4444-4555-8666-777788880000";

fn machine() -> Devices {
    let text = format!(
        r#"{{"version":1,"devices":[
            {{"uuid":"{CARD}","index":0,"name":"Card","memory":{card},"integrated":false}},
            {{"uuid":"{SPARK}","index":1,"name":"Spark","memory":{spark},"integrated":true}}]}}"#,
        card = Bytes::gib(24).get(),
        spark = Bytes::gib(120).get(),
    );
    devices::parse(text.as_bytes()).unwrap()
}

fn budget(uuid: &str, memory: Bytes) -> DeviceBudget {
    DeviceBudget {
        uuid: uuid.parse().unwrap(),
        memory,
        integrated: uuid == SPARK,
    }
}

fn record(slice: &str, namespace: Option<&str>, budget: DeviceBudget) -> SliceRecord {
    SliceRecord {
        version: SliceRecord::VERSION,
        slice: slice.to_owned(),
        name: format!("team/{slice}"),
        namespace: namespace.map(str::to_owned),
        shared: false,
        sandbox: None,
        named: None,
        devices: vec![budget],
        promised: None,
        before_resize: None,
        containers: Vec::new(),
    }
}

fn asked(
    budget: DeviceBudget,
    held: &[SliceRecord],
    policy: &Policy,
    host: Option<&HostState>,
) -> Result<Option<Bytes>, AdmissionError> {
    let asking = Asking {
        slice: "new",
        namespace: Some("team"),
        budgets: &[budget],
    };
    admit(&asking, held, &[], &machine(), policy, host)
}

fn host(available: Bytes, unused: &[(&str, Bytes)]) -> HostState {
    HostState {
        memory: HostMemory {
            total: Bytes::gib(121),
            free: Bytes::gib(1),
            available,
        },
        unused: unused
            .iter()
            .map(|(name, unused)| Unused {
                slice: (*name).to_owned(),
                name: (*name).to_owned(),
                memory: *unused,
            })
            .collect(),
    }
}

#[test]
fn a_run_of_the_host_holds_its_part_of_a_card_beside_containers() {
    let held = [record("a", None, budget(CARD, Bytes::gib(12)))];
    let runs = [Tenant {
        file: "run.12.34".into(),
        uid: 0,
        owner: Some(ProcessId {
            pid: 12,
            start_time: 34,
        }),
        name: "llama".to_owned(),
        devices: vec![budget(CARD, Bytes::gib(8))],
    }];
    let ask = |memory, policy: &Policy| {
        let budgets = [budget(CARD, Bytes::gib(memory))];
        let asking = Asking {
            slice: "new",
            namespace: Some("team"),
            budgets: &budgets,
        };
        admit(&asking, &held, &runs, &machine(), policy, None)
    };
    assert_eq!(ask(4, &Policy::default()), Ok(None));
    let refusal = ask(5, &Policy::default()).unwrap_err().to_string();
    assert!(
        refusal.contains("has 4.00 GiB left") && refusal.contains("llama (pid 12) 8.00 GiB"),
        "{refusal}"
    );
    // This slice has no namespace.
    let mut policy = Policy::default();
    policy.maximum.namespace = Some(Bytes::gib(4));
    assert_eq!(ask(4, &policy), Ok(None));
}

#[test]
fn a_byte_more_than_is_left_is_refused_with_the_names_of_the_holders() {
    let held = [
        record("a", None, budget(CARD, Bytes::gib(12))),
        record("b", None, budget(CARD, Bytes::gib(8))),
    ];
    let policy = Policy::default();
    assert_eq!(
        asked(budget(CARD, Bytes::gib(4)), &held, &policy, None),
        Ok(None)
    );
    let more = Bytes::gib(4).plus(Bytes::new(1));
    let refused = asked(budget(CARD, more), &held, &policy, None).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "GPU 0 (Card, 24.00 GiB) has 4294967296 B left, 4294967297 B requested; held by team/a 12.00 \
         GiB, team/b 8.00 GiB"
    );
    let over = Policy {
        overcommit: true,
        ..Policy::default()
    };
    assert_eq!(asked(budget(CARD, more), &held, &over, None), Ok(None));
    // The slice's own record, of another container of its pod, does not count against it.
    let own = [record("new", None, budget(CARD, Bytes::gib(24)))];
    assert_eq!(
        asked(budget(CARD, Bytes::gib(24)), &own, &policy, None),
        Ok(None)
    );
}

/// The pages show what `kubectl describe pod` shows.
#[test]
fn the_refusal_in_the_pages_for_kubernetes_is_the_hooks() {
    let named = |name: &str, size| SliceRecord {
        name: name.to_owned(),
        ..record(name, None, budget(CARD, Bytes::gib(size)))
    };
    let held = [named("default/p8/c", 8), named("default/p12/c", 12)];
    let card = format!(
        r#"{{"version":1,"devices":[{{"uuid":"{CARD}","index":0,"name":"NVIDIA GeForce RTX 3090",
            "memory":{},"integrated":false}}]}}"#,
        Bytes::mib(24259).get()
    );
    let asking = Asking {
        slice: "q8",
        namespace: None,
        budgets: &[budget(CARD, Bytes::gib(8))],
    };
    let machine = devices::parse(card.as_bytes()).unwrap();
    let refused = admit(&asking, &held, &[], &machine, &Policy::default(), None).unwrap_err();
    let packaging = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    for page in ["handbook/src/kubernetes.md", "examples/README.md"] {
        let text = std::fs::read_to_string(packaging.join(page)).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown = format!("gpuslice: no room for default/q8/c: {refused}");
        assert!(text.contains(&shown), "{page} does not have: {shown}");
    }
}

#[test]
fn no_policy_gives_more_than_the_gpu_is() {
    let over = Policy {
        overcommit: true,
        ..Policy::default()
    };
    let refused = asked(budget(CARD, Bytes::gib(88)), &[], &over, None).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "88.00 GiB is more than GPU 0 (Card, 24.00 GiB) has"
    );
}

#[test]
fn a_namespace_has_its_part_and_no_more() {
    let policy =
        crate::machine::policy::parse("[namespaces.team]\nnamespace = \"10GiB\"\n").unwrap();
    let held = [
        record("a", Some("team"), budget(CARD, Bytes::gib(6))),
        record("b", Some("other"), budget(CARD, Bytes::gib(6))),
    ];
    assert_eq!(
        asked(budget(CARD, Bytes::gib(4)), &held, &policy, None),
        Ok(None)
    );
    let refused = asked(budget(CARD, Bytes::gib(5)), &held, &policy, None).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "namespace team may have 10.00 GiB of GPU 0 (Card, 24.00 GiB) (this host's policy), 5.00 GiB \
         requested; held by team/a 6.00 GiB"
    );
}

#[test]
fn unified_memory_is_admitted_by_what_the_host_has_now() {
    let policy = crate::machine::policy::parse("reserve = \"8GiB\"").unwrap();
    let machine = host(
        Bytes::gib(100),
        &[("team/a", Bytes::gib(40)), ("team/b", Bytes::ZERO)],
    );
    let fits = |memory| asked(budget(SPARK, memory), &[], &policy, Some(&machine));
    assert_eq!(fits(Bytes::gib(52)), Ok(None));
    let refused = fits(Bytes::gib(53)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "a slice of 53.00 GiB does not fit on this host, which can promise 52.00 GiB: 100.00 GiB is \
         available, 8.00 GiB of it stays the host's, 40.00 GiB is promised and not used yet (held by \
         team/a 40.00 GiB)"
    );
    // Memory that a neighbour has spent does not count twice: MemAvailable already excludes it.
    let spent = host(Bytes::gib(60), &[("team/a", Bytes::ZERO)]);
    let fits = asked(budget(SPARK, Bytes::gib(52)), &[], &policy, Some(&spent));
    assert_eq!(fits, Ok(None));
    let unknown = asked(budget(SPARK, Bytes::gib(1)), &[], &policy, None);
    assert_eq!(unknown, Err(AdmissionError::NoHost));
}

/// A display name is what an annotation says. Only the id decides whether a promise is one's own.
#[test]
fn a_slice_is_told_from_others_by_its_id_and_not_by_its_name() {
    let policy = crate::machine::policy::parse("reserve = \"8GiB\"").unwrap();
    let fits = |slice: &str, name: &str| {
        let mut machine = host(Bytes::gib(100), &[]);
        machine.unused.push(Unused {
            slice: slice.to_owned(),
            name: name.to_owned(),
            memory: Bytes::gib(60),
        });
        asked(budget(SPARK, Bytes::gib(40)), &[], &policy, Some(&machine)).is_ok()
    };
    assert!(
        fits("new", "team/other"),
        "its own promise counted against it"
    );
    assert!(!fits("other", "new"), "another's promise did not count");
}

#[test]
fn who_is_over_committed_is_promised_what_is_left() {
    let policy = crate::machine::policy::parse("reserve = \"8GiB\"\novercommit = true").unwrap();
    let machine = host(Bytes::gib(100), &[("team/a", Bytes::gib(60))]);
    let promised = |memory| asked(budget(SPARK, memory), &[], &policy, Some(&machine));
    assert_eq!(promised(Bytes::gib(32)), Ok(None));
    assert_eq!(promised(Bytes::gib(40)), Ok(Some(Bytes::gib(32))));
    let full = host(Bytes::gib(60), &[("team/a", Bytes::gib(60))]);
    let nothing = asked(budget(SPARK, Bytes::gib(1)), &[], &policy, Some(&full));
    assert_eq!(nothing, Ok(Some(Bytes::new(1))));
}

#[test]
fn a_machine_with_hundreds_of_slices_does_not_fill_the_runtimes_log() {
    let holders: Vec<_> = (0..200).map(|n| (format!("s{n}"), Bytes::mib(1))).collect();
    let text = Holders(holders).to_string();
    assert!(
        text.ends_with(" and 188 more") && text.len() < 300,
        "{text}"
    );
    assert_eq!(Holders(Vec::new()).to_string(), "no slice holds any");
}

proptest! {
    /// In any order of starts and stops, the admitted slices never exceed the memory.
    #[test]
    fn never_promises_more_than_there_is(
        steps in proptest::collection::vec((0u8..40, 1u64..=16 << 30), 1..120),
    ) {
        let policy = Policy::default();
        let mut held: Vec<SliceRecord> = Vec::new();
        for (slice, memory) in steps {
            let name = slice.to_string();
            if held.iter().any(|record| record.slice == name) {
                held.retain(|record| record.slice != name);
                continue;
            }
            let budget = budget(CARD, Bytes::new(memory));
            if asked(budget, &held, &policy, None).is_ok() {
                held.push(record(&name, None, budget));
            }
            let sum = held.iter().fold(Bytes::ZERO, |sum, r| sum.plus(r.devices[0].memory));
            prop_assert!(sum <= Bytes::gib(24));
        }
    }
}
