//! The parts into which memory is divided in the table's last line and in the plot.
//! Touches: its arguments.

use super::gather::Report;

/// A part: its name, and its colour in the plot.
pub(super) const PARTS: [(&str, &str); 6] = [
    ("device", "#4c72b0"),
    ("contexts", "#8172b3"),
    ("host, in use", "#dd8452"),
    ("host, freed but kept", "#c44e52"),
    ("shared memory", "#937860"),
    ("page cache, mapped", "#b0b0b0"),
];

/// The first part of the host's memory.
pub(super) const HOST: usize = 2;

/// Returns the bytes of each part, summed over all slices.
pub(super) fn parts(report: &Report) -> [u64; PARTS.len()] {
    let mut parts = [0u64; PARTS.len()];
    for one in report.slices.iter().flat_map(|slice| &slice.processes) {
        // Unknown amounts count as zero.
        let [device, context] = [one.on_device(), one.contexts()].map(Option::unwrap_or_default);
        let host = one.host.unwrap_or_default();
        let own = [
            device.saturating_sub(context),
            context,
            host.live,
            host.kept.unwrap_or(0),
            host.shmem,
            host.page_cache_mapped,
        ];
        for (sum, part) in parts.iter_mut().zip(own) {
            *sum = sum.saturating_add(part);
        }
    }
    parts
}
