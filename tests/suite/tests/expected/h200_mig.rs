//! H200 cut into instances of 71, 18 and 18 GB. CUDA has the first one only; a context takes
//! 300 MiB of it.
//! Touches: nothing.

use super::{Answers, Scenario};

/// In a slice of 8 GiB of whatever is asked: the card, and each instance.
pub const H200_MIG: Scenario = Scenario {
    name: "h200-mig",
    slice: 8_589_934_592,
    cuda: 13000,
    integrated: None,
    mig: Some(("a1111111-3333-5444-8555-666677770000", "200aaaaa-2222-4333-8444-777788880000")),
    bare: Answers {
        cuda: "\
cuda a1111111-3333-5444-8555-666677770000 device total=74763468800
cuda a1111111-3333-5444-8555-666677770000 context total=74763468800 free=74448896000
cuda a1111111-3333-5444-8555-666677770000 holding total=74763468800 free=74180460544
cuda a1111111-3333-5444-8555-666677770000 freed total=74763468800 free=74448896000
",
        nvml: "\
nvml GPU-200aaaaa-2222-4333-8444-777788880000 v1 total=150754820096 free=150119383040 used=635437056
nvml GPU-200aaaaa-2222-4333-8444-777788880000 v2 total=150754820096 reserved=635437056 free=150119383040 used=0
nvml MIG-a1111111-3333-5444-8555-666677770000 v1 total=74893492224 free=74763468800 used=130023424
nvml MIG-a1111111-3333-5444-8555-666677770000 v2 total=74893492224 reserved=130023424 free=74763468800 used=0
nvml MIG-a1111111-3333-5444-8555-666677770000 memorySizeMB=71424
nvml MIG-b2222222-3333-5444-8555-666677770000 v1 total=17179869184 free=17127440384 used=52428800
nvml MIG-b2222222-3333-5444-8555-666677770000 v2 total=17179869184 reserved=52428800 free=17127440384 used=0
nvml MIG-b2222222-3333-5444-8555-666677770000 memorySizeMB=16384
nvml MIG-c3333333-3333-5444-8555-666677770000 v1 total=17179869184 free=17127440384 used=52428800
nvml MIG-c3333333-3333-5444-8555-666677770000 v2 total=17179869184 reserved=52428800 free=17127440384 used=0
nvml MIG-c3333333-3333-5444-8555-666677770000 memorySizeMB=16384
",
        threads: "\
thread 0 contexts total=74763468800 free=73505177600
thread 1 contexts total=74763468800 free=73505177600
thread 2 contexts total=74763468800 free=73505177600
thread 3 contexts total=74763468800 free=73505177600
thread 0 holding total=74763468800 free=72431435776
thread 1 holding total=74763468800 free=72431435776
thread 2 holding total=74763468800 free=72431435776
thread 3 holding total=74763468800 free=72431435776
",
        both: "\
device total=74763468800
cuda total=74763468800 free=74448896000
nvml total=150754820096 free=149804810240 used=950009856
",
        nvitop: "\
0B / 140.4GiB
0B / 69.75GiB
0B / 16384MiB
0B / 16384MiB
",
        gpustat: "\
[0] NVIDIA H200 | 36°C,   0 % |     0 / 143771 MB |
",
    },
    sliced: SLICED,
    // The first handle that NVML gives is the card, and what the slice holds is on an instance.
    counted: Some(Answers {
        both: "\
device total=8589934592
cuda total=8589934592 free=8275361792
nvml total=8589934592 free=8589934592 used=0
",
        ..SLICED
    }),
};

const SLICED: Answers = Answers {
    cuda: "\
cuda a1111111-3333-5444-8555-666677770000 device total=8589934592
cuda a1111111-3333-5444-8555-666677770000 context total=8589934592 free=8275361792
cuda a1111111-3333-5444-8555-666677770000 holding total=8589934592 free=8006926336
cuda a1111111-3333-5444-8555-666677770000 freed total=8589934592 free=8275361792
",
    nvml: "\
nvml GPU-200aaaaa-2222-4333-8444-777788880000 v1 total=8589934592 free=8589934592 used=0
nvml GPU-200aaaaa-2222-4333-8444-777788880000 v2 total=8589934592 reserved=0 free=8589934592 used=0
nvml MIG-a1111111-3333-5444-8555-666677770000 v1 total=8589934592 free=8589934592 used=0
nvml MIG-a1111111-3333-5444-8555-666677770000 v2 total=8589934592 reserved=0 free=8589934592 used=0
nvml MIG-a1111111-3333-5444-8555-666677770000 memorySizeMB=8192
nvml MIG-b2222222-3333-5444-8555-666677770000 v1 total=8589934592 free=8589934592 used=0
nvml MIG-b2222222-3333-5444-8555-666677770000 v2 total=8589934592 reserved=0 free=8589934592 used=0
nvml MIG-b2222222-3333-5444-8555-666677770000 memorySizeMB=8192
nvml MIG-c3333333-3333-5444-8555-666677770000 v1 total=8589934592 free=8589934592 used=0
nvml MIG-c3333333-3333-5444-8555-666677770000 v2 total=8589934592 reserved=0 free=8589934592 used=0
nvml MIG-c3333333-3333-5444-8555-666677770000 memorySizeMB=8192
",
    threads: "\
thread 0 contexts total=8589934592 free=7331643392
thread 1 contexts total=8589934592 free=7331643392
thread 2 contexts total=8589934592 free=7331643392
thread 3 contexts total=8589934592 free=7331643392
thread 0 holding total=8589934592 free=6257901568
thread 1 holding total=8589934592 free=6257901568
thread 2 holding total=8589934592 free=6257901568
thread 3 holding total=8589934592 free=6257901568
",
    both: "\
device total=8589934592
cuda total=8589934592 free=8275361792
nvml total=8589934592 free=8275361792 used=314572800
",
    nvitop: "\
0B / 8192MiB
0B / 8192MiB
0B / 8192MiB
0B / 8192MiB
",
    gpustat: "\
[0] NVIDIA H200 | 36°C,   0 % |     0 /  8192 MB |
",
};
