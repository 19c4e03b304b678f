//! The rows that `gpuslice top` shows, made from a snapshot.
//! Touches: its arguments; the user database, for the names of owners.

use crate::base::text::printable;
use crate::commands::status::driver::Machine;
use crate::commands::status::model::{CardStatus, DeviceStatus, Fence, SliceStatus, shown_name};
use crate::commands::status::snapshot::Snapshot;
use gpuslice_config::words::units::Bytes;
use serde_json::{Map, Value};
use std::path::Path;

/// Everything that one refresh shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rows {
    /// The GPUs.
    pub(super) cards: Vec<CardRow>,
    /// The slices: one row for each GPU of a slice.
    pub(super) slices: Vec<SliceRow>,
    /// The warnings, one line each.
    pub(super) warnings: Vec<String>,
}

/// A GPU or MIG instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CardRow {
    /// Its index and name.
    pub(super) label: String,
    /// Its memory.
    pub(super) total: Option<u64>,
    /// The part that slices hold.
    pub(super) in_slices: u64,
    /// The part that is in use and in no slice.
    pub(super) outside: Option<u64>,
    /// The memory that another slice can be given.
    pub(super) left_to_give: Option<u64>,
}

/// A slice's share of one GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SliceRow {
    /// Identifies the row from one refresh to the next.
    pub(super) key: String,
    /// The slice's name.
    pub(super) name: String,
    /// The index of the GPU; `all` if the slice names no GPU.
    pub(super) gpu: String,
    /// The memory in use; None if unknown.
    pub(super) used: Option<u64>,
    /// The memory that it may hold; None if it is not limited.
    pub(super) limit: Option<u64>,
    /// The amount withheld from the reported total.
    pub(super) headroom: u64,
    /// The number of refused requests; None if unknown.
    pub(super) refusals: Option<u64>,
    /// The largest shortfall of a refused request.
    pub(super) worst_short_by: u64,
    /// The mechanism that enforces the limit.
    pub(super) fence: &'static str,
    /// The owner.
    pub(super) user: String,
    /// The seconds since its start.
    pub(super) age: Option<u64>,
    /// The command's process.
    pub(super) pid: Option<i32>,
    /// The command; the process name if the command is not visible.
    pub(super) command: String,
    /// The reason why the memory in use is unknown.
    pub(super) error: Option<String>,
    /// Its processes.
    pub(super) processes: Vec<ProcessRow>,
}

/// A process of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessRow {
    /// The process id.
    pub(super) pid: u32,
    /// The process name.
    pub(super) name: String,
    /// The memory that the ledger counts; None for a process without the library.
    pub(super) used: Option<u64>,
    /// The memory that NVML reports.
    pub(super) driver_used: Option<u64>,
    /// The memory by kind, as text.
    pub(super) kinds: String,
}

impl Rows {
    /// Makes the rows of a snapshot.
    pub(super) fn of(snapshot: &Snapshot) -> Rows {
        let simulated = |card: &CardStatus| matches!(card.machine, Machine::Simulated { .. });
        let is_mixed = snapshot.cards.iter().any(simulated);
        let shares = |slice| shares(slice, &snapshot.cards);
        Rows {
            cards: snapshot
                .cards
                .iter()
                .map(|card| card_row(card, is_mixed))
                .collect(),
            slices: snapshot.slices.iter().flat_map(shares).collect(),
            warnings: snapshot
                .warnings
                .iter()
                .map(|warning| printable(&warning.line()))
                .collect(),
        }
    }
}

fn card_row(card: &CardStatus, is_mixed: bool) -> CardRow {
    let name = card.name.trim_start_matches("NVIDIA ");
    let name = printable(name.trim_start_matches("GeForce "));
    let label = match &card.machine {
        Machine::Simulated { name: of, .. } if is_mixed => {
            format!("{} {name} (sim {})", card.index, of.to_string_lossy())
        }
        _ => format!("{} {name}", card.index),
    };
    CardRow {
        label,
        total: card.total,
        in_slices: card.in_slices,
        outside: card.outside_slices,
        left_to_give: card.left_to_give,
    }
}

/// Returns one row for each GPU of a slice; one row if it has none.
fn shares(slice: &SliceStatus, cards: &[CardStatus]) -> Vec<SliceRow> {
    let whole = SliceRow {
        key: format!("{} {:?}", slice.file.display(), slice.pid),
        name: shown_name(&slice.name, &slice.file),
        gpu: "-".to_owned(),
        fence: slice.fence.name(),
        user: slice
            .user
            .map_or("-".to_owned(), |user| printable(&user.name())),
        age: slice.age,
        pid: slice.pid,
        command: command(slice),
        error: slice.error.as_deref().map(printable),
        ..SliceRow::default()
    };
    if slice.devices.is_empty() {
        return vec![whole];
    }
    let row = |device: &DeviceStatus| share(slice, device, cards, whole.clone());
    slice.devices.iter().map(row).collect()
}

fn share(
    slice: &SliceStatus,
    device: &DeviceStatus,
    cards: &[CardStatus],
    whole: SliceRow,
) -> SliceRow {
    let uuid = device.device.as_deref();
    let is_its_card =
        |card: &&CardStatus| Some(card.device.as_str()) == uuid && card.machine == slice.machine;
    let card = cards.iter().find(is_its_card);
    let counted = device.processes.iter().map(|one| ProcessRow {
        pid: one.pid,
        name: one.name.as_deref().map_or("-".to_owned(), printable),
        used: Some(one.used),
        driver_used: one.driver_used,
        kinds: kinds(&one.by_kind),
    });
    let escaped = device.without_library.iter().map(|one| ProcessRow {
        pid: one.pid,
        name: one.name.as_deref().map_or("-".to_owned(), printable),
        used: None,
        driver_used: one.used,
        kinds: "without libgpuslice.so: not counted, not limited".to_owned(),
    });
    // Where nothing is refused, the ledger counts requests over the limit instead.
    let is_counted = whole.fence == Fence::Counted.name();
    let refusals = device.refusals.filter(|_| !is_counted);
    let gpu = match (card, uuid) {
        (Some(card), _) => card.index.to_string(),
        (None, Some(_)) => "?".to_owned(),
        (None, None) => "all".to_owned(),
    };
    SliceRow {
        key: format!("{} {}", whole.key, uuid.unwrap_or_default()),
        gpu,
        used: device.used_or_reported(),
        limit: device.limit,
        headroom: device.headroom,
        refusals: refusals.map(|refusals| refusals.count),
        worst_short_by: refusals.map_or(0, |refusals| refusals.worst_short_by),
        processes: counted.chain(escaped).collect(),
        ..whole
    }
}

/// Returns the command line without the folder of its program, as status shows it; the name of a
/// process of the slice if the command is not visible.
fn command(slice: &SliceStatus) -> String {
    if let Some((program, words)) = slice.command.as_deref().and_then(<[String]>::split_first) {
        let name = Path::new(program).file_name().unwrap_or_default();
        let mut all = vec![name.to_string_lossy().into_owned()];
        all.extend_from_slice(words);
        return printable(&all.join(" "));
    }
    let containers = slice.containers.iter();
    let names: Vec<&str> = containers
        .map(|container| container.name.as_str())
        .filter(|name| !name.is_empty())
        .collect();
    match names.is_empty() {
        true => "-".to_owned(),
        false => printable(&format!("container {}", names.join(" "))),
    }
}

/// Formats the kinds of memory that are in use, the largest first.
fn kinds(by_kind: &Map<String, Value>) -> String {
    let amount =
        |(kind, bytes): (&'_ String, &'_ Value)| (bytes.as_u64().unwrap_or(0), kind.clone());
    let mut amounts: Vec<(u64, String)> = by_kind.iter().map(amount).collect();
    amounts.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let words = amounts.into_iter();
    let words = words.map(|(bytes, kind)| format!("{kind} {}", Bytes::new(bytes)));
    words.collect::<Vec<_>>().join(", ")
}
