//! What a row says, in terms in which rows can be compared.
//! Touches: its arguments.
//! Law: two rows disagree when they speak of the same thing at the same moment and differ by one
//! byte, in the coarser of their two precisions. Nothing is "about equal".

use super::apis::{self, Width};
use super::row::Row;
use gpuslice_config::units::Bytes;
use std::fmt;

/// A row with its circumstances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// The question and the answer.
    pub(super) row: Row,
    /// When it was asked: rows of one moment are compared to the byte.
    pub(super) moment: usize,
    /// Whether the numbers held still while its child asked.
    pub(super) settled: bool,
    /// Asked by the child besides its own route, to tell its moment by.
    pub(super) yardstick: bool,
}

impl Asked {
    /// How finely the function tells.
    pub(super) fn width(&self) -> Width {
        apis::width(&self.row.api)
    }
}

/// What a row says of the device's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// Amounts, where it tells them.
    Memory {
        /// The memory there is.
        total: u64,
        /// The memory that can be had.
        free: Option<u64>,
        /// The rest.
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

/// What the rows say of memory, one for each; None where a row does not speak of it. `reserved`
/// tells, for a row, how much NVML counts that CUDA leaves out.
pub(super) fn memory(asked: &Asked, reserved: Option<u64>) -> Option<Says> {
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
    let (total, used) = (reading.total?, reading.used);
    Some(match reserved.filter(|_| apis::is_nvml(api)) {
        // CUDA's total leaves out what NVML calls reserved. The newer struct has taken it out of
        // `used` already.
        Some(reserved) => Says::Memory {
            total: total.saturating_sub(reserved),
            free: reading.free,
            used: used.map(|used| used.saturating_sub(reserved.saturating_sub(own))),
        },
        None => Says::Memory {
            total,
            free: reading.free,
            used: used.map(|used| used.saturating_add(own)),
        },
    })
}

/// What the rows say of integration.
pub(super) fn integrated(asked: &Asked) -> Option<Says> {
    match &asked.row.error {
        Some(error) if !apis::tells_memory(&asked.row.api) => Some(Says::Error(error.clone())),
        Some(_) => None,
        None => asked.row.reading.integrated.map(Says::Integrated),
    }
}

/// What NVML counts and CUDA leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SetAside {
    /// How much.
    pub(super) bytes: u64,
    /// Whether NVML says itself that it is reserved. Drivers before R510 do not: there it is what
    /// total and used both have more than CUDA's, while free is the same.
    pub(super) told: bool,
}

/// What NVML counts and CUDA leaves out, where that is the whole difference between their totals:
/// on a discrete card without a slice, by the vendor's definition. `rows` are of one device and
/// moment.
pub(super) fn set_aside<'a>(rows: impl Iterator<Item = &'a Asked> + Clone) -> Option<SetAside> {
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
    let of_nvml = answers(true).find(|reading| reading.used.is_some())?;
    let of_cuda = answers(false).find(|reading| reading.used.is_some())?;
    let bytes = of_nvml.total?.checked_sub(of_cuda.total?)?;
    (bytes > 0 && of_nvml.free == of_cuda.free).then_some(SetAside { bytes, told: false })
}

/// Whether two rows agree. Between two moments other programs have allocated or freed, so only
/// what never moves is compared.
pub(super) fn agree(one: (&Asked, &Says), other: (&Asked, &Says)) -> bool {
    let ((asked, says), (other_asked, other_says)) = (one, other);
    let settled = asked.settled && other_asked.settled;
    let same_moment = settled && asked.moment == other_asked.moment;
    let cut = |bytes: u64| coarser(asked.width(), other_asked.width(), bytes);
    let same = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => !same_moment || cut(one) == cut(other),
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
        // Two functions may each have their own word for not answering.
        (Says::Error(one), Says::Error(other)) => {
            one == other || asked.row.api != other_asked.row.api
        }
        (one, other) => one == other,
    }
}

/// The amount as a function would tell it that is as coarse as both.
fn coarser(one: Width, other: Width, bytes: u64) -> u64 {
    // First what 32 bits hold, then whole MiB: an amount may have gone through either before.
    [Width::Saturated32, Width::WholeMib]
        .into_iter()
        .filter(|width| [one, other].contains(width))
        .fold(bytes, |bytes, width| width.cut(bytes))
}
