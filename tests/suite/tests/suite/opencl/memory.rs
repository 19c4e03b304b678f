//! What OpenCL programs allocate counts in the slice, with CUDA's, and is refused at the limit.
//! Touches: the C client in slices, with each loader and with the driver alone.

use super::{client, on_the_card};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, Worker};

const MIB: u64 = 1 << 20;
/// The size of a context on an RTX 3090.
const CONTEXT: u64 = 254 * MIB;

/// The lines of the client's operations in a slice; the driver has these faults.
fn lines_with(slice: &Counted, faults: &str, from: &str, operations: &[String]) -> Vec<String> {
    let run = on_the_card(slice.run(client())).env("GPUSLICE_SIM_FAULTS", faults);
    let said = run.arg(from).args(operations).answer();
    assert_eq!(said.end, "exit 0", "{said:?}");
    said.stdout.lines().map(str::to_owned).collect()
}

fn lines(slice: &Counted, from: &str, operations: &[String]) -> Vec<String> {
    lines_with(slice, "", from, operations)
}

/// The ways to the driver, each with the fault that makes it possible.
fn ways() -> [(&'static str, &'static str); 3] {
    [
        ("", "libOpenCL.so.1"),
        ("", "icd"),
        ("opencl-icd2", "names"),
    ]
}

/// A line of the client that reports how much CUDA and NVML report as used.
fn used(bytes: u64) -> String {
    format!("used {bytes} {bytes}")
}

#[test]
fn every_way_to_the_driver_leads_to_the_slice() {
    let operations = [
        "total".into(),
        format!("buffer 0 {}", 600 * MIB),
        format!("buffer 1 {}", 500 * MIB),
        "release 0".into(),
        format!("buffer 1 {}", 500 * MIB),
    ];
    for (faults, from) in ways() {
        let slice = Counted::new("rtx3090", GIB);
        let said = lines_with(&slice, faults, from, &operations);
        let total = format!("total {GIB} {GIB}");
        let expected = [&total, "buffer 0", "buffer -4", "release 0", "buffer 0"];
        assert_eq!(said, expected, "{from}");
    }
}

/// Every function that allocates, and the one that releases its memory.
const KINDS: [(&str, &str, i32); 11] = [
    ("buffer", "release", -4),
    ("properties", "release", -4),
    ("nv", "release", -4),
    ("pipe", "release", -4),
    ("image2d", "release", -4),
    ("image3d", "release", -4),
    ("image", "release", -4),
    ("pimage", "release", -4),
    ("svm", "svmfree", 1),
    ("svm", "svmqueue", 1),
    ("buffer", "release", -4),
];

#[test]
fn each_kind_of_memory_is_counted_refused_and_released() {
    let operations = |kind: &str, release: &str| {
        [
            "used".into(),
            format!("{kind} 0 {}", 256 * MIB),
            "used".into(),
            format!("{kind} 1 {}", 600 * MIB),
            format!("{release} 0"),
            "used".into(),
        ]
    };
    for (kind, release, refusal) in KINDS {
        let slice = Counted::new("rtx3090", GIB);
        let said = lines(&slice, "libOpenCL.so.1", &operations(kind, release));
        let expected = [
            used(CONTEXT),
            format!("{kind} 0"),
            used(CONTEXT + 256 * MIB),
            format!("{kind} {refusal}"),
            format!("{release} 0"),
            used(CONTEXT),
        ];
        assert_eq!(said, expected);
        assert!(slice.refusals().count > 0, "{kind}");
    }
}

/// Such an image was refused for want of memory where it exceeded the slice.
#[test]
fn an_image_of_an_unknown_format_gets_the_drivers_code_whatever_its_size() {
    let slice = Counted::new("rtx3090", GIB);
    let operations = [MIB, 2 * GIB].map(|size| format!("unknown 0 {size}"));
    // CL_INVALID_IMAGE_FORMAT_DESCRIPTOR.
    let said = lines(&slice, "libOpenCL.so.1", &operations);
    assert_eq!(said, ["unknown -39", "unknown -39"]);
    assert_eq!(slice.refusals().count, 0);
}

#[test]
fn opencl_has_the_room_that_cuda_leaves() {
    let slice = Counted::new("rtx3090", GIB);
    let room = GIB - CONTEXT - 300 * MIB;
    let operations = [
        format!("cuda 0 {}", 300 * MIB),
        "used".into(),
        format!("buffer 0 {}", room + 2 * MIB),
        format!("buffer 0 {room}"),
        "used".into(),
    ];
    let said = lines(&slice, "libOpenCL.so.1", &operations);
    let expected = [
        used(CONTEXT),
        "cuda 0".into(),
        used(CONTEXT + 300 * MIB),
        "buffer -4".into(),
        "buffer 0".into(),
        used(GIB),
    ];
    assert_eq!(said, expected);
    // A process in the same slice gets what the first one leaves; that one has ended.
    slice.buried(0);
    let said = lines(&slice, "libOpenCL.so.1", &[format!("buffer 0 {GIB}")]);
    assert_eq!(said, ["buffer 0"]);
}

#[test]
fn memory_that_cuda_keeps_unused_is_available_to_opencl() {
    for (kind, _, _) in KINDS {
        let slice = Counted::new("rtx3090", 2 * GIB);
        let operations = [
            format!("keep 0 {GIB}"),
            "used".into(),
            format!("{kind} 0 {GIB}"),
            "used".into(),
        ];
        let said = lines(&slice, "libOpenCL.so.1", &operations);
        let expected = [
            used(CONTEXT),
            "keep 0".to_owned(),
            used(CONTEXT + GIB),
            format!("{kind} 0"),
            used(CONTEXT + GIB),
        ];
        assert_eq!(said, expected);
        assert_eq!(slice.refusals().count, 0, "{kind}");
    }
}

#[test]
fn memory_stays_counted_while_a_part_of_it_lives() {
    let slice = Counted::new("rtx3090", GIB);
    let operations = [
        "used".into(),
        format!("buffer 0 {}", 256 * MIB),
        "watch 0".into(),
        "retain 0".into(),
        format!("sub 1 {}", 64 * MIB),
        format!("over 2 {}", 128 * MIB),
        "used".into(),
        "release 0".into(),
        "release 0".into(),
        "used".into(),
        "release 1".into(),
        "used".into(),
        "release 2".into(),
        "used".into(),
    ];
    let said = lines(&slice, "libOpenCL.so.1", &operations);
    let (held, free) = (used(CONTEXT + 256 * MIB), used(CONTEXT));
    let expected = [
        &*free,
        "buffer 0",
        "watch 0",
        "retain 0",
        "sub 0",
        "over 0",
        &*held,
        "release 0",
        "release 0",
        &*held,
        "release 0",
        &*held,
        "gone watch 0",
        "release 0",
        &*free,
    ];
    assert_eq!(said, expected);
}

#[test]
fn an_image_is_charged_the_size_that_the_driver_reports() {
    let slice = Counted::new("rtx3090", GIB);
    // The driver makes lines of 16 bytes 512 bytes long.
    let lines_of = |bytes: u64| bytes / 512;
    let operations = [
        format!("narrow 0 {}", lines_of(256 * MIB)),
        "used".into(),
        format!("narrow 1 {}", lines_of(600 * MIB)),
        "used".into(),
        "release 0".into(),
        "used".into(),
    ];
    let said = lines(&slice, "libOpenCL.so.1", &operations);
    let expected = [
        "narrow 0".to_owned(),
        used(CONTEXT + 256 * MIB),
        "narrow -4".into(),
        used(CONTEXT + 256 * MIB),
        "release 0".into(),
        used(CONTEXT),
    ];
    assert_eq!(said, expected);
}

#[test]
fn small_buffers_are_charged_their_own_size() {
    let slice = Counted::new("rtx3090", 4 * MIB);
    let said = lines(&slice, "libOpenCL.so.1", &["many 2000 4096".into()]);
    assert_eq!(said, ["many 1024 -4"]);
}

#[test]
fn a_buffer_takes_memory_of_every_device_of_its_context() {
    let slice = Counted::of_devices("2xh200", &serde_json::json!({"memory": GIB}), 2);
    let program = || on_the_card(slice.run(client())).env("OPENCL_ALL_DEVICES", "1");
    let operations = [
        format!("buffer 0 {}", 600 * MIB),
        format!("buffer 1 {}", 600 * MIB),
        "total 1".into(),
        "release 0".into(),
        format!("buffer 1 {}", 600 * MIB),
    ];
    let said = program()
        .arg("libOpenCL.so.1")
        .args(&operations)
        .answer()
        .clean();
    let total = format!("total {GIB} {GIB}");
    let expected = ["buffer 0", "buffer -4", &total, "release 0", "buffer 0", ""];
    assert_eq!(said, expected.join("\n"));
    // In a context of one device, the other one's room stays.
    slice.buried(0);
    let run = on_the_card(slice.run(client()));
    let said = run
        .arg("libOpenCL.so.1")
        .args(&operations[..2])
        .answer()
        .clean();
    assert_eq!(said, "buffer 0\nbuffer -4\n");
}

#[test]
fn shared_memory_that_is_freed_in_bulk_is_free_on_every_device() {
    let [three, one] = [("3xh200", 3, 3), ("rtx3090", 1, 20)];
    for (scenario, devices, count) in [three, one] {
        let slice = Counted::of_devices(scenario, &serde_json::json!({"memory": GIB}), devices);
        let mut worker = super::worker_of_all(&slice, "libOpenCL.so.1");
        for number in 0..count {
            worker.must(&format!("svm {number} {}", 32 * MIB));
        }
        let all = 32 * MIB * devices as u64 * count;
        assert_eq!(slice.counted(), all, "{scenario}");
        worker.must(&format!("svmbulk {count}"));
        assert_eq!(slice.counted(), 0, "{scenario}");
    }
}

/// The driver had freed the addresses, but not returned yet.
#[test]
fn memory_at_an_address_that_another_thread_frees_in_bulk_stays_counted() {
    let slice = Counted::new("rtx3090", GIB);
    let run = on_the_card(slice.run(client())).env("MALLOC_ARENA_MAX", "1");
    let run = run.env("GPUSLICE_SIM_FAULTS", "slow:clEnqueueSVMFree=1000ms");
    let mut worker = Worker::start(run.arg("libOpenCL.so.1"));
    for number in 0..20 {
        worker.must(&format!("svm {number} {}", 16 * MIB));
    }
    worker.must(&format!("svmrace 20 {}", 16 * MIB));
    assert_eq!(slice.counted(), 20 * 16 * MIB);
}

#[test]
fn shared_memory_stays_counted_if_the_driver_refuses_to_free_it() {
    let slice = Counted::new("rtx3090", GIB);
    let mut worker = super::worker(&slice, "libOpenCL.so.1");
    for number in 0..20 {
        worker.must(&format!("svm {number} {}", 16 * MIB));
    }
    // CL_INVALID_OPERATION, because the simulated driver makes no events.
    assert_eq!(worker.code("svmevent 20"), -59);
    assert_eq!(slice.counted(), 20 * 16 * MIB);
    worker.must("svmbulk 20");
    assert_eq!(slice.counted(), 0);
}

#[test]
fn memory_that_the_driver_takes_from_cuda_is_charged_once() {
    let slice = Counted::new("rtx3090", GIB);
    let operations = [
        format!("buffer 0 {}", 256 * MIB),
        "used".into(),
        format!("buffer 1 {}", 900 * MIB),
        "release 0".into(),
        "used".into(),
    ];
    let faults = "opencl-uses-cuda";
    let said = lines_with(&slice, faults, "libOpenCL.so.1", &operations);
    // The program retains the same primary context, which exists by then: it is charged too.
    let expected = ["buffer 0", "buffer -4", "release 0"];
    let codes: Vec<&str> = said
        .iter()
        .map(String::as_str)
        .filter(|line| !line.starts_with("used"))
        .collect();
    assert_eq!(codes, expected);
    let numbers: Vec<u64> = said
        .iter()
        .filter_map(|line| line.strip_prefix("used ")?.split(' ').next()?.parse().ok())
        .collect();
    assert_eq!(numbers[0] - numbers[1], 256 * MIB, "{said:?}");
}

#[test]
fn a_killed_process_gives_its_memory_back() {
    let slice = Counted::new("rtx3090", GIB);
    let operations = [format!("buffer 0 {}", 600 * MIB), "die".into()];
    let run = on_the_card(slice.run(client()));
    let said = run.arg("libOpenCL.so.1").args(&operations).answer();
    assert_eq!((&*said.stdout, &*said.end), ("buffer 0\n", "signal 9"));
    slice.buried(0);
    let said = lines(&slice, "libOpenCL.so.1", &[format!("buffer 0 {GIB}")]);
    assert_eq!(said, ["buffer 0"]);
    assert_eq!(slice.counted(), 0);
}

#[test]
fn a_driver_that_fails_leaves_nothing_counted() {
    let slice = Counted::new("rtx3090", GIB);
    let operations = [
        format!("buffer 0 {}", 600 * MIB),
        format!("svm 1 {}", 600 * MIB),
        format!("buffer 1 {}", GIB),
        "buffer 1 0".into(),
    ];
    let faults = "oom@1,oom@2";
    let said = lines_with(&slice, faults, "libOpenCL.so.1", &operations);
    assert_eq!(said, ["buffer -4", "svm 1", "buffer 0", "buffer -61"]);
}
