//! GeForce RTX 3090 with 24 GiB, of which CUDA has 25438126080 bytes; a context takes 254 MiB.
//! Touches: nothing.

use super::{Answers, Scenario};

/// In a slice of 8 GiB.
pub const RTX3090: Scenario = Scenario {
    name: "rtx3090",
    slice: 8_589_934_592,
    cuda: 13000,
    integrated: None,
    mig: None,
    bare: Answers {
        cuda: "\
cuda 3090aaaa-1111-4222-8333-444455550000 device total=25438126080
cuda 3090aaaa-1111-4222-8333-444455550000 context total=25438126080 free=25171787776
cuda 3090aaaa-1111-4222-8333-444455550000 holding total=25438126080 free=24903352320
cuda 3090aaaa-1111-4222-8333-444455550000 freed total=25438126080 free=25171787776
",
        nvml: "\
nvml GPU-3090aaaa-1111-4222-8333-444455550000 v1 total=25769803776 free=25438126080 used=331677696
nvml GPU-3090aaaa-1111-4222-8333-444455550000 v2 total=25769803776 reserved=331677696 free=25438126080 used=0
",
        threads: "\
thread 0 contexts total=25438126080 free=24372772864
thread 1 contexts total=25438126080 free=24372772864
thread 2 contexts total=25438126080 free=24372772864
thread 3 contexts total=25438126080 free=24372772864
thread 0 holding total=25438126080 free=23299031040
thread 1 holding total=25438126080 free=23299031040
thread 2 holding total=25438126080 free=23299031040
thread 3 holding total=25438126080 free=23299031040
",
        both: "\
device total=25438126080
cuda total=25438126080 free=25171787776
nvml total=25769803776 free=25171787776 used=598016000
",
        nvitop: "\
0B / 24.00GiB
",
        gpustat: "\
[0] NVIDIA GeForce RTX 3090 | 36°C,   0 % |     0 / 24576 MB |
",
    },
    sliced: Answers {
        cuda: "\
cuda 3090aaaa-1111-4222-8333-444455550000 device total=8589934592
cuda 3090aaaa-1111-4222-8333-444455550000 context total=8589934592 free=8323596288
cuda 3090aaaa-1111-4222-8333-444455550000 holding total=8589934592 free=8055160832
cuda 3090aaaa-1111-4222-8333-444455550000 freed total=8589934592 free=8323596288
",
        nvml: "\
nvml GPU-3090aaaa-1111-4222-8333-444455550000 v1 total=8589934592 free=8589934592 used=0
nvml GPU-3090aaaa-1111-4222-8333-444455550000 v2 total=8589934592 reserved=0 free=8589934592 used=0
",
        threads: "\
thread 0 contexts total=8589934592 free=7524581376
thread 1 contexts total=8589934592 free=7524581376
thread 2 contexts total=8589934592 free=7524581376
thread 3 contexts total=8589934592 free=7524581376
thread 0 holding total=8589934592 free=6450839552
thread 1 holding total=8589934592 free=6450839552
thread 2 holding total=8589934592 free=6450839552
thread 3 holding total=8589934592 free=6450839552
",
        both: "\
device total=8589934592
cuda total=8589934592 free=8323596288
nvml total=8589934592 free=8323596288 used=266338304
",
        nvitop: "\
0B / 8192MiB
",
        gpustat: "\
[0] NVIDIA GeForce RTX 3090 | 36°C,   0 % |     0 /  8192 MB |
",
    },
    counted: None,
};
