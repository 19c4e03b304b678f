//! Checks whether the container engines of the host run the hook.
//! Touches: everything `engines::effective` touches.

use super::has_hook;
use crate::commands::doctor::codes::Code;
use crate::commands::doctor::finding::Finding;
use crate::commands::engines::effective::{FaultKind, faults};
use gpuslice_host::base::paths::HostPaths;

/// Adds the findings about engines.
pub(super) fn check(places: &HostPaths, found: &mut Vec<Finding>) {
    // Without the hook, no engine should be configured.
    let has_hook = has_hook(places);
    for fault in faults(places.root()) {
        let code = match fault.kind {
            FaultKind::NotConfigured if !has_hook => continue,
            FaultKind::NotConfigured => Code::HookNotConfigured,
            FaultKind::HookMissing => Code::HookMissing,
            FaultKind::BaseSpecMissing => Code::BaseSpecMissing,
            FaultKind::WithoutEffect => Code::HandlerWithoutEffect,
            FaultKind::DropsAnnotations => Code::HandlerDropsAnnotations,
            FaultKind::CdiDisabled => Code::CdiDisabled,
            FaultKind::ToolkitLegacy => Code::ToolkitLegacy,
            FaultKind::ToolkitWithoutCdi => Code::ToolkitWithoutCdi,
        };
        let finding = Finding::new(code, fault.sentence);
        found.push(match code {
            Code::HookNotConfigured => {
                let fix = format!("run gpuslice runtime configure --runtime {}", fault.engine);
                finding.with_fix(fix)
            }
            _ => finding,
        });
    }
}
