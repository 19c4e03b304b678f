//! Tests the slices that options describe, and the error messages for options that are refused.

use super::*;
use crate::driver::inventory::{Device, MigInstance};
use crate::slice::choices::PageCacheChoice;
use gpuslice_config::slice::{self, PresentAs, Total};
use gpuslice_config::words::device::DeviceUuid;

const UUID: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";

fn uuid(of: u32) -> DeviceUuid {
    UUID.replace("GPU-1", &format!("GPU-{of}")).parse().unwrap()
}

fn gpu(index: u32, total: Bytes) -> Device {
    Device {
        index,
        cuda_ordinal: Some(index),
        uuid: uuid(index),
        name: "Card".to_owned(),
        total: total.get(),
        integrated: false,
        minor: None,
        driver_limits: false,
        mig: Vec::new(),
    }
}

fn machine(totals: &[u64]) -> Inventory {
    Inventory {
        driver: None,
        backend: None,
        devices: (0..)
            .zip(totals)
            .map(|(index, total)| gpu(index, Bytes::gib(*total)))
            .collect(),
    }
}

fn divided() -> Inventory {
    let mut machine = machine(&[140]);
    machine.devices[0].cuda_ordinal = None;
    machine.devices[0].mig = [18, 71]
        .map(|total| MigInstance {
            uuid: format!("MIG-{total}7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4")
                .parse()
                .unwrap(),
            cuda_ordinal: None,
            name: "Card".to_owned(),
            total: Bytes::gib(total).get(),
        })
        .to_vec();
    machine
}

fn memory(memory: Bytes) -> SliceOptions {
    SliceOptions {
        memory: Some(memory),
        ..SliceOptions::default()
    }
}

fn index(index: u32, memory: Bytes) -> DeviceLimit {
    DeviceLimit {
        selector: Selector::Index(index),
        memory,
    }
}

fn refusal(options: &SliceOptions, machine: &Inventory) -> String {
    budget(options, machine, "run-1", &Headrooms::new())
        .unwrap_err()
        .to_string()
}

fn limits(slice: &Slice) -> Vec<(DeviceUuid, u64)> {
    let gib = |listed: &ListedDevice| listed.memory.unwrap().get() >> 30;
    slice.devices().map(|it| (it.uuid, gib(it))).collect()
}

#[test]
fn a_limit_for_all_gpus_lists_each_and_whether_it_shares_memory() {
    let mut machine = machine(&[24, 120]);
    machine.devices[1].integrated = true;
    let made = budget(&memory(Bytes::gib(8)), &machine, "run-1", &Headrooms::new()).unwrap();
    assert_eq!(made.warnings, [""; 0]);
    let slice = made.slice;
    assert_eq!(limits(&slice), [(uuid(0), 8), (uuid(1), 8)]);
    let integrated: Vec<_> = slice.devices().map(|listed| listed.integrated).collect();
    assert_eq!(integrated, [Some(false), Some(true)]);
    assert_eq!(slice.memory, Some(Bytes::gib(8)));
    assert_eq!(slice::parse(slice.to_json().as_bytes()), Ok(slice));
}

#[test]
fn every_option_reaches_the_slice() {
    let options = SliceOptions {
        total: Some(crate::slice::choices::TotalChoice::Device),
        present_as: Some(crate::slice::choices::PresentAsChoice::Discrete),
        headroom: Some(Headroom::Set(Bytes::mib(256))),
        reserve: Some(Bytes::ZERO),
        ..memory(Bytes::gib(8))
    };
    let slice = budget(&options, &machine(&[24]), "llama", &Headrooms::new())
        .unwrap()
        .slice;
    assert_eq!(
        (
            slice.name.as_str(),
            slice.total,
            slice.present_as,
            slice.headroom,
            slice.reserve
        ),
        (
            "llama",
            Total::Device,
            PresentAs::Discrete,
            Bytes::mib(256),
            Some(Bytes::ZERO)
        )
    );
}

#[test]
fn on_unified_memory_model_files_are_dropped_by_default() {
    let mut unified = machine(&[24]);
    for device in &mut unified.devices {
        device.integrated = true;
    }
    let page_cache = |machine: &Inventory, choice| {
        let options = SliceOptions {
            page_cache: choice,
            ..memory(Bytes::gib(8))
        };
        budget(&options, machine, "run-1", &Headrooms::new())
            .unwrap()
            .slice
            .page_cache
    };
    assert_eq!(page_cache(&machine(&[24]), None), PageCache::Keep);
    assert_eq!(page_cache(&unified, None), PageCache::Drop);
    let keep = Some(PageCacheChoice::Keep);
    assert_eq!(page_cache(&unified, keep), PageCache::Keep);
    let behind = Some(PageCacheChoice::DropBehind);
    assert_eq!(page_cache(&machine(&[24]), behind), PageCache::DropBehind);
}

#[test]
fn a_named_gpu_has_its_own_limit_and_only_it_without_one_for_all() {
    let machine = machine(&[24, 24]);
    let mut options = SliceOptions {
        device: vec![index(1, Bytes::gib(4))],
        ..SliceOptions::default()
    };
    let slice = budget(&options, &machine, "run-1", &Headrooms::new())
        .unwrap()
        .slice;
    assert_eq!(limits(&slice), [(uuid(1), 4)]);
    assert_eq!(slice.device(uuid(0)), None);

    options.memory = Some(Bytes::gib(8));
    let slice = budget(&options, &machine, "run-1", &Headrooms::new())
        .unwrap()
        .slice;
    assert_eq!(limits(&slice), [(uuid(1), 4), (uuid(0), 8)]);
}

#[test]
fn a_limit_over_the_card_is_refused_with_what_it_has() {
    assert_eq!(
        refusal(&memory(Bytes::gib(80)), &machine(&[24])),
        "--memory 80.00 GiB is more than GPU 0 (Card, 24.00 GiB) has; give at most 24576MiB"
    );
    let options = SliceOptions {
        device: vec![index(1, Bytes::gib(25))],
        ..SliceOptions::default()
    };
    assert_eq!(
        refusal(&options, &machine(&[24, 24])),
        "--device 25.00 GiB is more than GPU 1 (Card, 24.00 GiB) has; give at most 24576MiB"
    );
    assert!(
        budget(
            &memory(Bytes::gib(24)),
            &machine(&[24]),
            "run-1",
            &Headrooms::new()
        )
        .is_ok()
    );
}

#[test]
fn a_limit_over_every_card_is_refused_and_over_some_is_told() {
    assert_eq!(
        refusal(&memory(Bytes::gib(80)), &machine(&[24, 32])),
        format!(
            "--memory 80.00 GiB is more than any GPU here has:\
             \n  0 {}  Card, 24.00 GiB\n  1 {}  Card, 32.00 GiB",
            uuid(0),
            uuid(1)
        )
    );
    let made = budget(
        &memory(Bytes::gib(32)),
        &machine(&[24, 32]),
        "run-1",
        &Headrooms::new(),
    )
    .unwrap();
    assert_eq!(
        made.too_small[0].message,
        "--memory 32.00 GiB exceeds GPU 0 (Card, 24.00 GiB): that GPU is not limited"
    );
}

#[test]
fn a_gpu_that_is_not_there_is_refused_with_those_that_are() {
    let options = SliceOptions {
        device: vec![index(7, Bytes::gib(1))],
        ..SliceOptions::default()
    };
    assert_eq!(
        refusal(&options, &machine(&[24])),
        format!(
            "there is no GPU 7 here; there are:\n  0 {}  Card, 24.00 GiB",
            uuid(0)
        )
    );
}

#[test]
fn a_gpu_is_named_once() {
    let by_uuid = DeviceLimit {
        selector: Selector::Uuid(uuid(0)),
        memory: Bytes::gib(1),
    };
    let options = SliceOptions {
        device: vec![index(0, Bytes::gib(1)), by_uuid],
        ..SliceOptions::default()
    };
    assert_eq!(
        refusal(&options, &machine(&[24])),
        "GPU 0 (Card, 24.00 GiB) is given more than one --device"
    );
}

#[test]
fn headroom_has_to_leave_something() {
    let options = SliceOptions {
        headroom: Some(Headroom::Set(Bytes::gib(8))),
        ..memory(Bytes::gib(8))
    };
    assert_eq!(
        refusal(&options, &machine(&[24])),
        "--headroom 8.00 GiB leaves nothing of a limit of 8.00 GiB"
    );
}

#[test]
fn a_divided_gpu_is_named_by_instance_and_a_limit_for_all_takes_it_too() {
    let machine = divided();
    let whole = SliceOptions {
        device: vec![index(0, Bytes::gib(1))],
        ..SliceOptions::default()
    };
    assert!(
        refusal(&whole, &machine)
            .starts_with("GPU 0 is divided by MIG: name one of its instances:\n  0 MIG-187d7c5e-")
    );
    let made = budget(
        &memory(Bytes::gib(20)),
        &machine,
        "run-1",
        &Headrooms::new(),
    )
    .unwrap();
    let listed: Vec<_> = limits(&made.slice).into_iter().map(|it| it.1).collect();
    assert_eq!((listed, made.too_small.len()), (vec![20, 20, 20], 1));
    let options = SliceOptions {
        device: vec![DeviceLimit {
            selector: Selector::Uuid(machine.devices[0].mig[1].uuid),
            memory: Bytes::gib(64),
        }],
        ..SliceOptions::default()
    };
    let slice = budget(&options, &machine, "run-1", &Headrooms::new())
        .unwrap()
        .slice;
    assert_eq!(limits(&slice), [(machine.devices[0].mig[1].uuid, 64)]);
}

#[test]
fn a_machine_without_gpus_has_nothing_to_limit() {
    assert_eq!(
        refusal(&memory(Bytes::gib(1)), &Inventory::default()),
        "the NVIDIA driver lists no GPU here"
    );
}

#[test]
fn what_a_name_has_learned_is_the_headroom_of_that_gpu_alone() {
    let learned = Headrooms::from([(uuid(1), Bytes::mib(143))]);
    let options = SliceOptions {
        headroom: Some(Headroom::Learned),
        ..memory(Bytes::gib(8))
    };
    let made = budget(&options, &machine(&[24, 24]), "llama", &learned).unwrap();
    let headroom = |of| made.slice.device(uuid(of)).unwrap().headroom;
    assert_eq!(
        (headroom(0), headroom(1), made.warnings),
        (Bytes::ZERO, Bytes::mib(143), Vec::<String>::new())
    );
}

#[test]
fn headroom_that_was_learned_under_a_larger_limit_never_stops_a_run() {
    let learned = Headrooms::from([(uuid(0), Bytes::gib(9))]);
    let made = budget(&memory(Bytes::gib(8)), &machine(&[24]), "llama", &learned).unwrap();
    assert_eq!(made.slice.device(uuid(0)).unwrap().headroom, Bytes::ZERO);
    assert_eq!(
        made.warnings,
        [
            "the headroom of 9.00 GiB that \"llama\" has learned for GPU 0 (Card, 24.00 GiB) leaves \
             nothing of 8.00 GiB and is not used (`gpuslice headroom reset` forgets it)"
        ]
    );
}

#[test]
fn a_slice_that_only_counts_says_so_in_its_file() {
    for no_enforce in [false, true] {
        let options = SliceOptions {
            no_enforce,
            ..memory(Bytes::gib(8))
        };
        let made = budget(&options, &machine(&[24]), "run-1", &Headrooms::new()).unwrap();
        assert_eq!(made.slice.enforce, !no_enforce);
    }
}
