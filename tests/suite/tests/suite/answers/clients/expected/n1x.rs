//! N1X: one memory of 127600748 kB, 98 GiB free, 112 GiB available; a context takes 256 MiB. Its
//! NVML speaks of a carve-out of 8128 MiB.
//! In a slice without a ledger, used starts at MemTotal - MemAvailable; with one it is what the
//! slice's processes hold. Free is at most MemAvailable less the reserve.
//! Touches: nothing.

use super::{Answers, Scenario};

/// In a slice of 40 GiB.
pub const N1X: Scenario = Scenario {
    name: "n1x",
    slice: 42_949_672_960,
    cuda: 13010,
    integrated: Some("GPU-01baaaaa-7777-4888-8999-aaaabbbb0000"),
    mig: None,
    bare: Answers {
        cuda: "\
cuda 01baaaaa-7777-4888-8999-aaaabbbb0000 device total=130663165952
cuda 01baaaaa-7777-4888-8999-aaaabbbb0000 context total=130663165952 free=104958263296
cuda 01baaaaa-7777-4888-8999-aaaabbbb0000 holding total=130663165952 free=104689827840
cuda 01baaaaa-7777-4888-8999-aaaabbbb0000 freed total=130663165952 free=104958263296
",
        nvml: "\
nvml GPU-01baaaaa-7777-4888-8999-aaaabbbb0000 v1 total=8522825728 free=8314159104 used=208666624
nvml GPU-01baaaaa-7777-4888-8999-aaaabbbb0000 v2 total=8522825728 reserved=0 free=8314159104 used=208666624
",
        threads: "\
thread 0 contexts total=130663165952 free=104152956928
thread 1 contexts total=130663165952 free=104152956928
thread 2 contexts total=130663165952 free=104152956928
thread 3 contexts total=130663165952 free=104152956928
thread 0 holding total=130663165952 free=103079215104
thread 1 holding total=130663165952 free=103079215104
thread 2 holding total=130663165952 free=103079215104
thread 3 holding total=130663165952 free=103079215104
",
        both: "\
device total=130663165952
cuda total=130663165952 free=104958263296
nvml total=8522825728 free=8314159104 used=208666624
",
        nvitop: "\
199.0MiB / 8128MiB
",
        gpustat: "\
[0] NVIDIA N1X | 36°C,   0 % |   199 /  8128 MB |
",
    },
    sliced: Answers {
        cuda: "\
cuda 01baaaaa-7777-4888-8999-aaaabbbb0000 device total=42949672960
cuda 01baaaaa-7777-4888-8999-aaaabbbb0000 context total=42949672960 free=32277155840
cuda 01baaaaa-7777-4888-8999-aaaabbbb0000 holding total=42949672960 free=32008720384
cuda 01baaaaa-7777-4888-8999-aaaabbbb0000 freed total=42949672960 free=32277155840
",
        nvml: "\
nvml GPU-01baaaaa-7777-4888-8999-aaaabbbb0000 v1 total=42949672960 free=32545591296 used=10404081664
nvml GPU-01baaaaa-7777-4888-8999-aaaabbbb0000 v2 total=42949672960 reserved=0 free=32545591296 used=10404081664
",
        threads: "\
thread 0 contexts total=42949672960 free=31471849472
thread 1 contexts total=42949672960 free=31471849472
thread 2 contexts total=42949672960 free=31471849472
thread 3 contexts total=42949672960 free=31471849472
thread 0 holding total=42949672960 free=30398107648
thread 1 holding total=42949672960 free=30398107648
thread 2 holding total=42949672960 free=30398107648
thread 3 holding total=42949672960 free=30398107648
",
        both: "\
device total=42949672960
cuda total=42949672960 free=32277155840
nvml total=42949672960 free=32277155840 used=10672517120
",
        nvitop: "\
9922MiB / 40.00GiB
",
        gpustat: "\
[0] NVIDIA N1X | 36°C,   0 % |  9922 / 40960 MB |
",
    },
    counted: Some(Answers {
        cuda: "\
cuda 01baaaaa-7777-4888-8999-aaaabbbb0000 device total=42949672960
cuda 01baaaaa-7777-4888-8999-aaaabbbb0000 context total=42949672960 free=42681237504
cuda 01baaaaa-7777-4888-8999-aaaabbbb0000 holding total=42949672960 free=42412802048
cuda 01baaaaa-7777-4888-8999-aaaabbbb0000 freed total=42949672960 free=42681237504
",
        nvml: "\
nvml GPU-01baaaaa-7777-4888-8999-aaaabbbb0000 v1 total=42949672960 free=42949672960 used=0
nvml GPU-01baaaaa-7777-4888-8999-aaaabbbb0000 v2 total=42949672960 reserved=0 free=42949672960 used=0
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
[0] NVIDIA N1X | 36°C,   0 % |     0 / 40960 MB |
",
    }),
};
