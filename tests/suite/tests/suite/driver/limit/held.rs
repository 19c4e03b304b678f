//! The library in a slice whose limit the driver holds: it claims nothing, and counts what it must
//! show. Outside the driver's cgroup it enforces the limit itself.

use super::cgroups::Cgroup;
use super::{CONTEXT, DMEM, LIMIT, MISC, UUID, set};
use gpuslice_suite::compile;
use gpuslice_suite::run::Run;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, GRANULE, OUT_OF_MEMORY, Said, Worker};
use serde_json::{Value, json};

/// The slice file of a slice whose limit the driver holds for a cgroup.
pub(crate) fn keys(cgroup: &Cgroup, limit: u64) -> Value {
    let name = cgroup.folder.file_name().unwrap().to_string_lossy();
    json!({
        "driver_cgroup": format!("/{name}"),
        "devices": [{
            "uuid": UUID, "memory": limit, "integrated": false, "driver_limit": "dmem",
        }],
    })
}

/// Starts a worker in a cgroup: the library looks for its cgroup when it is loaded.
pub(crate) fn idle(cgroup: &Cgroup, slice: &Counted) -> Worker {
    let folder = cgroup.folder.display();
    let script = format!("echo $$ >{folder}/cgroup.procs && exec \"$@\"");
    let run = slice.run("sh").args(["-c", &script, "sh"]);
    Worker::start(Run::arg(run, compile::worker()))
}

/// A worker in a cgroup, with a context.
fn inside(cgroup: &Cgroup, slice: &Counted) -> Worker {
    let mut worker = idle(cgroup, slice);
    worker.must("start 0");
    worker
}

#[test]
fn a_held_slice_counts_what_it_shows_and_is_as_large_as_it_says() {
    for scenario in [DMEM, MISC] {
        let Some(cgroup) = Cgroup::new("counts") else {
            return;
        };
        let counted = Counted::with(scenario, &keys(&cgroup, LIMIT));
        let path = cgroup.folder.display().to_string();
        let _ = set(&counted, &path, "6GiB").clean();
        let (mut one, mut other) = (inside(&cgroup, &counted), inside(&cgroup, &counted));
        let free = LIMIT - 2 * CONTEXT;
        assert_eq!(one.info(), Said { total: LIMIT, free }, "{scenario}");
        assert_eq!(other.nvml(), [free, LIMIT, 2 * CONTEXT], "{scenario}");
        one.must(&format!("alloc 0 {}", 2 * GIB));
        assert_eq!(counted.counted(), 2 * GIB + 2 * CONTEXT, "{scenario}");
        let left = other.free();
        let too_much = format!("alloc 0 {}", left + GRANULE);
        assert_eq!(other.code(&too_much), OUT_OF_MEMORY, "{scenario}");
        assert_eq!(counted.refusals().count, 1, "the refusal is counted");
        other.must(&format!("alloc 0 {left}"));
        assert_eq!((one.free(), other.free()), (0, 0), "{scenario}");
        assert_eq!((counted.counted(), counted.held()), (LIMIT, LIMIT));
        one.must("free 0");
        assert_eq!(other.free(), 2 * GIB, "{scenario}");
        other.kill();
        counted.buried(1);
        assert_eq!(counted.counted(), CONTEXT, "{scenario}");
    }
}

/// Proof that the driver alone refuses: its limit is higher than the slice file's here, and the
/// library lets everything through that the driver grants.
#[test]
fn a_held_slice_claims_nothing() {
    let Some(cgroup) = Cgroup::new("claims") else {
        return;
    };
    let counted = Counted::with(DMEM, &keys(&cgroup, 2 * GIB));
    let path = cgroup.folder.display().to_string();
    let _ = set(&counted, &path, "4GiB").clean();
    let mut worker = inside(&cgroup, &counted);
    worker.must(&format!("alloc 0 {}", 3 * GIB));
    assert_eq!(counted.counted(), 3 * GIB + CONTEXT);
    assert_eq!(worker.free(), 0);
    // The driver does not count managed memory, so the library refuses it.
    assert_eq!(worker.code(&format!("managed 1 {GRANULE}")), OUT_OF_MEMORY);
    // So it does with a pool of managed memory.
    worker.must("pool-at 2 2 0 0");
    assert_eq!(worker.code(&format!("from 3 2 {GRANULE}")), OUT_OF_MEMORY);
}

#[test]
fn a_process_outside_the_drivers_cgroup_is_held_by_the_library() {
    for scenario in [DMEM, MISC] {
        let Some(cgroup) = Cgroup::new("outside") else {
            return;
        };
        let counted = Counted::with(scenario, &keys(&cgroup, LIMIT));
        let path = cgroup.folder.display().to_string();
        let _ = set(&counted, &path, "6GiB").clean();
        let mut within = inside(&cgroup, &counted);
        within.must(&format!("alloc 0 {}", 2 * GIB));
        let mut outside = counted.worker();
        let free = 4 * GIB - 2 * CONTEXT;
        assert_eq!(outside.info(), Said { total: LIMIT, free }, "{scenario}");
        let too_much = format!("alloc 0 {}", free + GRANULE);
        assert_eq!(outside.code(&too_much), OUT_OF_MEMORY, "{scenario}");
        outside.must(&format!("alloc 0 {free}"));
    }
}

/// A limit that is lowered in the ledger holds at once, whatever the driver holds.
#[test]
fn a_lower_limit_in_the_ledger_is_held_by_the_library() {
    let Some(cgroup) = Cgroup::new("lower-ledger") else {
        return;
    };
    let counted = Counted::with(DMEM, &keys(&cgroup, LIMIT));
    let path = cgroup.folder.display().to_string();
    let _ = set(&counted, &path, "6GiB").clean();
    let mut worker = inside(&cgroup, &counted);
    assert!(counted.resize(4 * GIB));
    let free = 4 * GIB - CONTEXT;
    assert_eq!(
        worker.info(),
        Said {
            total: 4 * GIB,
            free
        }
    );
    let too_much = format!("alloc 0 {}", free + GRANULE);
    assert_eq!(worker.code(&too_much), OUT_OF_MEMORY);
    worker.must(&format!("alloc 0 {free}"));
}

/// The ledger is for show where the driver enforces the limit: without it programs go on.
#[test]
fn a_held_slice_without_a_usable_ledger_goes_on() {
    let Some(cgroup) = Cgroup::new("no-ledger") else {
        return;
    };
    let counted = Counted::with(DMEM, &keys(&cgroup, LIMIT));
    let path = cgroup.folder.display().to_string();
    let _ = set(&counted, &path, "6GiB").clean();
    std::fs::remove_file(counted.ledger()).unwrap();
    let mut worker = inside(&cgroup, &counted);
    let free = LIMIT - CONTEXT;
    assert_eq!(worker.info(), Said { total: LIMIT, free });
    assert_eq!(
        worker.code(&format!("alloc 0 {}", free + GRANULE)),
        OUT_OF_MEMORY
    );
    worker.must(&format!("alloc 0 {free}"));
}
