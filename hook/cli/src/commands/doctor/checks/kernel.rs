//! Checks what the kernel refuses a process: system calls, descriptors, address space.
//! Touches: its arguments.
//! Law: these limits are reported only if the process has the driver loaded and has not mapped its
//! ledger, which the library does at the first call. Otherwise they did no harm.

use super::{Case, ledger};
use crate::commands::doctor::codes::Code;
use crate::commands::doctor::finding::Finding;
use gpuslice_config::ledger::SIZE;
use gpuslice_config::words::units::Bytes;

/// The address space that a ledger and the library's own pages need.
const NEEDED: u64 = 4 << 20;

/// Adds the findings about the kernel's limits.
pub(super) fn check(case: &Case<'_>, found: &mut Vec<Finding>) {
    let Some(path) = ledger::path(case) else {
        return;
    };
    let (process, who) = (case.process, case.who());
    let is_used = !process.maps.drivers().is_empty();
    if !is_used || process.maps.ledger(&path).is_some() {
        return;
    }
    let limits = process.limits;
    let no_descriptor = limits
        .open
        .zip(limits.open_files)
        .filter(|(open, most)| open >= most);
    let needed = NEEDED.max(u64::try_from(SIZE).unwrap_or(NEEDED));
    let no_room = limits
        .address_space
        .filter(|most| limits.size.saturating_add(needed) > *most);
    if let Some((open, most)) = no_descriptor {
        let sentence = format!(
            "{who} has {open} of {most} files open, so the library cannot open the ledger and \
             refuses all GPU memory"
        );
        found.push(Finding::new(Code::OpenFiles, sentence));
    } else if let Some(most) = no_room {
        let sentence = format!(
            "{who} uses {} of its address space of {}, so the library cannot map the ledger and \
             refuses all GPU memory",
            Bytes::new(limits.size),
            Bytes::new(most)
        );
        found.push(Finding::new(Code::AddressSpace, sentence));
    } else if process.is_filtered {
        let sentence = format!(
            "{who} runs under a seccomp filter, and has not opened the ledger although the driver \
             is loaded; a filter that fails fstat or fcntl makes the library refuse all GPU memory"
        );
        found.push(Finding::new(Code::Seccomp, sentence));
    }
}
