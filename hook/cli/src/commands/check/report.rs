//! The complete result of `check`, and its JSON form.
//! Touches: its arguments.

use super::answers::{Says, SetAside};
use super::ledger::LedgerSeen;
use super::query::apis::{self, Width};
use super::query::row::{Row, Skipped};
use super::slice_shown::SliceShown;
use super::survey::Survey;
use super::unasked::Unasked;
use super::verdict::{DeviceVerdict, Verdict, is_compared, judge};
use crate::base::json;
use crate::slice::current as current_slice;
use gpuslice_config::slice::Slice;
use gpuslice_config::words::units::Bytes;
use serde::Serialize;

/// The result of `check`.
pub(super) struct Report {
    /// The queries and answers.
    pub(super) survey: Survey,
    /// The slice.
    pub(super) slice: Option<SliceShown>,
    /// The verdict on the answers.
    pub(super) verdict: Verdict,
    /// Functions of the slice that could not be queried.
    pub(super) incomplete: Vec<String>,
    /// The reason why programs cannot use the ledger.
    ledger_fault: Option<String>,
    /// Notes on differences that only the table shows.
    pub(super) table_notes: Vec<String>,
    /// Further notes for the user.
    pub(super) notes: Vec<String>,
    /// The reason why nothing could be queried.
    error: Option<String>,
}

/// The JSON output; its keys come in this order.
#[derive(Serialize)]
struct Json<'a> {
    consistent: bool,
    error: Option<&'a str>,
    slice: Option<&'a SliceShown>,
    shim: Option<&'a str>,
    devices: Vec<JsonDevice<'a>>,
    rows: Vec<&'a Row>,
    disagreements: &'a [String],
    incomplete: &'a [String],
    skipped: &'a [Skipped],
    notes: &'a [&'a str],
}

#[derive(Serialize)]
struct JsonDevice<'a> {
    device: &'a str,
    name: &'a str,
    integrated: Option<bool>,
}

impl Report {
    /// Judges the answers of a survey.
    pub(super) fn new(
        survey: Survey,
        slice: Option<SliceShown>,
        ledger: Option<&LedgerSeen>,
    ) -> Report {
        let limits = slice.as_ref().and_then(|shown| shown.slice.as_deref());
        let mut verdict = judge(&survey.asked, limits);
        let mut notes = Vec::new();
        let unasked = Unasked::of(&survey, limits);
        let ledger_fault = ledger.zip(limits);
        let ledger_fault =
            ledger_fault.and_then(|(ledger, slice)| ledger.fault(slice, unasked.device()));
        if let Some(error) = slice.as_ref().and_then(|shown| shown.error.clone()) {
            verdict.disagreements.insert(0, error);
        } else if slice.is_some() {
            // If there is such a cause, all other disagreements follow from it.
            let cause = not_loaded(&survey).or_else(|| ledger_fault.clone());
            verdict.disagreements.splice(0..0, cause);
            let why = current_slice::missing().filter(|_| current_slice::mounted().is_some());
            notes.extend(
                why.map(|(_, why)| format!("the slice does not reach every program here: {why}")),
            );
        }
        let fill = |uuid| {
            let fill = ledger.filter(|_| ledger_fault.is_none())?;
            fill.fill(limits?, uuid)
        };
        let incomplete = unasked.in_slice(fill);
        notes.extend(unasked.elsewhere());
        if ledger.is_none() && limits.is_some_and(limits_something) {
            notes.push("the slice names no ledger: nothing is counted or refused".to_owned());
        }
        verdict.disagreements.extend(moving(&survey));
        for (library, why) in survey.missing() {
            notes.push(format!(
                "{library} cannot be loaded, so it was not queried: {why}"
            ));
        }
        let mut table_notes: Vec<String> = narrow(&survey).into_iter().collect();
        for device in &verdict.devices {
            table_notes.extend(reserved(device));
            notes.extend(hidden(device, &survey));
            notes.extend(untold(device, &survey, limits));
        }
        for device in &survey.unplaced {
            notes.push(format!(
                "{device}: its memory changed during the check, so only the totals of the routes \
                 by dlmopen were compared"
            ));
        }
        for parent in &survey.parents {
            notes.push(format!(
                "{parent} is divided by MIG: its instances are compared instead"
            ));
        }
        Report {
            survey,
            slice,
            verdict,
            incomplete,
            ledger_fault,
            table_notes,
            notes,
            error: None,
        }
    }

    /// The result where no driver works: nothing was compared.
    pub(super) fn without_driver(
        survey: Survey,
        slice: Option<SliceShown>,
        error: String,
    ) -> Report {
        Report {
            error: Some(error),
            ..Report::new(survey, slice, None)
        }
    }

    /// Returns the reason why the slice is not in force, which causes all other disagreements.
    pub(super) fn cause(&self) -> Option<&str> {
        let slice = self.slice.as_ref()?;
        let is_in_force = slice.error.is_none()
            && not_loaded(&self.survey).is_none()
            && self.ledger_fault.is_none();
        let first = self.verdict.disagreements.first().map(String::as_str);
        first.filter(|_| !is_in_force)
    }

    /// Checks that CUDA or NVML answers and that no answers disagree. In a slice, every function must
    /// also have been queried.
    pub(super) fn consistent(&self) -> bool {
        let mut rows = self.rows();
        let none = self.verdict.disagreements.is_empty() && self.incomplete.is_empty();
        let answers = |row: &Row| row.error.is_none() && !row.is_of_other_api();
        none && rows.any(answers)
    }

    /// Returns the library that every child had loaded.
    pub(super) fn shim(&self) -> Option<&str> {
        let mut shims = self.survey.shims.iter().map(|(_, shim)| shim.as_deref());
        let first = shims.next()??;
        shims.all(|shim| shim.is_some()).then_some(first)
    }

    /// Returns the answers that were compared.
    pub(super) fn compared(&self) -> impl Iterator<Item = &Row> {
        let slice = self.slice.as_ref().and_then(|shown| shown.slice.as_deref());
        self.rows().filter(move |row| is_compared(row, slice))
    }

    /// Returns the answers.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.survey.asked.iter().map(|asked| &asked.row)
    }

    /// Formats the result as JSON.
    pub(super) fn to_json(&self) -> serde_json::Result<String> {
        let integrated = |uuid: &str| {
            let device = self
                .verdict
                .devices
                .iter()
                .find(|device| device.uuid == uuid)?;
            match device.integrated.first()?.says {
                Says::Integrated(integrated) => Some(integrated),
                _ => None,
            }
        };
        let devices = self.survey.devices.iter().map(|(uuid, name)| JsonDevice {
            device: uuid,
            name,
            integrated: integrated(uuid),
        });
        let notes: Vec<&str> = self.all_notes().collect();
        json::document(&Json {
            consistent: self.consistent(),
            error: self.error.as_deref(),
            slice: self.slice.as_ref(),
            shim: self.shim(),
            devices: devices.collect(),
            rows: self.rows().collect(),
            disagreements: &self.verdict.disagreements,
            incomplete: &self.incomplete,
            skipped: &self.survey.skipped,
            notes: &notes,
        })
    }

    /// Returns all notes.
    pub(super) fn all_notes(&self) -> impl Iterator<Item = &str> {
        let all = self.notes.iter().chain(&self.table_notes);
        all.map(String::as_str)
    }
}

fn limits_something(slice: &Slice) -> bool {
    slice.memory.is_some() || slice.devices().any(|listed| listed.memory.is_some())
}

/// Returns the message about programs that do not load the library. The slice does not limit them.
fn not_loaded(survey: &Survey) -> Option<String> {
    let without: Vec<&str> = survey
        .shims
        .iter()
        .filter(|(_, shim)| shim.is_none())
        .map(|(route, _)| *route)
        .collect();
    let which = match without.len() {
        0 => return None,
        count if count == survey.shims.len() => "any program".to_owned(),
        _ => format!("programs that use these routes: {}", without.join(", ")),
    };
    Some(format!(
        "there is a slice, but libgpuslice.so is not loaded into {which}"
    ))
}

/// Returns the note about answers during which the numbers kept changing.
fn moving(survey: &Survey) -> Option<String> {
    let mut routes: Vec<&str> = Vec::new();
    let moved = survey.asked.iter().filter(|asked| !asked.settled);
    // Of Vulkan and OpenCL, only the total is compared.
    for asked in moved.filter(|asked| !asked.row.is_of_other_api()) {
        if !routes.contains(&asked.row.route.as_str()) {
            routes.push(&asked.row.route);
        }
    }
    let routes = match routes.len() {
        0 => return None,
        all if all == survey.routes().count() => "every route".to_owned(),
        _ => routes.join(", "),
    };
    Some(format!(
        "moving: free and used kept changing while they were queried by {routes}: other programs \
         allocate and free; run check again when they are idle"
    ))
}

/// Returns the note that explains rows of 4 GiB beside larger numbers in the table.
fn narrow(survey: &Survey) -> Option<String> {
    let cut = survey.asked.iter().any(|asked| {
        let width = asked.width();
        width == Width::Saturated32 && asked.row.reading.total == Some(width.cut(u64::MAX))
    });
    cut.then(|| {
        "cuMemGetInfo and cuDeviceTotalMem return 32-bit values: 4 GiB or more is shown as 4 GiB \
         less one byte"
            .to_owned()
    })
}

/// Returns the note about memory that the driver reserves.
fn reserved(device: &DeviceVerdict) -> Option<String> {
    let uuid = &device.uuid;
    let SetAside { bytes, told } = device.set_aside?;
    let bytes = Bytes::new(bytes);
    let counts = match told {
        true => format!("NVML counts {bytes} as reserved, which CUDA leaves out"),
        false => format!(
            "NVML counts {bytes} as used that CUDA leaves out, and this driver is too old to call \
             it reserved"
        ),
    };
    Some(format!(
        "{uuid}: {counts}; it is subtracted from NVML's total and used before the comparison"
    ))
}

/// Returns the note about a device that CUDA does not list.
fn hidden(device: &DeviceVerdict, survey: &Survey) -> Option<String> {
    let uuid = &device.uuid;
    let visible = survey
        .asked
        .iter()
        .map(|asked| &asked.row)
        .filter(|row| row.device == *uuid)
        .any(|row| !apis::is_nvml(&row.api) && !row.is_of_other_api());
    (!visible).then(|| format!("{uuid}: CUDA does not list this device, so only NVML was queried"))
}

/// Returns the note why NVML and CUDA may differ in a slice on a driver before R510.
fn untold(device: &DeviceVerdict, survey: &Survey, limits: Option<&Slice>) -> Option<String> {
    const OLDER: &str = "nvmlDeviceGetMemoryInfo";
    const NEWER: &str = "nvmlDeviceGetMemoryInfo_v2";
    let uuid = &device.uuid;
    limits?.device(uuid.parse().ok()?)?;
    let of = |api: &'static str| {
        let rows = survey.asked.iter().map(|asked| &asked.row);
        rows.filter(move |row| row.device == *uuid && row.api == api)
    };
    let older_alone = of(OLDER).any(|row| row.error.is_none()) && of(NEWER).next().is_none();
    let differs = device.memory.len() > 1;
    (older_alone && differs).then(|| {
        format!(
            "{uuid}: this NVML has no {NEWER}, so it cannot tell how much of what it counts as \
             used is what it reserves, which CUDA leaves out; in a slice the two may differ by that"
        )
    })
}
