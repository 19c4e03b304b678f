//! Tests of the printed table of slices.

use super::*;
use crate::commands::status::containers::ContainerStatus;
use crate::commands::status::model::{Fence, ProcessStatus, RefusalsShown};
use crate::commands::status::snapshot::Snapshot;
use serde_json::json;
use std::path::PathBuf;

fn shown(slices: &[SliceStatus]) -> String {
    table(&Snapshot {
        slices: slices.to_vec(),
        ..Snapshot::default()
    })
}

const UUID: &str = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
const GIB: u64 = 1 << 30;

fn kinds_of(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn process(pid: u32, name: Option<&str>, used: u64) -> ProcessStatus {
    ProcessStatus {
        number: pid,
        slot: 0,
        pid,
        name: name.map(str::to_owned),
        used,
        driver_used: None,
        by_kind: kinds_of(json!({"linear": used})),
    }
}

fn eight(processes: Vec<ProcessStatus>) -> DeviceStatus {
    let used = processes.iter().map(|process| process.used).sum();
    DeviceStatus {
        device: Some(UUID.to_owned()),
        limit: Some(8 * GIB),
        used: Some(used),
        left: (8 * GIB).checked_sub(used),
        by_kind: Some(kinds_of(json!({"linear": used}))),
        refusals: Some(RefusalsShown {
            count: 0,
            worst_short_by: 0,
        }),
        processes,
        ..DeviceStatus::default()
    }
}

fn llama(devices: Vec<DeviceStatus>) -> SliceStatus {
    SliceStatus {
        name: "llama".to_owned(),
        pid: Some(4711),
        ledger: Some(PathBuf::from("/ledger")),
        enforce: Some(true),
        uncounted: Some(0),
        devices,
        ..SliceStatus::default()
    }
}

#[test]
fn nothing_is_said_of_nothing() {
    assert_eq!(shown(&[]), "no slices are running\n");
}

#[test]
fn who_holds_what_is_shown_and_what_all_hold_together() {
    let two = [
        process(4711, Some("python3"), 3 * GIB),
        process(9, None, GIB),
    ];
    let mut refused = eight(two.to_vec());
    refused.refusals = Some(RefusalsShown {
        count: 3,
        worst_short_by: 143 << 20,
    });
    refused.headroom = 41 << 20;
    refused.headroom_learned = true;
    let idle = llama(vec![eight(Vec::new())]);
    assert_eq!(
        shown(&[llama(vec![refused]), idle]),
        "\
llama (pid 4711)
  fence    preload: cooperative
  ledger   /ledger
  GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4
    limit 8.00 GiB, used 4.00 GiB, left 4.00 GiB, headroom 41.00 MiB (learned)
    refused 3 times, at worst 143.00 MiB short
    PID   USED      NAME     BY KIND
    4711  3.00 GiB  python3  linear 3.00 GiB
    9     1.00 GiB  -        linear 1.00 GiB
    all   4.00 GiB           linear 4.00 GiB

llama (pid 4711)
  fence    preload: cooperative
  ledger   /ledger
  GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4
    limit 8.00 GiB, used 0 B, left 8.00 GiB
"
    );
}

#[test]
fn the_containers_of_a_slice_are_named_as_engines_name_them() {
    let container = |id: &str| ContainerStatus {
        id: id.to_owned(),
        name: "app".to_owned(),
        pid: 4711,
        lives: true,
        no_slice: None,
        not_limited: None,
    };
    let of = |ids: &[&str]| SliceStatus {
        name: "team/app".to_owned(),
        containers: ids.iter().map(|id| container(id)).collect(),
        ..llama(Vec::new())
    };
    assert_eq!(
        shown(&[of(&["8e6f1c7f7a1be5f00d"]), of(&["one", "two"])]),
        "\
team/app (container 8e6f1c7f7a1b, pid 4711)
  fence    preload: cooperative
  ledger   /ledger

team/app (containers one two, pid 4711)
  fence    preload: cooperative
  ledger   /ledger
"
    );
}

#[test]
fn a_program_that_the_slice_does_not_limit_is_named() {
    let container = ContainerStatus {
        id: "one".to_owned(),
        name: "app".to_owned(),
        pid: 4711,
        lives: true,
        no_slice: None,
        not_limited: Some("its first program is static".to_owned()),
    };
    let slice = SliceStatus {
        name: "app".to_owned(),
        containers: vec![container],
        ..llama(Vec::new())
    };
    let shown = shown(&[slice]);
    assert!(
        shown.ends_with("  container one: its first program is static\n"),
        "{shown}"
    );
}

#[test]
fn a_slice_of_several_pods_names_the_containers_that_use_it() {
    let container = |id: &str, name: &str| ContainerStatus {
        id: id.to_owned(),
        name: name.to_owned(),
        pid: 4711,
        lives: true,
        no_slice: None,
        not_limited: None,
    };
    let slice = SliceStatus {
        name: "team/p1/c".to_owned(),
        containers: vec![container("one", "team/p1/c"), container("two", "team/p2/c")],
        ..llama(Vec::new())
    };
    assert_eq!(
        shown(&[slice]),
        "\
team/p1/c (containers one two, pid 4711)
  used by  team/p1/c, team/p2/c
  fence    preload: cooperative
  ledger   /ledger
"
    );
}

#[test]
fn what_was_promised_is_shown_with_what_the_host_still_can() {
    let slice = SliceStatus {
        promise: Some(PromiseStatus {
            file: PathBuf::from("/promises/1.run"),
            budget: 40 * GIB,
            spent: 10 * GIB,
            unused: 30 * GIB,
            host_available: Some(60 * GIB),
            host_left: Some(22 * GIB),
        }),
        ..llama(Vec::new())
    };
    assert_eq!(
        shown(&[slice]),
        "\
llama (pid 4711)
  fence    preload: cooperative
  ledger   /ledger
  promised 40.00 GiB, 30.00 GiB of it not used; the host has 60.00 GiB available and can promise 22.00 GiB more
"
    );
}

#[test]
fn a_slice_that_only_counts_shows_what_is_over_its_limit() {
    let slice = SliceStatus {
        enforce: Some(false),
        fence: Fence::Counted,
        devices: vec![DeviceStatus {
            used: Some(9 * GIB),
            left: Some(0),
            ..eight(Vec::new())
        }],
        ..llama(Vec::new())
    };
    assert_eq!(
        shown(&[slice]),
        "\
llama (pid 4711, only counted, not enforced)
  fence    counted: nothing is refused
  ledger   /ledger
  GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4
    limit 8.00 GiB, used 9.00 GiB, over by 1.00 GiB
"
    );
}

#[test]
fn what_is_not_counted_or_not_enforced_is_said() {
    let slice = SliceStatus {
        enforce: Some(false),
        fence: Fence::Counted,
        uncounted: Some(2),
        ..llama(Vec::new())
    };
    let none = SliceStatus {
        pid: None,
        ledger: None,
        uncounted: None,
        devices: vec![DeviceStatus {
            limit: Some(8 * GIB),
            ..DeviceStatus::default()
        }],
        ..slice.clone()
    };
    assert_eq!(
        shown(&[slice, none]),
        "\
llama (pid 4711, only counted, not enforced)
  fence    counted: nothing is refused
  ledger   /ledger
  ! 2 allocations of slice llama could not be recorded in the ledger, which was full or locked, or is not on tmpfs (gpuslice doctor llama)

llama (only counted, not enforced)
  fence    counted: nothing is refused
  each GPU
    limit 8.00 GiB
  ! slice llama has no ledger: nothing is counted or refused
"
    );
}

#[test]
fn a_process_cannot_write_to_the_terminal_by_its_name() {
    let nasty = [process(1, Some("\u{1b}[2J\n"), GIB)];
    let mut slice = llama(vec![eight(nasty.to_vec())]);
    slice.name = "a\u{7}b".to_owned();
    let text = shown(&[slice]);
    assert!(text.contains("a\\u{7}b") && text.contains("\\u{1b}[2J\\n"));
    assert!(!text.contains(|letter: char| letter.is_control() && letter != '\n'));
}
