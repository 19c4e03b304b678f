//! Makes the meminfo page of a slice, which `gpusliced` then writes.
//! Touches: the page; the host's meminfo and its promises, by reading them.
//! Law: until gpusliced has written it, a page shows no more free memory than the slice was promised.

use crate::plan::{ContainerPlan, PROC_MEMINFO};
use anyhow::{anyhow, bail};
use gpuslice_config::answer::observed::{observed, shared_device};
use gpuslice_config::answer::view::Host;
use gpuslice_config::host::meminfo::HostMemory;
use gpuslice_config::slice;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::slices::{host_state, meminfo_page, run_folder};
use std::path::Path;

/// Whether a plan has a page.
#[must_use]
pub(crate) fn is_planned(plan: &ContainerPlan) -> bool {
    let is_page = |target: &Path| target == Path::new(PROC_MEMINFO);
    plan.mounts.iter().any(|mount| is_page(&mount.target))
}

/// Removes the page from a plan.
pub(crate) fn leave_out(plan: &mut ContainerPlan) {
    let page = Path::new(PROC_MEMINFO);
    plan.mounts.retain(|mount| mount.target != page);
}

/// Makes the page of a plan.
///
/// # Errors
/// When nobody would write it, or it cannot be made.
pub(crate) fn make(plan: &ContainerPlan, paths: &HostPaths) -> anyhow::Result<()> {
    if !meminfo_page::is_served(paths) {
        bail!("gpusliced does not run with [meminfo]");
    }
    run_folder::make_pages(paths)?;
    let text = plan.files.first().map_or("", |file| file.text.as_str());
    let slice = slice::parse(text.as_bytes()).map_err(|_| anyhow!("its slice is not valid"))?;
    let device = shared_device(&slice).and_then(|listed| slice.device(listed.uuid));
    let budget = device.ok_or_else(|| anyhow!("its slice is not valid"))?;
    let state = host_state::read(paths, &[])?;
    let own = state.unused.iter().find(|one| one.slice == plan.slice);
    let host = Host {
        memory: HostMemory {
            available: own.map_or(Bytes::ZERO, |own| own.memory),
            ..state.memory
        },
        reserve: Some(Bytes::ZERO),
        others_unused: Bytes::ZERO,
        pressed: None,
    };
    let view = observed(&slice, &budget, Some(Bytes::ZERO), host, || None);
    let page = paths.page(&plan.slice);
    Ok(meminfo_page::make(&page, &view, state.memory.total)?)
}
