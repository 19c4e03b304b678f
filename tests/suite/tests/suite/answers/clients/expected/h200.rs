//! H200 with 143771 MiB, of which CUDA has 143165 MiB; a context takes 520 MiB.
//! Touches: nothing.

use super::{Answers, Scenario};

/// In a slice of 8 GiB.
pub const H200: Scenario = Scenario {
    name: "h200",
    slice: 8_589_934_592,
    cuda: 13000,
    integrated: None,
    mig: None,
    bare: Answers {
        cuda: "\
cuda 200aaaaa-2222-4333-8444-555566660000 device total=150119383040
cuda 200aaaaa-2222-4333-8444-555566660000 context total=150119383040 free=149574123520
cuda 200aaaaa-2222-4333-8444-555566660000 holding total=150119383040 free=149305688064
cuda 200aaaaa-2222-4333-8444-555566660000 freed total=150119383040 free=149574123520
",
        nvml: "\
nvml GPU-200aaaaa-2222-4333-8444-555566660000 v1 total=150754820096 free=150119383040 used=635437056
nvml GPU-200aaaaa-2222-4333-8444-555566660000 v2 total=150754820096 reserved=635437056 free=150119383040 used=0
",
        threads: "\
thread 0 contexts total=150119383040 free=147938344960
thread 1 contexts total=150119383040 free=147938344960
thread 2 contexts total=150119383040 free=147938344960
thread 3 contexts total=150119383040 free=147938344960
thread 0 holding total=150119383040 free=146864603136
thread 1 holding total=150119383040 free=146864603136
thread 2 holding total=150119383040 free=146864603136
thread 3 holding total=150119383040 free=146864603136
",
        both: "\
device total=150119383040
cuda total=150119383040 free=149574123520
nvml total=150754820096 free=149574123520 used=1180696576
",
        nvitop: "\
0B / 140.4GiB
",
        gpustat: "\
[0] NVIDIA H200 | 36°C,   0 % |     0 / 143771 MB |
",
    },
    sliced: Answers {
        cuda: "\
cuda 200aaaaa-2222-4333-8444-555566660000 device total=8589934592
cuda 200aaaaa-2222-4333-8444-555566660000 context total=8589934592 free=8044675072
cuda 200aaaaa-2222-4333-8444-555566660000 holding total=8589934592 free=7776239616
cuda 200aaaaa-2222-4333-8444-555566660000 freed total=8589934592 free=8044675072
",
        nvml: "\
nvml GPU-200aaaaa-2222-4333-8444-555566660000 v1 total=8589934592 free=8589934592 used=0
nvml GPU-200aaaaa-2222-4333-8444-555566660000 v2 total=8589934592 reserved=0 free=8589934592 used=0
",
        threads: "\
thread 0 contexts total=8589934592 free=6408896512
thread 1 contexts total=8589934592 free=6408896512
thread 2 contexts total=8589934592 free=6408896512
thread 3 contexts total=8589934592 free=6408896512
thread 0 holding total=8589934592 free=5335154688
thread 1 holding total=8589934592 free=5335154688
thread 2 holding total=8589934592 free=5335154688
thread 3 holding total=8589934592 free=5335154688
",
        both: "\
device total=8589934592
cuda total=8589934592 free=8044675072
nvml total=8589934592 free=8044675072 used=545259520
",
        nvitop: "\
0B / 8192MiB
",
        gpustat: "\
[0] NVIDIA H200 | 36°C,   0 % |     0 /  8192 MB |
",
    },
    counted: None,
};
