//! Reduces a row to its comparable part: the answer, with the function's precision.
//! Touches: its arguments.
//! Law: two rows are compared as of one moment and in the coarser of their two precisions. They
//! disagree if they then differ by one byte; there is no tolerance. A changing number without a
//! known moment is not compared.

use super::query::apis::{self, Width};
use super::query::row::Row;
use gpuslice_config::words::units::Bytes;
use std::fmt;

/// A row, and the circumstances of its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AskedRow {
    /// The query and the answer.
    pub(super) row: Row,
    /// The `free` that the yardstick reported at the moment of the query.
    pub(super) beside: Option<u64>,
    /// Whether the numbers stayed constant while the function was queried.
    pub(super) settled: bool,
}

impl AskedRow {
    /// Returns the precision of the function.
    pub(super) fn width(&self) -> Width {
        apis::width(&self.row.api)
    }

    /// Checks whether the yardstick's answer at the moment of the query is known, so that changing
    /// numbers can be compared.
    pub(super) fn is_placed(&self) -> bool {
        self.settled && self.beside.is_some()
    }
}

/// A row's answer about the device's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// The amounts that the function reports.
    Memory {
        /// The total memory.
        total: u64,
        /// The memory that can be allocated.
        free: Option<u64>,
        /// The used memory.
        used: Option<u64>,
    },
    /// Whether the device shares the host's memory.
    Integrated(bool),
    /// The vendor's name of an error.
    Error(String),
}

impl fmt::Display for Says {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |out: &mut fmt::Formatter<'_>, amount: Option<u64>, of: &str| match amount {
            Some(bytes) => write!(out, ", {} {of}", Bytes::new(bytes)),
            None => Ok(()),
        };
        match self {
            Says::Memory { total, free, used } => {
                write!(out, "{} total", Bytes::new(*total))?;
                part(out, *free, "free")?;
                part(out, *used, "used")
            }
            Says::Integrated(true) => out.write_str("integrated"),
            Says::Integrated(false) => out.write_str("not integrated"),
            Says::Error(error) => out.write_str(error),
        }
    }
}

/// Returns a row's answer about memory, converted to the moment at which `reference` bytes were
/// free. Returns None if the row has no such answer. `reserved` is the memory that NVML counts and
/// CUDA leaves out.
pub(super) fn memory(
    asked: &AskedRow,
    reserved: Option<u64>,
    reference: Option<u64>,
) -> Option<Says> {
    let Row {
        reading,
        api,
        error,
        ..
    } = &asked.row;
    if !apis::tells_memory(api) {
        return None;
    }
    if let Some(error) = error {
        return Some(Says::Error(error.clone()));
    }
    let own = reading.reserved.unwrap_or(0);
    let (mut total, mut used) = (reading.total?, reading.used);
    match reserved.filter(|_| apis::is_nvml(api)) {
        // CUDA's total leaves out the memory that NVML calls reserved. The newer struct has already
        // subtracted it from `used`.
        Some(reserved) => {
            total = total.saturating_sub(reserved);
            used = used.map(|used| used.saturating_sub(reserved.saturating_sub(own)));
        }
        None => used = used.map(|used| used.saturating_add(own)),
    }
    let mut free = reading.free;
    if asked.row.is_of_other_api() {
        // Where the card has less free than the slice, FREE is what the driver has free, and Vulkan's
        // driver counts that in another way than CUDA's. A mounted /proc/meminfo is up to 100 ms old.
        return Some(Says::Memory {
            total,
            free: None,
            used: None,
        });
    }
    if let (Some(said), Some(then), Some(now)) = (free, asked.beside, reference) {
        free = Some(moved(asked.width(), said, then, now));
        // Memory freed between the two moments is no longer used; the total is constant.
        used = used.map(|used| move_by(used, now, then));
    }
    Some(Says::Memory { total, free, used })
}

/// Converts an amount from the moment when the yardstick reported `then` to the moment when it
/// reports `now`. The difference between the amount and the yardstick's stays the same.
fn moved(width: Width, said: u64, then: u64, now: u64) -> u64 {
    match said == width.cut(then) {
        true => width.cut(now),
        false => move_by(said, then, now),
    }
}

fn move_by(said: u64, from: u64, to: u64) -> u64 {
    match to.checked_sub(from) {
        Some(more) => said.saturating_add(more),
        None => said.saturating_sub(from.saturating_sub(to)),
    }
}

/// Returns a row's answer about integration.
pub(super) fn integrated(asked: &AskedRow) -> Option<Says> {
    match &asked.row.error {
        Some(error) if !apis::tells_memory(&asked.row.api) => Some(Says::Error(error.clone())),
        Some(_) => None,
        None => asked.row.reading.integrated.map(Says::Integrated),
    }
}

/// Memory that NVML counts and CUDA leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SetAside {
    /// The number of bytes.
    pub(super) bytes: u64,
    /// Whether NVML itself reports it as reserved. Drivers before R510 do not. With such a driver,
    /// NVML's total and used both exceed CUDA's by this amount, while free is equal.
    pub(super) told: bool,
}

/// Returns the memory that NVML counts and CUDA leaves out, if it is the whole difference between
/// their totals. On a discrete card without a slice it is, by the vendor's definition. All `rows`
/// are of one device and moment.
pub(super) fn set_aside<'a>(rows: impl Iterator<Item = &'a AskedRow> + Clone) -> Option<SetAside> {
    let answers = |nvml: bool| {
        rows.clone()
            .filter(move |asked| apis::is_nvml(&asked.row.api) == nvml)
            .filter(|asked| asked.row.error.is_none() && asked.width() == Width::Exact)
            .map(|asked| asked.row.reading)
    };
    let told = answers(true).find(|reading| reading.reserved.is_some());
    if let Some(reading) = told {
        let bytes = reading.reserved.filter(|bytes| *bytes > 0)?;
        let of_cuda = answers(false).find_map(|reading| reading.total)?;
        let explains = reading.total?.checked_sub(bytes)? == of_cuda;
        return explains.then_some(SetAside { bytes, told: true });
    }
    let of_cuda = answers(false).find_map(|reading| reading.total)?;
    let mut placed = rows.filter(|asked| apis::is_nvml(&asked.row.api) && asked.is_placed());
    let (of_nvml, beside) = placed.find_map(|asked| {
        let reading = asked.row.reading;
        Some((reading.used.and(Some(reading))?, asked.beside))
    })?;
    let bytes = of_nvml.total?.checked_sub(of_cuda)?;
    (bytes > 0 && of_nvml.free == beside).then_some(SetAside { bytes, told: false })
}

/// Checks whether two rows agree.
pub(super) fn agree(one: (&AskedRow, &Says), other: (&AskedRow, &Says)) -> bool {
    let ((asked, says), (other_asked, other_says)) = (one, other);
    let placed = asked.is_placed() && other_asked.is_placed();
    let cut = |bytes: u64| coarser(asked.width(), other_asked.width(), bytes);
    let same = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => !placed || cut(one) == cut(other),
        _ => true,
    };
    match (says, other_says) {
        (
            Says::Memory { total, free, used },
            Says::Memory {
                total: other_total,
                free: other_free,
                used: other_used,
            },
        ) => {
            cut(*total) == cut(*other_total) && same(*free, *other_free) && same(*used, *other_used)
        }
        // Two functions may report one cause by different error codes.
        (Says::Error(one), Says::Error(other)) => {
            one == other || asked.row.api != other_asked.row.api
        }
        (one, other) => one == other,
    }
}

/// Reduces an amount to the coarser of two precisions.
fn coarser(one: Width, other: Width, bytes: u64) -> u64 {
    // The order matters: first saturate to 32 bits, then round down. Either amount may
    // already be rounded.
    [Width::Saturated32, Width::WholeKib, Width::WholeMib]
        .into_iter()
        .filter(|width| [one, other].contains(width))
        .fold(bytes, |bytes, width| width.cut(bytes))
}
