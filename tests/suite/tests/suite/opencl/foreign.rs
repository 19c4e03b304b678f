//! Drivers of other vendors, and drivers that cannot be taken over.
//! Touches: PoCL, which computes on the processor; a driver whose table cannot be changed.

use super::{client, fact, on_the_card};
use gpuslice_suite::place;
use gpuslice_suite::run::Run;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::Counted;

/// The names and values of what `clinfo` prints about PoCL, bare or in a slice.
fn pocl(run: Run) -> String {
    let folder = "/etc/OpenCL/vendors/pocl.icd";
    let answer = run.env("OCL_ICD_VENDORS", folder).arg("--raw").answer();
    assert_eq!(answer.end, "exit 0", "{answer:?}");
    assert!(
        answer.stdout.contains("Portable Computing Language"),
        "{answer:?}"
    );
    answer.stdout
}

#[test]
fn the_devices_of_pocl_are_untouched() {
    let slice = Counted::new("rtx3090", GIB);
    let (bare, sliced) = (pocl(Run::new("clinfo")), pocl(slice.run("clinfo")));
    assert_eq!(bare, sliced);
    let total: u64 = fact(&sliced, "CL_DEVICE_GLOBAL_MEM_SIZE").parse().unwrap();
    assert!(total > GIB, "{total}");
    // It allocates and computes beyond the slice.
    let script = place::source("python/opencl_computes.py");
    let run = slice.run(place::venv("python"));
    let run = run.env("OCL_ICD_VENDORS", "/etc/OpenCL/vendors/pocl.icd");
    let said = run.env("POCL_CACHE_DIR", slice.folder()).arg(script);
    assert_eq!(said.answer().clean(), "20 buffers of 100 MiB, sum 4950\n");
    assert_eq!(slice.counted(), 0);
}

#[test]
fn both_drivers_are_found_side_by_side() {
    let slice = Counted::new("rtx3090", GIB);
    let folder = slice.folder().join("vendors");
    std::fs::create_dir(&folder).unwrap();
    let nvidia = super::vendors().join("nvidia.icd");
    for driver in [nvidia, "/etc/OpenCL/vendors/pocl.icd".into()] {
        std::fs::copy(&driver, folder.join(driver.file_name().unwrap())).unwrap();
    }
    let run = slice.run("clinfo").env("OCL_ICD_VENDORS", &folder);
    let said = run.arg("--raw").answer().stdout;
    let totals = said
        .lines()
        .filter(|line| line.contains(" CL_DEVICE_GLOBAL_MEM_SIZE "));
    let value = |line: &str| line.split_whitespace().last()?.parse().ok();
    let totals: Vec<u64> = totals.filter_map(value).collect();
    let [mut smaller, mut larger] = totals[..] else {
        panic!("two devices were expected: {said}");
    };
    if smaller > larger {
        (smaller, larger) = (larger, smaller);
    }
    assert!(smaller == GIB && larger > GIB, "{totals:?}");
}

#[test]
fn where_the_table_cannot_be_changed_there_is_no_platform() {
    let slice = Counted::new("rtx3090", GIB);
    let run = on_the_card(slice.run(client())).env("GPUSLICE_SIM_FAULTS", "opencl-sealed");
    let run = run.env("GPUSLICE_LOG", "warn");
    let said = run.args(["icd", "total"]).answer();
    assert_eq!(said.stdout, "platforms -1001\n");
    assert!(said.stderr.contains("cannot be replaced"), "{said:?}");
}

#[test]
fn where_the_slice_cannot_be_read_memory_is_refused() {
    let slice = Counted::new("rtx3090", GIB);
    let file = slice.folder().join("broken.json");
    std::fs::write(&file, "no slice").unwrap();
    let run = on_the_card(slice.run(client())).slice(&file);
    let said = run.args(["libOpenCL.so.1", "buffer 0 4194304", "svm 0 4096"]);
    assert_eq!(said.answer().stdout, "buffer -4\nsvm 1\n");
}

#[test]
fn a_forked_child_releases_nothing_of_its_parents() {
    let slice = Counted::new("rtx3090", GIB);
    let operations = ["used", "buffer 0 268435456", "fork 0", "used"];
    let run = on_the_card(slice.run(client())).arg("libOpenCL.so.1");
    let said = run.args(operations).answer().clean();
    let context = 254 << 20;
    let (before, after) = (context, context + 268_435_456);
    let expected = format!("used {before} {before}\nbuffer 0\nfork 0\nused {after} {after}\n");
    assert_eq!(said, expected);
}
