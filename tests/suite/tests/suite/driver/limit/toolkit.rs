//! Another limit meets ours: NVIDIA's container toolkit (1.20.1 and later) sets one from the
//! container's environment, soft and hard alike, before or after gpuslice. The lower one holds.

use super::backends::set_by_nvml;
use super::cgroups::{Cgroup, path, two_levels};
use super::{CONTEXT, DMEM, LIMIT, MISC, TOTAL, UUID, kept, set};
use gpuslice_suite::compile::{self, c};
use gpuslice_suite::place;
use gpuslice_suite::run::Run;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, GRANULE, OUT_OF_MEMORY, Said};
use serde_json::Value;

/// Sets the limit as the toolkit's hook does.
fn toolkit(counted: &Counted, cgroup: &Cgroup, gib: u64) {
    let said = set_by_nvml(counted.machine(), cgroup, gib * GIB, gib * GIB);
    assert_eq!(said, "0\n", "the toolkit's hook");
}

fn ours(counted: &Counted, cgroup: &Cgroup) -> String {
    set(counted, &path(cgroup), "6GiB").clean()
}

#[test]
fn the_toolkits_lower_limit_stays_when_ours_is_set_after_it() {
    for scenario in [DMEM, MISC] {
        let Some((_above, leaf)) = two_levels("theirs-first") else {
            return;
        };
        let counted = Counted::new(scenario, LIMIT);
        let _first = counted.neighbour();
        for (theirs, held) in [(4, 4), (8, 6)] {
            toolkit(&counted, &leaf, theirs);
            let said = ours(&counted, &leaf);
            assert!(said.contains(&format!("to {held}.00 GiB of")), "{said}");
            let limits = Some((held * GIB, held * GIB));
            assert_eq!(kept(&counted, &path(&leaf)).0, limits, "{scenario}");
        }
    }
}

/// The toolkit overwrites ours. The driver then holds theirs, and the library ours.
#[test]
fn the_lower_of_both_holds_in_a_slice_in_either_order() {
    for scenario in [DMEM, MISC] {
        for (theirs, first) in [(4, true), (8, true), (4, false), (8, false)] {
            let Some(leaf) = Cgroup::new("either") else {
                return;
            };
            let counted = Counted::new(scenario, LIMIT);
            if first {
                toolkit(&counted, &leaf, theirs);
            }
            let _ = ours(&counted, &leaf);
            if !first {
                toolkit(&counted, &leaf, theirs);
            }
            let what = format!("{scenario}, theirs {theirs} GiB, first: {first}");
            let lower = (theirs * GIB).min(LIMIT);
            let free = lower - CONTEXT;
            let mut worker = leaf.worker(counted.run(compile::worker()));
            assert_eq!(worker.info(), Said { total: lower, free }, "{what}");
            assert_eq!(worker.nvml(), [free, lower, CONTEXT], "{what}");
            let too_much = format!("alloc 0 {}", free + GRANULE);
            assert_eq!(worker.code(&too_much), OUT_OF_MEMORY, "{what}");
            assert_eq!(counted.counted(), CONTEXT, "{what}: nothing stays charged");
            worker.must(&format!("alloc 0 {free}"));
            assert_eq!(
                (counted.counted(), counted.held()),
                (lower, lower),
                "{what}"
            );
            assert_eq!(worker.free(), 0, "{what}");
        }
    }
}

/// The toolkit's soft limit raises dmem.min of the ancestor cgroups, and stays there after the cgroup
/// is removed. NVIDIA documents that it must be set to 0 first. gpuslice's limit raises no dmem.min.
#[test]
fn only_the_toolkits_own_soft_limit_is_left_in_ancestors() {
    for theirs_first in [true, false] {
        let Some((above, leaf)) = two_levels("soft") else {
            return;
        };
        let counted = Counted::new(DMEM, LIMIT);
        let _first = counted.neighbour();
        if theirs_first {
            toolkit(&counted, &leaf, 4);
        }
        let _ = ours(&counted, &leaf);
        if !theirs_first {
            toolkit(&counted, &leaf, 4);
        }
        drop(leaf);
        assert_eq!(kept(&counted, &path(&above)), (None, 4 * GIB));
    }
}

/// `gpuslice check` in a cgroup, in a slice of 6 GiB.
fn check_in(counted: &Counted, scenario: &str, cgroup: &Cgroup) -> Value {
    let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", path(cgroup));
    let run = Run::new("sh")
        .args(["-c", &script, "sh"])
        .arg(place::gpuslice());
    let run = run.args(["check", "--json", "--sim", scenario, "--memory", "6GiB"]);
    let state = counted.machine().state();
    let answer = run.env("GPUSLICE_SIM_STATE", state).answer();
    serde_json::from_str(&answer.stdout).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

fn totals(said: &Value, api: &str) -> Vec<u64> {
    let rows = said["rows"].as_array().unwrap().iter();
    let mut totals: Vec<u64> = rows
        .filter(|row| row["api"] == api && row["device"] == UUID)
        .map(|row| row["total"].as_u64().unwrap())
        .collect();
    totals.dedup();
    totals
}

/// A documented limit: no call tells the driver's limit before there is a context, so the sizes of
/// the device stay the slice's. `gpuslice check` names the functions.
#[test]
fn the_devices_size_is_the_slices_where_the_drivers_limit_is_lower() {
    for scenario in [DMEM, MISC] {
        let Some(leaf) = Cgroup::new("lower") else {
            return;
        };
        let counted = Counted::new(scenario, LIMIT);
        toolkit(&counted, &leaf, 4);
        let said = check_in(&counted, scenario, &leaf);
        for (api, total) in [
            ("cuMemGetInfo_v2", 4 * GIB),
            ("nvmlDeviceGetMemoryInfo", 4 * GIB),
            ("nvmlDeviceGetMemoryInfo_v2", 4 * GIB),
            ("cudaMemGetInfo", 4 * GIB),
            ("cuDeviceTotalMem_v2", LIMIT),
            ("cudaGetDeviceProperties", LIMIT),
        ] {
            assert_eq!(totals(&said, api), [total], "{scenario}: {api}");
        }
        assert_eq!(said["consistent"], false, "{scenario}");
        let named = said["disagreements"].to_string();
        assert!(named.contains("cuDeviceTotalMem_v2"), "{named}");
    }
}

/// A documented limit: a limit of an ancestor cgroup is not reported to the processes below it.
#[test]
fn a_lower_limit_above_the_container_is_held_and_not_told() {
    for scenario in [DMEM, MISC] {
        let Some((above, leaf)) = two_levels("above") else {
            return;
        };
        let counted = Counted::new(scenario, LIMIT);
        toolkit(&counted, &above, 4);
        assert_eq!(check_in(&counted, scenario, &leaf)["consistent"], true);
        let mut worker = leaf.worker(counted.run(compile::worker()));
        let free = LIMIT - CONTEXT;
        assert_eq!(worker.info(), Said { total: LIMIT, free }, "{scenario}");
        assert_eq!(worker.code(&format!("alloc 0 {free}")), OUT_OF_MEMORY);
        assert_eq!(counted.counted(), CONTEXT, "the driver's refusal is undone");
        worker.must(&format!("alloc 0 {}", 4 * GIB - CONTEXT));
        assert_eq!(counted.held(), 4 * GIB, "{scenario}");
        assert!(counted.held() < TOTAL);
    }
}

/// The library changes nothing for a program of a limited cgroup that has no slice.
#[test]
fn without_a_slice_a_limited_program_is_told_what_the_driver_says() {
    let Some(leaf) = Cgroup::new("no-slice") else {
        return;
    };
    for scenario in [DMEM, MISC] {
        let counted = Counted::new(scenario, LIMIT);
        toolkit(&counted, &leaf, 4);
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", path(&leaf));
        let run = || {
            let run = Run::new("sh").args(["-c", &script, "sh"]);
            counted
                .machine()
                .place(run.arg(c("memory_limits")).arg("info"))
        };
        let bare = run().answer().clean();
        assert_eq!(run().with_shim().answer().clean(), bare, "{scenario}");
        assert!(bare.contains(&(4 * GIB).to_string()), "{bare}");
    }
}
