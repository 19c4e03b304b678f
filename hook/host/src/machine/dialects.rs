//! Which other systems' requests for GPU memory count on this host: `[dialects]` of the policy.
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
