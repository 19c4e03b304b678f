//! Jetson Orin: one memory of 64349728 kB, 54 GiB free, 58.5 GiB available; a context takes
//! 180 MiB. Its NVML does not answer.
//! In a slice without a ledger, used starts at MemTotal - MemAvailable; with one it is what the
//! slice's processes hold. Free is at most MemAvailable less the reserve.
//! Touches: nothing.

use super::{Answers, Scenario};

/// In a slice of 16 GiB.
pub const ORIN: Scenario = Scenario {
    name: "orin",
    slice: 17_179_869_184,
    cuda: 12060,
    integrated: Some("GPU-0a1aaaaa-5555-4666-8777-888899990000"),
    mig: None,
    bare: Answers {
        cuda: "\
cuda 0a1aaaaa-5555-4666-8777-888899990000 device total=65894121472
cuda 0a1aaaaa-5555-4666-8777-888899990000 context total=65894121472 free=57793314816
cuda 0a1aaaaa-5555-4666-8777-888899990000 holding total=65894121472 free=57524879360
cuda 0a1aaaaa-5555-4666-8777-888899990000 freed total=65894121472 free=57793314816
",
        nvml: "\
nvml GPU-0a1aaaaa-5555-4666-8777-888899990000 v1 error=3
nvml GPU-0a1aaaaa-5555-4666-8777-888899990000 v2 error=3
",
        threads: "\
thread 0 contexts total=65894121472 free=57227083776
thread 1 contexts total=65894121472 free=57227083776
thread 2 contexts total=65894121472 free=57227083776
thread 3 contexts total=65894121472 free=57227083776
thread 0 holding total=65894121472 free=56153341952
thread 1 holding total=65894121472 free=56153341952
thread 2 holding total=65894121472 free=56153341952
thread 3 holding total=65894121472 free=56153341952
",
        both: "\
device total=65894121472
cuda total=65894121472 free=57793314816
nvml error=3
",
        nvitop: "\
the test machine's own
",
        gpustat: "\
[0] Orin (nvgpu) | ??°C,  ?? % |    ?? /    ?? MB | (Not Supported)
",
    },
    sliced: Answers {
        cuda: "\
cuda 0a1aaaaa-5555-4666-8777-888899990000 device total=17179869184
cuda 0a1aaaaa-5555-4666-8777-888899990000 context total=17179869184 free=13910900736
cuda 0a1aaaaa-5555-4666-8777-888899990000 holding total=17179869184 free=13642465280
cuda 0a1aaaaa-5555-4666-8777-888899990000 freed total=17179869184 free=13910900736
",
        nvml: "\
nvml GPU-0a1aaaaa-5555-4666-8777-888899990000 v1 total=17179869184 free=14099644416 used=3080224768
nvml GPU-0a1aaaaa-5555-4666-8777-888899990000 v2 total=17179869184 reserved=0 free=14099644416 used=3080224768
",
        threads: "\
thread 0 contexts total=17179869184 free=13344669696
thread 1 contexts total=17179869184 free=13344669696
thread 2 contexts total=17179869184 free=13344669696
thread 3 contexts total=17179869184 free=13344669696
thread 0 holding total=17179869184 free=12270927872
thread 1 holding total=17179869184 free=12270927872
thread 2 holding total=17179869184 free=12270927872
thread 3 holding total=17179869184 free=12270927872
",
        both: "\
device total=17179869184
cuda total=17179869184 free=13910900736
nvml total=17179869184 free=13910900736 used=3268968448
",
        nvitop: "\
2938MiB / 16384MiB
",
        gpustat: "\
[0] Orin (nvgpu) | ??°C,  ?? % |  2937 / 16384 MB | (Not Supported)
",
    },
    counted: Some(Answers {
        cuda: "\
cuda 0a1aaaaa-5555-4666-8777-888899990000 device total=17179869184
cuda 0a1aaaaa-5555-4666-8777-888899990000 context total=17179869184 free=16991125504
cuda 0a1aaaaa-5555-4666-8777-888899990000 holding total=17179869184 free=16722690048
cuda 0a1aaaaa-5555-4666-8777-888899990000 freed total=17179869184 free=16991125504
",
        nvml: "\
nvml GPU-0a1aaaaa-5555-4666-8777-888899990000 v1 total=17179869184 free=17179869184 used=0
nvml GPU-0a1aaaaa-5555-4666-8777-888899990000 v2 total=17179869184 reserved=0 free=17179869184 used=0
",
        threads: "\
thread 0 contexts total=17179869184 free=16424894464
thread 1 contexts total=17179869184 free=16424894464
thread 2 contexts total=17179869184 free=16424894464
thread 3 contexts total=17179869184 free=16424894464
thread 0 holding total=17179869184 free=15351152640
thread 1 holding total=17179869184 free=15351152640
thread 2 holding total=17179869184 free=15351152640
thread 3 holding total=17179869184 free=15351152640
",
        both: "\
device total=17179869184
cuda total=17179869184 free=16991125504
nvml total=17179869184 free=16991125504 used=188743680
",
        nvitop: "\
0B / 16384MiB
",
        // Orin's NVML knows of no processes; the ledger knows those of the slice, here none.
        gpustat: "\
[0] Orin (nvgpu) | ??°C,  ?? % |     0 / 16384 MB |
",
    }),
};
