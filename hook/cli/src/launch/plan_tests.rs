//! Plans of runs, from constructed facts: on a discrete card, on unified memory and with MIG.

use super::*;
use crate::driver::inventory::{Device, MigInstance};
use crate::driver::sim::Sim;
use crate::launch::facts::Environment;
use crate::slice::options::DeviceLimit;
use gpuslice_config::slice::{ListedDevice, PageCache};
use gpuslice_config::words::device::Selector;

const CARD: &str = "GPU-3090aaaa-1111-4222-8333-444455550000";
const SPARK: &str = "GPU-b10aaaaa-4444-4555-8666-777788880000";
const SMALL: &str = "MIG-18aaaaaa-1111-4222-8333-444455550000";
const LARGE: &str = "MIG-71aaaaaa-1111-4222-8333-444455550000";
const LIBRARY: &str = "/usr/lib/gpuslice/libgpuslice.so";

fn gpu(uuid: &str, total: Bytes, integrated: bool) -> Device {
    Device {
        index: 0,
        cuda_ordinal: Some(0),
        uuid: uuid.parse().unwrap(),
        name: "Card".to_owned(),
        total: total.get(),
        integrated,
        minor: None,
        driver_limits: false,
        mig: Vec::new(),
    }
}

fn divided() -> Device {
    let instance = |uuid: &str, ordinal, total| MigInstance {
        uuid: uuid.parse().unwrap(),
        cuda_ordinal: ordinal,
        name: "Card MIG".to_owned(),
        total: Bytes::gib(total).get(),
    };
    Device {
        cuda_ordinal: None,
        mig: vec![instance(SMALL, Some(0), 18), instance(LARGE, None, 71)],
        ..gpu(CARD, Bytes::gib(140), false)
    }
}

fn facts(source: Source, devices: Vec<Device>) -> Facts {
    Facts {
        inventory: (source != Source::Unlimited).then_some(Inventory {
            driver: None,
            backend: None,
            devices,
        }),
        source,
        learned: Ok(budget::Headrooms::new()),
        environment: Environment::default(),
        library: Some(LIBRARY.into()),
        stated: None,
        sim: None,
        state: None,
        log_file: None,
        own_name: "run-7".to_owned(),
        owner: None,
        is_root: true,
    }
}

fn memory(memory: Bytes) -> SliceOptions {
    SliceOptions {
        memory: Some(memory),
        ..SliceOptions::default()
    }
}

fn slice(memory: Option<Bytes>, devices: &[(&str, Bytes, bool)]) -> Slice {
    let mut slice = Slice::default();
    slice.name = Text::new("run-7");
    slice.memory = memory;
    slice.page_cache = PageCache::Keep;
    for (uuid, memory, integrated) in devices {
        let listed = ListedDevice {
            uuid: uuid.parse().unwrap(),
            memory: Some(*memory),
            headroom: None,
            integrated: Some(*integrated),
            driver_limit: None,
            driver_backstop: false,
        };
        slice.list(listed).unwrap();
    }
    slice
}

fn preload() -> Var {
    ("LD_PRELOAD".into(), Some(LIBRARY.into()))
}

/// The fence of a run that the library holds, for this reason.
fn not_by_driver(why: &str) -> FencePlan {
    FencePlan {
        why_not: Some(why.to_owned()),
        ..FencePlan::default()
    }
}

#[test]
fn on_a_discrete_card_a_run_is_admitted_as_a_tenant() {
    let facts = facts(Source::Options, vec![gpu(CARD, Bytes::gib(24), false)]);
    let plan = Plan::make(&memory(Bytes::gib(8)), &facts).unwrap();
    let slice = slice(Some(Bytes::gib(8)), &[(CARD, Bytes::gib(8), false)]);
    let inventory = facts.inventory.as_ref().unwrap();
    let cards = tenancy::cards(&[], inventory, &slice, None);
    assert_eq!(cards.len(), 1);
    let expected = Plan {
        slice: Some(slice),
        devices: 1,
        cards,
        fence: not_by_driver(
            "GPU 0 (Card, 24.00 GiB): its driver cannot limit cgroups (R615 and later can)",
        ),
        vars: vec![preload()],
        library: Some(LIBRARY.into()),
        ..Plan::default()
    };
    assert_eq!(plan, expected);
}

#[test]
fn on_unified_memory_a_run_is_promised_at_most_the_device() {
    let facts = facts(Source::Options, vec![gpu(SPARK, Bytes::gib(121), true)]);
    let plan = Plan::make(&memory(Bytes::gib(40)), &facts).unwrap();
    let mut slice = slice(Some(Bytes::gib(40)), &[(SPARK, Bytes::gib(40), true)]);
    slice.page_cache = PageCache::Drop;
    let expected = Plan {
        slice: Some(slice),
        devices: 1,
        promise: Some(Bytes::gib(40)),
        fence: not_by_driver("GPU 0 (Card, 121.00 GiB): it shares the host's memory"),
        vars: vec![preload()],
        library: Some(LIBRARY.into()),
        ..Plan::default()
    };
    assert_eq!(plan, expected);
}

#[test]
fn of_a_divided_gpu_only_the_visible_instance_counts() {
    let facts = facts(Source::Options, vec![divided()]);
    let plan = Plan::make(&memory(Bytes::gib(8)), &facts).unwrap();
    let all = Bytes::gib(8);
    let listed = [SMALL, LARGE, CARD].map(|uuid| (uuid, all, false));
    let slice = slice(Some(all), &listed);
    let inventory = facts.inventory.as_ref().unwrap();
    let expected = Plan {
        cards: tenancy::cards(&[], inventory, &slice, None),
        slice: Some(slice),
        devices: 2,
        fence: not_by_driver(&format!(
            "{SMALL} of GPU 0 (Card, 18.00 GiB): it is a MIG instance"
        )),
        vars: vec![preload()],
        library: Some(LIBRARY.into()),
        ..Plan::default()
    };
    assert_eq!(plan, expected);
}

#[test]
fn a_limit_over_the_card_is_refused() {
    let facts = facts(Source::Options, vec![gpu(CARD, Bytes::gib(24), false)]);
    let error = Plan::make(&memory(Bytes::gib(30)), &facts).unwrap_err();
    assert_eq!(
        error.to_string(),
        "--memory 30.00 GiB is more than GPU 0 (Card, 24.00 GiB) has; give at most 24576MiB"
    );
}

#[test]
fn a_limit_of_a_gpu_that_the_program_does_not_see_is_refused() {
    let mut facts = facts(Source::Options, vec![divided()]);
    facts.environment.visible = Some(SMALL.to_owned());
    let options = SliceOptions {
        device: vec![DeviceLimit {
            selector: Selector::Uuid(LARGE.parse().unwrap()),
            memory: Bytes::gib(8),
        }],
        ..SliceOptions::default()
    };
    let error = Plan::make(&options, &facts).unwrap_err().to_string();
    assert!(
        error.starts_with("the program would not be limited: it sees MIG-18"),
        "{error}"
    );
}

#[test]
fn a_file_that_names_a_ledger_is_used_unchanged() {
    let mut shared = slice(None, &[(SPARK, Bytes::gib(40), true)]);
    shared.ledger = Some(Text::new("/dev/shm/team.ledger"));
    let path = PathBuf::from("/etc/team.json");
    let source = Source::File {
        path: path.clone(),
        slice: Box::new(shared),
    };
    let facts = facts(source, vec![gpu(SPARK, Bytes::gib(121), true)]);
    let options = SliceOptions {
        config: Some(path.clone()),
        overcommit: true,
        ..SliceOptions::default()
    };
    let expected = Plan {
        slice: Some(shared),
        file: Some(path),
        devices: 1,
        vars: vec![preload()],
        library: Some(LIBRARY.into()),
        warnings: vec![NOT_ADMITTED.to_owned()],
        ..Plan::default()
    };
    assert_eq!(Plan::make(&options, &facts).unwrap(), expected);
}

#[test]
fn without_a_limit_a_run_only_gets_the_library_and_the_simulated_driver() {
    let mut facts = facts(Source::Unlimited, Vec::new());
    facts.environment.preload = Some("libx.so".into());
    facts.sim = Some(Sim {
        machine: "rtx3090".into(),
        driver: "/opt/sim".into(),
    });
    let set = |name: &str, value: String| (name.into(), Some(value.into()));
    let expected = Plan {
        devices: 1,
        vars: vec![
            set("LD_PRELOAD", format!("{LIBRARY}:libx.so")),
            set("LD_LIBRARY_PATH", "/opt/sim".to_owned()),
            set("GPUSLICE_SIM", "rtx3090".to_owned()),
        ],
        library: Some(LIBRARY.into()),
        ..Plan::default()
    };
    assert_eq!(
        Plan::make(&SliceOptions::default(), &facts).unwrap(),
        expected
    );
}
