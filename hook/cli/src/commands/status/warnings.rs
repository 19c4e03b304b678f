//! Finds what an operator should look at: processes and containers that no limit holds, and what
//! could not be read.
//! Touches: its arguments.

use super::driver::Drivers;
use super::model::{DeviceStatus, Escaped, ProcessStatus, SliceStatus, shown_name};
use crate::base::text;
use gpuslice_config::words::units::Bytes;
use serde::Serialize;

/// The kind of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WarningKind {
    /// A process of a slice holds device memory and has not loaded the library.
    WithoutLibrary,
    /// NVML reports much more memory for a process than the ledger.
    MoreInDriver,
    /// The programs of a container do not load the library.
    NoSlice,
    /// A slice has no ledger.
    NoLedger,
    /// Allocations could not be recorded in the ledger.
    Uncounted,
    /// A slice or its ledger could not be read.
    Unread,
    /// The list of GPUs that containers are given slices of is out of date.
    DeviceList,
    /// The driver did not answer.
    Driver,
}

/// Something that an operator should look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Warning {
    /// The kind.
    pub(crate) kind: WarningKind,
    /// One sentence, without a full stop.
    pub(crate) message: String,
    /// The command that says more; None if the message names it.
    pub(crate) advice: Option<String>,
    /// The slice's name.
    pub(crate) slice: Option<String>,
    /// The process.
    pub(crate) pid: Option<u32>,
    /// The device's uuid.
    pub(crate) device: Option<String>,
}

impl Warning {
    fn new(kind: WarningKind, message: String) -> Warning {
        Warning {
            kind,
            message,
            advice: None,
            slice: None,
            pid: None,
            device: None,
        }
    }

    fn doctor(self, of: impl std::fmt::Display) -> Warning {
        Warning {
            advice: Some(format!("gpuslice doctor {of}")),
            ..self
        }
    }

    fn of(self, slice: &SliceStatus) -> Warning {
        Warning {
            slice: Some(slice.name.clone()),
            ..self
        }
    }

    fn of_process(self, pid: u32, device: &DeviceStatus) -> Warning {
        let warning = Warning {
            pid: Some(pid),
            device: device.device.clone(),
            ..self
        };
        warning.doctor(pid)
    }

    /// Returns the warning as one line.
    pub(crate) fn line(&self) -> String {
        let advice = self.advice.as_deref();
        let advice = advice.map_or(String::new(), |advice| format!(" ({advice})"));
        format!("{}{advice}", self.message)
    }
}

/// Returns the warnings about slices, in their order, and then those about the machine.
pub(super) fn warnings(
    slices: &[SliceStatus],
    drivers: &Drivers,
    device_list: Option<&str>,
) -> Vec<Warning> {
    let mut found: Vec<Warning> = slices.iter().flat_map(of_slice).collect();
    let failures = drivers.failures().map(|why| {
        let message = format!("memory in use outside the slices is unknown: {why}");
        Warning::new(WarningKind::Driver, message)
    });
    found.extend(failures);
    let stale = device_list.map(|stale| Warning::new(WarningKind::DeviceList, stale.to_owned()));
    found.extend(stale);
    found
}

/// Returns the warnings about one slice.
pub(super) fn of_slice(slice: &SliceStatus) -> Vec<Warning> {
    let name = shown_name(&slice.name, &slice.file);
    let mut found = Vec::new();
    let mut add = |warning: Warning| found.push(warning.of(slice));
    if let (Some(error), false) = (&slice.error, slice.is_private) {
        let error = text::printable(error);
        let message = format!("slice {name} could not be read: {error}");
        let warning = Warning::new(WarningKind::Unread, message);
        add(match slice.pid {
            Some(pid) => warning.doctor(pid),
            None => warning,
        });
    }
    let has_library = slice.no_slice.is_none() && slice.error.is_none();
    if has_library && slice.ledger.is_none() {
        let message = format!("slice {name} has no ledger: nothing is counted or refused");
        add(Warning::new(WarningKind::NoLedger, message));
    }
    for container in &slice.containers {
        if let Some(why) = &container.no_slice {
            let (id, why) = (text::printable(short(&container.id)), text::printable(why));
            let message = format!("container {id} ({name}) has no slice: {why}");
            add(Warning::new(WarningKind::NoSlice, message).doctor(id));
        }
    }
    if let Some(count) = slice.uncounted.filter(|count| *count > 0) {
        let allocations = if count == 1 {
            "allocation"
        } else {
            "allocations"
        };
        let message = format!("{count} {allocations} of slice {name} {UNCOUNTED}");
        add(Warning::new(WarningKind::Uncounted, message).doctor(&name));
    }
    for device in &slice.devices {
        for one in &device.without_library {
            let message = format!("{} {WITHOUT}", holds(one, &name));
            let warning = Warning::new(WarningKind::WithoutLibrary, message);
            add(warning.of_process(one.pid, device));
        }
        for one in &device.processes {
            if let Some(more) = more_in_the_driver(one) {
                let message = format!(
                    "NVML reports {} for process {} of slice {name}, {} more than the ledger counts",
                    Bytes::new(one.driver_used.unwrap_or_default()),
                    one.pid,
                    Bytes::new(more)
                );
                let warning = Warning::new(WarningKind::MoreInDriver, message);
                add(warning.of_process(one.pid, device));
            }
        }
    }
    found
}

const UNCOUNTED: &str =
    "could not be recorded in the ledger, which was full or locked, or is not on tmpfs";

const WITHOUT: &str = "without libgpuslice.so: it is neither counted nor limited";

fn holds(one: &Escaped, slice: &str) -> String {
    let name = one.name.as_deref().map(text::printable);
    let name = name.map_or(String::new(), |name| format!(" ({name})"));
    let used = one.used.map(|used| Bytes::new(used).to_string());
    let used = used.unwrap_or_else(|| "device memory".to_owned());
    format!("process {}{name} of slice {slice} holds {used}", one.pid)
}

/// A difference between the driver's number and the ledger's that exceeds a context's size.
const DIFFERENCE: u64 = 1 << 30;

/// Returns the memory that NVML reports for a process beyond the ledger, if it is much.
fn more_in_the_driver(one: &ProcessStatus) -> Option<u64> {
    let more = one.driver_used?.checked_sub(one.used)?;
    Some(more).filter(|more| *more > DIFFERENCE)
}

/// Returns the part of an id that container engines show.
pub(super) fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}
