//! The table `[dialects]` of the policy: it names the systems whose requests for GPU memory count here.
//! Touches: nothing.

use serde::Deserialize;

/// The systems whose requests count. By default, none does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Dialects {
    /// KAI Scheduler and Run:ai: their annotations, and NvFractions.
    pub kai: bool,
    /// HAMi: the annotation of its scheduler, and the variables of HAMi-core.
    pub hami: bool,
    /// NVIDIA: the variables of its container toolkit and of MPS.
    pub nvidia: bool,
}

impl Dialects {
    /// The annotations that a handler of containerd must pass on, as its patterns.
    #[must_use]
    pub fn annotations(self) -> Vec<&'static str> {
        let kai = [
            "gpu-memory*",
            "gpu-fraction*",
            "mps",
            "nvidia.com/container.*",
            "kai.scheduler/container.*",
        ];
        let kai = kai.into_iter().filter(|_| self.kai);
        let hami = ["hami.io/vgpu-devices-allocated"];
        kai.chain(hami.into_iter().filter(|_| self.hami)).collect()
    }
}
