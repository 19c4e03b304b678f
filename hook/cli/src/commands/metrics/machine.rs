//! The samples of GPUs, of the host, and of warnings.
//! Touches: /proc/meminfo or that of a simulated machine, the host's policy.

use super::exposition::{Labels, Samples};
use super::families as family;
use super::slices::Indexes;
use crate::commands::daemon::guard_state;
use crate::commands::status::driver::Machine;
use crate::commands::status::model::{CardStatus, SliceStatus};
use crate::commands::status::snapshot::Snapshot;
use crate::commands::status::warnings::WarningKind;
use crate::runs::host_memory;
use gpuslice_config::slice::host_reserve;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::policy;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Remembers the indexes of GPUs. A driver that does not answer for a while must not change the
/// labels of slices.
pub(super) fn remember(indexes: &mut Indexes, cards: &[CardStatus]) {
    for card in cards {
        indexes.insert(card.device.clone(), card.index.to_string());
    }
}

/// Adds the samples of the GPUs.
pub(super) fn add_cards(samples: &mut Samples, cards: &[CardStatus]) {
    let mut known = BTreeSet::new();
    for card in cards {
        let labels = labels(card);
        if !known.insert(labels.clone()) {
            continue;
        }
        let mut info = labels.clone();
        info.push(("name", card.name.clone()));
        info.push(("unified", card.unified.to_string()));
        samples.add(&family::GPU_INFO, &Arc::new(info), true);
        let labels = Arc::new(labels);
        let mut some = |family, value: Option<u64>| {
            if let Some(value) = value {
                samples.add(family, &labels, value);
            }
        };
        some(&family::GPU_TOTAL, card.total);
        some(&family::GPU_USED, card.used);
        some(&family::GPU_IN_SLICES, Some(card.in_slices));
        some(&family::GPU_OUTSIDE, card.outside_slices);
        some(&family::GPU_LIMITS, Some(card.limits_sum));
        some(&family::GPU_LEFT, card.left_to_give);
    }
}

fn labels(card: &CardStatus) -> Labels {
    let machine = match &card.machine {
        Machine::Real => String::new(),
        Machine::Simulated { state, .. } => state.to_string_lossy().into_owned(),
    };
    vec![
        ("gpu", card.index.to_string()),
        ("gpu_uuid", card.device.clone()),
        ("machine", machine),
    ]
}

/// Adds the samples of the host: its memory, and on unified memory what it can promise.
pub(super) fn add_host(samples: &mut Samples, places: &HostPaths, snapshot: &Snapshot) {
    let slices = &snapshot.slices;
    let meminfo = slices.iter().find_map(|slice| slice.meminfo.as_deref());
    let Ok(host) = host_memory::read(meminfo.unwrap_or(Path::new(host_memory::MEMINFO))) else {
        return;
    };
    let none = Arc::default();
    samples.add(&family::HOST_TOTAL, &none, host.total.get());
    samples.add(&family::HOST_AVAILABLE, &none, host.available.get());
    let unified = snapshot.cards.iter().filter(|card| card.unified);
    let promised = |slice: &SliceStatus| slice.promise.as_ref()?.host_left;
    let left = unified.clone().filter_map(|card| card.left_to_give);
    let left = left.chain(slices.iter().filter_map(promised)).min();
    if unified.count() > 0 || left.is_some() {
        let policy = policy::read(places).ok();
        let reserve = policy.and_then(|policy| policy.reserve);
        let reserve = reserve.unwrap_or(host_reserve::default_reserve(host.total));
        samples.add(&family::HOST_RESERVE, &none, reserve.get());
    }
    if let Some(left) = left {
        samples.add(&family::HOST_LEFT, &none, left);
    }
}

/// Adds what the guard has seen and done, if it runs or has run since the machine started.
pub(super) fn add_guard(samples: &mut Samples, places: &HostPaths) {
    let Some(guard) = guard_state::read(places) else {
        return;
    };
    let none = Arc::default();
    samples.add(&family::GUARD_LEVEL, &none, guard.level);
    samples.add(&family::GUARD_SEEN, &none, guard.seen);
    samples.add(&family::GUARD_NAMED, &none, guard.named);
    samples.add(&family::GUARD_TERMINATED, &none, guard.terminated);
    samples.add(&family::GUARD_KILLED, &none, guard.killed);
    samples.add(&family::GUARD_SNAPSHOTS, &none, guard.snapshots);
}

/// The kinds of warnings that are shown even if there are none of them.
const KINDS: [WarningKind; 8] = [
    WarningKind::WithoutLibrary,
    WarningKind::MoreInDriver,
    WarningKind::NoSlice,
    WarningKind::NoLedger,
    WarningKind::Uncounted,
    WarningKind::Unread,
    WarningKind::DeviceList,
    WarningKind::Driver,
];

/// Adds the number of warnings of each kind.
pub(super) fn add_warnings(samples: &mut Samples, snapshot: &Snapshot) {
    let word = |kind: WarningKind| {
        let word = serde_json::to_value(kind).unwrap_or_default();
        word.as_str().unwrap_or_default().to_owned()
    };
    let none = KINDS.map(|kind| (word(kind), 0u64));
    let mut kinds: BTreeMap<String, u64> = none.into_iter().collect();
    for warning in &snapshot.warnings {
        let count = kinds.entry(word(warning.kind)).or_default();
        *count = count.saturating_add(1);
    }
    for (kind, count) in kinds {
        samples.add(&family::WARNINGS, &Arc::new(vec![("kind", kind)]), count);
    }
}
