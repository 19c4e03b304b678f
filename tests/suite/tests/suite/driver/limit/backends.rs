//! The driver has two ways to limit a cgroup: the kernel's dmem controller, and the driver's own
//! table. NVIDIA's documentation says how they differ, and each trap is a test. Programs run
//! without the library unless the test says otherwise.

use super::cgroups::{Cgroup, path, two_levels};
use super::{CONTEXT, DMEM, LIMIT, MISC, TOTAL, kept, set};
use gpuslice_suite::compile::{self, c};
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY};

/// NVML's return codes, as the test program prints them.
const INVALID_ARGUMENT: &str = "2\n";
const NOT_SUPPORTED: &str = "3\n";

/// NVML's answer to a program that is no part of gpuslice.
pub(crate) fn nvml(machine: &Machine, words: &[&str]) -> String {
    let run = machine.place(Run::new(c("memory_limits")));
    run.args(words).answer().clean()
}

pub(crate) fn set_by_nvml(machine: &Machine, cgroup: &Cgroup, soft: u64, hard: u64) -> String {
    let (soft, hard) = (soft.to_string(), hard.to_string());
    nvml(machine, &["set", &path(cgroup), &soft, &hard])
}

fn get_by_nvml(machine: &Machine, cgroup: &Cgroup) -> String {
    nvml(machine, &["get", &path(cgroup)])
}

#[test]
fn only_r615_has_the_functions() {
    for (branch, found) in [
        ("550", "absent\n"),
        ("580", "absent\n"),
        ("615", "3 0 0 0\n"),
    ] {
        let machine = Machine::new(&format!("rtx3090@{branch}"));
        let said = nvml(&machine, &["get", "/sys/fs/cgroup/without"]);
        assert_eq!(said, found, "{branch}");
    }
}

#[test]
fn a_cgroup_without_a_limit_is_not_supported_and_not_unlimited() {
    let Some((above, leaf)) = two_levels("unset") else {
        return;
    };
    for scenario in [DMEM, MISC] {
        let counted = Counted::new(scenario, LIMIT);
        let machine = counted.machine();
        let _first = counted.neighbour();
        assert_eq!(get_by_nvml(machine, &leaf), "3 0 0 0\n", "{scenario}");
        assert_eq!(
            set_by_nvml(machine, &above, 0, 2 * GIB),
            "0\n",
            "{scenario}"
        );
        // A limit of an ancestor is not a limit of the leaf.
        assert_eq!(get_by_nvml(machine, &leaf), "3 0 0 0\n", "{scenario}");
        let limited = format!("0 0 {} 0\n", 2 * GIB);
        assert_eq!(get_by_nvml(machine, &above), limited, "{scenario}");
    }
}

#[test]
fn what_a_cgroup_uses_counts_the_cgroups_below() {
    let Some((above, leaf)) = two_levels("used") else {
        return;
    };
    for scenario in [DMEM, MISC] {
        let counted = Counted::new(scenario, LIMIT);
        let machine = counted.machine();
        let mut inside = leaf.worker(machine.place(Run::new(compile::worker())));
        inside.must(&format!("alloc 0 {GIB}"));
        let _outside = counted.neighbour();
        assert_eq!(set_by_nvml(machine, &above, 0, 2 * GIB), "0\n");
        let said = format!("0 0 {} {}\n", 2 * GIB, GIB + CONTEXT);
        assert_eq!(get_by_nvml(machine, &above), said, "{scenario}");
    }
}

#[test]
fn the_drivers_own_table_refuses_the_root() {
    let Some(cgroup) = Cgroup::new("root") else {
        return;
    };
    let counted = Counted::new(MISC, LIMIT);
    let root = cgroup.folder.parent().unwrap().display().to_string();
    let limits = ["0".to_owned(), GIB.to_string()];
    let said = nvml(counted.machine(), &["set", &root, &limits[0], &limits[1]]);
    assert_eq!(said, INVALID_ARGUMENT);
    let refused = set(&counted, &root, "6GiB");
    assert_eq!(refused.end, "exit 125", "{refused:?}");
    assert!(refused.stderr.contains("returns 2 ("), "{refused:?}");
}

#[test]
fn only_the_drivers_own_table_refuses_a_limit_below_the_use() {
    let Some(cgroup) = Cgroup::new("below-use") else {
        return;
    };
    for scenario in [DMEM, MISC] {
        let counted = Counted::new(scenario, LIMIT);
        let machine = counted.machine();
        let mut inside = cgroup.worker(machine.place(Run::new(compile::worker())));
        assert_eq!(set_by_nvml(machine, &cgroup, 0, 6 * GIB), "0\n");
        inside.must(&format!("alloc 0 {}", 4 * GIB));
        let said = set_by_nvml(machine, &cgroup, 0, 3 * GIB);
        if scenario == MISC {
            assert_eq!(said, INVALID_ARGUMENT);
            assert_eq!(kept(&counted, &path(&cgroup)).0, Some((0, 6 * GIB)));
            inside.must(&format!("alloc 1 {GIB}"));
            let refused = set(&counted, &path(&cgroup), "3GiB");
            assert_eq!(refused.end, "exit 125", "{refused:?}");
        } else {
            // Allocated memory stays; the driver grants nothing until the use is below the limit.
            assert_eq!(said, "0\n");
            assert_eq!(inside.code("alloc 1 2097152"), OUT_OF_MEMORY);
            assert_eq!(inside.free(), 0);
        }
    }
}

/// With a limit on both cgroups, dmem enforces both. The driver's own table enforces only the nearest.
#[test]
fn only_dmem_also_enforces_the_limit_of_an_ancestor_cgroup() {
    let Some((above, leaf)) = two_levels("nest") else {
        return;
    };
    for (scenario, fits) in [(DMEM, false), (MISC, true)] {
        let counted = Counted::new(scenario, LIMIT);
        let machine = counted.machine();
        let bare = || machine.place(Run::new(compile::worker()));
        let _ = set(&counted, &path(&above), "2GiB").clean();
        // Both ways hold a leaf without a limit of its own to the limit of its nearest ancestor.
        let mut inside = leaf.worker(bare());
        assert_eq!(
            inside.info().total,
            TOTAL,
            "an ancestor's limit is not reported"
        );
        assert_eq!(inside.code(&format!("alloc 0 {}", 2 * GIB)), OUT_OF_MEMORY);
        inside.must(&format!("alloc 0 {GIB}"));
        inside.must("free 0");
        let _ = set(&counted, &path(&leaf), "6GiB").clean();
        assert_eq!(
            inside.info().total,
            6 * GIB,
            "the leaf's own limit is reported"
        );
        let code = inside.code(&format!("alloc 0 {}", 4 * GIB));
        assert_eq!(code, if fits { 0 } else { OUT_OF_MEMORY }, "{scenario}");
    }
}

/// NVIDIA's documentation names `cuMemGetInfo` and version 2 of NVML's memory, and no other
/// function.
#[test]
fn a_limit_of_the_leaf_is_told_by_two_functions_only() {
    let Some(cgroup) = Cgroup::new("told") else {
        return;
    };
    for scenario in [DMEM, MISC] {
        let counted = Counted::new(scenario, LIMIT);
        let machine = counted.machine();
        let mut inside = cgroup.worker(machine.place(Run::new(compile::worker())));
        assert_eq!(set_by_nvml(machine, &cgroup, 0, 4 * GIB), "0\n");
        let said = inside.info();
        assert_eq!((said.total, said.free), (4 * GIB, 4 * GIB - CONTEXT));
        let reserved = (24_576 << 20) - TOTAL;
        let [free, total, used] = inside.nvml();
        assert_eq!([free, total], [TOTAL - CONTEXT, 24_576 << 20], "{scenario}");
        assert_eq!(used, CONTEXT + reserved, "{scenario}: version 1");
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", path(&cgroup));
        let run = Run::new("sh").args(["-c", &script, "sh"]);
        let run = run.arg(c("memory_limits")).arg("info");
        let lines = machine.place(run).answer().clean();
        let second = lines.lines().nth(1).unwrap();
        let limited = [4 * GIB, 4 * GIB - CONTEXT, CONTEXT].map(|bytes| bytes.to_string());
        assert_eq!(second, format!("0 {}", limited.join(" ")), "{scenario}");
    }
}

#[test]
fn a_gpu_with_mig_is_refused_and_reports_what_it_did() {
    let Some(cgroup) = Cgroup::new("mig") else {
        return;
    };
    for scenario in ["h200-mig@615", "h200-mig@615-misc"] {
        let counted = Counted::new(scenario, LIMIT);
        let machine = counted.machine();
        let mut inside = cgroup.worker(machine.place(Run::new(compile::worker())));
        let before = inside.info();
        assert_eq!(set_by_nvml(machine, &cgroup, 0, GIB), NOT_SUPPORTED);
        assert_eq!(get_by_nvml(machine, &cgroup), "3 0 0 0\n", "{scenario}");
        assert_eq!(inside.info(), before, "{scenario}");
        inside.must(&format!("alloc 0 {}", 2 * GIB));
    }
}

/// GPUs without a framebuffer (GB10, Thor) are skipped when the driver registers regions.
#[test]
fn a_gpu_without_a_framebuffer_is_skipped_and_the_library_holds_the_slice() {
    let Some(cgroup) = Cgroup::new("zero") else {
        return;
    };
    for (machine, uuid) in [
        ("gb10", "GPU-b10aaaaa-4444-4555-8666-777788880000"),
        (
            "gb10-nvml-answers",
            "GPU-b10aaaaa-4444-4555-8666-777788880000",
        ),
        ("thor", "GPU-7102aaaa-6666-4777-8888-9999aaaa0000"),
    ] {
        for branch in ["615", "615-misc"] {
            let scenario = &*format!("{machine}@{branch}");
            let device = serde_json::json!({"uuid": uuid, "memory": LIMIT, "integrated": true});
            let counted = Counted::with(scenario, &serde_json::json!({"devices": [device]}));
            let machine = counted.machine();
            assert_eq!(set_by_nvml(machine, &cgroup, 0, GIB), NOT_SUPPORTED);
            assert_eq!(get_by_nvml(machine, &cgroup), "3 0 0 0\n", "{scenario}");
            let mut bare = cgroup.worker(machine.place(Run::new(compile::worker())));
            bare.must(&format!("alloc 0 {}", 8 * GIB));
            drop(bare);
            let mut inside = cgroup.worker(counted.run(compile::worker()));
            let said = inside.info();
            assert_eq!(said.total, LIMIT, "{scenario}");
            assert_eq!(inside.code(&format!("alloc 0 {LIMIT}")), OUT_OF_MEMORY);
            inside.must(&format!("alloc 0 {}", said.free));
        }
    }
}
