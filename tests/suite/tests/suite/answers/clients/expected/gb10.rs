//! DGX Spark: one memory of 127600748 kB, 103.25 GiB free, 115.65 GiB available; a context takes
//! 256 MiB. Its NVML does not answer.
//! In a slice without a ledger, used starts at MemTotal - MemAvailable; with one it is what the
//! slice's processes hold. Free is at most MemAvailable less the reserve.
//! Touches: nothing.

use super::{Answers, Scenario};

/// In a slice of 40 GiB.
pub const GB10: Scenario = Scenario {
    name: "gb10",
    slice: 42_949_672_960,
    cuda: 13000,
    integrated: Some("GPU-b10aaaaa-4444-4555-8666-777788880000"),
    mig: None,
    bare: Answers {
        cuda: "\
cuda b10aaaaa-4444-4555-8666-777788880000 device total=130663165952
cuda b10aaaaa-4444-4555-8666-777788880000 context total=130663165952 free=110595407872
cuda b10aaaaa-4444-4555-8666-777788880000 holding total=130663165952 free=110326972416
cuda b10aaaaa-4444-4555-8666-777788880000 freed total=130663165952 free=110595407872
",
        nvml: "\
nvml GPU-b10aaaaa-4444-4555-8666-777788880000 v1 error=3
nvml GPU-b10aaaaa-4444-4555-8666-777788880000 v2 error=3
",
        threads: "\
thread 0 contexts total=130663165952 free=109790101504
thread 1 contexts total=130663165952 free=109790101504
thread 2 contexts total=130663165952 free=109790101504
thread 3 contexts total=130663165952 free=109790101504
thread 0 holding total=130663165952 free=108716359680
thread 1 holding total=130663165952 free=108716359680
thread 2 holding total=130663165952 free=108716359680
thread 3 holding total=130663165952 free=108716359680
",
        both: "\
device total=130663165952
cuda total=130663165952 free=110595407872
nvml error=3
",
        nvitop: "\
the test machine's own
",
        gpustat: "\
[0] NVIDIA GB10 | 36°C,   0 % |    ?? /    ?? MB |
",
    },
    sliced: Answers {
        cuda: "\
cuda b10aaaaa-4444-4555-8666-777788880000 device total=42949672960
cuda b10aaaaa-4444-4555-8666-777788880000 context total=42949672960 free=36196311040
cuda b10aaaaa-4444-4555-8666-777788880000 holding total=42949672960 free=35927875584
cuda b10aaaaa-4444-4555-8666-777788880000 freed total=42949672960 free=36196311040
",
        nvml: "\
nvml GPU-b10aaaaa-4444-4555-8666-777788880000 v1 total=42949672960 free=36464746496 used=6484926464
nvml GPU-b10aaaaa-4444-4555-8666-777788880000 v2 total=42949672960 reserved=0 free=36464746496 used=6484926464
",
        threads: "\
thread 0 contexts total=42949672960 free=35391004672
thread 1 contexts total=42949672960 free=35391004672
thread 2 contexts total=42949672960 free=35391004672
thread 3 contexts total=42949672960 free=35391004672
thread 0 holding total=42949672960 free=34317262848
thread 1 holding total=42949672960 free=34317262848
thread 2 holding total=42949672960 free=34317262848
thread 3 holding total=42949672960 free=34317262848
",
        both: "\
device total=42949672960
cuda total=42949672960 free=36196311040
nvml total=42949672960 free=36196311040 used=6753361920
",
        nvitop: "\
6185MiB / 40.00GiB
",
        gpustat: "\
[0] NVIDIA GB10 | 36°C,   0 % |  6184 / 40960 MB |
",
    },
    counted: Some(Answers {
        cuda: "\
cuda b10aaaaa-4444-4555-8666-777788880000 device total=42949672960
cuda b10aaaaa-4444-4555-8666-777788880000 context total=42949672960 free=42681237504
cuda b10aaaaa-4444-4555-8666-777788880000 holding total=42949672960 free=42412802048
cuda b10aaaaa-4444-4555-8666-777788880000 freed total=42949672960 free=42681237504
",
        nvml: "\
nvml GPU-b10aaaaa-4444-4555-8666-777788880000 v1 total=42949672960 free=42949672960 used=0
nvml GPU-b10aaaaa-4444-4555-8666-777788880000 v2 total=42949672960 reserved=0 free=42949672960 used=0
",
        threads: "\
thread 0 contexts total=42949672960 free=41875931136
thread 1 contexts total=42949672960 free=41875931136
thread 2 contexts total=42949672960 free=41875931136
thread 3 contexts total=42949672960 free=41875931136
thread 0 holding total=42949672960 free=40802189312
thread 1 holding total=42949672960 free=40802189312
thread 2 holding total=42949672960 free=40802189312
thread 3 holding total=42949672960 free=40802189312
",
        both: "\
device total=42949672960
cuda total=42949672960 free=42681237504
nvml total=42949672960 free=42681237504 used=268435456
",
        nvitop: "\
0B / 40.00GiB
",
        gpustat: "\
[0] NVIDIA GB10 | 36°C,   0 % |     0 / 40960 MB |
",
    }),
};
