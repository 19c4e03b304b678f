//! The keys by which other systems request a part of a GPU, and their meaning here.
//! Touches: nothing.
//! Law: each key is one line. A key that gpuslice cannot honour has a line, too, and is reported.

use super::amount::Form::{self, List, Mebibytes, Portion, Quantity, Size as Sized};
use Dialect::{Hami, Kai, Nvidia};
use Key::{Container, Numbered, Pod, Variable};
use Meaning::{Burst, Ceiling, Only, Shares, Size, Unheld};
use gpuslice_host::machine::dialects::Dialects;

/// A system whose requests count if the host's policy says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// KAI Scheduler, Run:ai, and the GPU sharing operator (NvFractions).
    Kai,
    /// HAMi and HAMi-core.
    Hami,
    /// NVIDIA's container toolkit and MPS.
    Nvidia,
}

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// In an annotation of the pod.
    Pod(&'static str),
    /// In an annotation of the pod whose key has a container's name between these texts.
    Container(&'static str, &'static str),
    /// In an environment variable.
    Variable(&'static str),
    /// In environment variables whose names end with the number of a device.
    Numbered(&'static str),
}

/// The meaning of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The size of the slice on each GPU.
    Size(Form),
    /// The size up to which memory may be used while it is free. Without a [`Meaning::Size`], it is
    /// the size.
    Burst(Form),
    /// The name of the container that the pod's sizes are for.
    Only,
    /// The list of all containers' devices that HAMi's scheduler writes.
    Shares,
    /// An upper bound. It lowers a slice, and never enlarges or grants one.
    Ceiling(Form),
    /// Something other than memory. It is reported, except if it has one of these values.
    Unheld(&'static [&'static str]),
}

/// One key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Whose key it is.
    pub dialect: Dialect,
    /// Where its value is.
    pub key: Key,
    /// The meaning of its value.
    pub meaning: Meaning,
}

const fn row(dialect: Dialect, key: Key, meaning: Meaning) -> Row {
    Row {
        dialect,
        key,
        meaning,
    }
}

/// Every key. Sources: KAI Scheduler's pkg/common/constants/constants.go and docs/gpu-sharing (0.17,
/// 0.18), the GPU sharing operator's README; Run:ai 2.17, "Dynamic GPU Fractions"; HAMi's
/// pkg/device/nvidia/device.go and nvinternal/plugin/server.go (2.10), HAMi-core's README; NVIDIA's
/// container toolkit 1.20.1, `apply-cuda-memory-limits`; "Appendix: Environment Variables" of the
/// MPS documentation.
#[rustfmt::skip]
pub const TABLE: &[Row] = &[
    row(Kai, Pod("gpu-memory"), Size(Mebibytes)),
    row(Kai, Pod("gpu-fraction"), Size(Portion)),
    row(Kai, Pod("gpu-fraction-container-name"), Only),
    row(Kai, Pod("gpu-memory.limit"), Burst(Quantity)),
    row(Kai, Pod("gpu-memory-limit"), Unheld(&[""])),
    row(Kai, Pod("gpu-fraction.limit"), Burst(Portion)),
    row(Kai, Pod("gpu-fraction-limit"), Unheld(&[""])),
    row(Kai, Container("nvidia.com/container.", ".gpu-memory.request"), Size(Quantity)),
    row(Kai, Container("nvidia.com/container.", ".gpu-memory.limit"), Burst(Quantity)),
    row(Kai, Container("kai.scheduler/container.", ".gpu-memory.portion.limit"), Burst(Portion)),
    row(Kai, Container("nvidia.com/container.", ".gpu-compute.mode"), Unheld(&["", "time-slicing"])),
    row(Kai, Pod("mps"), Unheld(&["", "false"])),
    row(Hami, Pod("hami.io/vgpu-devices-allocated"), Shares),
    row(Hami, Variable("CUDA_DEVICE_MEMORY_LIMIT"), Ceiling(Sized)),
    row(Hami, Numbered("CUDA_DEVICE_MEMORY_LIMIT_"), Ceiling(Sized)),
    row(Hami, Variable("CUDA_DEVICE_SM_LIMIT"), Unheld(&["", "0", "100"])),
    row(Hami, Variable("CUDA_TASK_PRIORITY"), Unheld(&[""])),
    row(Hami, Variable("CUDA_OVERSUBSCRIBE"), Unheld(&["", "false"])),
    row(Hami, Variable("CUDA_DISABLE_CONTROL"), Unheld(&["", "false", "0"])),
    row(Nvidia, Variable("NVIDIA_GPU_MEMORY_LIMIT"), Ceiling(Mebibytes)),
    row(Nvidia, Variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), Ceiling(List)),
    row(Nvidia, Variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), Unheld(&["", "100"])),
    row(Nvidia, Variable("CUDA_MPS_CLIENT_PRIORITY"), Unheld(&["", "0"])),
];

/// The starts of the annotations in the table, for the reader of config.json.
pub(crate) const ANNOTATIONS: [&str; 6] = [
    "gpu-memory",
    "gpu-fraction",
    "mps",
    "nvidia.com/container.",
    "kai.scheduler/container.",
    "hami.io/vgpu-devices-allocated",
];

/// The starts of the variables in the table, for the reader of config.json.
pub(crate) const VARIABLES: [&str; 6] = [
    "CUDA_DEVICE_",
    "CUDA_TASK_PRIORITY=",
    "CUDA_OVERSUBSCRIBE=",
    "CUDA_DISABLE_CONTROL=",
    "CUDA_MPS_",
    "NVIDIA_GPU_MEMORY_",
];

impl Row {
    /// Whether the policy switches its dialect on.
    #[must_use]
    pub fn is_on(&self, dialects: Dialects) -> bool {
        match self.dialect {
            Kai => dialects.kai,
            Hami => dialects.hami,
            Nvidia => dialects.nvidia,
        }
    }
}
