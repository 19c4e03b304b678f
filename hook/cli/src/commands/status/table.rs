//! Formats the running slices as a table.
//! Touches: its arguments.

use super::containers::ContainerStatus;
use super::model::{DeviceStatus, Escaped, ProcessStatus, PromiseStatus, SliceStatus, shown_name};
use super::users::User;
use crate::base::text;
use gpuslice_config::words::units::Bytes;
use serde_json::{Map, Value};

/// Returns the table as text.
pub(super) fn table(slices: &[SliceStatus]) -> String {
    if slices.is_empty() {
        return "no slices are running\n".to_owned();
    }
    let shown: Vec<String> = slices.iter().map(slice).collect();
    shown.join("\n")
}

const UNCOUNTED: &str =
    "could not be recorded in the ledger, which was full or locked, or is not on tmpfs";

fn slice(slice: &SliceStatus) -> String {
    let mut about = Vec::new();
    let ids = slice.containers.iter().map(|it| short(&it.id));
    let ids: Vec<String> = ids.map(text::printable).collect();
    match ids.len() {
        0 => {}
        1 => about.push(format!("container {}", ids.join(""))),
        _ => about.push(format!("containers {}", ids.join(" "))),
    }
    if let Some(pid) = slice.pid {
        about.push(format!("pid {pid}"));
    }
    if let Some(user) = slice.user.filter(|user| *user != User::own()) {
        about.push(format!("user {}", text::printable(&user.name())));
    }
    if !slice.enforce && slice.error.is_none() && slice.no_slice.is_none() {
        about.push("only counted, not enforced".to_owned());
    }
    match slice.sealed {
        Some(true) => about.push("ledger sealed".to_owned()),
        Some(false) => about.push("ledger not sealed".to_owned()),
        None => {}
    }
    let mut said = shown_name(&slice.name, &slice.file);
    if !about.is_empty() {
        said.push_str(&format!(" ({})", about.join(", ")));
    }
    said.push('\n');
    let mut note = |text: &str| said.push_str(&format!("  {text}\n"));
    if let Some(error) = &slice.error {
        note(&text::printable(error));
    } else if slice.ledger.is_none() && slice.no_slice.is_none() {
        note("its slice file names no ledger: nothing is counted or refused");
    }
    for line in no_slice(slice.no_slice.as_deref(), &slice.containers) {
        note(&line);
    }
    match slice.uncounted {
        Some(0) | None => {}
        Some(1) => note(&format!("1 allocation {UNCOUNTED}")),
        Some(count) => note(&format!("{count} allocations {UNCOUNTED}")),
    }
    if let Some(own) = &slice.promise {
        note(&promise(own));
    }
    for one in &slice.devices {
        match slice.no_slice {
            None => said.push_str(&device(one, slice)),
            Some(_) => said.push_str(&without_slice(one)),
        }
    }
    said
}

/// Returns one line if no container's programs load the library. Otherwise returns one line for
/// each container whose programs do not load it.
pub(crate) fn no_slice(whole: Option<&str>, containers: &[ContainerStatus]) -> Vec<String> {
    if let Some(why) = whole {
        return vec![format!("no slice: {}", text::printable(why))];
    }
    let each = containers.iter().filter_map(|one| {
        let (id, why) = (text::printable(short(&one.id)), one.no_slice.as_deref()?);
        Some(format!(
            "container {id} has no slice: {}",
            text::printable(why)
        ))
    });
    each.collect()
}

/// Formats a device of a slice whose programs do not load the library.
fn without_slice(device: &DeviceStatus) -> String {
    let name = device.device.as_deref().unwrap_or("each GPU");
    let limit = device.limit.map_or("no limit".to_owned(), |limit| {
        format!("limit {}, not in force", Bytes::new(limit))
    });
    let mut said = format!("  {name}  {limit}\n");
    for line in escaped(&device.without_library) {
        said.push_str(&format!("    {line}\n"));
    }
    said
}

/// Returns one line per process of the slice that uses the device without the library.
pub(crate) fn escaped(processes: &[Escaped]) -> Vec<String> {
    let line = |one: &Escaped| {
        let name = one.name.as_deref().map(text::printable);
        let name = name.map_or(String::new(), |name| format!(" ({name})"));
        let used = one.used.map(|used| Bytes::new(used).to_string());
        let used = used.unwrap_or_else(|| "device memory".to_owned());
        format!(
            "warning: process {}{name} holds {used} without libgpuslice.so: it is neither counted \
             nor limited",
            one.pid
        )
    };
    processes.iter().map(line).collect()
}

/// The difference between NVML's number and the ledger's that is reported. It exceeds the size of a
/// context.
const DIFFERENCE: u64 = 1 << 30;

/// Returns one line per process for which the driver reports much more than the ledger.
fn more_in_the_driver(processes: &[ProcessStatus]) -> Vec<String> {
    let line = |one: &ProcessStatus| {
        let driver = one.driver_used?;
        let more = driver
            .checked_sub(one.used)
            .filter(|more| *more > DIFFERENCE)?;
        Some(format!(
            "warning: NVML reports {} for process {}, {} more than the ledger counts",
            Bytes::new(driver),
            one.pid,
            Bytes::new(more)
        ))
    };
    processes.iter().filter_map(line).collect()
}

/// Returns the part of an id that container engines show.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

fn promise(promise: &PromiseStatus) -> String {
    let amount = |bytes: u64| Bytes::new(bytes).to_string();
    let mut said = format!(
        "promised {}, {} of it not used",
        amount(promise.budget),
        amount(promise.unused)
    );
    if let (Some(available), Some(left)) = (promise.host_available, promise.host_left) {
        said.push_str(&format!(
            "; the host has {} available and can promise {} more",
            amount(available),
            amount(left)
        ));
    }
    said
}

fn device(device: &DeviceStatus, slice: &SliceStatus) -> String {
    let amount = |bytes: u64| Bytes::new(bytes).to_string();
    let name = device.device.as_deref().unwrap_or("each GPU");
    let mut parts = vec![match device.limit {
        Some(limit) => format!("limit {}{}", amount(limit), pending(device)),
        None => "no limit".to_owned(),
    }];
    match device.used {
        Some(used) => parts.push(format!("used {}", amount(used))),
        None if slice.error.is_some() => parts.push("used ?".to_owned()),
        None => {}
    }
    let over = device.used.zip(device.limit);
    match over.and_then(|(used, limit)| used.checked_sub(limit)) {
        None | Some(0) => parts.extend(device.left.map(|left| format!("left {}", amount(left)))),
        Some(over) => parts.push(format!("over by {}", amount(over))),
    }
    match (device.headroom, device.headroom_learned) {
        (0, _) => {}
        (headroom, true) => parts.push(format!("headroom {} (learned)", amount(headroom))),
        (headroom, false) => parts.push(format!("headroom {}", amount(headroom))),
    }
    let mut said = format!("  {name}  {}\n", parts.join(", "));
    if let Some(refusals) = device.refusals.filter(|refusals| refusals.count > 0) {
        said.push_str(&format!(
            "    {} {}, at worst {} short\n",
            if slice.enforce {
                "refused"
            } else {
                "would have refused"
            },
            times(refusals.count),
            amount(refusals.worst_short_by)
        ));
    }
    let warnings = escaped(&device.without_library);
    for line in warnings
        .into_iter()
        .chain(more_in_the_driver(&device.processes))
    {
        said.push_str(&format!("    {line}\n"));
    }
    let mut rows = vec![["PID", "USED", "NAME", "BY KIND"].map(String::from)];
    rows.extend(device.processes.iter().map(|process| {
        let name = process.name.as_deref().unwrap_or("-");
        [
            process.pid.to_string(),
            amount(process.used),
            text::printable(name),
            kinds(&process.by_kind),
        ]
    }));
    if rows.len() > 2 {
        let all = device.used.map_or("?".to_owned(), amount);
        let by_kind = device.by_kind.as_ref().map(kinds).unwrap_or_default();
        rows.push(["all".to_owned(), all, String::new(), by_kind]);
    }
    if rows.len() > 1 {
        for line in text::aligned(&rows).lines() {
            said.push_str(&format!("    {line}\n"));
        }
    }
    said
}

fn pending(device: &DeviceStatus) -> String {
    let pending = device.pending_limit.map(Bytes::new);
    pending.map_or(String::new(), |pending| {
        format!(" ({pending} for programs that start now)")
    })
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{count} times"),
    }
}

/// Formats the kinds of memory that are in use.
pub(crate) fn kinds(by_kind: &Map<String, Value>) -> String {
    let part = |(kind, bytes): (&String, &Value)| {
        let bytes = Bytes::new(bytes.as_u64().unwrap_or_default());
        format!("{kind} {bytes}")
    };
    by_kind.iter().map(part).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
