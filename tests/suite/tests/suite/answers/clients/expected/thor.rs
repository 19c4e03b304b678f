//! Jetson Thor: one memory of 128791748 kB, 110 GiB free, 117.5 GiB available; a context takes
//! 250 MiB. Its NVML reports no memory.
//! In a slice without a ledger, used starts at MemTotal - MemAvailable; with one it is what the
//! slice's processes hold. Free is at most MemAvailable less the reserve.
//! Touches: nothing.

use super::{Answers, Scenario};

/// In a slice of 40 GiB.
pub const THOR: Scenario = Scenario {
    name: "thor",
    slice: 42_949_672_960,
    cuda: 13000,
    integrated: Some("GPU-7102aaaa-6666-4777-8888-9999aaaa0000"),
    mig: None,
    bare: Answers {
        cuda: "\
cuda 7102aaaa-6666-4777-8888-9999aaaa0000 device total=131882749952
cuda 7102aaaa-6666-4777-8888-9999aaaa0000 context total=131882749952 free=117849456640
cuda 7102aaaa-6666-4777-8888-9999aaaa0000 holding total=131882749952 free=117581021184
cuda 7102aaaa-6666-4777-8888-9999aaaa0000 freed total=131882749952 free=117849456640
",
        nvml: "\
nvml GPU-7102aaaa-6666-4777-8888-9999aaaa0000 v1 total=0 free=0 used=0
nvml GPU-7102aaaa-6666-4777-8888-9999aaaa0000 v2 total=0 reserved=0 free=0 used=0
",
        threads: "\
thread 0 contexts total=131882749952 free=117063024640
thread 1 contexts total=131882749952 free=117063024640
thread 2 contexts total=131882749952 free=117063024640
thread 3 contexts total=131882749952 free=117063024640
thread 0 holding total=131882749952 free=115989282816
thread 1 holding total=131882749952 free=115989282816
thread 2 holding total=131882749952 free=115989282816
thread 3 holding total=131882749952 free=115989282816
",
        both: "\
device total=131882749952
cuda total=131882749952 free=117849456640
nvml total=0 free=0 used=0
",
        nvitop: "\
the test machine's own
",
        gpustat: "\
[0] NVIDIA Thor | 36°C,   0 % |     0 /     0 MB |
",
    },
    sliced: Answers {
        cuda: "\
cuda 7102aaaa-6666-4777-8888-9999aaaa0000 device total=42949672960
cuda 7102aaaa-6666-4777-8888-9999aaaa0000 context total=42949672960 free=36969443328
cuda 7102aaaa-6666-4777-8888-9999aaaa0000 holding total=42949672960 free=36701007872
cuda 7102aaaa-6666-4777-8888-9999aaaa0000 freed total=42949672960 free=36969443328
",
        nvml: "\
nvml GPU-7102aaaa-6666-4777-8888-9999aaaa0000 v1 total=42949672960 free=37231587328 used=5718085632
nvml GPU-7102aaaa-6666-4777-8888-9999aaaa0000 v2 total=42949672960 reserved=0 free=37231587328 used=5718085632
",
        threads: "\
thread 0 contexts total=42949672960 free=36183011328
thread 1 contexts total=42949672960 free=36183011328
thread 2 contexts total=42949672960 free=36183011328
thread 3 contexts total=42949672960 free=36183011328
thread 0 holding total=42949672960 free=35109269504
thread 1 holding total=42949672960 free=35109269504
thread 2 holding total=42949672960 free=35109269504
thread 3 holding total=42949672960 free=35109269504
",
        both: "\
device total=42949672960
cuda total=42949672960 free=36969443328
nvml total=42949672960 free=36969443328 used=5980229632
",
        nvitop: "\
5453MiB / 40.00GiB
",
        gpustat: "\
[0] NVIDIA Thor | 36°C,   0 % |  5453 / 40960 MB |
",
    },
    counted: Some(Answers {
        cuda: "\
cuda 7102aaaa-6666-4777-8888-9999aaaa0000 device total=42949672960
cuda 7102aaaa-6666-4777-8888-9999aaaa0000 context total=42949672960 free=42687528960
cuda 7102aaaa-6666-4777-8888-9999aaaa0000 holding total=42949672960 free=42419093504
cuda 7102aaaa-6666-4777-8888-9999aaaa0000 freed total=42949672960 free=42687528960
",
        nvml: "\
nvml GPU-7102aaaa-6666-4777-8888-9999aaaa0000 v1 total=42949672960 free=42949672960 used=0
nvml GPU-7102aaaa-6666-4777-8888-9999aaaa0000 v2 total=42949672960 reserved=0 free=42949672960 used=0
",
        threads: "\
thread 0 contexts total=42949672960 free=41901096960
thread 1 contexts total=42949672960 free=41901096960
thread 2 contexts total=42949672960 free=41901096960
thread 3 contexts total=42949672960 free=41901096960
thread 0 holding total=42949672960 free=40827355136
thread 1 holding total=42949672960 free=40827355136
thread 2 holding total=42949672960 free=40827355136
thread 3 holding total=42949672960 free=40827355136
",
        both: "\
device total=42949672960
cuda total=42949672960 free=42687528960
nvml total=42949672960 free=42687528960 used=262144000
",
        nvitop: "\
0B / 40.00GiB
",
        gpustat: "\
[0] NVIDIA Thor | 36°C,   0 % |     0 / 40960 MB |
",
    }),
};
